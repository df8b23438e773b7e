"""Which versions are followed is ours to say: a publisher can ask to be left out, and cannot force its way in (F10)."""

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, TraceIdRatioBased
from structlog.testing import capture_logs
from way import Spans, Way

from fanout.home.publishing import publish_many
from fanout.model.trace_context import TraceParent
from fanout.telemetry.collector import sampler_of
from fanout.telemetry.tracing import place_of_publish, use
from services.deployment import versions


async def test_a_publishers_flag_cannot_force_a_trace_beyond_the_ratio(way: Way):
    spans = Spans()
    tracing = spans.tracing(TraceIdRatioBased(0.5))
    use(tracing)
    try:
        await way.subscribe("a")
        places = [TraceParent.new() for _ in range(30)]
        for number, place in enumerate(places):
            await way.publish(f"s-{number}", traceparent=str(place))
        await way.delivered(30)
    finally:
        use(None)
    followed = {int(place.trace_id, 16) for place in places if tracing.samples(place)}
    assert 0 < len(followed) < 30
    for name in ("publish fanout.outbox", "deliver fanout.eu", "POST"):
        assert {span.context.trace_id for span in spans.named(name)} == followed
    flags = {int(text[3:35], 16): text[-2:] for text in way.sent("a")}
    assert flags == {int(place.trace_id, 16): "01" if int(place.trace_id, 16) in followed else "00" for place in places}


async def test_the_ratio_holds_for_what_was_published_by_a_process_that_does_not_trace(way: Way):
    spans = Spans()
    tracing = spans.tracing(TraceIdRatioBased(0.5))
    await way.subscribe("a")
    try:
        async with way.region.connection.transaction():
            await publish_many(way.region.connection, versions(30))
            use(tracing)
        await way.delivered(30)
    finally:
        use(None)
    rows = await way.region.rows("SELECT traceparent FROM {schema}.version")
    followed = {int(place.trace_id, 16) for row in rows if tracing.samples(place := TraceParent.parse(row[0]))}
    assert 0 < len(followed) < 30
    for name in ("deliver fanout.eu", "POST"):
        assert {span.context.trace_id for span in spans.named(name)} == followed
    assert {int(text[3:35], 16) for text in way.sent("a") if text.endswith("-01")} == followed


async def test_a_publisher_that_asks_not_to_be_followed_is_not_and_its_trace_goes_on_all_the_same(
    way: Way, spans: Spans
):
    theirs = TraceParent.new(sampled=False)
    await way.subscribe("a")
    await way.publish(traceparent=str(theirs))
    await way.delivered(1)
    assert spans.all == ()
    [sent] = way.sent("a")
    assert TraceParent.parse(sent).trace_id == theirs.trace_id
    assert TraceParent.parse(sent).sampled is False


@pytest.mark.parametrize(
    ("name", "ratio", "sampler", "honours_flag"),
    [("", "", ALWAYS_ON, True), ("always_on", "", ALWAYS_ON, False), ("parentbased_always_off", "", ALWAYS_OFF, True),
     ("traceidratio", "0.25", TraceIdRatioBased(0.25), False), ("parentbased_traceidratio", "0.01", TraceIdRatioBased(0.01), True)],
)  # fmt: skip
def test_the_usual_variables_choose_the_sampler(name, ratio, sampler, honours_flag):
    chosen, honours = sampler_of({"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": ratio})
    assert (chosen.get_description(), honours) == (sampler.get_description(), honours_flag)


@pytest.mark.parametrize(
    ("name", "ratio"), [("sometimes", ""), ("traceidratio", "a tenth"), ("traceidratio", "nan"), ("traceidratio", "2")]
)
def test_a_sampler_that_is_not_understood_is_told_and_everything_is_followed(name, ratio):
    with capture_logs() as lines:
        chosen, _ = sampler_of({"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": ratio})
    assert chosen.should_sample(None, 2**63, "").decision.is_sampled()
    assert lines[0]["variable"].startswith("OTEL_TRACES_SAMPLER")


def test_a_publish_inside_a_span_of_the_application_belongs_to_its_trace():
    from opentelemetry.sdk.trace import TracerProvider

    with TracerProvider().get_tracer("shop").start_as_current_span("ship") as span:
        parent, at = place_of_publish(None)
        _, told = place_of_publish("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    assert parent == at
    assert int(at.trace_id, 16) == span.get_span_context().trace_id
    assert told.trace_id == "0af7651916cd43dd8448eb211c80319c", "what the caller says goes before what is around it"
