"""What the ledgers say, read by SQL: a glance for the progress display, and every figure of the reconciliation."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema


@dataclass(frozen=True, slots=True)
class Glance:
    """One region now. Counters only, so it may be asked twice a second."""

    pending: int
    """Outbox rows that are not expanded yet. Read before the rest: zero and nothing open means that all has ended."""
    delivered: int
    dead: int
    open: int
    in_flight: int
    held: int

    @property
    def accepted(self) -> int:
        return self.delivered + self.dead + self.open

    @property
    def finished(self) -> bool:
        return self.pending == 0 and self.open == 0


@dataclass(slots=True)
class SubscriberLedger:
    """One subscriber in the ledger."""

    delivered: int = 0
    attempts: int = 0
    unknown: int = 0
    """Attempts that the subscriber may or may not have seen."""
    unsent: int = 0
    """Attempts that never reached it: refused, no address, not allowed."""
    maybe: int = 0
    """Deliveries that are not delivered and have an unknown attempt: the subscriber may have taken them all the same."""
    statuses: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds: half are at most ``p50``, 99 of 100 at most ``p99``. None where there was nothing to measure."""

    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class RegionLedger:
    """One region when all has ended."""

    subscribers: dict[str, SubscriberLedger]
    dead_by_reason: dict[str, int]
    outcomes: dict[str, int]
    """Attempts by outcome."""
    attempted: int
    """Deliveries with an attempt; every attempt more than these is a retry."""
    late_results: int
    active_seconds: float
    """From the start of the first attempt to the end of the last delivery."""
    to_first_attempt: Spread
    attempt: Spread

    @property
    def attempts(self) -> int:
        return sum(self.outcomes.values())

    @property
    def retries(self) -> int:
        return self.attempts - self.attempted

    def answered(self, status: int) -> int:
        """Attempts that were answered with this status."""
        return sum(each.statuses.get(status, 0) for each in self.subscribers.values())


@dataclass(frozen=True, slots=True, order=True)
class Eventful:
    """A delivery with much to tell; the greater has more."""

    kinds: int
    """Different outcomes of its attempts."""
    attempts: int
    shipment_id: str
    subscriber_id: str
    version: int


async def glance(connection: Fetches, home: Schema, region: str, ledger: Schema) -> Glance:
    pending = await connection.fetch(
        home.sql("SELECT count(*) FROM {schema}.outbox WHERE region = $1 AND NOT done"), region
    )
    row = (
        await connection.fetch(
            ledger.sql("""
                SELECT coalesce(sum(delivered), 0)::bigint, coalesce(sum(dead), 0)::bigint,
                       coalesce(sum(waiting + queued + in_flight), 0)::bigint, coalesce(sum(in_flight), 0)::bigint,
                       count(*) FILTER (WHERE hold_until > clock_timestamp() AND waiting > 0)
                FROM {schema}.destination
            """)
        )
    )[0]
    return Glance(pending[0][0], *row)


async def read_ledger(connection: Fetches, schema: Schema) -> RegionLedger:
    """Reads every attempt of the region: a few hundred milliseconds for a day. Nothing may be moving meanwhile."""
    row = (await connection.fetch(schema.sql(_REGION)))[0]
    return RegionLedger(
        subscribers=await _subscribers(connection, schema),
        dead_by_reason=await _counts(
            connection,
            schema,
            "SELECT reason, count(*) FROM {schema}.delivery WHERE state = 'dead' GROUP BY 1 ORDER BY 1",
        ),
        outcomes=await _counts(
            connection, schema, "SELECT outcome, count(*) FROM {schema}.attempt GROUP BY 1 ORDER BY 1"
        ),
        attempted=row["attempted"],
        late_results=row["late_results"],
        active_seconds=row["active_seconds"] or 0.0,
        to_first_attempt=Spread(*(row["to_first"] or (None, None))),
        attempt=Spread(*(row["duration"] or (None, None))),
    )


async def most_eventful(connection: Fetches, schema: Schema) -> Eventful | None:
    """A delivered one where there is one; None where none was tried."""
    rows = await connection.fetch(schema.sql(_MOST_EVENTFUL))
    return Eventful(*rows[0]) if rows else None


async def _subscribers(connection: Fetches, schema: Schema) -> dict[str, SubscriberLedger]:
    statuses: dict[str, dict[int, int]] = defaultdict(dict)
    for name, status, count in await connection.fetch(schema.sql(_STATUSES)):
        statuses[name][status] = count
    return {
        row["subscriber_id"]: SubscriberLedger(
            delivered=row["delivered"],
            attempts=row["attempts"],
            unknown=row["unknown"],
            unsent=row["unsent"],
            maybe=row["maybe"],
            statuses=statuses[row["subscriber_id"]],
        )
        for row in await connection.fetch(schema.sql(_SUBSCRIBERS))
    }


async def _counts(connection: Fetches, schema: Schema, sql: str) -> dict[str, int]:
    rows: Any = await connection.fetch(schema.sql(sql))
    return {row[0]: row[1] for row in rows}


_REGION = """
    SELECT (SELECT count(*) FROM {schema}.delivery WHERE attempts > 0) AS attempted,
           (SELECT count(*) FROM {schema}.late_result) AS late_results,
           (SELECT extract(epoch FROM max(y.finished_at) - (SELECT min(started_at) FROM {schema}.attempt))
            FROM {schema}.delivery y)::float8 AS active_seconds,
           (SELECT percentile_cont('{0.5,0.99}'::float8[]) WITHIN GROUP (ORDER BY duration_ms) FROM {schema}.attempt) AS duration,
           (SELECT percentile_cont('{0.5,0.99}'::float8[]) WITHIN GROUP (
                ORDER BY (1000 * extract(epoch FROM a.started_at - greatest(v.accepted_at, v.eligible_at)))::float8)
            FROM {schema}.attempt a JOIN {schema}.delivery y ON y.id = a.delivery_id JOIN {schema}.version v USING (version_no)
            WHERE a.n = 1) AS to_first
"""

_SUBSCRIBERS = """
    SELECT s.subscriber_id, d.delivered, coalesce(t.attempts, 0) AS attempts, coalesce(t.unknown, 0) AS unknown,
           coalesce(t.unsent, 0) AS unsent, coalesce(t.maybe, 0) AS maybe
    FROM {schema}.subscriber s JOIN {schema}.destination d USING (id)
    LEFT JOIN (
        SELECT y.destination_id, count(*) AS attempts, count(*) FILTER (WHERE a.outcome = 'unknown') AS unknown,
               count(*) FILTER (WHERE a.outcome IN ('unreachable', 'forbidden')) AS unsent,
               count(DISTINCT y.id) FILTER (WHERE a.outcome = 'unknown' AND y.state <> 'delivered') AS maybe
        FROM {schema}.attempt a JOIN {schema}.delivery y ON y.id = a.delivery_id GROUP BY y.destination_id
    ) AS t ON t.destination_id = s.id
"""

_STATUSES = """
    SELECT s.subscriber_id, a.status, count(*)
    FROM {schema}.attempt a JOIN {schema}.delivery y ON y.id = a.delivery_id JOIN {schema}.subscriber s ON s.id = y.destination_id
    WHERE a.status IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2
"""

_MOST_EVENTFUL = """
    SELECT t.kinds, t.attempts, v.shipment_id, s.subscriber_id, v.version
    FROM (SELECT delivery_id, count(DISTINCT outcome)::int AS kinds, count(*)::int AS attempts FROM {schema}.attempt GROUP BY delivery_id) AS t
    JOIN {schema}.delivery y ON y.id = t.delivery_id
    JOIN {schema}.version v USING (version_no) JOIN {schema}.subscriber s ON s.id = y.destination_id
    ORDER BY y.state = 'delivered' DESC, t.kinds DESC, t.attempts DESC, y.id LIMIT 1
"""
