"""The API as one ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.routing import Router
from starlette.types import ASGIApp

from fanout.api.deliveries import Deliveries
from fanout.api.operating import Operating
from fanout.api.paths import Line, Paths
from fanout.api.places import Places
from fanout.api.subscribers import Subscribers
from fanout.api.versions import Versions
from fanout.settings import Settings, SettingsError, is_loopback


def check_binding(settings: Settings) -> None:
    """Without keys, whoever reaches the port may do everything: so only this machine may. Raises SettingsError."""
    if not is_loopback(settings.http.host):
        raise SettingsError.field(
            "http.host",
            f"there are no API keys, and {settings.http.host} can be reached from other machines",
            "set FANOUT_HTTP_HOST=127.0.0.1",
        )


def create_app(settings: Settings) -> ASGIApp:
    """The application, with its connections opened by its lifespan and when they are first needed.

    Raises SettingsError where a database is not known. Starts, and answers 503, while home is away.
    """
    places = Places(settings)
    lines = [*_calls(places, settings)]

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await places.close()

    return Router(default=Paths(lines), redirect_slashes=False, lifespan=lifespan)


def _calls(places: Places, settings: Settings) -> list[Line]:
    versions = Versions(places, settings.residency)
    subscribers = Subscribers(places, settings.subscriber_rules())
    operating = Operating(places)
    deliveries = Deliveries(places)
    version, subscriber = "/v1/shipments/{shipment_id}/versions/{version}", "/v1/subscribers/{subscriber_id}"
    return [
        ("PUT", version, versions.put),
        ("GET", "/v1/subscribers", subscribers.page),
        ("PUT", subscriber, subscribers.put),
        ("GET", subscriber, subscribers.get),
        ("PATCH", subscriber, subscribers.patch),
        ("DELETE", subscriber, subscribers.delete),
        ("POST", f"{subscriber}/pause", operating.pause),
        ("POST", f"{subscriber}/resume", operating.resume),
        ("POST", f"{subscriber}/disable", operating.disable),
        ("POST", f"{subscriber}/enable", operating.enable),
        ("POST", f"{subscriber}/rotate-secret", operating.rotate_secret),
        ("GET", "/v1/deliveries", deliveries.page),
        ("GET", "/v1/deliveries/{key}", deliveries.get),
    ]
