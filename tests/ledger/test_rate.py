"""Slots: a destination with a rate gets one request per interval, none twice and none saved up, whoever claims."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import asyncpg
import pytest

from fanout.ledger.claiming import claim
from fanout.ledger.promotion import promote
from fanout.ledger.settlement import settle
from services.region import result

pytestmark = pytest.mark.timeout(60)


async def arrive(region, count):
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(count)))


async def test_each_lease_has_a_slot_of_its_own_within_the_next_second(region):
    await region.subscriber("a", concurrency=50, rate_per_second=10)
    await arrive(region, 30)
    references = await region.promote()
    assert len(references) == 11
    first = await region.claim(references[:4])
    second = await region.claim(references[4:])
    slots = [await slot_of(region, lease) for lease in [*first, *second]]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(slots)]
    assert gaps == pytest.approx([0.1] * 10, abs=1e-4)
    assert first[0].wait_seconds == 0
    assert max(lease.wait_seconds for lease in second) <= 1
    assert await region.promote() == [], "the next slot is further away than a second"


async def slot_of(region, lease):
    leased_at = await region.value("SELECT leased_at FROM {schema}.delivery WHERE id = $1", lease.delivery_id)
    return leased_at + timedelta(seconds=lease.wait_seconds)


async def test_a_lease_lasts_from_its_slot(region):
    await region.subscriber("a", concurrency=8, rate_per_second=2, timeout_seconds=10)
    await arrive(region, 3)
    leases = await region.claim(await region.promote(), margin_seconds=5)
    assert [round(lease.lease_seconds - lease.wait_seconds, 6) for lease in leases] == [15, 15, 15]
    rows = await region.rows(
        "SELECT extract(epoch FROM lease_until - leased_at)::float8 AS s FROM {schema}.delivery ORDER BY id"
    )
    assert [row["s"] for row in rows] == pytest.approx([15, 15.5, 16], abs=1e-3)


async def test_what_finds_no_slot_goes_back_and_is_woken_a_second_before_one(region):
    number = await region.subscriber("a", concurrency=8, rate_per_second=0.1)
    await arrive(region, 3)
    references = await region.promote()
    assert len(references) == 1
    [lease] = await region.claim(references)
    await region.settle(result(lease))
    assert await region.promote() == []
    assert 8.5 < await region.next_wake() <= 9
    await region.execute("UPDATE {schema}.destination SET wake_at = clock_timestamp() WHERE id = $1", number)
    assert await region.promote() == [], "however early it is looked at"
    assert 8 < await region.next_wake() <= 9


async def test_slots_that_passed_unused_are_not_saved_up(region):
    number = await region.subscriber("a", concurrency=50, rate_per_second=10)
    await region.execute(
        "UPDATE {schema}.destination SET rate_next_at = now() - interval '1 hour' WHERE id = $1", number
    )
    await arrive(region, 50)
    leases = await region.claim(await region.promote())
    assert len(leases) == 11
    assert sorted(round(lease.wait_seconds, 3) for lease in leases) == pytest.approx([n / 10 for n in range(11)])


async def test_another_rate_holds_at_once(region):
    number = await region.subscriber("a", concurrency=50, rate_per_second=0.1)
    await arrive(region, 60)
    await region.claim(await region.promote())
    await tune(region, 20)
    assert await next_slot(region, number) <= 0.05
    assert len(await region.promote()) == 20
    await tune(region, None)
    assert await next_slot(region, number) is None
    assert len(await region.promote()) == 39


async def tune(region, rate):
    await region.rows(
        "SELECT * FROM {schema}.change_settings('a', jsonb_build_object('rate_per_second', $1::float8), 'someone')",
        rate,
    )


async def next_slot(region, number):
    return await region.value(
        "SELECT extract(epoch FROM rate_next_at - clock_timestamp())::float8 FROM {schema}.destination WHERE id = $1",
        number,
    )


async def test_many_claimers_never_share_a_slot(region):
    """Four connections promote, claim and settle as fast as they can: between any two slots lies an interval."""
    rate = 200.0
    await region.subscriber("a", concurrency=40, rate_per_second=rate)
    await arrive(region, 300)
    slots = []

    async def work(name):
        connection = await asyncpg.connect(region.url)
        try:
            for _ in range(60):
                references = (await promote(connection, region.schema, 64, 50)).references
                leases = await claim(connection, region.schema, references, name, 15)
                for lease in leases:
                    leased_at = await connection.fetchval(
                        region.schema.sql("SELECT leased_at FROM {schema}.delivery WHERE id = $1"), lease.delivery_id
                    )
                    slots.append(leased_at + timedelta(seconds=lease.wait_seconds))
                if leases:
                    await settle(connection, region.schema, [result(lease) for lease in leases], name, 0.0)
                await asyncio.sleep(0)
        finally:
            await connection.close()

    await asyncio.gather(*(work(f"w{n}") for n in range(4)))
    slots.sort()
    assert len(slots) > 50
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(slots)]
    assert min(gaps) >= 1 / rate - 2e-6
