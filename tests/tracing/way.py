"""All roles in the test's own process, from the API to a subscriber, and every span that they make."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from fanout.receiver import ReceiverServer
from fanout.running.http import bind
from fanout.running.roles import Process, run_process
from fanout.running.schemas import all_places, migrate_place
from fanout.running.stopping import Stop
from fanout.settings import Settings
from fanout.telemetry.spans import Tracing
from services.deployment import QUICK
from services.region import Region
from services.waiting import eventually


class Spans:
    """The in-memory exporter, asked by name."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()

    def put(self, span: ReadableSpan, /) -> None:
        self._exporter.export([span])

    def tracing(self, sampler: Sampler = ALWAYS_ON, *, honours_flag: bool = True) -> Tracing:
        return Tracing(self.put, sampler, Resource({"service.name": "test"}), honours_flag=honours_flag)

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return sorted((span for span in self.all if span.name == name), key=lambda span: span.start_time or 0)

    def by_trace(self) -> dict[int, list[ReadableSpan]]:
        traces = defaultdict(list)
        for span in self.all:
            traces[span.context.trace_id].append(span)
        return traces


def links_of(span: ReadableSpan) -> set[tuple[int, int]]:
    return {(link.context.trace_id, link.context.span_id) for link in span.links}


def place_of(span: ReadableSpan) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


class Way:
    """From the API to the receiver."""

    def __init__(self, region: Region, receiver: ReceiverServer, client: httpx2.AsyncClient) -> None:
        self.region, self.receiver, self.client = region, receiver, client

    async def subscribe(self, *names: str, query: str = "") -> None:
        for name in names:
            await self.region.subscriber(name, endpoint=self.receiver.endpoint(name) + query)

    async def publish(self, shipment_id: str = "s-1", payload: bytes = b"{}", **headers: str) -> httpx2.Response:
        given = {"Fanout-Event-Type": "shipment.booked", **headers}
        answer = await self.client.put(f"/v1/shipments/{shipment_id}/versions/1", content=payload, headers=given)
        assert answer.status_code == 202, answer.text
        return answer

    async def delivered(self, count: int) -> None:
        async def enough() -> bool:
            return await self.region.value("SELECT sum(delivered) FROM {schema}.destination") == count

        await eventually(enough, 20, f"{count} deliveries")

    def sent(self, subscriber: str) -> list[str | None]:
        """The trace contexts that a subscriber was sent, in order."""
        return [each.header("traceparent") for each in self.receiver.received if each.subscriber == subscriber]


@asynccontextmanager
async def way_through(database_url: str, receiver: ReceiverServer, **environment: str) -> AsyncIterator[Way]:
    settings = Settings.load(QUICK | {"FANOUT_DATABASE_URL": database_url} | environment)
    for place in all_places(settings):
        await migrate_place(place)
    region = await Region.open(database_url)
    process = Process("up")
    process.add_publisher(settings)
    process.add_scheduler(settings, settings.regions["eu"])
    process.add_consumer(settings, settings.regions["eu"])
    stop, listener = Stop(), bind(settings.http)
    running = asyncio.create_task(run_process(process, process.add_api(settings), listener, stop))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with httpx2.AsyncClient(base_url=base, timeout=20, trust_env=False) as client:
            yield Way(region, receiver, client)
    finally:
        stop.stopping.set()
        async with asyncio.timeout(20):
            await running
        listener.close()
        await region.connection.close()
