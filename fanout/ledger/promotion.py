"""promote: from waiting to queued, as far as the gate of each destination allows."""

from collections.abc import Sequence
from typing import NamedTuple

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema
from fanout.transports.transport import Reference


class Promotion(NamedTuple):
    """What one step has queued, and in how many seconds the next destination should be looked at.

    Zero or less: now, or somebody else is at it. None: nothing is armed.
    """

    references: list[Reference]
    next_seconds: float | None


async def promote(connection: Fetches, schema: Schema, most_destinations: int, most_probes: int) -> Promotion:
    """One step: look at so many destinations that are due to be looked at, and queue what each may have queued.

    ``most_probes``: so many deliveries to destinations on probation may be queued or leased, all together.
    """
    rows = await connection.fetch(
        schema.sql("SELECT id, dispatch, destination_id, probation, next_seconds FROM {schema}.promote($1, $2)"),
        most_destinations,
        most_probes,
    )
    return Promotion([Reference(*row[:4]) for row in rows[:-1]], rows[-1]["next_seconds"])


async def trace_contexts(connection: Fetches, schema: Schema, references: Sequence[Reference]) -> list[str]:
    """Where the versions of these deliveries were published, each once. Asked only by who traces."""
    rows = await connection.fetch(
        schema.sql(
            "SELECT DISTINCT v.traceparent FROM {schema}.delivery y JOIN {schema}.version v USING (version_no) "
            "WHERE y.id = ANY ($1) AND v.traceparent IS NOT NULL"
        ),
        [reference.delivery_id for reference in references],
    )
    return [row[0] for row in rows]


async def wake_missed(connection: Fetches, schema: Schema) -> int:
    """Arm destinations that have waiting work and nothing to wake them; how many there were. Should be none."""
    rows = await connection.fetch(schema.sql("SELECT {schema}.wake_missed() AS armed"))
    return int(rows[0]["armed"])
