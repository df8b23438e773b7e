"""The two roles of a region, put together from settings."""

import os
import secrets
import socket

from fanout.database.schema import Schema
from fanout.running.stopping import Stop
from fanout.settings import RegionSettings, Settings, SettingsError
from fanout.settings.sources import AMQP_URL
from fanout.transports.ledger import LedgerConsuming, LedgerPublishing
from fanout.transports.transport import Consuming, Publishing
from regions.consumer.consumer import Consumer
from regions.egress.sender import Sender
from regions.egress.transport import WireTransport
from regions.scheduler import Scheduler


def worker_name(role: str, region: str) -> str:
    """Names a process in the ledger for people. Nothing is decided by it: leases have tokens."""
    return f"{role}-{region}-{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(2)}"


def check_transport(region: RegionSettings) -> None:
    """Raises SettingsError for a transport that this version does not have: nobody shall think that a broker is in use."""
    if region.transport != "ledger":
        key = f"regions.{region.name}.transport"
        why = f"this version has no '{region.transport}' transport"
        raise SettingsError.field(key, why, f'write "ledger", or unset regions.{region.name}.amqp_url and {AMQP_URL}')


async def open_publishing(region: RegionSettings) -> Publishing:
    """The scheduler's end of the region's queue."""
    return LedgerPublishing(region.url, Schema(region.schema), f"fanout scheduler {region.name}")


async def open_consuming(region: RegionSettings) -> Consuming:
    """A consumer's end of the region's queue."""
    return LedgerConsuming(region.url, Schema(region.schema), f"fanout consumer {region.name}")


class SchedulerRole:
    """One scheduler of one region, with its queue."""

    def __init__(self, settings: Settings, region: RegionSettings) -> None:
        check_transport(region)
        self._settings = settings
        self._region = region
        self.scheduler: Scheduler | None = None

    async def run(self, stop: Stop) -> None:
        publishing = await open_publishing(self._region)
        name = worker_name("scheduler", self._region.name)
        self.scheduler = Scheduler(self._region, self._settings.delivery, publishing, name=name)
        try:
            await self.scheduler.run(stop.stopping)
        finally:
            await publishing.close()


class ConsumerRole:
    """One consumer of one region, with its queue and its connections to subscribers."""

    def __init__(self, settings: Settings, region: RegionSettings) -> None:
        check_transport(region)
        self._settings = settings
        self._region = region
        self.consumer: Consumer | None = None

    async def run(self, stop: Stop) -> None:
        consuming = await open_consuming(self._region)
        transport = WireTransport(allow_networks=self._region.allow_networks)
        name = worker_name("consumer", self._region.name)
        self.consumer = Consumer(self._region, self._settings.delivery, consuming, Sender(transport), worker=name)
        try:
            await self.consumer.run(stop.stopping, stop.hurry)
        finally:
            await consuming.close()
            await transport.aclose()
