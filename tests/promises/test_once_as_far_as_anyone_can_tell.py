"""P2, P3, P5: one identity, at least once and honestly, fenced. Real processes, killed in the worst moment."""

import asyncio

import asyncpg

from fanout.home.publishing import Verdict
from fanout.model.shipment import ShipmentVersion
from services.deployment import versions
from services.waiting import eventually

ARRIVED = "the request at the subscriber"


async def test_a_worker_killed_between_the_answer_and_the_commit_leads_to_a_second_post_with_the_same_key(deployment):
    number = await deployment.subscriber("a", timeout_seconds=2)
    deployment.receiver.use([{"when": {"first": 1}, "answer": 200, "delay_seconds": 0.5}])
    _, _, consumer = deployment.start()
    await deployment.publish(*versions(1))
    await eventually(lambda: deployment.receiver.stats.total("requests") == 1, 20, ARRIVED)

    # The destination's row is ours: the answer comes, and its settlement has to wait for us.
    blocker = await asyncpg.connect(deployment.region.url)
    lock = blocker.transaction()
    await lock.start()
    await blocker.execute(
        deployment.region.schema.sql("SELECT FROM {schema}.destination WHERE id = $1 FOR UPDATE"), number
    )
    await eventually(lambda: deployment.receiver.stats.answers[200] == 1, 10, "the answer 200")
    await eventually(_settlement_waits(deployment), 10, "a settlement that waits for our lock")
    consumer.kill()
    await consumer.ended()
    await blocker.execute(
        f"SELECT pg_terminate_backend(pid) {THE_SETTLEMENT}"
    )  # else the server would commit for the dead
    await lock.rollback()
    await blocker.close()

    deployment.start("consumer")
    await deployment.delivered(1, 30)
    assert await deployment.attempts() == [(1, "unknown"), (2, "delivered")]
    keys = deployment.keys()
    assert keys == ["shipment:s-0:subscriber:a:version:1"] * 2
    assert [each.header("Fanout-Attempt") for each in deployment.receiver.received] == ["1", "2"]
    assert len({each.header("webhook-id") for each in deployment.receiver.received}) == 1


THE_SETTLEMENT = "FROM pg_stat_activity WHERE query LIKE '%settle_and_claim(%' AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"


def _settlement_waits(deployment):
    async def waits() -> bool:
        return await deployment.region.value(f"SELECT count(*) {THE_SETTLEMENT}") == 1

    return waits


async def test_a_result_that_comes_after_the_lease_ended_is_late_and_changes_nothing(deployment):
    await deployment.subscriber("a", timeout_seconds=10)
    deployment.receiver.use([{"when": {"first": 1}, "answer": 410, "delay_seconds": 3}])
    deployment.start()
    await deployment.publish(*versions(1))
    await eventually(lambda: deployment.receiver.stats.total("requests") == 1, 20, ARRIVED)
    await deployment.region.execute(
        "UPDATE {schema}.delivery SET lease_until = clock_timestamp() WHERE state = 'leased'"
    )
    await deployment.delivered(1)
    [before] = await deployment.region.rows("SELECT * FROM {schema}.delivery")

    async def late() -> bool:
        return await deployment.region.value("SELECT count(*) FROM {schema}.late_result") == 1

    await eventually(late, 15, "the late result")
    assert await deployment.attempts() == [(1, "unknown"), (2, "delivered")]
    assert (await deployment.region.rows("SELECT * FROM {schema}.delivery")) == [before]
    [row] = await deployment.region.rows("SELECT * FROM {schema}.destination")
    assert (row["disabled_at"], row["late_results"]) == (None, 1), "a late 410 disables nothing"


async def test_the_same_version_again_sends_nothing_new_and_other_bytes_are_a_conflict(deployment):
    await deployment.subscriber("a")
    deployment.start()
    version = ShipmentVersion("s-1", 7, "shipment.booked", b'{"a":1}', "application/json", {"carrier": "UA"})
    same = ShipmentVersion("s-1", 7, "shipment.booked", b'{"a":1}', "application/json", {"carrier": "UA"})
    other = ShipmentVersion("s-1", 7, "shipment.booked", b'{"a": 1}', "application/json", {"carrier": "UA"})
    after = ShipmentVersion("s-2", 1, "shipment.booked", b"{}")
    verdicts = []
    for each in (version, same, other):
        verdicts += [receipt.verdict for receipt in await deployment.publish(each)]
    await deployment.delivered(1)
    verdicts += [receipt.verdict for receipt in await deployment.publish(same, other, after)]
    assert verdicts == [
        Verdict.ACCEPTED, Verdict.DUPLICATE, Verdict.CONFLICT, Verdict.DUPLICATE, Verdict.CONFLICT, Verdict.ACCEPTED,
    ]  # fmt: skip
    await deployment.delivered(2)
    assert sorted(deployment.keys()) == ["shipment:s-1:subscriber:a:version:7", "shipment:s-2:subscriber:a:version:1"]


async def test_twenty_publishers_of_one_version_at_once_make_one(deployment):
    await deployment.subscriber("a")
    connections = [await asyncpg.connect(deployment.region.url) for _ in range(10)]
    from fanout.home.publishing import publish

    try:
        version = versions(1)[0]
        receipts = await asyncio.gather(*(publish(connection, version) for connection in connections))
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))
    assert sorted(receipt.verdict for receipt in receipts) == [Verdict.ACCEPTED] + [Verdict.DUPLICATE] * 9


async def test_a_publish_that_is_rolled_back_never_was(deployment):
    await deployment.subscriber("a")
    deployment.start()
    lost = deployment.region.connection.transaction()
    await lost.start()
    await deployment.publish(*versions(1))
    await lost.rollback()
    await deployment.publish(ShipmentVersion("kept", 1, "shipment.booked", b"x"))
    await deployment.delivered(1)
    assert deployment.keys() == ["shipment:kept:subscriber:a:version:1"]


async def test_a_transaction_that_commits_late_is_not_lost(deployment):
    await deployment.subscriber("a")
    deployment.start("publisher", "scheduler", "consumer")
    late = await asyncpg.connect(deployment.region.url)
    transaction = late.transaction()
    await transaction.start()
    from fanout.home.publishing import publish

    await publish(late, ShipmentVersion("late", 1, "shipment.booked", b"x"))  # takes the lower number
    await deployment.publish(ShipmentVersion("early", 1, "shipment.booked", b"x"))
    await deployment.delivered(1)
    await transaction.commit()
    await late.close()
    await deployment.delivered(2)
