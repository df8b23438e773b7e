"""Promotion: fair, as much as each gate allows, never asleep while there is work, and at a cost that does not grow with the backlog."""

import pytest

from fanout.ledger.promotion import wake_missed
from fanout.ledger.sweeping import close_out, expired_leases, requeue_lost
from services.plans import watching
from services.region import result

BACKLOG = """
INSERT INTO {schema}.version (version_no, shipment_no, shipment_id, version, event_type, labels, payload, accepted_at, eligible_at)
SELECT n, n, 'b-' || n, 1, 'shipment.booked', '{}', '', now(), now() FROM generate_series($1::int, $2::int) AS n;
"""
DELIVERIES = """
INSERT INTO {schema}.delivery (version_no, shipment_no, version, destination_id, state, eligible_at, aged_from, finished_at)
SELECT n, n, 1, d.id, $3::text::{schema}.delivery_state, now(), now(), CASE WHEN $3 = 'delivered' THEN now() END
FROM generate_series($1::int, $2::int) AS n CROSS JOIN {schema}.destination d
"""


async def pile_up(region, first, last, state="waiting"):
    """So many versions for every destination, in one state."""
    await region.execute(BACKLOG, first, last)
    await region.execute(DELIVERIES, first, last, state)
    await region.execute(
        "UPDATE {schema}.destination SET " + state + " = " + state + " + $1, wake_at = now()", last - first + 1
    )


async def test_a_destination_with_a_large_backlog_gets_its_share_and_no_more(region):
    big = await region.subscriber("big", concurrency=4, event_types=["other"])
    small = await region.subscriber("small", concurrency=4)
    await region.arrive(*(region.announcement(f"b-{n}", event_type="other") for n in range(500)))
    await region.arrive(region.announcement("s-1"), region.announcement("s-2"))
    references = await region.promote()
    count = {number: sum(each.destination_id == number for each in references) for number in (big, small)}
    assert count == {big: 8, small: 2}  # four permits, and as many ahead
    assert await region.promote() == []


async def test_a_full_destination_sleeps_until_a_settlement_wakes_it(region):
    number = await region.subscriber("a", concurrency=2)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(10)))
    leases = await region.claim(await region.promote())
    assert (await region.destination(number))["wake_at"] is None
    assert await region.next_wake() is None
    await region.settle(result(leases[0]))
    assert await region.next_wake() <= 0
    assert len(await region.promote()) == 3  # one permit is free, and two ahead


@pytest.mark.parametrize("concurrency", [1, 2, 3, 4, 9, 16])
async def test_more_is_promoted_when_half_a_window_is_free_and_surely_when_nothing_is_on_its_way(region, concurrency):
    number = await region.subscriber("a", concurrency=concurrency)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(4 * concurrency)))
    queued = await region.promote()
    assert len(queued) == 2 * concurrency
    [*leases] = await region.claim(queued[:concurrency])
    for free, lease in enumerate(leases, 1):
        [settled] = await region.settle(result(lease))
        awake = (await region.destination(number))["wake_at"] is not None
        assert awake == settled.more_waits == (2 * free >= concurrency), free
    leases = await region.claim(queued[concurrency:])
    await region.execute("UPDATE {schema}.destination SET wake_at = NULL")
    await region.settle(*(result(lease) for lease in leases))
    assert len(await region.promote()) == 2 * concurrency


async def test_what_is_due_later_wakes_its_destination_then(region):
    await region.subscriber("a")
    await region.arrive(
        region.announcement("later", delay_seconds=30.0), region.announcement("latest", delay_seconds=3000.0)
    )
    assert await region.promote() == []
    assert 25 < await region.next_wake() <= 30


async def test_work_that_nothing_would_wake_is_found(region):
    await region.subscriber("a")
    await region.arrive(region.announcement())
    await region.execute("UPDATE {schema}.destination SET wake_at = NULL")
    assert await region.promote() == []
    assert await wake_missed(region.connection, region.schema) == 1
    assert len(await region.promote()) == 1
    assert await wake_missed(region.connection, region.schema) == 0


async def test_a_lost_reference_goes_back_and_its_copy_does_nothing_should_it_turn_up(region):
    await region.subscriber("a")
    await region.arrive(region.announcement())
    [lost] = await region.promote()
    assert await requeue_lost(region.connection, region.schema, 60.0, 10) == 0
    await region.execute("UPDATE {schema}.delivery SET queued_at = now() - interval '2 minutes'")
    assert await requeue_lost(region.connection, region.schema, 60.0, 10) == 1
    [again] = await region.promote()
    assert await region.claim([lost]) == []
    assert len(await region.claim([again])) == 1


async def test_a_disabled_destination_is_closed_out_in_chunks_and_what_is_leased_may_finish(region):
    number = await region.subscriber("a", concurrency=3)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(20)))
    leases = await region.leased(3)
    await region.promote()
    await region.execute("UPDATE {schema}.destination SET disabled_at = now(), disabled_why = 'cancelled'")
    chunks = []
    while ended := await close_out(region.connection, region.schema, 5):
        chunks.append(ended)
    assert sum(chunks) == 17
    assert max(chunks) <= 10
    await region.settle(*(result(lease) for lease in leases))
    row = await region.destination(number)
    assert (row["delivered"], row["dead"], row["waiting"], row["queued"], row["in_flight"]) == (3, 17, 0, 0, 0)


@pytest.mark.parametrize("finished", [False, True], ids=["waiting", "finished"])
async def test_the_cost_of_a_step_does_not_grow_with_the_ledger(region, finished):
    """Counted in pages touched, so that a busy machine cannot change the verdict."""
    for number in range(50):
        await region.subscriber(f"d-{number}", concurrency=4)
    pages = {}
    upto = 20
    await pile_up(region, 1, upto)
    for backlog in (20, 2_000):
        if backlog > upto:
            await pile_up(region, upto + 1, backlog, "delivered" if finished else "waiting")
        await region.execute("VACUUM (ANALYZE) {schema}.delivery")
        async with watching(region.connection) as watched:
            references = await region.promote()
        assert len(references) == 8 * 50
        assert "delivery" not in watched.scanned_whole()
        pages[backlog] = watched.buffers
        leases = await region.claim(references)
        await region.settle(*(result(lease) for lease in leases))
        await requeue_lost(region.connection, region.schema, 0.0, 1000)
        await region.execute("UPDATE {schema}.destination SET wake_at = now()")
    assert pages[2_000] < 2 * pages[20], pages


async def test_no_step_of_the_hot_path_reads_the_delivery_table_from_end_to_end(region):
    for number in range(50):
        await region.subscriber(f"d-{number}", concurrency=4)
    await pile_up(region, 1, 1_000, "delivered")
    await pile_up(region, 1_001, 1_200)
    await region.execute("VACUUM (ANALYZE) {schema}.delivery")
    async with watching(region.connection) as watched:
        for _ in range(8):  # from the sixth call on, a function may use a generic plan
            leases = await region.claim(await region.promote())
            await region.settle(*(result(lease) for lease in leases))
            await expired_leases(region.connection, region.schema, 100)
            await requeue_lost(region.connection, region.schema, 60.0, 100)
            await wake_missed(region.connection, region.schema)
            await region.rows("SELECT * FROM {schema}.take_queued(100, 5)")
            await region.rows("SELECT * FROM {schema}.recount_permits()")
        await region.execute(
            "UPDATE {schema}.destination SET disabled_at = now(), disabled_why = 'disabled' WHERE id = 1"
        )
        await close_out(region.connection, region.schema, 100)
    assert len(watched.plans) > 100
    assert "delivery" not in watched.scanned_whole()
