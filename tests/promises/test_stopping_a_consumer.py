"""P4, P6: a consumer that is asked to stop with its hands full ends in order: nothing is lost and nothing is sent twice."""

import time
from collections import Counter

from services.deployment import versions
from services.waiting import eventually

SUBSCRIBERS, CONCURRENCY = 25, 8
IN_FLIGHT = SUBSCRIBERS * CONCURRENCY
VERSIONS = CONCURRENCY + 2
ANSWER_SECONDS = 2.0
GRACE_SECONDS = 30.0


async def test_sigterm_with_200_requests_in_flight_ends_in_order_within_the_grace_period(over_rabbitmq):
    deployment = over_rabbitmq
    for number in range(SUBSCRIBERS):
        await deployment.subscriber(f"sub-{number}", concurrency=CONCURRENCY)
    deployment.receiver.use([{"answer": 200, "delay_seconds": ANSWER_SECONDS}])
    stats = deployment.receiver.stats
    _, _, consumer = deployment.start()
    await deployment.publish(*versions(VERSIONS))
    await eventually(lambda: stats.in_flight == IN_FLIGHT, 30, f"{IN_FLIGHT} requests at once")

    began = time.monotonic()
    consumer.terminate()
    assert await consumer.ended(GRACE_SECONDS) == 0
    took = time.monotonic() - began
    assert stats.total("cut") == 0, "what was in flight had its answer"
    left = await deployment.region.value("SELECT sum(waiting + queued) FROM {schema}.destination")
    assert await deployment.region.value("SELECT sum(in_flight) FROM {schema}.destination") == 0
    assert left + stats.total("requests") == SUBSCRIBERS * VERSIONS, "the rest has its place"

    deployment.start("consumer")
    totals = await deployment.settled()
    assert (totals["delivered"], totals["unknown"], totals["late"]) == (SUBSCRIBERS * VERSIONS, 0, 0)
    assert set(Counter(deployment.keys()).values()) == {1}, "each key came once"
    assert max(each.peak_in_flight for each in stats.subscribers.values()) == CONCURRENCY
    print(f"stopped with {IN_FLIGHT} in flight, {took:.1f} s after SIGTERM (answers took {ANSWER_SECONDS:g} s)")
