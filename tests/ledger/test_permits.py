"""Exact limits (P6): many connections at once never hold more leases of a destination than its limit."""

import asyncio
import os
import random
from collections import Counter

import asyncpg

from fanout.ledger.claiming import claim
from fanout.ledger.settlement import settle
from fanout.model.states import Outcome
from fanout.transports.transport import Reference
from services.region import released, result

CONNECTIONS = 8
DESTINATIONS = 600
VERSIONS = 6
SECONDS = float(os.environ.get("FANOUT_TEST_PERMITS_SECONDS", "4"))

LOCK_ALL = "SELECT FROM {schema}.destination ORDER BY id FOR NO KEY UPDATE"
# Far more references than permits, all at once: promotion would never do that, and the claim must not rely on it.
QUEUE_ALL = """
WITH moved AS (
    UPDATE {schema}.delivery SET state = 'queued', dispatch = dispatch + 1, queued_at = clock_timestamp() WHERE state = 'waiting'
    RETURNING id, dispatch, destination_id
), counted AS (
    UPDATE {schema}.destination d SET queued = d.queued + m.n, waiting = d.waiting - m.n
    FROM (SELECT destination_id, count(*)::int AS n FROM moved GROUP BY 1) AS m WHERE d.id = m.destination_id
)
SELECT id, dispatch, destination_id FROM moved
"""
# Failures would close the windows; this is about the limits alone.
KEEP_OPEN = """
CREATE FUNCTION {schema}.keep_open() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.send_window := NEW.concurrency;
    NEW.probation := false;
    NEW.hold_until := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER keep_open BEFORE UPDATE ON {schema}.destination FOR EACH ROW EXECUTE FUNCTION {schema}.keep_open();
"""


class Race:
    """Counts what each connection surely holds: from after its claim was answered to before its settlement is sent."""

    def __init__(self, limits: dict[int, int]) -> None:
        self.limits = limits
        self.held: Counter[int] = Counter()
        self.over: list[tuple[int, int]] = []
        self.full: set[int] = set()
        self.claimed = 0

    def leased(self, leases) -> None:
        for lease in leases:
            number = lease.destination_id
            self.held[number] += 1
            if self.held[number] > self.limits[number]:
                self.over.append((number, self.held[number]))
            if self.held[number] == self.limits[number]:
                self.full.add(number)
        self.claimed += len(leases)

    def ending(self, leases) -> None:
        for lease in leases:
            self.held[lease.destination_id] -= 1


async def test_many_connections_never_exceed_a_limit_and_the_counters_equal_a_recount(region, database_url):
    limits = {await region.subscriber(f"d-{n}", concurrency=1 + n % 4): 1 + n % 4 for n in range(DESTINATIONS)}
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(VERSIONS)), budget=20_000)
    await region.execute(KEEP_OPEN)
    race = Race(limits)
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + SECONDS
    queue: list[Reference] = []
    connections = [await asyncpg.connect(database_url) for _ in range(CONNECTIONS)]

    async def work(connection: asyncpg.Connection, seed: int) -> None:
        chance = random.Random(seed)
        while loop.time() < ends_at:
            if not queue:
                async with connection.transaction():  # in the order of locks: destinations, then deliveries
                    await connection.fetch(region.schema.sql(LOCK_ALL))
                    queue.extend(Reference(*row) for row in await connection.fetch(region.schema.sql(QUEUE_ALL)))
                chance.shuffle(queue)
            mine = {each.delivery_id: each for each in queue[-150:]}
            del queue[-150:]
            if not mine:
                await asyncio.sleep(0.001)
                continue
            leases = await claim(connection, region.schema, list(mine.values()), f"w{seed}", 15)
            race.leased(leases)
            await asyncio.sleep(chance.random() * 0.01)
            race.ending(leases)
            if leases:
                results = [
                    released(each) if chance.random() < 0.4 else result(each, Outcome.FAILED, counts=False)
                    for each in leases
                ]
                await settle(connection, region.schema, results, f"w{seed}", 0.0)

    try:
        await asyncio.gather(*(work(connection, seed) for seed, connection in enumerate(connections)))
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))

    assert race.over == []
    assert len(race.full) > DESTINATIONS / 10, "limits were hardly reached: it was not much of a race"
    assert await region.rows("SELECT * FROM {schema}.recount_permits()") == []
    print(
        f"permits: {race.claimed} leases by {CONNECTIONS} connections in {SECONDS} s, {len(race.full)} limits reached, none exceeded"
    )
