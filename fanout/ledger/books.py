"""A region's book (P1): what its expansions created, what became of it, and whether home's book says the same."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema

RECOUNT_DESTINATIONS = 2_000


@dataclass(frozen=True, slots=True)
class RegionFigures:
    """One snapshot of a region."""

    accepted: int
    delivered: int
    dead: int
    waiting: int
    queued: int
    leased: int
    unknown_attempts: int
    late_results: int
    held_destinations: int
    paused_destinations: int
    closed_destinations: int
    """Disabled, by themselves or by an operator; deleted ones are not counted."""
    expanding_versions: int
    """Begun and not done."""
    oldest_due_age_seconds: float
    """How long the longest-due delivery has been due that is still waiting, queued or leased; 0 where none is. What waits for an
    earlier version or for a retry is not due. Held and paused destinations count: their customers wait."""
    queue_age_seconds: float
    """How long the oldest reference has been in the queue."""
    oldest_ready_age_seconds: float
    """For how long something has been due that could go, and that nobody has sent: destinations that are held, paused, on probation
    or full do not count, nor does what came before the last success of its destination. 0 where all that can go does."""

    @property
    def open(self) -> int:
        return self.waiting + self.queued + self.leased

    @property
    def adds_up(self) -> bool:
        return self.accepted == self.delivered + self.dead + self.open


@dataclass(frozen=True, slots=True)
class UnconfirmedPage:
    """A version of which home and region tell different numbers."""

    version_no: int
    home_created: int
    region_created: int | None
    """None: the region has no page for it."""
    region_done: bool | None


async def region_figures(ledger: Fetches, schema: Schema) -> RegionFigures:
    """Costs one look per version and per destination, and none per delivery."""
    rows = await ledger.fetch(
        schema.sql("""
            SELECT accepted, delivered, dead, waiting, queued, leased, unknown_attempts, late_results, held_destinations,
                   paused_destinations, closed_destinations, expanding_versions, oldest_due_age_seconds, queue_age_seconds,
                   {schema}.oldest_ready_age()
            FROM {schema}.region_figures()
        """)
    )
    return RegionFigures(*rows[0])


async def unconfirmed(ledger: Fetches, schema: Schema, created: Mapping[int, int], most: int) -> list[UnconfirmedPage]:
    """Finished rows of home's book (deliveries created, by version number) that the region does not confirm: at most so many."""
    rows = await ledger.fetch(
        schema.sql("""
            SELECT version_no, home_created, region_created, region_done
            FROM {schema}.disagreements($1::bigint[], $2::int[]) ORDER BY version_no LIMIT $3
        """),
        list(created),
        list(created.values()),
        most,
    )
    return [UnconfirmedPage(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class Drift:
    """A destination whose counter and rows differ: an error of ours."""

    destination_id: int
    state: str
    counter: int
    rows: int


@dataclass(frozen=True, slots=True)
class RecountStep:
    """So far."""

    destinations: int
    destinations_in_all: int
    deliveries: int
    drifts: tuple[Drift, ...]
    """All that were found so far. Should be none."""


async def recount(
    ledger: Fetches, schema: Schema, *, destinations_per_step: int = RECOUNT_DESTINATIONS
) -> AsyncIterator[RecountStep]:
    """Count every delivery, and compare with the counters that all figures come from. Reads the whole table once per step.

    Each step is one snapshot, and rows and counters change together, so it may run while everything runs.
    """
    rows = await ledger.fetch(schema.sql("SELECT count(*)::int AS n FROM {schema}.destination"))
    in_all, destinations, deliveries, after = int(rows[0]["n"]), 0, 0, 0
    drifts: list[Drift] = []
    while True:
        rows = await ledger.fetch(
            schema.sql("""
                SELECT id, waiting, waiting_rows, queued, queued_rows, in_flight, leased_rows, delivered, delivered_rows, dead, dead_rows
                FROM {schema}.recount($1, $2)
            """),
            after,
            destinations_per_step,
        )
        for destination_id, *counts in rows:
            pairs = zip(_STATES, counts[::2], counts[1::2], strict=True)
            drifts += [Drift(destination_id, state, counter, n) for state, counter, n in pairs if counter != n]
            deliveries += sum(counts[1::2])
        destinations += len(rows)
        after = rows[-1]["id"] if rows else after
        yield RecountStep(destinations, max(in_all, destinations), deliveries, tuple(drifts))
        if len(rows) < destinations_per_step:
            return


_STATES = ("waiting", "queued", "leased", "delivered", "dead")
