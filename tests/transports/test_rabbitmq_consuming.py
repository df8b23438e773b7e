"""What is taken, acknowledged, set aside, and what happens when the channel or the queue goes."""

import asyncio
import gc

import pytest

from fanout.transports.rabbitmq import RabbitConsuming, RabbitPublishing, Topology
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


@pytest.fixture
async def opens(place, topology):
    """Opens consuming ends and waits until they consume."""
    ends = []

    async def open_consuming(**options):
        consuming = RabbitConsuming(place.url, topology, "tests consuming", **options)
        ends.append(consuming)
        await eventually(lambda: consuming.state == "open", what="consuming")
        return consuming

    yield open_consuming
    for end in ends:
        await end.close()


async def take_all(consuming, count):
    messages = []
    async with asyncio.timeout(10):
        while sum(len(message.references) for message in messages) < count:
            try:
                messages += await consuming.take(100, 0.2)
            except QueueUnavailable:
                await asyncio.sleep(0.02)
    return messages


def cut(end):
    """As if the network were gone: no word from either side."""
    end._link._session._wire.abort()


async def test_a_message_is_acknowledged_with_its_last_reference_and_not_before(place, publishing, opens):
    consuming = await opens()
    await publishing.publish(references(50))
    (message,) = await consuming.take(50, 5)
    message.done(49)
    await consuming.close()
    await eventually(_ready(place, 1), what="given out again: one reference was not done")
    heir = await opens()
    (message,) = await heir.take(50, 5)
    for _ in range(50):
        message.done()
    await eventually(lambda: heir.figures.acknowledged == 1, what="acknowledged")
    await heir.close()
    assert (await place.counts())[0] == 0


async def test_messages_that_end_in_any_order_are_all_acknowledged_and_the_slow_one_is_not(place, publishing, opens):
    consuming = await opens()
    for n in range(20):
        await publishing.publish(references(1, n))
    messages = await take_all(consuming, 20)
    for message in (*messages[12:], *messages[4:12], *messages[:3]):
        message.done()
        await asyncio.sleep(0)
    await consuming.close()
    await eventually(_ready(place, 1), what="only the slow one is given out again")


async def test_losing_the_connection_forgets_its_tags_and_gives_the_messages_out_again(publishing, opens):
    consuming = await opens()
    await publishing.publish(references(3, probation=True))
    old = await take_all(consuming, 3)
    cut(consuming)
    new = await take_all(consuming, 3)
    for message in old:
        message.done(len(message.references))
    assert consuming.figures.acks_forgotten == 3
    assert {each.delivery_id for message in new for each in message.references} == {0, 1, 2}
    for message in new:
        message.done(len(message.references))
    await eventually(lambda: consuming.figures.acknowledged >= 1, what="acknowledged on the new channel")
    assert consuming.figures.acks_failed == 0
    assert consuming._link.reconnections == 1, "an old tag on the new channel would have closed it"


async def test_an_acknowledgement_that_the_broker_does_not_know_closes_the_channel_and_consuming_goes_on(
    publishing, opens
):
    consuming = await opens()
    await publishing.publish(references(2, probation=True))
    first, second = await take_all(consuming, 2)
    underlay = await consuming._epoch.channel.get_underlay_channel()
    await underlay.basic_ack(99_999)
    first.done()
    await eventually(lambda: consuming._link.reconnections == 1, what="the channel is lost")
    second.done()
    again = await take_all(consuming, 1)
    assert again[-1].references == second.references
    assert "unknown delivery tag" in consuming.trouble


async def test_a_failed_acknowledgement_is_counted_and_never_fatal(publishing, opens):
    consuming = await opens()
    await publishing.publish(references(1))
    (message,) = await take_all(consuming, 1)
    epoch = consuming._epoch
    epoch.session.over.clear()
    await (await epoch.channel.get_underlay_channel()).close()  # the session does not know yet
    epoch.acknowledgements.over(1)
    await consuming._tell_over(epoch)
    assert consuming.figures.acks_failed == 1
    (again,) = await take_all(consuming, 1)
    assert again.references == message.references


async def test_prefetch_holds_before_and_after_a_reconnection(place, publishing, opens):
    for n in range(40):
        await publishing.publish(references(1, n))
    consuming = await opens(prefetch=5)
    for _ in range(2):
        await eventually(lambda: len(consuming._epoch.arrived) == 5, what="as many as prefetch allows")
        await asyncio.sleep(0.1)
        assert len(consuming._epoch.arrived) == 5
        await eventually(_ready(place, 35), what="the rest stays with the broker")
        before = consuming._link.reconnections
        cut(consuming)
        await eventually(
            lambda before=before: consuming._link.reconnections > before and consuming.state == "open",
            what="reconnected",
        )


def _ready(place, count):
    async def is_so():
        return (await place.counts())[0] == count

    return is_so


async def test_a_deleted_queue_is_made_again_and_its_loss_reported(place, publishing, opens):
    lost = []
    consuming = await opens(on_queue_lost=lambda: lost.append(1), check_seconds=60)
    found_on_start = len(lost)
    await publishing.publish(references(1))
    await place.delete()
    await eventually(lambda: len(lost) == found_on_start + 1, what="the loss of the queue is reported")
    await eventually(lambda: consuming.state == "open", what="consuming again")
    await publishing.publish(references(1, 7))
    (message,) = await take_all(consuming, 1)
    assert message.references[0].delivery_id == 7


async def test_a_queue_that_another_end_made_again_before_we_looked_was_lost_all_the_same(place, opens, monkeypatch):
    lost = []
    consuming = await opens(on_queue_lost=lambda: lost.append(1), check_seconds=60)
    lost.clear()
    prepare = Topology.prepare

    async def prepare_after_another(self, session):
        await prepare(self, session)
        return await prepare(self, session)

    monkeypatch.setattr(Topology, "prepare", prepare_after_another)
    await place.delete([place.queue])
    await eventually(lambda: lost and consuming.state == "open", what="told, and consuming again")


async def test_what_is_malformed_goes_to_the_dead_letter_queue_with_its_reason(place, publishing, opens):
    consuming = await opens()
    await place.put(b"not ours", message_id="m-1", headers={"big": "x" * 50_000})
    await publishing.publish(references(1))
    (message,) = await take_all(consuming, 1)
    message.done()
    dead = await eventually(lambda: place.get(f"{place.queue}.dead"), what="a dead letter")
    assert dead.body == b"not ours"
    assert dead.headers["fanout-reason"].startswith("not an envelope of references")
    assert dead.headers["fanout-queue"] == place.queue
    await eventually(lambda: consuming.figures.acknowledged >= 1, what="acknowledged")
    await consuming.close()
    assert consuming.figures.malformed == 1
    assert (await place.counts())[0] == 0, "neither stays in the work queue"


async def test_a_deleted_dead_letter_queue_is_made_again_for_the_next_malformed_message(place, opens):
    consuming = await opens()
    for malformed, body in enumerate((b"the first", b"the second"), 1):
        await place.put(body)
        await eventually(
            lambda count=malformed: consuming.figures.malformed == count and consuming._epoch.unfinished == 0,
            what="it is buried",  # looked for before, RabbitMQ 4 cuts the connection of whoever looks while the queue is being made
        )
        dead = await place.get(f"{place.queue}.dead")
        assert dead.body == body
        await place.delete([f"{place.queue}.dead"])
    assert consuming.state == "open"


async def test_malformed_messages_do_not_come_back_where_the_dead_letter_queue_cannot_be_reached(place, opens):
    """The dead-letter queue is deleted: the broker drops what is rejected. Normal deliveries are not concerned."""
    consuming = await opens()
    await place.delete([f"{place.queue}.dead"])
    for n in range(5):
        await place.put(b"not ours %d" % n)
    await eventually(lambda: consuming.figures.malformed == 5, what="all five seen")
    await eventually(lambda: consuming._epoch.unfinished == 0, what="all five gone")
    await consuming.close()
    assert (await place.counts())[0] == 0


async def test_connected_but_consuming_nothing_is_noticed_and_mended(place, publishing, opens):
    """The consumer is cancelled behind our back, while another one keeps the queue looking consumed."""
    consuming = await opens(check_seconds=0.1, silent_seconds=0.5)
    await consuming._epoch.queue.cancel(consuming._epoch.consumer_tag)
    channel = await place.channel()
    await channel.set_qos(1)

    async def hoard(_message):
        pass

    other = await (await channel.get_queue(place.queue, ensure=False)).consume(hoard)
    await publishing.publish(references(3, probation=True))
    messages = await take_all(consuming, 2)
    assert consuming.figures.silences == 1
    assert len(messages) >= 2
    await (await channel.get_queue(place.queue, ensure=False)).cancel(other)


async def test_a_queue_without_consumers_though_we_are_one_is_noticed_and_mended(place, opens):
    consuming = await opens(check_seconds=0.1, silent_seconds=60)
    await consuming._epoch.queue.cancel(consuming._epoch.consumer_tag)
    await eventually(lambda: consuming.figures.silences == 1, what="noticed")
    await eventually(lambda: consuming.state == "open", what="open")
    assert (await place.counts())[1] == 1


async def test_a_quiet_queue_and_a_full_consumer_are_no_silence(place, publishing, opens):
    consuming = await opens(prefetch=1, check_seconds=0.05, silent_seconds=0.1)
    await asyncio.sleep(0.5)
    for n in range(3):
        await publishing.publish(references(1, n))
    await eventually(_ready(place, 2), what="two wait behind the one we hold")
    await asyncio.sleep(0.5)
    assert consuming.figures.silences == 0
    assert consuming._link.reconnections == 0


async def test_consumers_survive_a_collection_of_garbage(publishing, opens):
    consuming = await opens()
    gc.collect()
    await publishing.publish(references(1))
    assert await take_all(consuming, 1)
    cut(consuming)
    gc.collect()
    await publishing.publish(references(1))
    assert await take_all(consuming, 2)


async def test_a_message_given_out_too_often_goes_to_the_dead_letter_queue(place, publishing, monkeypatch):
    monkeypatch.setattr("fanout.transports.rabbitmq.topology.DELIVERY_LIMIT", 2)
    await place.delete()
    topology = Topology(place.exchange, place.queue)
    consuming = RabbitConsuming(place.url, topology, "tests consuming")
    try:
        await eventually(lambda: consuming.state == "open", what="consuming")
        await publishing.publish(references(1))
        for _ in range(3):
            assert await take_all(consuming, 1)
            cut(consuming)
        dead = await eventually(lambda: place.get(f"{place.queue}.dead"), what="a dead letter")
        assert dead.headers["x-death"][0]["reason"] == "delivery_limit"
    finally:
        await consuming.close()
