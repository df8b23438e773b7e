"""`fanout receiver`: a subscriber's endpoint for trying things, that checks, counts, judges and misbehaves on order."""

from fanout.receiver.reading import parse_script, parse_secrets, read_script, read_secrets
from fanout.receiver.script import Script
from fanout.receiver.server import Received, ReceiverServer, serve
from fanout.receiver.stats import ReceiverStats, SubscriberStats

__all__ = [
    "Received",
    "ReceiverServer",
    "ReceiverStats",
    "Script",
    "SubscriberStats",
    "parse_script",
    "parse_secrets",
    "read_script",
    "read_secrets",
    "serve",
]
