"""A collector that hangs, refuses or is not there slows neither deliveries nor the end, and what is lost is counted (F1)."""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from structlog.testing import capture_logs
from way import way_through

from fanout.receiver import serve
from fanout.telemetry.exporting import Exporting
from fanout.telemetry.metrics import Figures, exposition
from fanout.telemetry.tracing import exported_spans, in_use, is_configured
from services.deployment import Deployment, versions
from services.region import Region
from services.waiting import eventually

SPAN = ReadableSpan("x")


class Collector(SpanExporter):
    """Takes, refuses, or says nothing until it is let go."""

    def __init__(self) -> None:
        self.takes = True
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.asked = threading.Event()
        self.taken: list[ReadableSpan] = []
        self.ended = False

    def export(self, spans):
        self.asked.set()
        self.goes_on.wait(30)
        if not self.takes:
            return SpanExportResult.FAILURE
        self.taken.extend(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.ended = True


@pytest.fixture
def collector():
    made = Collector()
    yield made
    made.goes_on.set()


def test_what_is_left_is_exported_at_the_end(collector):
    exporting = Exporting(collector, linger_seconds=30)
    for _ in range(1200):
        exporting.put(SPAN)
    exporting.close()
    assert (len(collector.taken), exporting.exported, exporting.dropped, collector.ended) == (1200, 1200, 0, True)


def test_a_collector_that_says_nothing_costs_spans_and_no_time(collector):
    collector.goes_on.clear()
    exporting = Exporting(collector, queue_spans_max=1000, linger_seconds=0.01)
    exporting.put(SPAN)
    assert collector.asked.wait(10), "the first batch is on its way, and hangs"
    began = time.perf_counter()
    for _ in range(5000):
        exporting.put(SPAN)
    assert time.perf_counter() - began < 1, "nobody waited for it"
    assert exporting.dropped == 4000
    began = time.monotonic()
    with capture_logs() as lines:
        exporting.close(0.2)
    assert time.monotonic() - began < 1
    assert (lines[0]["event"], lines[0]["left"]) == ("spans not exported before the end", 1001)


async def test_a_collector_that_goes_and_comes_is_one_line_each_and_its_losses_are_in_the_metrics(collector):
    exporting = Exporting(collector, linger_seconds=0.005)
    figures = Figures()
    figures.add_exporting(exporting)
    with capture_logs() as lines:
        collector.takes = False
        for refused in range(1, 6):
            exporting.put(SPAN)
            await eventually(lambda refused=refused: exporting.dropped == refused)
        collector.takes = True
        for taken in range(1, 6):
            exporting.put(SPAN)
            await eventually(lambda taken=taken: exporting.exported == taken)
        exporting.close()
    assert [line["event"].partition(":")[0] for line in lines] == ["span collector away", "span collector back"]
    text = exposition(figures.read()).decode()
    assert "fanout_spans_dropped_total 5.0" in text
    assert "fanout_spans_exported_total 5.0" in text


@pytest.mark.parametrize(
    ("environ", "configured"),
    [({}, False), ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True), ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
     ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
     ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
     ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"}, False),
     ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False)],
)  # fmt: skip
async def test_tracing_is_on_where_a_collector_is_named(environ, configured):
    assert is_configured(environ) is configured
    async with exported_spans("consumer", Figures(), asyncio.Event(), environ):
        assert (in_use() is not None) is configured
    assert in_use() is None


def test_without_a_collector_nothing_of_opentelemetry_is_even_imported():
    code = (
        "import sys, fanout.running.roles, fanout.home.publishing, regions.consumer.consumer, regions.scheduler\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


async def test_without_a_collector_the_trace_context_reaches_the_subscriber_all_the_same(database_url, receiver):
    theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with way_through(database_url, receiver) as way:
        assert in_use() is None
        way.receiver.use([{"when": {"first": 1}, "answer": 500}])
        await way.subscribe("a")
        await way.publish(traceparent=theirs)
        await way.delivered(1)
    first, second = way.sent("a")
    assert first[:36] == theirs[:36]
    assert first != theirs, "a place of its own in that trace"
    assert second[:36] != theirs[:36]


@contextlib.asynccontextmanager
async def listening(answer: bytes | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A collector on a real socket: the requests it got, answered so, or (None) never."""
    bodies: list[bytes] = []
    tasks: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
                )
                bodies.append(await reader.readexactly(length))
                if answer is not None:
                    writer.write(answer)
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", bodies
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def deployment(database_url, roles):
    us = await Region.open(database_url, "us", watched=False)
    await us.connection.close()
    region = await Region.open(database_url)
    async with await serve([], record=True) as receiver:
        yield Deployment(region, roles, receiver)
    await region.connection.close()


async def test_separate_processes_export_one_trace_over_otlp(deployment):
    await deployment.subscriber("a")
    async with listening(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (endpoint, bodies):
        started = deployment.start(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
        await deployment.publish(*versions(1))
        await deployment.delivered(1)
        for role in started:
            role.terminate()
        assert [await role.ended(15) for role in started] == [0, 0, 0]
    spans, services = {}, set()
    for body in bodies:
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            services |= {each.value.string_value for each in part.resource.attributes if each.key == "service.name"}
            spans |= {span.name: span for scope in part.scope_spans for span in scope.spans}
    assert services == {"fanout-publisher", "fanout-scheduler", "fanout-consumer"}
    assert spans.keys() == {"expand fanout.outbox", "promote fanout.eu", "deliver fanout.eu", "POST"}
    expand, deliver, post = (spans[name] for name in ("expand fanout.outbox", "deliver fanout.eu", "POST"))
    assert expand.trace_id == deliver.trace_id == post.trace_id
    assert expand.parent_span_id == deliver.parent_span_id
    assert post.parent_span_id == deliver.span_id


async def test_a_collector_that_accepts_and_says_nothing_delays_no_delivery_and_no_end(deployment):
    await deployment.subscriber("a", concurrency=32)
    async with listening(None) as (endpoint, bodies):
        started = deployment.start(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_EXPORTER_OTLP_TIMEOUT="60")
        await deployment.publish(*versions(300))
        await deployment.delivered(300)
        await eventually(lambda: len(bodies) >= 1, 10, "the collector to be asked")
        began = time.monotonic()
        for role in started:
            role.terminate()
        assert [await role.ended(15) for role in started] == [0, 0, 0]
        assert time.monotonic() - began < 12, "two seconds for the collector, and what a role needs anyway"
    assert any("spans not exported before the end" in role.log for role in started)


async def test_a_collector_that_is_not_there_shows_in_the_metrics_of_a_role(deployment):
    await deployment.subscriber("a")
    [publisher, scheduler, consumer] = deployment.start(
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_EXPORTER_OTLP_TIMEOUT="1"
    )
    await deployment.publish(*versions(3))
    await deployment.delivered(3)
    line = json.loads(await consumer.says('"event": "started"'))

    async def dropped() -> bool:
        async with httpx2.AsyncClient(trust_env=False) as client:
            text = (await client.get(f"{line['listening']}/metrics")).text
        return "fanout_spans_dropped_total 6.0" in text

    await eventually(dropped, 15, "six spans dropped: deliver and POST of three")
    assert (publisher.running, scheduler.running) == (True, True)
    assert consumer.log.count("span collector away") == 1
    assert "Traceback" not in consumer.log
