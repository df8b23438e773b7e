"""Exact limits (P6): many connections at once never hold more leases of a destination than its limit."""

import asyncio
import os
import random
from collections import Counter

import asyncpg

from fanout.ledger.claiming import claim
from fanout.ledger.promotion import promote
from fanout.ledger.settlement import settle
from fanout.ledger.sweeping import requeue_lost
from fanout.model.states import Outcome
from services.region import released, result

CONNECTIONS = 8
DESTINATIONS = 600
SECONDS = float(os.environ.get("FANOUT_TEST_PERMITS_SECONDS", "4"))


async def test_many_connections_never_exceed_a_limit_and_the_counters_equal_a_recount(region, database_url):
    limits = {}
    for number in range(DESTINATIONS):
        limit = 1 + number % 4
        limits[await region.subscriber(f"d-{number}", concurrency=limit)] = limit
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(30)), budget=20_000)
    held: Counter[int] = Counter()
    peaks: Counter[int] = Counter()
    over: list[tuple[int, int]] = []
    done = Counter()
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + SECONDS

    async def work(seed: int) -> None:
        chance = random.Random(seed)
        connection = await asyncpg.connect(database_url)
        try:
            while loop.time() < ends_at:
                references = await promote(connection, region.schema, 64)
                if not references:
                    done["idle"] += 1
                    await requeue_lost(connection, region.schema, 0.05, 500)
                    await asyncio.sleep(0)
                    continue
                # Copies and stale references are thrown in: they must do nothing.
                references += chance.sample(references, k=len(references) // 4)
                unique = list({each.delivery_id: each for each in references}.values())
                leases = await claim(connection, region.schema, unique, f"w{seed}", 15)
                for lease in leases:
                    held[lease.destination_id] += 1
                    peaks[lease.destination_id] = max(peaks[lease.destination_id], held[lease.destination_id])
                    if held[lease.destination_id] > limits[lease.destination_id]:
                        over.append((lease.destination_id, held[lease.destination_id]))
                await asyncio.sleep(chance.random() * 0.01)
                results = [
                    released(lease) if chance.random() < 0.4 else result(lease, Outcome.FAILED, counts=False)
                    for lease in leases
                ]
                for lease in leases:
                    held[lease.destination_id] -= 1
                if results:
                    await settle(connection, region.schema, results, f"w{seed}", 0.0)
                done["claimed"] += len(leases)
        finally:
            await connection.close()

    # Failures would close the windows; this is about the limits alone.
    await region.execute(
        "CREATE FUNCTION {schema}.keep_open() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.send_window := NEW.concurrency; "
        "NEW.probation := false; NEW.hold_until := NULL; RETURN NEW; END $$"
    )
    await region.execute(
        "CREATE TRIGGER keep_open BEFORE UPDATE ON {schema}.destination FOR EACH ROW EXECUTE FUNCTION {schema}.keep_open()"
    )
    await asyncio.gather(*(work(seed) for seed in range(CONNECTIONS)))

    assert over == []
    assert done["claimed"] > DESTINATIONS, "it was not much of a race"
    assert any(peaks[number] == limit for number, limit in limits.items() if limit > 1), "no limit was ever reached"
    assert await region.rows("SELECT * FROM {schema}.recount_permits()") == []
    print(f"permits: {done['claimed']} leases by {CONNECTIONS} connections in {SECONDS} s, none over its limit")
