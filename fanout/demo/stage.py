"""Everything that the demo runs on: a PostgreSQL of its own, a receiver per region, and every role in this process."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog

from fanout.database.connection import connect
from fanout.database.schema import Schema
from fanout.database.wakeups import Bell
from fanout.demo.day import Cast, read_subscribers
from fanout.demo.misbehaviour import SCRIPTS, TIMEOUTS
from fanout.demo.receivers import LocalReceiver, local_receivers
from fanout.embedded import EmbeddedPostgres
from fanout.home.publishing import publish_many
from fanout.home.registry import reserve_all
from fanout.ledger import channels
from fanout.ledger.registry import apply_all
from fanout.model.shipment import ShipmentVersion
from fanout.publisher.publisher import run_publisher
from fanout.running.regional import ConsumerRole, SchedulerRole, topology_of
from fanout.running.schemas import all_places, migrate_place
from fanout.running.stopping import Stop
from fanout.settings import Settings
from fanout.transports.rabbitmq import RabbitPublishing, remove
from fanout.transports.transport import QueueUnavailable

BATCH_VERSIONS = 500
STOP_SECONDS_MAX = 5.0
DATABASE = "fanout"
NAMESPACE = "fanout_demo"
BY = "fanout demo"
"""Who changed the registry, as its history shows it."""
LOOPBACK = "127.0.0.0/8"

_log = structlog.get_logger()

Phase = Callable[[str], None]
"""Called at the start of each phase with its name."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Ready to publish on. The roles are not running yet."""

    settings: Settings
    url: str
    receivers: Mapping[str, LocalReceiver]
    casts: Mapping[str, Cast]

    @property
    def home(self) -> Schema:
        return Schema(self.settings.home.schema)


@asynccontextmanager
async def built_stage(phase: Phase, amqp_url: str | None = None) -> AsyncIterator[Stage]:
    """Builds it and takes it down, whatever happens: no process and no file stays.

    Neither the caller's settings nor a running service of theirs has a part in it, but a broker that they name: on it stand, while
    this lasts, an exchange and queues under a name that nobody else has. Raises EmbeddedPostgresError, ReceiverFailed,
    QueueUnavailable, QueueRefused.
    """
    async with AsyncExitStack() as stack:
        phase("PostgreSQL")
        postgres = await stack.enter_async_context(EmbeddedPostgres())
        url = await postgres.create_database(DATABASE)
        environment = {"FANOUT_DATABASE_URL": url, "FANOUT_ALLOW_NETWORKS": LOOPBACK}
        if amqp_url is not None:
            environment |= {"FANOUT_AMQP_URL": amqp_url, "FANOUT_NAMESPACE": f"{NAMESPACE}_{secrets.token_hex(4)}"}
        settings = Settings.load(environment, postgres.folder)
        if amqp_url is not None:
            phase("RabbitMQ")
            await stack.enter_async_context(_queues(settings, amqp_url))
        phase("schemas")
        for place in all_places(settings):
            await migrate_place(place)
        phase("receivers and subscribers")
        receivers = await stack.enter_async_context(local_receivers(settings.regions))
        urls = {region: receiver.url for region, receiver in receivers.items()}
        casts = read_subscribers(settings.subscriber_rules(), urls, TIMEOUTS)
        stage = Stage(settings, url, receivers, casts)
        for region in settings.regions:
            await _register(stage, region)
        yield stage


@asynccontextmanager
async def _queues(settings: Settings, amqp_url: str) -> AsyncIterator[None]:
    """Made before anything else, so that a broker that is not there, or refuses us, is told at once; and deleted."""
    topologies = [topology_of(settings, region) for region in settings.regions.values()]
    made = False
    try:
        for topology in topologies:
            publishing = RabbitPublishing(amqp_url, topology, BY)
            try:
                await publishing.ready()
                made = True
            finally:
                await publishing.close()
        yield
    finally:
        try:
            await remove(amqp_url, topologies)
        except QueueUnavailable as error:
            if made:
                names = ", ".join(name for each in topologies for name in (each.queue, each.dead_queue))
                _log.warning(
                    "the demo's queues stay, delete them", queues=names, exchange=settings.exchange, error=str(error)
                )


async def _register(stage: Stage, region: str) -> None:
    """As `fanout subscribers apply` does: the ids at home first, then everything else in the region."""
    specs = stage.casts[region].specs
    connection = await connect(stage.url, BY)
    try:
        await reserve_all(connection, stage.home, list(specs), region)
        schema = Schema(stage.settings.regions[region].schema)
        applied = await apply_all(connection, schema, specs, prune=False, by=BY)
    finally:
        await connection.close()
    await stage.receivers[region].verify_with({name: [secret.reveal()] for name, secret in applied.secrets.items()})


@asynccontextmanager
async def running_roles(settings: Settings) -> AsyncIterator[None]:
    """The publisher, and for each region a scheduler and a consumer. One that breaks ends the block with its error."""
    stop = Stop()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_publisher(settings, stop.stopping), name="publisher")]
        for region in settings.regions.values():
            tasks.append(group.create_task(SchedulerRole(settings, region).run(stop), name=f"scheduler {region.name}"))
            tasks.append(group.create_task(ConsumerRole(settings, region).run(stop), name=f"consumer {region.name}"))
        try:
            yield
        finally:
            stop.stopping.set()
            stop.hurry.set()
            _, late = await asyncio.wait(tasks, timeout=STOP_SECONDS_MAX)
            for task in late:
                task.cancel()


async def publish_day(stage: Stage, versions: Sequence[ShipmentVersion], published: Callable[[int], None]) -> None:
    """Batch by batch, each a transaction of its own, as an application would. ``published`` hears how many stand.

    The receivers' scripts start with it.
    """
    for region, receiver in stage.receivers.items():
        await receiver.use(SCRIPTS.get(region, ()))
    bell = Bell(stage.url, BY, channels.outbox(stage.home))
    connection = await connect(stage.url, BY)
    try:
        for start in range(0, len(versions), BATCH_VERSIONS):
            batch = versions[start : start + BATCH_VERSIONS]
            await publish_many(connection, batch, schema=stage.home)
            bell.ring()
            published(start + len(batch))
    finally:
        await bell.close()
        await connection.close()
