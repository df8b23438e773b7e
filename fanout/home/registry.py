"""Home's registry: which regions there are, and of each subscriber only its id, its region and whether it is deleted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema

NAMED_MAX = 20
"""So many ids stand in an error; of the rest only the number."""
_RACES_MAX = 3


class Reservation(StrEnum):
    CREATED = "created"
    """The id is new, and belongs to this region from now on."""
    EXISTING = "existing"
    DELETED = "deleted"
    """It belongs to this region, where it was deleted. ``revive`` it once the region has it again."""


class RegionChanged(Exception):  # noqa: N818 - says what happened
    """Subscribers belong to one region for life, also after they were deleted. Nothing was reserved. HTTP 409."""

    def __init__(self, wanted: str, regions: dict[str, str]) -> None:
        named = ", ".join(f"{name} is in {region}" for name, region in sorted(regions.items())[:NAMED_MAX])
        more = f" and {len(regions) - NAMED_MAX} more are elsewhere" if len(regions) > NAMED_MAX else ""
        super().__init__(
            f"{named}{more}, not in {wanted}: a subscriber belongs to one region for life; "
            f"keep the region, or choose another subscriber id for {wanted}"
        )
        self.wanted = wanted
        self.regions = regions
        """Each subscriber that is elsewhere, and where."""


class UnknownRegion(LookupError):  # noqa: N818 - says what happened
    """The region is configured, but home has not been told of it yet."""


@dataclass(frozen=True, slots=True)
class Registered:
    subscriber_id: str
    region: str
    deleted: bool
    created_at: datetime


async def set_regions(connection: Fetches, schema: Schema, names: Iterable[str]) -> list[str]:
    """Make sure that every version from now on gets an outbox row for each of these; the names that were new.

    Regions that are no longer named stay: their outbox rows and subscribers need them.
    """
    rows = await connection.fetch(
        schema.sql(
            "INSERT INTO {schema}.region (region) SELECT DISTINCT unnest($1::text[]) ORDER BY 1 ON CONFLICT DO NOTHING RETURNING region"
        ),
        sorted(names),
    )
    return sorted(row["region"] for row in rows)


async def regions(connection: Fetches, schema: Schema) -> list[str]:
    rows = await connection.fetch(schema.sql("SELECT region FROM {schema}.region ORDER BY region"))
    return [row["region"] for row in rows]


async def reserve(connection: Fetches, schema: Schema, subscriber_id: str, region: str) -> Reservation:
    """Tie an id to a region, before the region learns of it. Repeatable. Raises RegionChanged, UnknownRegion."""
    return (await reserve_all(connection, schema, [subscriber_id], region))[subscriber_id]


async def reserve_all(
    connection: Fetches, schema: Schema, subscriber_ids: Sequence[str], region: str
) -> dict[str, Reservation]:
    """``reserve`` for many ids of one region: all of them, or none and RegionChanged with every one that is elsewhere."""
    asked = set(subscriber_ids)
    for _ in range(_RACES_MAX):
        answer = await connection.fetch(schema.sql(_RESERVE), sorted(asked), region)
        if not answer[0]["region_known"]:
            raise UnknownRegion(f"home does not know region {region} yet: run `fanout migrate`")
        rows = [row for row in answer if row["subscriber_id"] is not None]
        elsewhere = {row["subscriber_id"]: row["region"] for row in rows if row["region"] != region}
        if elsewhere:
            raise RegionChanged(region, elsewhere)
        reserved = {row["subscriber_id"]: Reservation(row["reservation"]) for row in rows}
        if reserved.keys() == asked:
            return reserved
        # Someone else reserved one of them while this statement ran: the next one sees where.
    raise AssertionError(f"an id was neither reserved nor there to be seen, {_RACES_MAX} times")


# Safe under concurrency: the primary key lets one of two reservations win; the loser returns no row for it and looks again.
# Whether home knows the region comes with every row, and in a row of its own where there is no other.
_RESERVE = """
    WITH asked AS (
        SELECT unnest($1::text[]) AS subscriber_id
    ), there AS MATERIALIZED (
        SELECT s.subscriber_id, s.region, CASE s.state WHEN 'deleted' THEN 'deleted' ELSE 'existing' END AS reservation
        FROM asked JOIN {schema}.subscriber s USING (subscriber_id)
    ), known AS MATERIALIZED (
        SELECT EXISTS (SELECT FROM {schema}.region WHERE region = $2::text) AS yes
    ), added AS (
        INSERT INTO {schema}.subscriber (subscriber_id, region)
        SELECT subscriber_id, $2 FROM asked
        WHERE (SELECT yes FROM known) AND NOT EXISTS (SELECT FROM there WHERE region <> $2)
          AND subscriber_id NOT IN (SELECT subscriber_id FROM there)
        ORDER BY subscriber_id
        ON CONFLICT DO NOTHING
        RETURNING subscriber_id, region, 'created' AS reservation
    )
    SELECT subscriber_id, region, reservation, known.yes AS region_known
    FROM known LEFT JOIN (SELECT * FROM there UNION ALL SELECT * FROM added) AS r ON known.yes
"""


async def region_of(connection: Fetches, schema: Schema, subscriber_id: str) -> Registered | None:
    """Where a subscriber belongs, deleted or not; None for an id that was never reserved."""
    rows = await connection.fetch(
        schema.sql(
            "SELECT subscriber_id, region, state = 'deleted', created_at FROM {schema}.subscriber WHERE subscriber_id = $1"
        ),
        subscriber_id,
    )
    return Registered(*rows[0]) if rows else None


async def list_registered(
    connection: Fetches, schema: Schema, *, region: str | None = None, after: str = "", limit: int = 50
) -> list[Registered]:
    """Subscribers that are not deleted, by id, of one region or of all. ``after``: the last id of the page before."""
    rows = await connection.fetch(
        schema.sql("""
            SELECT subscriber_id, region, false, created_at FROM {schema}.subscriber
            WHERE subscriber_id > $1 AND ($2::text IS NULL OR region = $2) AND state = 'active'
            ORDER BY subscriber_id LIMIT $3
        """),
        after,
        region,
        limit,
    )
    return [Registered(*row) for row in rows]


async def mark_deleted(connection: Fetches, schema: Schema, subscriber_ids: Sequence[str]) -> None:
    """After the region deleted them. They stay tied to their region. Repeatable."""
    await _set_state(connection, schema, subscriber_ids, "deleted")


async def revive(connection: Fetches, schema: Schema, subscriber_ids: Sequence[str]) -> None:
    """After the region created them again. Repeatable."""
    await _set_state(connection, schema, subscriber_ids, "active")


async def _set_state(connection: Fetches, schema: Schema, subscriber_ids: Sequence[str], state: str) -> None:
    # Locked in the order of ids: two of these at once cannot wait for each other.
    await connection.fetch(
        schema.sql("""
            WITH locked AS (
                SELECT subscriber_id FROM {schema}.subscriber
                WHERE subscriber_id = ANY ($1::text[]) AND state <> $2 ORDER BY subscriber_id FOR NO KEY UPDATE
            )
            UPDATE {schema}.subscriber s SET state = $2 FROM locked WHERE s.subscriber_id = locked.subscriber_id
        """),
        list(subscriber_ids),
        state,
    )
