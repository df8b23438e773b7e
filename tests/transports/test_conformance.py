"""What every transport promises, run on each of them."""

import asyncio
import time

import pytest

from fanout.database.schema import Schema
from fanout.transports.ledger import LedgerConsuming, LedgerPublishing
from fanout.transports.rabbitmq import RabbitConsuming, RabbitPublishing, Topology
from fanout.transports.transport import Reference
from services.broker import Place
from services.region import Region
from services.waiting import eventually


class LedgerTransport:
    """Opens ends of the ledger transport of one region."""

    def __init__(self, region: Region) -> None:
        self._url, self._schema = region.url, Schema(region.schema.name)
        self._ends: list = []

    async def publishing(self):
        return self._kept(LedgerPublishing(self._url, self._schema, "tests"))

    async def consuming(self):
        return self._kept(LedgerConsuming(self._url, self._schema, "tests"))

    def _kept(self, end):
        self._ends.append(end)
        return end

    async def close(self) -> None:
        for end in self._ends:
            await end.close()


class RabbitTransport:
    """Opens ends of the RabbitMQ transport of one region."""

    def __init__(self, place: Place) -> None:
        self._url, self._topology = place.url, Topology(place.exchange, place.queue)
        self._ends: list = []

    async def publishing(self):
        return self._kept(RabbitPublishing(self._url, self._topology, "tests publishing"))

    async def consuming(self):
        consuming = self._kept(RabbitConsuming(self._url, self._topology, "tests consuming"))
        await eventually(lambda: consuming.state == "open", what="the consumer is registered")
        return consuming

    def _kept(self, end):
        self._ends.append(end)
        return end

    async def close(self) -> None:
        for end in self._ends:
            await end.close()


@pytest.fixture
async def region(database_url):
    region = await Region.open(database_url)
    await region.subscriber("a", concurrency=1000)
    yield region
    await region.connection.close()


@pytest.fixture(params=["ledger", "rabbitmq"])
def place(request):
    """Where the queue stands: names on a broker, or None for the ledger itself."""
    return Place(request.getfixturevalue("amqp_url")) if request.param == "rabbitmq" else None


@pytest.fixture
async def transport(region, place):
    transport = LedgerTransport(region) if place is None else RabbitTransport(place)
    yield transport
    await transport.close()
    if place is not None:
        await place.close()


async def promoted(region, count):
    await region.arrive(*(region.announcement(f"s-{time.monotonic_ns()}-{n}") for n in range(count)))
    return await region.promote()


async def taken(consuming, count, seconds=5.0):
    references: list[Reference] = []
    async with asyncio.timeout(seconds):
        while len(references) < count:
            for message in await consuming.take(100, 0.2):
                references += message.references
                message.done(len(message.references))
    return references


def keys(references):
    return sorted((each.delivery_id, each.dispatch, each.destination_id) for each in references)


async def test_what_is_published_is_taken_once(region, transport):
    publishing, consuming = await transport.publishing(), await transport.consuming()
    references = await promoted(region, 50)
    await publishing.publish(references)
    assert keys(await taken(consuming, 50)) == keys(references)
    assert await consuming.take(100, 0.1) == []


async def test_consumers_share_what_is_published_and_get_nothing_twice(region, transport):
    publishing = await transport.publishing()
    consumers = [await transport.consuming() for _ in range(3)]
    references = await promoted(region, 90)
    got: list[Reference] = []

    async def consume(consuming):
        while len(got) < 90:
            for message in await consuming.take(10, 0.2):
                got.extend(message.references)
                message.done(len(message.references))

    async with asyncio.timeout(10):
        await asyncio.gather(publishing.publish(references), *map(consume, consumers))
    assert keys(got) == keys(references)


async def test_a_waiting_consumer_is_woken_long_before_its_time_is_over(region, transport):
    publishing, consuming = await transport.publishing(), await transport.consuming()
    assert await consuming.take(10, 0.1) == []
    waiting = asyncio.create_task(consuming.take(10, 30.0))
    references = await promoted(region, 1)
    started = time.monotonic()
    await publishing.publish(references)
    assert await asyncio.wait_for(waiting, 10)
    assert time.monotonic() - started < 10


async def test_take_honours_its_size_roughly_and_leaves_the_rest_to_others(region, transport):
    publishing = await transport.publishing()
    first, second = await transport.consuming(), await transport.consuming()
    await publishing.publish(await promoted(region, 60))
    some = [reference for message in await first.take(20, 5.0) for reference in message.references]
    assert 0 < len(some) <= 50
    assert len(await taken(second, 60 - len(some))) == 60 - len(some)


async def test_a_reference_whose_consumer_vanished_is_offered_again(region, transport):
    publishing, vanishing = await transport.publishing(), await transport.consuming()
    references = await promoted(region, 5)
    await publishing.publish(references)
    await eventually(lambda: vanishing.take(10, 0.5), what="references to take")
    await vanishing.close()
    heir = await transport.consuming()
    assert keys(await taken(heir, 5, seconds=15)) == keys(references)


async def test_publishing_nothing_is_nothing(transport):
    publishing, consuming = await transport.publishing(), await transport.consuming()
    await publishing.publish([])
    assert await consuming.take(10, 0.1) == []


async def test_closing_while_a_consumer_waits_ends_in_order(transport):
    consuming = await transport.consuming()
    waiting = asyncio.create_task(consuming.take(10, 30.0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(5):
        await consuming.close()
