"""The two roles of a region, put together from settings."""

import os
import secrets
import socket
from collections.abc import Callable

from fanout.database.schema import Schema
from fanout.running.stopping import Stop
from fanout.settings import RegionSettings, Settings
from fanout.transports.ledger import LedgerConsuming, LedgerPublishing
from fanout.transports.rabbitmq import RabbitConsuming, RabbitPublishing, Topology
from fanout.transports.transport import Consuming, Publishing, QueueUnavailable
from regions.consumer.consumer import Consumer
from regions.egress.sender import Sender
from regions.egress.transport import WireTransport
from regions.scheduler import Scheduler

PREFETCH_MIN = 10
"""Messages, of up to fifty references each: enough that a consumer never waits, few enough that it hoards nothing from the others."""


def worker_name(region: str) -> str:
    """Names a consumer in the ledger for people. Nothing is decided by it: leases have tokens."""
    return f"consumer-{region}-{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(2)}"


def topology_of(settings: Settings, region: RegionSettings) -> Topology:
    """What has to stand on the region's broker."""
    return Topology(settings.exchange, region.queue, region.declare)


def open_publishing(settings: Settings, region: RegionSettings, on_queue_lost: Callable[[], None]) -> Publishing:
    """The scheduler's end of the region's queue. ``on_queue_lost``: whatever the queue held is gone."""
    application = f"fanout scheduler {region.name}"
    if region.transport == "rabbitmq":
        return RabbitPublishing(
            region.broker_url, topology_of(settings, region), application, on_queue_lost=on_queue_lost
        )
    return LedgerPublishing(region.url, Schema(region.schema), application)


def open_consuming(settings: Settings, region: RegionSettings, on_queue_lost: Callable[[], None]) -> Consuming:
    """A consumer's end of the region's queue. ``on_queue_lost`` as above: either end may be the first to notice."""
    application = f"fanout consumer {region.name}"
    if region.transport == "rabbitmq":
        prefetch = max(PREFETCH_MIN, settings.delivery.in_flight // 10)
        return RabbitConsuming(
            region.broker_url,
            topology_of(settings, region),
            application,
            prefetch=prefetch,
            on_queue_lost=on_queue_lost,
        )
    return LedgerConsuming(region.url, Schema(region.schema), application)


async def check_queue(queue: Publishing | Consuming | None) -> None:
    """For ``/readyz``. Raises ``QueueUnavailable``, also for a scheduler whose broker is blocked; a consumer does not notice that."""
    if queue is None:
        raise QueueUnavailable("its role has not begun yet")
    if queue.condition is not None and queue.condition.trouble:
        raise QueueUnavailable(queue.condition.trouble)


class SchedulerRole:
    """One scheduler of one region, with its queue."""

    def __init__(self, settings: Settings, region: RegionSettings) -> None:
        self._settings = settings
        self._region = region
        self.scheduler: Scheduler | None = None
        self.queue: Publishing | None = None

    async def run(self, stop: Stop) -> None:
        self.queue = publishing = open_publishing(self._settings, self._region, self._queue_lost)
        self.scheduler = Scheduler(self._region, self._settings.delivery, publishing)
        try:
            await self.scheduler.run(stop.stopping)
        finally:
            await publishing.close()

    def _queue_lost(self) -> None:
        if self.scheduler is not None:
            self.scheduler.queue_lost()


class ConsumerRole:
    """One consumer of one region, with its queue and its connections to subscribers."""

    def __init__(self, settings: Settings, region: RegionSettings) -> None:
        self._settings = settings
        self._region = region
        self.consumer: Consumer | None = None
        self.queue: Consuming | None = None

    async def run(self, stop: Stop) -> None:
        self.queue = consuming = open_consuming(self._settings, self._region, self._queue_lost)
        transport = WireTransport(allow_networks=self._region.allow_networks)
        name = worker_name(self._region.name)
        self.consumer = Consumer(self._region, self._settings.delivery, consuming, Sender(transport), worker=name)
        try:
            await self.consumer.run(stop.stopping, stop.hurry)
        finally:
            await consuming.close()
            await transport.aclose()

    def _queue_lost(self) -> None:
        if self.consumer is not None:
            self.consumer.queue_lost()
