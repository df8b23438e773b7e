"""A turn of a consumer settles and claims in one transaction: what a result frees is used at once, and limits stay exact."""

import asyncio
import random

import asyncpg
import pytest

from fanout.ledger.turn import settle_and_claim
from fanout.model.states import Outcome, Reason, State
from services.region import result


async def turn(region, settlements, references, *, connection=None, worker="w"):
    return await settle_and_claim(
        connection or region.connection, region.schema, settlements, references, worker, 0.0, 15.0
    )


async def test_a_permit_that_a_result_frees_goes_to_the_next_delivery_in_the_same_turn(region):
    number = await region.subscriber("a", concurrency=2)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(4)))
    references = await region.promote()
    _, leases = await turn(region, [], references[:2])
    settled, followers = await turn(region, [result(leases[0])], references[2:])
    assert [each.settled for each in settled] == [True]
    assert [each.delivery_id for each in followers] == [references[2].delivery_id], "one permit was free, not two"
    row = await region.destination(number)
    assert (row["in_flight"], row["queued"], row["waiting"], row["delivered"]) == (2, 0, 1, 1)
    assert await region.drift() == []


async def test_what_stops_a_destination_stops_the_claims_of_the_same_turn(region):
    await region.subscriber("a", concurrency=2)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(3)))
    references = await region.promote()
    leases = await region.claim(references[:1])
    throttled = result(leases[0], Outcome.THROTTLED, state=State.WAITING, hold_seconds=60.0, counts=False)
    _, followers = await turn(region, [throttled], references[1:])
    assert followers == []


async def test_a_turn_happens_as_a_whole_or_not_at_all(region):
    await region.subscriber("a", concurrency=2)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(3)))
    references = await region.promote()
    [lease] = await region.claim(references[:1])
    spoiled = result(lease, Outcome.REJECTED, state=State.DEAD, reason=None)
    with pytest.raises(asyncpg.CheckViolationError):
        await turn(region, [spoiled], references[1:])
    assert [(await region.delivery(each.delivery_id))["state"] for each in references] == ["leased", "queued", "queued"]
    settled, leases = await turn(
        region, [result(lease, Outcome.REJECTED, state=State.DEAD, reason=Reason.REJECTED)], references[1:]
    )
    assert len(settled) == 1
    assert len(leases) == 2


async def test_turns_of_many_workers_cross_without_a_deadlock_and_keep_every_limit(region, database_url):
    """Each names the destinations in an order of its own, results of some and references to others."""
    limits = {await region.subscriber(f"d-{n}", concurrency=1 + n % 3): 1 + n % 3 for n in range(12)}
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(30)))
    references: list = []
    done = 0

    async def work(seed):
        nonlocal done
        chance = random.Random(seed)
        connection = await asyncpg.connect(database_url)
        leases: list = []
        try:
            for _ in range(400):
                if not references:
                    references.extend(await region_promote())
                chance.shuffle(leases)
                ended, leases = leases[: len(leases) // 2 + 1], leases[len(leases) // 2 + 1 :]
                taken = [references.pop(chance.randrange(len(references))) for _ in range(min(9, len(references)))]
                settled, new = await turn(
                    region, [result(each) for each in ended], taken, connection=connection, worker=f"w{seed}"
                )
                done += sum(each.settled for each in settled)
                leases += new
                rows = await connection.fetch(region.schema.sql("SELECT id, in_flight FROM {schema}.destination"))
                assert all(row["in_flight"] <= limits[row["id"]] for row in rows)
                if done == 12 * 30:
                    return
        finally:
            await connection.close()

    promoting = asyncio.Lock()

    async def region_promote():
        async with promoting:
            return await region.promote()

    async with asyncio.TaskGroup() as group:
        for seed in range(4):
            group.create_task(work(seed))
    assert done == 12 * 30
    assert await region.drift() == []
