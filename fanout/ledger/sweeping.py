"""What time does to deliveries: leases that ended, references that were lost, destinations that were closed, counters that drift."""

from collections.abc import Sequence
from dataclasses import dataclass

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema
from fanout.transports.transport import Reference


@dataclass(frozen=True, slots=True)
class ExpiredLease:
    delivery_id: int
    token: int
    destination_id: int
    attempt: int
    budget_used: int
    expired_streak: int
    """Leases of this delivery that expired in a row before this one."""
    age_seconds: float
    worker: str


async def expired_leases(connection: Fetches, schema: Schema, most: int) -> list[ExpiredLease]:
    """Leases past their end, oldest first. Settle them as ``unknown`` and ``expired`` with their tokens."""
    rows = await connection.fetch(
        schema.sql(
            "SELECT id, token, destination_id, attempt, budget_used, expired_streak, age_seconds, worker FROM {schema}.expired_leases($1)"
        ),
        most,
    )
    return [ExpiredLease(*row) for row in rows]


async def give_back(connection: Fetches, schema: Schema, references: Sequence[Reference]) -> int:
    """Put references that the queue did not take back to waiting; how many were still current."""
    rows = await connection.fetch(
        schema.sql("SELECT {schema}.give_back($1, $2) AS moved"),
        [reference.delivery_id for reference in references],
        [reference.dispatch for reference in references],
    )
    return int(rows[0]["moved"])


async def oldest_queued_seconds(connection: Fetches, schema: Schema) -> float | None:
    """For how long the oldest queued reference has been queued; None where there is none."""
    rows = await connection.fetch(
        schema.sql(
            "SELECT extract(epoch FROM clock_timestamp() - min(queued_at))::float8 AS age FROM {schema}.delivery WHERE state = 'queued'"
        )
    )
    age: float | None = rows[0]["age"]
    return age


async def requeue_lost(connection: Fetches, schema: Schema, older_than_seconds: float, most: int) -> int:
    """Put references that nobody claimed for so long back to waiting; how many there were."""
    rows = await connection.fetch(schema.sql("SELECT {schema}.requeue_lost($1, $2) AS moved"), older_than_seconds, most)
    return int(rows[0]["moved"])


async def close_out(connection: Fetches, schema: Schema, most: int) -> int:
    """End up to ``most`` open deliveries of one disabled or deleted destination; 0 when there is nothing left to end."""
    rows = await connection.fetch(schema.sql("SELECT {schema}.close_out($1) AS ended"), most)
    return int(rows[0]["ended"] or 0)


@dataclass(frozen=True, slots=True)
class PermitDrift:
    """A destination whose counters disagree with its rows: an error of ours, to be reported loudly."""

    destination_id: int
    in_flight: int
    leased_rows: int
    queued: int
    queued_rows: int


async def recount_permits(connection: Fetches, schema: Schema) -> list[PermitDrift]:
    """Destinations whose permits do not add up. Should be none."""
    rows = await connection.fetch(
        schema.sql("SELECT id, in_flight, leased_rows, queued, queued_rows FROM {schema}.recount_permits()")
    )
    return [PermitDrift(*row) for row in rows]


async def tell_operator(
    connection: Fetches,
    schema: Schema,
    kind: str,
    detail: str,
    *,
    destination_id: int | None = None,
    delivery_id: int | None = None,
) -> None:
    """Record something that an operator should know."""
    await connection.fetch(
        schema.sql(
            "INSERT INTO {schema}.operator_event (kind, subscriber, delivery_id, detail) VALUES ($1, $2, $3, $4)"
        ),
        kind,
        destination_id,
        delivery_id,
        detail,
    )
