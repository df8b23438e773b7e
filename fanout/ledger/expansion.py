"""expand: from a version to one waiting delivery per subscriber, inside the region, in chunks that resume after a crash."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema
from fanout.model.announcement import Announcement


@dataclass(frozen=True, slots=True)
class Copy:
    """What the region keeps of a version. ``forbidden``: it may not come here; only its key is kept."""

    announcement: Announcement
    forbidden: bool
    content_type: str | None = None
    payload: bytes | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    occurred_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Where the expansion of one version stands. ``created`` is final once ``done``."""

    version_no: int
    created: int
    done: bool


async def wanted(connection: Fetches, schema: Schema, announcements: Sequence[Announcement]) -> list[bool]:
    """For each announcement: does anyone in this region want it? Subscribers created after its acceptance do not count."""
    rows = await connection.fetch(
        schema.sql("SELECT {schema}.wanted($1, $2, $3) AS answers"),
        [a.event_type for a in announcements],
        [a.labels for a in announcements],
        [a.age_seconds for a in announcements],
    )
    return list(rows[0]["answers"] or [])


async def copy_versions(connection: Fetches, schema: Schema, copies: Sequence[Copy]) -> None:
    """Store the region's one copy of each version and open its page in the book. Repeatable."""
    notes = [copy.announcement for copy in copies]
    await connection.fetch(
        schema.sql("SELECT {schema}.copy_versions($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14)"),
        [note.version_no for note in notes],
        [note.shipment_no for note in notes],
        [note.shipment_id for note in notes],
        [note.version for note in notes],
        [note.event_type for note in notes],
        [copy.content_type for copy in copies],
        [note.labels for note in notes],
        [copy.payload for copy in copies],
        [copy.forbidden for copy in copies],
        [note.age_seconds for note in notes],
        [note.delay_seconds for note in notes],
        [copy.occurred_at for copy in copies],
        [copy.traceparent for copy in copies],
        [copy.tracestate for copy in copies],
    )


async def expand(connection: Fetches, schema: Schema, announcements: Sequence[Announcement], budget: int) -> list[Page]:
    """Create at most ``budget`` deliveries for these versions, going on where an earlier call stopped."""
    rows = await connection.fetch(
        schema.sql("SELECT version_no, created, done FROM {schema}.expand($1, $2, $3, $4)"),
        [a.version_no for a in announcements],
        [a.event_type for a in announcements],
        [a.labels for a in announcements],
        budget,
    )
    return [Page(*row) for row in rows]
