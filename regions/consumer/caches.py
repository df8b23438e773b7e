"""What a consumer keeps in memory so that a send needs no question to the ledger: payloads, and configurations of destinations."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from fanout.ledger.sending import DestinationConfig, StoredVersion
from fanout.model.trace_context import TraceParent
from fanout.signing import decode_secret
from fanout.telemetry.tracing import in_use
from regions.egress.errors import ForbiddenDestination
from regions.egress.request import Target, version_lines

PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
ENTRY_BYTES = 600
"""What an entry costs beside its payload, roughly."""
CONFIG_SECONDS_MAX = 300.0
"""A configuration is read again after so long even if its version stands: a replaced secret stops signing by the clock."""


@dataclass(slots=True)
class Sendable:
    """A version, ready to be sent to anyone: what is the same for each of its deliveries is made once."""

    stored: StoredVersion
    lines: bytes
    """Its part of the head of each request."""
    why: str
    """Why it cannot be sent to anyone; empty where it can."""
    published: TraceParent | None
    sampled: bool
    """Where nobody traces, the publisher's own flag goes on to the subscriber."""

    @classmethod
    def of(cls, stored: StoredVersion) -> "Sendable":
        published = TraceParent.parse(stored.traceparent)
        sampled = published is not None and published.sampled
        if published is not None and (tracing := in_use()) is not None:
            sampled = tracing.samples(published)
        lines, why = b"", ""
        try:
            lines = version_lines(
                payload=stored.payload or b"",
                content_type=stored.content_type,
                shipment_id=stored.shipment_id,
                version=stored.version,
                event_type=stored.event_type,
            )
        except ForbiddenDestination as error:
            why = f"the version cannot be sent: {error}"
        return cls(stored, lines, why, published, sampled)


class VersionCache:
    """Immutable versions by number, the least recently used out first, bounded in bytes."""

    def __init__(self, bytes_max: int = PAYLOAD_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[int, Sendable] = OrderedDict()
        self.bytes = 0

    def known(self, numbers: Iterable[int]) -> dict[int, Sendable]:
        """Of these, the ones in memory."""
        found = {}
        for number in numbers:
            version = self._entries.get(number)
            if version is not None:
                self._entries.move_to_end(number)
                found[number] = version
        return found

    def put(self, stored: StoredVersion) -> Sendable:
        version = self._entries.get(stored.version_no)
        if version is None:
            version = self._entries[stored.version_no] = Sendable.of(stored)
            self.bytes += _weight(version)
            while self.bytes > self._bytes_max and len(self._entries) > 1:
                self.bytes -= _weight(self._entries.popitem(last=False)[1])
        return version


def _weight(version: Sendable) -> int:
    return ENTRY_BYTES + len(version.stored.payload or b"") + len(version.lines)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A destination's configuration, ready to send with. ``target`` is None where the endpoint cannot be used, and ``why`` says so."""

    config: DestinationConfig
    target: Target | None
    why: str
    read_at: float


class ConfigCache:
    """Configurations by destination. One is good as long as the claim names its version, and for five minutes at most."""

    def __init__(self) -> None:
        self._entries: dict[int, Prepared] = {}

    def get(self, destination: int) -> Prepared | None:
        return self._entries.get(destination)

    def missing(self, wanted: Iterable[tuple[int, int]]) -> list[int]:
        """Of (destination, config version) pairs: the destinations whose configuration has to be read."""
        oldest = asyncio.get_running_loop().time() - CONFIG_SECONDS_MAX
        stale = set()
        for destination, config_version in wanted:
            entry = self._entries.get(destination)
            if entry is None or entry.config.config_version < config_version or entry.read_at < oldest:
                stale.add(destination)
        return list(stale)

    def put(self, config: DestinationConfig) -> None:
        target, why = _prepare(config)
        self._entries[config.destination_id] = Prepared(config, target, why, asyncio.get_running_loop().time())


def _prepare(config: DestinationConfig) -> tuple[Target | None, str]:
    """Endpoints and secrets are checked when they are saved; what is not usable all the same is an outcome, not a crash."""
    try:
        secrets = [decode_secret(secret) for secret in config.secrets]
        return Target(config.endpoint, secrets, list(config.headers.items())), ""
    except Exception as error:  # noqa: BLE001 - its message may quote a secret or a header: only the type is told
        return None, f"the configuration of this subscriber cannot be used ({type(error).__name__}): save it again"
