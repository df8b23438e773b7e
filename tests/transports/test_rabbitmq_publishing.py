"""Nothing counts as sent without the broker's confirm."""

import asyncio
import gc

import aio_pika
import pytest

from fanout.transports.rabbitmq import NotConfirmed, RabbitConsuming, RabbitPublishing, Topology
from fanout.transports.transport import QueueUnavailable, Reference
from services.waiting import eventually


def references(count, start=0, **changes):
    return [Reference(start + n, 1, n % 5, **changes) for n in range(count)]


@pytest.fixture
def topology(place):
    return Topology(place.exchange, place.queue)


@pytest.fixture
async def publishing(place, topology):
    publishing = RabbitPublishing(place.url, topology, "tests publishing", confirm_seconds=3)
    yield publishing
    await publishing.close()


async def test_messages_are_durable_and_say_what_they_are(place, publishing):
    await publishing.publish(references(70))
    got = [await place.get(place.queue) for _ in range(2)]
    assert {message.delivery_mode for message in got} == {aio_pika.DeliveryMode.PERSISTENT}
    assert {message.content_type for message in got} == {"application/json"}
    assert len({message.message_id for message in got}) == 2
    assert await place.get(place.queue) is None
    assert (publishing.figures.messages_confirmed, publishing.figures.references_confirmed) == (2, 70)


async def test_publishing_the_same_references_at_once_gives_each_message_an_id_of_its_own(place, publishing):
    await asyncio.gather(*(publishing.publish(references(1)) for _ in range(30)))
    ids = [(await place.get(place.queue)).message_id for _ in range(30)]
    assert len(set(ids)) == 30


async def test_what_no_queue_takes_is_not_sent_and_the_queue_is_made_again(place, topology):
    lost = []
    publishing = RabbitPublishing(place.url, topology, "tests publishing", on_queue_lost=lambda: lost.append(1))
    try:
        await publishing.publish(references(1))
        found_on_start = len(lost)
        await place.delete()
        with pytest.raises(
            NotConfirmed, match=rf"no way to queue '{place.queue}' by exchange '{place.exchange}'"
        ) as error:
            await publishing.publish(references(3))
        assert list(error.value.references) == references(3)
        await eventually(lambda: len(lost) > found_on_start, what="the loss of the queue is reported")
        await publishing.publish(error.value.references)
        assert (await place.counts())[0] == 1
    finally:
        await publishing.close()


async def test_only_what_was_not_confirmed_is_named_for_another_try(place, publishing):
    """A queue that holds one message and refuses more, as one of 4.x may by policy; here made by another."""
    await publishing.publish(references(1))
    await place.delete([place.queue])
    channel = await place.channel()
    full = {"x-queue-type": "quorum", "x-max-length": 1, "x-overflow": "reject-publish"}
    queue = await channel.declare_queue(place.queue, durable=True, arguments=full)
    await queue.bind(place.exchange, place.queue)
    before = publishing.figures.messages_confirmed

    async def fill():  # a quorum queue lets some more in before it tells
        for start in range(0, 100_000, 250):
            await publishing.publish(references(250, start))

    with pytest.raises(NotConfirmed, match=r"did not take a message for queue .* it is full") as error:
        await fill()
    figures = publishing.figures
    assert len(error.value.references) == 50 * figures.messages_not_confirmed
    assert (await place.counts())[0] == figures.messages_confirmed - before
    assert publishing.state == "open", "a full queue is no reason to reconnect"


async def test_a_broker_that_is_not_there_is_unavailable_at_once_and_says_where(topology):
    publishing = RabbitPublishing("amqp://guest:hidden@127.0.0.1:9/", topology, "tests publishing")
    try:
        started = asyncio.get_running_loop().time()
        with pytest.raises(QueueUnavailable, match="Connect call failed") as error:
            await publishing.publish(references(1))
        assert asyncio.get_running_loop().time() - started < 2
        assert "hidden" not in str(error.value)
        assert publishing.state == "away"
    finally:
        await publishing.close()


async def test_a_message_says_which_span_queued_it(place, publishing):
    await publishing.publish(references(70), "00-ab")
    await publishing.publish(references(1))
    got = [await place.get(place.queue) for _ in range(3)]
    assert [message.headers.get("traceparent") for message in got] == ["00-ab", "00-ab", None]


async def test_headers_too_large_for_a_frame_are_left_out_and_break_no_connection(place, publishing, topology):
    consuming = RabbitConsuming(place.url, topology, "tests consuming")
    try:
        sends = (publishing.publish(references(10, start), "x" * 200_000) for start in range(0, 100, 10))
        await asyncio.gather(*sends)
        messages = await consuming.take(100, 5)
        assert {message.traceparent for message in messages} == {None}
        assert publishing._sending.link.reconnections == 0
    finally:
        await consuming.close()


async def test_the_number_of_channels_does_not_grow_with_what_is_published(place, publishing):
    def channels():
        gc.collect()
        return sum(isinstance(each, aio_pika.abc.AbstractChannel) for each in gc.get_objects())

    await publishing.publish(references(1))
    before = channels()
    for start in range(0, 10_000, 500):
        await publishing.publish(references(500, start))
    assert channels() == before


async def test_it_says_how_much_nobody_was_given_yet_over_one_channel_however_often_it_is_asked(place):
    publishing = RabbitPublishing(place.url, Topology(place.exchange, place.queue), "tests publishing")
    assert await publishing.ready() == 0
    await publishing.publish([Reference(1, 1, 1, probation=True), Reference(2, 1, 2, probation=True)])

    async def both_are_ready():
        return await publishing.ready() == 2

    await eventually(both_are_ready, what="two messages")
    channels = len(publishing._sending.link._session._channels)
    assert await publishing.ready() == 2
    assert len(publishing._sending.link._session._channels) == channels
    publishing._sending.link.drop("a test")
    assert await publishing.ready() == 2, "also over the next connection"
    await publishing.close()
    with pytest.raises(QueueUnavailable):
        await publishing.ready()


async def test_asking_is_enough_to_notice_that_the_queue_was_deleted(place):
    lost = []
    topology = Topology(place.exchange, place.queue)
    publishing = RabbitPublishing(place.url, topology, "tests publishing", on_queue_lost=lambda: lost.append(1))
    assert await publishing.ready() == 0
    lost.clear()
    await place.delete([place.queue])
    with pytest.raises(QueueUnavailable):
        await publishing.ready()
    assert await publishing.ready() == 0
    assert lost == [1]
    await publishing.close()
