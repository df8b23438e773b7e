"""A result counts while its token is current; what comes later is kept apart and changes nothing (P5)."""

import asyncio

import asyncpg
import pytest

from fanout.ledger.settlement import settle
from fanout.ledger.sweeping import expired_leases
from fanout.model.states import Outcome, Reason, State
from services.plans import watching
from services.region import released, result


async def expire(region, lease):
    """End a lease early and settle it as the sweep does."""
    await region.execute(
        "UPDATE {schema}.delivery SET lease_until = clock_timestamp() - interval '1 ms' WHERE id = $1",
        lease.delivery_id,
    )
    [expired] = await expired_leases(region.connection, region.schema, 10)
    assert expired.token == lease.token
    return await region.settle(
        result(lease, Outcome.UNKNOWN, expired=True, duration_ms=None, started_ms=None, config_version=None),
        worker="sweep",
    )


async def snapshot(region):
    return (
        await region.rows("SELECT * FROM {schema}.delivery ORDER BY id"),
        await region.rows("SELECT * FROM {schema}.attempt ORDER BY delivery_id, n"),
        await region.rows(
            "SELECT in_flight, queued, waiting, delivered, dead, send_window, hold_until, fail_streak FROM {schema}.destination ORDER BY id"
        ),
    )


@pytest.mark.parametrize("outcome", [Outcome.DELIVERED, Outcome.FAILED, Outcome.THROTTLED])
async def test_the_result_of_a_worker_whose_lease_ended_is_recorded_as_late_and_changes_nothing(region, outcome):
    number = await region.subscriber("a")
    await region.arrive(region.announcement())
    [lease] = await region.leased()
    await expire(region, lease)
    for _ in range(2):  # before it is leased again, and while another worker has it
        before = await snapshot(region)
        [answer] = await region.settle(result(lease, outcome, hold_seconds=60.0), worker="slow")
        assert not answer.settled
        assert await snapshot(region) == before
        references = await region.promote()
        await region.claim(references, worker="other")
    late = await region.rows("SELECT * FROM {schema}.late_result")
    assert [(row["worker"], row["outcome"], row["token"]) for row in late] == [("slow", outcome.value, lease.token)]
    assert (await region.destination(number))["late_results"] == 1


async def test_a_late_result_is_late_also_after_a_redrive(region):
    await region.subscriber("a")
    await region.arrive(region.announcement())
    [lease] = await region.leased()
    await region.settle(result(lease, Outcome.REJECTED, state=State.DEAD, reason=Reason.REJECTED))
    await region.execute(
        "UPDATE {schema}.delivery SET state = 'waiting', reason = NULL, finished_at = NULL, eligible_at = now(), aged_from = now()"
    )
    await region.execute("UPDATE {schema}.destination SET dead = dead - 1, waiting = waiting + 1, wake_at = now()")
    [again] = await region.leased()
    before = await snapshot(region)
    [answer] = await region.settle(result(lease), worker="zombie")
    assert not answer.settled
    assert await snapshot(region) == before
    assert again.token > lease.token


async def test_a_repeat_after_a_lost_answer_to_commit_does_nothing_and_is_not_late(region):
    await region.subscriber("a", concurrency=3)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(3)))
    leases = await region.leased(3)
    results = [result(leases[0]), result(leases[1], Outcome.FAILED, delay_seconds=60.0), released(leases[2])]
    await region.settle(*results)
    before = await snapshot(region)
    await region.settle(*results)
    assert await snapshot(region) == before
    assert await region.value("SELECT count(*) FROM {schema}.late_result") == 0


async def test_an_expired_lease_leaves_an_unknown_attempt_that_counts(region):
    number = await region.subscriber("a")
    await region.arrive(region.announcement())
    [lease] = await region.leased()
    await expire(region, lease)
    delivery = await region.delivery(lease.delivery_id)
    assert (delivery["state"], delivery["attempts"], delivery["budget_used"], delivery["expired_streak"]) == (
        "waiting",
        1,
        1,
        1,
    )
    [attempt] = await region.rows("SELECT * FROM {schema}.attempt")
    assert (attempt["outcome"], attempt["expired"], attempt["n"]) == ("unknown", True, 1)
    assert (await region.destination(number))["unknown_attempts"] == 1
    [again] = await region.leased()
    await region.settle(result(again))
    assert (await region.delivery(lease.delivery_id))["expired_streak"] == 0


async def test_one_bad_row_is_refused_alone(region):
    """The function refuses the whole batch: splitting it is the consumer's lane, and nothing is half written."""
    await region.subscriber("a", concurrency=2)
    await region.arrive(region.announcement("s-1"), region.announcement("s-2"))
    good, bad = await region.leased(2)
    before = await snapshot(region)
    with pytest.raises(asyncpg.CheckViolationError):
        await region.settle(result(good), result(bad, Outcome.REJECTED, state=State.DEAD, reason=None))
    assert await snapshot(region) == before


async def test_batches_in_opposite_order_do_not_deadlock(region, database_url):
    for number in range(20):
        await region.subscriber(f"d-{number}", concurrency=8)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(8)))
    first, second = await asyncpg.connect(database_url), await asyncpg.connect(database_url)
    try:
        for _ in range(5):
            leases = await region.leased(100)
            half = [released(lease) for lease in leases]
            answers = await asyncio.gather(
                settle(first, region.schema, half, "one", 0.0), settle(second, region.schema, half[::-1], "two", 0.0)
            )
            assert sum(each.settled for answer in answers for each in answer) == len(leases)
    finally:
        await first.close()
        await second.close()


async def test_a_settlement_reads_only_its_own_rows_and_calls_nothing_for_each_of_them(region):
    """Also where the statistics are of a time when nothing was leased. A function that is called for each row has a plan each time."""
    for number in range(30):
        await region.subscriber(f"d-{number}")
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(40)))
    await region.execute("VACUUM (ANALYZE) {schema}.delivery")
    leases = await region.leased(60)
    plans, indexes = {}, set()
    for count in (1, 30):
        async with watching(region.connection) as watched:
            await region.settle(*(result(leases.pop()) for _ in range(count)))
        plans[count] = sum(
            "step_taken" not in plan["Query Text"] for plan in watched.plans
        )  # that is the tests' own trigger
        indexes |= {node["Index Name"] for node in watched.nodes() if "Index Name" in node}
    assert plans[30] == plans[1]
    assert "delivery_pkey" in indexes
    assert "delivery_leased" not in indexes
