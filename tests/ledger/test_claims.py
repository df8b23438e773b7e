"""A claim takes a lease: once per dispatch number, within the limit, and only if the gate lets it through."""

import asyncio

import asyncpg

from fanout.ledger.claiming import claim
from fanout.model.states import Outcome
from fanout.transports.transport import Reference
from services.region import released, result


async def test_of_two_claims_of_one_reference_at_once_exactly_one_wins(region, database_url):
    await region.subscriber("a", concurrency=100)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(50)))
    references = await region.promote()
    connections = [await asyncpg.connect(database_url) for _ in range(4)]
    try:
        for reference in references:
            answers = await asyncio.gather(
                *(
                    claim(connection, region.schema, [reference], f"w{n}", 15)
                    for n, connection in enumerate(connections)
                )
            )
            assert sorted(map(len, answers)) == [0, 0, 0, 1]
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))


async def test_a_copy_of_a_reference_does_nothing(region):
    await region.subscriber("a")
    await region.arrive(region.announcement())
    [reference] = await region.promote()
    [lease] = await region.claim([reference])
    assert await region.claim([reference]) == []
    await region.settle(released(lease))
    assert await region.claim([reference]) == []  # back in waiting
    [again] = await region.promote()
    assert again.dispatch == reference.dispatch + 1
    assert await region.claim([reference]) == []  # queued, but under another dispatch number
    assert len(await region.claim([again])) == 1


async def test_an_unknown_reference_does_nothing(region):
    assert await region.claim([Reference(12345, 1, 1)]) == []


async def test_what_the_gate_refuses_goes_back_to_waiting_with_its_place_kept(region):
    number = await region.subscriber("a", concurrency=2)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(3)))
    before = {
        row["id"]: row["eligible_at"] for row in await region.rows("SELECT id, eligible_at FROM {schema}.delivery")
    }
    references = await region.promote()
    assert len(references) == 3  # two permits and one ahead
    leases = await region.claim(references)
    assert [lease.delivery_id for lease in leases] == sorted(before)[:2]  # the oldest first
    refused = await region.delivery(sorted(before)[2])
    assert (refused["state"], refused["eligible_at"], refused["attempts"]) == ("waiting", before[refused["id"]], 0)
    assert (await region.destination(number))["wake_at"] is None  # full: nothing to do until something settles
    await region.settle(result(leases[0]))
    assert len(await region.claim(await region.promote())) == 1


async def test_a_paused_or_held_destination_refuses_and_costs_no_attempt(region):
    number = await region.subscriber("a")
    await region.arrive(region.announcement())
    stops = [
        ("hold_until = now() + interval '1 hour', wake_at = NULL", "hold_until = NULL"),
        ("paused_at = now(), paused_by = 'someone'", "paused_at = NULL, paused_by = NULL"),
    ]
    for stop, go in stops:
        references = await region.promote()
        await region.execute("UPDATE {schema}.destination SET " + stop)
        assert await region.claim(references) == []
        delivery = (await region.rows("SELECT * FROM {schema}.delivery"))[0]
        assert (delivery["state"], delivery["attempts"], delivery["budget_used"]) == ("waiting", 0, 0)
        assert await region.promote() == []
        await region.execute("UPDATE {schema}.destination SET wake_at = now(), " + go + " WHERE id = $1", number)


async def test_lowering_a_limit_cuts_nothing_and_stops_new_leases(region):
    number = await region.subscriber("a", concurrency=4)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(10)))
    leases = await region.leased(4)
    await region.execute(
        "UPDATE {schema}.destination SET concurrency = 2, send_window = 2, wake_at = now() WHERE id = $1", number
    )
    for lease in leases[:2]:
        await region.settle(result(lease))
        assert await region.claim(await region.promote()) == []
    await region.settle(result(leases[2]))
    assert len(await region.claim(await region.promote())) == 1
    assert (await region.destination(number))["in_flight"] == 2


async def test_attempts_are_counted_without_gaps_and_a_released_one_never_was(region):
    await region.subscriber("a")
    await region.arrive(region.announcement())
    numbers = []
    for outcome in (None, Outcome.FAILED, None, Outcome.FAILED, Outcome.DELIVERED):
        [lease] = await region.leased()
        await region.settle(released(lease) if outcome is None else result(lease, outcome))
        numbers.append(lease.attempt)
    assert numbers == [1, 1, 2, 2, 3]
    assert [row["n"] for row in await region.rows("SELECT n FROM {schema}.attempt ORDER BY n")] == [1, 2, 3]
