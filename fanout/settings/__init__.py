"""Settings: ``config/fanout.toml`` and the environment, checked as a whole before anything starts."""

from fanout.settings.resolved import HomeSettings, RegionSettings, Settings
from fanout.settings.sources import SettingsError
from fanout.settings.tables import DeliveryTable, HttpTable, RetentionTable
from fanout.settings.urls import is_loopback, redact_url

__all__ = [
    "DeliveryTable",
    "HomeSettings",
    "HttpTable",
    "RegionSettings",
    "RetentionTable",
    "Settings",
    "SettingsError",
    "is_loopback",
    "redact_url",
]
