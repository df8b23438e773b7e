"""P4: the queue is a hint. What is lost with it is promoted again, whichever end notices and whatever the other end does meanwhile."""

import pytest
from aiormq.exceptions import ChannelNotFoundEntity

from services.deployment import versions
from services.waiting import eventually

COUNT = 12


@pytest.fixture
async def queued(over_rabbitmq, deployment, place):
    """Deliveries that stand in a queue of RabbitMQ, and nobody who consumes it."""
    await deployment.subscriber("a", concurrency=COUNT)
    deployment.start("publisher")
    [scheduler] = deployment.start("scheduler")
    await deployment.publish(*versions(COUNT))
    await eventually(lambda: in_state(deployment, "queued", COUNT), 20, "queued in the ledger")
    await eventually(lambda: ready(place), 10, "and in the broker")
    return scheduler


async def in_state(deployment, state, count):
    return count == await deployment.region.value(
        "SELECT count(*) FROM {schema}.delivery WHERE state::text = $1", state
    )


async def ready(place):
    try:
        return (await place.counts())[0] > 0
    except ChannelNotFoundEntity:  # not declared yet
        return False


async def test_a_consumer_that_finds_the_queue_gone_puts_back_what_it_held_though_no_scheduler_is_there(
    deployment, place, queued
):
    queued.freeze()
    await place.delete([place.queue])
    deployment.start("consumer")
    await eventually(lambda: in_state(deployment, "waiting", COUNT), 20, "put back by the consumer")
    queued.thaw()
    await deployment.delivered(COUNT, 10)
    assert sorted(set(deployment.keys())) == sorted(deployment.keys()), "each once"
