"""Looking at home: its side of the book (P1), and what it knows of one version. Reading only."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema

PAGE_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class OutboxState:
    """What home knows of one version in one region. ``created`` is None until ``done``."""

    done: bool
    created: int | None


@dataclass(frozen=True, slots=True)
class HomeVersion:
    shipment_id: str
    version: int
    accepted_at: datetime
    payload_bytes: int
    sha256: str
    """In hexadecimal."""
    regions: dict[str, OutboxState]


@dataclass(frozen=True, slots=True)
class OutboxFigures:
    pending: int
    """Versions that the region has not been told of, or has not reported back."""
    oldest_pending_age_seconds: float
    lowest_pending: int | None
    """The number of the first pending version."""
    removed: int
    """What finished rows said that retention removed since."""


async def outbox_figures(connection: Fetches, schema: Schema, region: str) -> OutboxFigures:
    """Cheap while little is pending: it looks at pending rows only."""
    rows = await connection.fetch(
        schema.sql("""
            SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(v.accepted_at)), 0)::float8, min(o.version_no),
                   coalesce((SELECT r.created FROM {schema}.removed r WHERE r.region = $1), 0)
            FROM {schema}.outbox o JOIN {schema}.version v USING (version_no) WHERE o.region = $1 AND NOT o.done
        """),
        region,
    )
    return OutboxFigures(*rows[0])


async def finished_pages(
    connection: Fetches, schema: Schema, region: str, *, since: int = 0, page_rows: int = PAGE_ROWS
) -> AsyncIterator[dict[int, int]]:
    """The finished rows of home's book from version number ``since`` on: how many deliveries home was told of, by number."""
    after = since - 1
    while True:
        rows = await connection.fetch(
            schema.sql("""
                SELECT version_no, created FROM {schema}.outbox
                WHERE region = $1 AND version_no > $2 AND done ORDER BY version_no LIMIT $3
            """),
            region,
            after,
            page_rows,
        )
        if rows:
            yield {row["version_no"]: row["created"] for row in rows}
            after = rows[-1]["version_no"]
        if len(rows) < page_rows:
            return


async def names_of(connection: Fetches, schema: Schema, numbers: Sequence[int]) -> dict[int, tuple[str, int]]:
    """Shipment id and version, by version number."""
    rows = await connection.fetch(
        schema.sql("""
            SELECT v.version_no, s.shipment_id, v.version FROM {schema}.version v JOIN {schema}.shipment s USING (shipment_no)
            WHERE v.version_no = ANY ($1::bigint[])
        """),
        list(numbers),
    )
    return {row["version_no"]: (row["shipment_id"], row["version"]) for row in rows}


async def home_version(connection: Fetches, schema: Schema, shipment_id: str, version: int) -> HomeVersion | None:
    """None where it was never published."""
    rows = await connection.fetch(
        schema.sql("""
            SELECT v.accepted_at, octet_length(v.payload) AS bytes, v.sha256, o.region, o.done, o.created
            FROM {schema}.shipment s JOIN {schema}.version v USING (shipment_no) LEFT JOIN {schema}.outbox o USING (version_no)
            WHERE s.shipment_id = $1 AND v.version = $2 ORDER BY o.region
        """),
        shipment_id,
        version,
    )
    if not rows:
        return None
    first = rows[0]
    regions = {row["region"]: OutboxState(row["done"], row["created"]) for row in rows if row["region"] is not None}
    return HomeVersion(shipment_id, version, first["accepted_at"], first["bytes"], first["sha256"].hex(), regions)
