"""The message carries the span that queued its references, and whoever takes them links to it."""

import pytest
from way import Spans, Way, links_of, place_of, way_through

from fanout.model.trace_context import TraceParent
from fanout.transports.rabbitmq import RabbitConsuming, RabbitPublishing
from services.broker import Place


@pytest.fixture
def messages(monkeypatch):
    """Every message that was taken."""
    kept = []
    take = RabbitConsuming.take

    async def take_and_keep(self, most, at_most_seconds):
        taken = await take(self, most, at_most_seconds)
        kept.extend(taken)
        return taken

    monkeypatch.setattr(RabbitConsuming, "take", take_and_keep)
    return kept


@pytest.fixture
async def way(database_url, receiver, private_broker):
    place = Place(private_broker.url)
    names = {"FANOUT__REGIONS__EU__AMQP_URL": place.url, "FANOUT__REGIONS__EU__QUEUE": place.queue}
    async with way_through(database_url, receiver, **names) as opened:
        yield opened
    await place.close()


async def test_every_deliver_links_to_the_promote_whose_message_brought_it(spans: Spans, way: Way, messages):
    way.receiver.use([{"subscriber": "c", "when": {"first": 1}, "answer": 500}])
    await way.subscribe("a", "b", "c")
    await way.publish()
    await way.delivered(3)
    [publish] = spans.named("publish fanout.outbox")
    queue = messages and next(span.name.split()[1] for span in spans.all if span.name.startswith("promote"))
    promotes, delivers = spans.named(f"promote {queue}"), spans.named(f"deliver {queue}")
    assert {span.attributes["messaging.system"] for span in (*promotes, *delivers)} == {"rabbitmq"}
    places = {place_of(span) for span in promotes}
    carried = [TraceParent.parse(message.traceparent) for message in messages]
    assert {(int(each.trace_id, 16), int(each.span_id, 16)) for each in carried} == places
    assert len(delivers) == 4
    for deliver in delivers:
        assert len(links_of(deliver) & places) == 1
    retry = next(span for span in delivers if span.attributes["fanout.attempt"] == 2)
    assert place_of(publish) in links_of(retry)
    assert len(links_of(retry)) == 3, "the promote, the publish, and the attempt before"


async def test_where_nobody_traces_a_message_carries_no_context(way: Way, messages):
    await way.subscribe("a")
    await way.publish()
    await way.delivered(1)
    assert {message.traceparent for message in messages} == {None}, (
        "more than one where the promotion met a queue that was just made"
    )


async def test_a_context_that_is_none_is_no_link_and_no_trouble(spans: Spans, way: Way, monkeypatch):
    publish = RabbitPublishing.publish
    monkeypatch.setattr(RabbitPublishing, "publish", lambda self, references, _: publish(self, references, "nonsense"))
    await way.subscribe("a")
    await way.publish()
    await way.delivered(1)
    [deliver] = [span for span in spans.all if span.name.startswith("deliver")]
    assert links_of(deliver) == set()
