"""A region's ledger to work on: home and region migrated, subscribers and versions made with one call each."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import asyncpg

from fanout.database.migrations import migrate
from fanout.database.schema import Schema
from fanout.ledger.claiming import Lease, claim
from fanout.ledger.expansion import Copy, Page, copy_versions, expand
from fanout.ledger.promotion import promote
from fanout.ledger.settlement import Settled, Settlement, settle
from fanout.model.announcement import Announcement
from fanout.model.states import TRANSITIONS, Outcome, State
from fanout.transports.transport import Reference

SECRET = "whsec_" + base64.b64encode(b"a key of tests, 32 bytes long...").decode()

_ONLY_LEGAL_STEPS = """
CREATE TABLE {schema}.step_taken (before text, after text, UNIQUE (before, after));
CREATE FUNCTION {schema}.only_legal_steps() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO {schema}.step_taken VALUES ('', NEW.state) ON CONFLICT DO NOTHING;
    ELSIF NEW.state <> OLD.state THEN
        IF NOT (OLD.state || '>' || NEW.state) = ANY (TG_ARGV) THEN
            RAISE EXCEPTION 'illegal step % to %', OLD.state, NEW.state;
        END IF;
        INSERT INTO {schema}.step_taken VALUES (OLD.state, NEW.state) ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER only_legal_steps AFTER INSERT OR UPDATE OF state ON {schema}.delivery
FOR EACH ROW EXECUTE FUNCTION {schema}.only_legal_steps(LEGAL);
"""


class Region:
    """The ledger of one region in a database of its own, with a trigger that refuses every step that is not in TRANSITIONS."""

    def __init__(self, url: str, connection: asyncpg.Connection, name: str = "eu") -> None:
        self.url = url
        self.connection = connection
        self.home = Schema("fanout")
        self.schema = Schema(f"fanout_{name}")
        self.name = name
        self._version_no = 0

    @classmethod
    async def open(cls, url: str, name: str = "eu", *, watched: bool = True) -> "Region":
        connection = await asyncpg.connect(url)
        region = cls(url, connection, name)
        await migrate(connection, "fanout.home", region.home)
        await migrate(connection, "fanout.ledger", region.schema)
        await region.execute(f"INSERT INTO {region.home.quoted}.region VALUES ($1) ON CONFLICT DO NOTHING", name)
        if watched:
            legal = ", ".join(f"'{before}>{after}'" for before, after in TRANSITIONS if before is not None)
            await connection.execute(region.schema.sql(_ONLY_LEGAL_STEPS).replace("LEGAL", legal))
        return region

    async def execute(self, sql: str, *arguments: Any) -> str:
        return await self.connection.execute(self.schema.sql(sql), *arguments)

    async def value(self, sql: str, *arguments: Any) -> Any:
        return await self.connection.fetchval(self.schema.sql(sql), *arguments)

    async def rows(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        return await self.connection.fetch(self.schema.sql(sql), *arguments)

    async def subscriber(
        self,
        subscriber_id: str,
        *,
        endpoint: str = "http://127.0.0.1:9/",
        event_types: Sequence[str] = ("shipment.*",),
        labels: dict[str, list[str]] | None = None,
        concurrency: int = 4,
        timeout_seconds: float = 15,
        rate_per_second: float | None = None,
        ordering: str = "any",
    ) -> int:
        number = await self.value(
            "INSERT INTO {schema}.subscriber (subscriber_id, endpoint, event_types, labels, timeout_seconds, created_at) "
            "VALUES ($1, $2, $3, $4, $5, now() - interval '1 hour') RETURNING id",
            subscriber_id,
            endpoint,
            list(event_types),
            json.dumps(labels or {}),
            timeout_seconds,
        )
        for pattern in event_types:
            await self.execute("INSERT INTO {schema}.subscription VALUES ($1, $2)", pattern, number)
        await self.execute("INSERT INTO {schema}.secret (subscriber, secret, place) VALUES ($1, $2, 0)", number, SECRET)
        await self.execute(
            "INSERT INTO {schema}.destination (id, concurrency, timeout_seconds, send_window, rate_per_second, ordering) "
            "VALUES ($1, $2, $3, $2, $4, $5::text::{schema}.ordering)",
            number,
            concurrency,
            timeout_seconds,
            rate_per_second,
            ordering,
        )
        return int(number)

    def announcement(
        self,
        shipment_id: str = "s-1",
        version: int = 1,
        *,
        event_type: str = "shipment.booked",
        labels: str = "{}",
        age_seconds: float = 0.0,
        delay_seconds: float = 0.0,
    ) -> Announcement:
        self._version_no += 1
        return Announcement(
            self._version_no,
            abs(hash(shipment_id)) % 10**9,
            shipment_id,
            version,
            event_type,
            labels,
            age_seconds,
            delay_seconds,
        )

    async def arrive(
        self, *announcements: Announcement, forbidden: bool = False, payload: bytes = b"{}", budget: int = 10_000
    ) -> list[Page]:
        """Copy and expand these versions."""
        copies = [
            Copy(each, forbidden=forbidden, content_type="application/json", payload=payload) for each in announcements
        ]
        await copy_versions(self.connection, self.schema, copies)
        return await expand(self.connection, self.schema, announcements, budget)

    async def promote(self, most: int = 64, probes: int = 50) -> list[Reference]:
        return (await promote(self.connection, self.schema, most, probes)).references

    async def next_wake(self, probes: int = 50) -> float | None:
        """In how many seconds the scheduler should look again. Asks for it without promoting anything."""
        seconds: float | None = await self.value("SELECT {schema}.seconds_to_next_wake($1)", probes)
        return seconds

    async def claim(
        self, references: Sequence[Reference], worker: str = "w", margin_seconds: float = 15
    ) -> list[Lease]:
        return await claim(self.connection, self.schema, references, worker, margin_seconds)

    async def settle(self, *settlements: Settlement, worker: str = "w") -> list[Settled]:
        return await settle(self.connection, self.schema, settlements, worker, 0.0)

    async def leased(self, count: int = 1) -> list[Lease]:
        """So many leases, from whatever is due."""
        leases: list[Lease] = []
        while len(leases) < count:
            references = await self.promote()
            assert references, f"only {len(leases)} of {count} could be leased"
            leases += await self.claim(references)
        return leases

    async def delivery(self, delivery_id: int) -> asyncpg.Record:
        return (await self.rows("SELECT * FROM {schema}.delivery WHERE id = $1", delivery_id))[0]

    async def destination(self, number: int) -> asyncpg.Record:
        return (await self.rows("SELECT * FROM {schema}.destination WHERE id = $1", number))[0]

    async def drift(self) -> list[asyncpg.Record]:
        """Destinations whose counters do not equal their rows, counted in one snapshot."""
        return await self.rows(
            "SELECT * FROM {schema}.recount(0, 1000000) WHERE (in_flight, queued, waiting, delivered, dead) "
            "IS DISTINCT FROM (leased_rows, queued_rows, waiting_rows, delivered_rows, dead_rows)"
        )


def result(lease: Lease, outcome: Outcome = Outcome.DELIVERED, **changes: Any) -> Settlement:
    """The settlement of a lease: by default it was delivered."""
    facts: dict[str, Any] = {
        "delivery_id": lease.delivery_id,
        "token": lease.token,
        "destination_id": lease.destination_id,
        "attempt": lease.attempt,
        "sent": True,
        "outcome": outcome,
        "state": State.DELIVERED if outcome is Outcome.DELIVERED else State.WAITING,
        "delay_seconds": None if outcome in (Outcome.DELIVERED, Outcome.THROTTLED) else 0.0,
        "counts": outcome is not Outcome.THROTTLED,
        "duration_ms": 5,
        "started_ms": 1,
        "config_version": lease.config_version,
    }
    return Settlement(**(facts | changes))


def released(lease: Lease) -> Settlement:
    return result(lease, sent=False, outcome=None, state=State.WAITING, delay_seconds=None, counts=False)
