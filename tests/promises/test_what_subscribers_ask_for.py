"""Rates and orders, seen from the subscriber's end, with two consumers that know nothing of each other."""

from collections import defaultdict

from fanout.model.shipment import ShipmentVersion
from services.deployment import versions

LAG_SECONDS = 0.5
"""So late may a busy machine make one request, without the next one moving."""


def shipments(count: int, version_count: int) -> list[ShipmentVersion]:
    """In the order of versions, as a publisher would."""
    return [
        ShipmentVersion(f"s-{n}", version, "shipment.booked", b"{}", "application/json")
        for version in range(version_count)
        for n in range(count)
    ]


def versions_seen(receiver) -> dict[str, list[int]]:
    seen = defaultdict(list)
    for request in receiver.received:
        seen[request.header("Fanout-Shipment-Id")].append(int(request.header("Fanout-Version")))
    return seen


async def test_a_rate_is_kept_over_two_consumers(deployment):
    rate = 20.0
    await deployment.subscriber("a", concurrency=8, rate_per_second=rate)
    deployment.start("publisher", "scheduler", "consumer", "consumer")
    await deployment.publish(*versions(60))
    await deployment.settled()
    times = sorted(request.arrived_at for request in deployment.receiver.received)
    assert len(times) == 60
    workers = await deployment.region.value("SELECT count(DISTINCT worker) FROM {schema}.attempt")
    assert workers == 2
    too_early = max(
        (later - earlier) / rate - (times[later] - times[earlier])
        for earlier in range(60)
        for later in range(earlier, 60)
    )
    assert too_early < LAG_SECONDS


async def test_one_version_of_a_shipment_after_the_other_also_under_retries(deployment):
    await deployment.subscriber("a", concurrency=8, ordering="per_shipment")
    deployment.receiver.use([{"when": {"first": 5}, "answer": 500}, {"answer": 200, "delay_seconds": 0.01}])
    deployment.start("publisher", "scheduler", "consumer", "consumer")
    await deployment.publish(*shipments(10, 5))
    sums = await deployment.settled()
    assert (sums["delivered"], sums["dead"]) == (50, 0)
    for seen in versions_seen(deployment.receiver).values():
        assert seen == sorted(seen), "a retry comes before whatever is behind it"
        assert set(seen) == set(range(5))


async def test_the_latest_version_is_what_every_shipment_ends_with(deployment):
    await deployment.subscriber("a", concurrency=4, ordering="latest")
    deployment.receiver.use([{"answer": 200, "delay_seconds": 0.05}])
    deployment.start("publisher", "scheduler", "consumer", "consumer")
    await deployment.publish(*shipments(10, 8))
    sums = await deployment.settled()
    assert sums["accepted"] == sums["delivered"] + sums["dead"] == 80
    seen = versions_seen(deployment.receiver)
    assert len(seen) == 10
    for versions_of_one in seen.values():
        assert versions_of_one == sorted(versions_of_one)
        assert versions_of_one[-1] == 7
    reasons = await deployment.region.rows("SELECT DISTINCT reason FROM {schema}.delivery WHERE state = 'dead'")
    assert {row["reason"] for row in reasons} <= {"superseded"}
    assert sums["dead"] > 0
