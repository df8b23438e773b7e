"""The outbox: which versions a region has still to expand, and home's book of what it created."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema
from fanout.model.announcement import Announcement


@dataclass(frozen=True, slots=True)
class OutboxRow:
    announcement: Announcement
    residency: str | None
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Content:
    """What a region that wants a version, and may have it, gets beyond the announcement."""

    version_no: int
    content_type: str
    payload: bytes
    traceparent: str
    tracestate: str | None
    occurred_at: datetime | None


async def take(connection: Fetches, schema: Schema, region: str, most: int, keep_seconds: float) -> list[OutboxRow]:
    """Pending versions of one region, none while a lower version of its shipment is pending. Others leave them alone for so long."""
    rows = await connection.fetch(
        schema.sql(
            "SELECT version_no, shipment_no, shipment_id, version, event_type, labels, age_seconds, delay_seconds, residency, bytes "
            "FROM {schema}.take_outbox($1, $2, $3)"
        ),
        region,
        most,
        keep_seconds,
    )
    return [OutboxRow(Announcement(*row[:8]), row[8], row[9]) for row in rows]


async def give_back(connection: Fetches, schema: Schema, region: str, numbers: Sequence[int]) -> None:
    """The region could not be reached: others may try at once."""
    await connection.fetch(
        schema.sql(
            "UPDATE {schema}.outbox SET taken_until = NULL WHERE region = $1 AND version_no = ANY ($2) AND NOT done"
        ),
        region,
        numbers,
    )


async def keep(connection: Fetches, schema: Schema, region: str, numbers: Sequence[int], seconds: float) -> None:
    """Others leave these alone for so long from now."""
    await connection.fetch(
        schema.sql(
            "UPDATE {schema}.outbox SET taken_until = clock_timestamp() + make_interval(secs => $3) "
            "WHERE region = $1 AND version_no = ANY ($2) AND NOT done"
        ),
        region,
        numbers,
        seconds,
    )


async def contents(connection: Fetches, schema: Schema, numbers: Sequence[int]) -> dict[int, Content]:
    rows = await connection.fetch(
        schema.sql(
            "SELECT version_no, content_type, payload, traceparent, tracestate, occurred_at FROM {schema}.version WHERE version_no = ANY ($1)"
        ),
        numbers,
    )
    return {row[0]: Content(*row) for row in rows}


async def finish(connection: Fetches, schema: Schema, region: str, created: dict[int, int]) -> None:
    """Close the rows with the number of deliveries that the region created for each (P1, home's book)."""
    await connection.fetch(
        schema.sql("SELECT {schema}.finish_outbox($1, $2, $3)"), region, list(created), list(created.values())
    )
