"""P13: a version can be followed from its publish to the subscriber's answer; its first attempts in one trace, each retry in its own."""

import pytest
from opentelemetry.trace import SpanKind, StatusCode
from way import Spans, Way, links_of, place_of

from fanout.home.publishing import publish_many
from fanout.model.trace_context import TraceParent
from services.deployment import versions

THEIRS = TraceParent("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", sampled=True)


def at(text: str | None) -> tuple[int, int]:
    place = TraceParent.parse(text)
    assert place is not None
    return int(place.trace_id, 16), int(place.span_id, 16)


@pytest.fixture
async def after_two_retries(way: Way, spans: Spans) -> Spans:
    """One version, three subscribers, of whom one fails twice before it takes it."""
    way.receiver.use([{"subscriber": "c", "when": {"first": 2}, "answer": 500}])
    await way.subscribe("a", "b", "c")
    await way.publish(traceparent=str(THEIRS))
    await way.delivered(3)
    return spans


async def test_the_first_attempts_are_one_trace_from_the_publisher_to_the_subscriber(way, after_two_retries):
    spans = after_two_retries
    [publish], [expand] = spans.named("publish fanout.outbox"), spans.named("expand fanout.outbox")
    delivers, posts = spans.named("deliver fanout.eu"), spans.named("POST")
    assert (len(delivers), len(posts)) == (5, 5)
    assert (publish.parent.trace_id, publish.parent.span_id) == at(str(THEIRS))
    assert (expand.context.trace_id, expand.parent.span_id) == place_of(publish)
    first = [span for span in delivers if span.attributes["fanout.attempt"] == 1]
    assert [(span.context.trace_id, span.parent.span_id) for span in first] == [place_of(publish)] * 3
    deliver_of = {place_of(span): span for span in delivers}
    for post in posts:
        deliver = deliver_of[post.context.trace_id, post.parent.span_id]
        assert deliver.start_time <= post.start_time <= post.end_time <= deliver.end_time
    assert {span.name for span in spans.by_trace()[publish.context.trace_id]} == {
        "publish fanout.outbox", "expand fanout.outbox", "deliver fanout.eu", "POST",
    }  # fmt: skip


async def test_each_retry_is_a_trace_of_its_own_linked_to_the_publish_and_to_the_attempt_before(way, after_two_retries):
    spans = after_two_retries
    [publish] = spans.named("publish fanout.outbox")
    mine = [span for span in spans.named("deliver fanout.eu") if ":c:" in span.attributes["fanout.key"]]
    assert [span.attributes["fanout.attempt"] for span in mine] == [1, 2, 3]
    assert [span.attributes["fanout.outcome"] for span in mine] == ["failed", "failed", "delivered"]
    assert [span.status.status_code for span in mine] == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]
    assert len({span.context.trace_id for span in mine}) == 3
    first, second, third = mine
    assert (second.parent, third.parent) == (None, None)
    assert links_of(second) == {place_of(publish), place_of(first)}
    assert links_of(third) == {place_of(publish), place_of(second)}


async def test_the_subscriber_is_sent_the_span_of_its_own_request_and_the_ledger_keeps_the_trace(
    way, after_two_retries
):
    posts = {place_of(span) for span in after_two_retries.named("POST")}
    assert {at(text) for name in "abc" for text in way.sent(name)} == posts
    rows = await way.region.rows("SELECT trace_id FROM {schema}.attempt")
    assert sorted(int(row["trace_id"], 16) for row in rows) == sorted(trace for trace, _ in posts)


async def test_promotion_is_a_span_of_its_own_with_a_link_to_each_version(way, after_two_retries):
    [publish] = after_two_retries.named("publish fanout.outbox")
    promotes = after_two_retries.named("promote fanout.eu")
    assert all(links_of(span) == {place_of(publish)} for span in promotes)
    assert sum(span.attributes["messaging.batch.message_count"] for span in promotes) >= 5
    assert all(span.context.trace_id != publish.context.trace_id for span in promotes)


async def test_spans_speak_the_messaging_conventions(way, after_two_retries):
    spans = after_two_retries
    told = {
        name: {
            (span.kind, span.attributes["messaging.operation.name"], span.attributes["messaging.operation.type"],
             span.attributes["messaging.system"], span.attributes["messaging.destination.name"])
            for span in spans.named(name)
        }
        for name in ("publish fanout.outbox", "expand fanout.outbox", "promote fanout.eu", "deliver fanout.eu")
    }  # fmt: skip
    ledger = "fanout_ledger"
    assert told == {
        "publish fanout.outbox": {(SpanKind.PRODUCER, "publish", "create", ledger, "fanout.outbox")},
        "expand fanout.outbox": {(SpanKind.CONSUMER, "expand", "process", ledger, "fanout.outbox")},
        "promote fanout.eu": {(SpanKind.PRODUCER, "promote", "send", ledger, "fanout.eu")},
        "deliver fanout.eu": {(SpanKind.CONSUMER, "deliver", "process", ledger, "fanout.eu")},
    }


async def test_the_request_speaks_the_http_conventions_and_shows_no_query(way: Way, spans: Spans):
    await way.subscribe("a", query="?token=very-private#part")
    await way.publish(payload=b"private-payload")
    await way.delivered(1)
    [post] = spans.named("POST")
    assert post.kind is SpanKind.CLIENT
    assert dict(post.attributes) == {
        "http.request.method": "POST", "http.response.status_code": 200,
        "server.address": "127.0.0.1", "server.port": way.receiver.port, "network.peer.address": post.attributes["network.peer.address"],
        "url.full": way.receiver.endpoint("a"), "fanout.region": "eu", "fanout.outcome": "delivered", "fanout.attempt": 1,
    }  # fmt: skip
    written = "".join(span.to_json() for span in spans.all)
    assert "private" not in written
    assert "whsec" not in written


async def test_versions_expanded_together_are_a_batch_with_links(way: Way, spans: Spans):
    await way.subscribe("a")
    async with way.region.connection.transaction():  # all are committed at once, so one step takes them all
        await publish_many(way.region.connection, versions(20))
    await way.delivered(20)
    publishes, expands = spans.named("publish fanout.outbox"), spans.named("expand fanout.outbox")
    batches = [span for span in expands if span.parent is None]
    assert len(publishes) == len(expands) - len(batches) == 20
    assert sum(span.attributes["messaging.batch.message_count"] for span in batches) == 20
    assert set().union(*map(links_of, batches)) == {place_of(span) for span in publishes}
    assert {place for span in expands if span.parent for place in links_of(span)} == {place_of(s) for s in batches}
