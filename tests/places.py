"""A migrated region and a migrated home, and what to put into them when a test is not about how it got there."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

import asyncpg
import pytest

from fanout.database.connection import connect
from fanout.database.migrations import migrate
from fanout.database.schema import Schema
from fanout.ledger.registry import apply_all
from fanout.model.subscriber import SubscriberRules, SubscriberSpec, parse_subscriber

RULES = SubscriberRules({"eu": (ip_network("127.0.0.0/8"),), "us": ()})


@dataclass
class Reads:
    scans: int = -1
    """How often the whole table was read."""
    rows: int = -1


@dataclass
class Place:
    """A database with one of our schemas in it."""

    url: str
    connection: asyncpg.Connection
    schema: Schema

    async def one(self, sql: str, *arguments: Any) -> Any:
        return await self.connection.fetchrow(self.schema.sql(sql), *arguments)

    async def values(self, sql: str, *arguments: Any) -> list[Any]:
        return [row[0] for row in await self.connection.fetch(self.schema.sql(sql), *arguments)]

    async def run(self, sql: str, *arguments: Any) -> None:
        await self.connection.execute(self.schema.sql(sql), *arguments)

    @asynccontextmanager
    async def counting_reads(self, table: str) -> AsyncIterator["Reads"]:
        """What PostgreSQL itself counts while the block runs on this connection."""
        sql = "SELECT seq_scan, seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = $1::regclass"
        reads = Reads()
        async with self.connection.transaction():
            scans, rows = await self.connection.fetchrow(sql, f"{self.schema.quoted}.{table}")
            yield reads
            after = await self.connection.fetchrow(sql, f"{self.schema.quoted}.{table}")
            reads.scans, reads.rows = after[0] - scans, after[1] - rows

    async def gate(self, subscriber_id: str) -> Any:
        return await self.one(
            "SELECT d.*, now() AS now FROM {schema}.destination d JOIN {schema}.subscriber s USING (id) WHERE s.subscriber_id = $1",
            subscriber_id,
        )

    async def subscribe(self, *subscriber_ids: str, **fields: object) -> None:
        specs = {subscriber_id: a_wish(**fields) for subscriber_id in subscriber_ids}
        await apply_all(self.connection, self.schema, specs, prune=False, by="test")

    async def version(
        self, number: int, shipment_id: str = "S1", version: int | None = None, *, age_seconds: float = 0
    ) -> None:
        """A version of a shipment, expanded to nobody yet."""
        await self.run(
            """
            WITH v AS (
                INSERT INTO {schema}.version (version_no, shipment_no, shipment_id, version, event_type, content_type, labels, payload,
                                              traceparent, accepted_at, eligible_at)
                SELECT $1, abs(hashtext($2)), $2, $3, 'shipment.moved', 'text/plain', '{}', 'hello',
                       '00-' || repeat('ab', 16) || '-' || repeat('cd', 8) || '-01', at, at
                FROM (SELECT now() - make_interval(secs => $4) AS at) AS a RETURNING version_no)
            INSERT INTO {schema}.expansion (version_no, done) SELECT version_no, true FROM v
            """,
            number,
            shipment_id,
            number if version is None else version,
            age_seconds,
        )

    async def delivery(self, number: int, subscriber_id: str, state: str = "waiting", **columns: str) -> int:
        """A delivery of that version in that state, and in the books. ``columns``: SQL expressions."""
        forced = {
            "waiting": {},
            "queued": {"queued_at": "now()", "dispatch": "1"},
            "leased": {"lease_until": "now() + interval '30 s'", "worker": "'w1'", "attempts": "1", "dispatch": "1"},
            "delivered": {"finished_at": "now()"},
            "dead": {"finished_at": "now()", "reason": "'exhausted'"},
        }[state]
        given = forced | columns
        counter = "in_flight" if state == "leased" else state
        row = await self.one(
            f"""
            WITH y AS (
                INSERT INTO {{schema}}.delivery (version_no, shipment_no, version, destination_id, eligible_at, aged_from, state
                                                 {"".join(f", {name}" for name in given if name not in ("eligible_at", "aged_from"))})
                SELECT v.version_no, v.shipment_no, v.version, s.id, {given.get("eligible_at", "v.eligible_at")},
                       {given.get("aged_from", "v.accepted_at")}, '{state}'
                       {"".join(f", {value}" for name, value in given.items() if name not in ("eligible_at", "aged_from"))}
                FROM {{schema}}.version v, {{schema}}.subscriber s WHERE v.version_no = $1 AND s.subscriber_id = $2
                RETURNING id, destination_id, version_no
            ), counted AS (
                UPDATE {{schema}}.destination d SET {counter} = {counter} + 1 FROM y WHERE d.id = y.destination_id
            ), booked AS (
                UPDATE {{schema}}.expansion x SET created = created + 1 FROM y WHERE x.version_no = y.version_no
            )
            SELECT id FROM y
            """,
            number,
            subscriber_id,
        )
        return int(row["id"])


async def _place(url: str, package: str, name: str) -> AsyncIterator[Place]:
    connection = await connect(url, "test")
    schema = Schema(name)
    await migrate(connection, package, schema)
    yield Place(url, connection, schema)
    await connection.close()


@pytest.fixture
async def eu(database_url: str) -> AsyncIterator[Place]:
    async for place in _place(database_url, "fanout.ledger", "fanout_eu"):
        yield place


@pytest.fixture
async def home(database_url: str) -> AsyncIterator[Place]:
    async for place in _place(database_url, "fanout.home", "fanout"):
        yield place


@pytest.fixture
async def many(eu):
    """40,000 deliveries of 200 versions to 200 subscribers: most are delivered, one in forty is dead, the last versions are open."""
    await eu.subscribe(*(f"s{n:03}" for n in range(200)))
    await eu.run("""
        INSERT INTO {schema}.version (version_no, shipment_no, shipment_id, version, accepted_at, eligible_at)
        SELECT n, n / 4, 'S' || n / 4, n, now() - interval '1 h', now() - interval '1 h' FROM generate_series(1, 200) AS n
    """)
    await eu.run("""
        INSERT INTO {schema}.delivery (version_no, shipment_no, version, destination_id, eligible_at, aged_from, state, reason, finished_at,
                                       queued_at, worker, lease_until)
        SELECT n, n / 4, n, d.id, now(), now() - interval '1 h', t.state::{schema}.delivery_state,
               CASE WHEN t.state = 'dead' THEN (CASE n % 3 WHEN 0 THEN 'gone' ELSE 'exhausted' END)::{schema}.death_reason END,
               CASE WHEN t.state IN ('delivered', 'dead') THEN now() END, CASE WHEN t.state = 'queued' THEN now() END,
               CASE WHEN t.state = 'leased' THEN 'w' END, CASE WHEN t.state = 'leased' THEN now() END
        FROM generate_series(1, 200) AS n CROSS JOIN {schema}.destination d
        CROSS JOIN LATERAL (SELECT CASE WHEN n > 180 AND d.id % 20 = 0 THEN 'queued' WHEN n > 180 AND d.id % 20 = 1 THEN 'leased'
                                        WHEN n > 180 THEN 'waiting' WHEN (n + d.id) % 40 = 0 THEN 'dead' ELSE 'delivered' END) AS t(state)
        ORDER BY n, d.id
    """)
    await eu.run("""
        UPDATE {schema}.destination d SET waiting = c.waiting
        FROM (SELECT destination_id, count(*) AS waiting FROM {schema}.delivery WHERE state = 'waiting' GROUP BY 1) AS c
        WHERE c.destination_id = d.id
    """)
    await eu.run("VACUUM ANALYZE {schema}.delivery")
    await eu.run("ANALYZE {schema}.version")
    await eu.run("ANALYZE {schema}.destination")
    return eu


@pytest.fixture
def wish() -> Callable[..., SubscriberSpec]:
    return a_wish


def a_wish(**fields: object) -> SubscriberSpec:
    """What a subscriber asks for: the smallest there is, with these fields changed."""
    smallest = {"region": "eu", "endpoint": "https://hooks.example.com/in", "event_types": ["shipment.*"]}
    return parse_subscriber(smallest | fields, RULES)
