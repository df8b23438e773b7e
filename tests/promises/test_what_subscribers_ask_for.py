"""Rates and orders, seen from the subscriber's end, with two consumers that know nothing of each other."""

import time
from collections import defaultdict

import pytest

from fanout.ledger import channels, registry
from fanout.model.shipment import ShipmentVersion
from services.deployment import versions
from services.waiting import eventually

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


async def test_a_rate_is_kept_while_two_consumers_run(deployment):
    rate = 20.0
    await deployment.subscriber("a", concurrency=8, rate_per_second=rate)
    deployment.start("publisher", "scheduler", "consumer", "consumer")
    await deployment.publish(*versions(60))
    await deployment.settled()
    times = sorted(request.arrived_at for request in deployment.receiver.received)
    assert len(times) == 60
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


@pytest.mark.parametrize(("before", "after"), [(1, 6), (6, 1)])
async def test_another_concurrency_holds_within_a_second_without_a_restart(deployment, before, after):
    await deployment.subscriber("a", concurrency=before)
    deployment.receiver.use([{"answer": 200, "delay_seconds": 0.3}])
    started = deployment.start("publisher", "scheduler", "consumer", "consumer")
    await deployment.publish(*versions(200))
    stats = deployment.receiver.stats.of("a")
    await eventually(lambda: stats.in_flight == before, 20, "the limit before is reached")
    await tune(deployment, after)
    tuned_at = time.monotonic()
    await eventually(lambda: stats.in_flight == after, 10, "the new limit is what is in flight")
    took = time.monotonic() - tuned_at
    print(f"concurrency {before} to {after}: {took:.2f} s")
    assert took < 5, "a second on a machine that is not busy"
    stats.peak_in_flight = stats.in_flight
    seen = stats.requests
    await eventually(lambda: stats.requests >= seen + 2 * after, 20, "it goes on")
    assert stats.peak_in_flight == after
    assert all(role.running for role in started)


async def tune(deployment, concurrency: int) -> None:
    """As the command does: the change, then the ring."""
    region = deployment.region
    await registry.tune(region.connection, region.schema, "a", concurrency=concurrency, by="someone")
    await region.connection.execute("SELECT pg_notify($1, '')", channels.due(region.schema))
