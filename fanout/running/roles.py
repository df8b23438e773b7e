"""A process of ours: its parts, each started when its schemas are there, and its HTTP, from the first signal to the exit status."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

import structlog
from starlette.types import ASGIApp

from fanout.api.app import check_binding, create_app
from fanout.api.probes import Check, create_probes
from fanout.database.connection import SteadyConnection
from fanout.publisher.publisher import RegionPublisher
from fanout.running.http import serve, url_of
from fanout.running.regional import ConsumerRole, SchedulerRole, check_queue
from fanout.running.schemas import Place, Unusable, await_schema, home_place, region_place
from fanout.running.stopping import Stop
from fanout.settings import RegionSettings, Settings
from fanout.telemetry.metrics import Figures, Sent
from fanout.telemetry.tracing import exported_spans
from fanout.transports.transport import QueueRefused

HURRY_SECONDS = 1.0
"""After a second signal, what still runs is cut off."""

REFUSED_SECONDS = 5.0
"""After so long a region that refused us is asked again."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Part:
    """Something that runs until it is told to stop, and the schemas without which it cannot begin."""

    name: str
    needs: tuple[Place, ...]
    run: Callable[[Stop], Awaitable[None]]
    region: str = ""
    """The region that it works for, where it works for one: what is wrong there is no matter of the others (P10)."""


@dataclass(slots=True)
class Process:
    """What one process consists of."""

    name: str
    parts: list[Part] = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)
    queues: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    """By the name of its role, a check of the queue that it works with."""

    def add_publisher(self, settings: Settings) -> None:
        """Every region is a part of its own: one that is away delays no other."""
        for region in settings.regions.values():
            needs = (home_place(settings), region_place(region))
            self.parts.append(Part(f"publisher {region.name}", needs, _publisher(settings, region), region.name))

    def add_scheduler(self, settings: Settings, region: RegionSettings) -> None:
        role = SchedulerRole(settings, region)
        self.parts.append(Part(f"scheduler {region.name}", (region_place(region),), role.run, region.name))
        self.figures.add_scheduler(region.name, lambda: role.scheduler.figures if role.scheduler else None)
        self.figures.add_queue(region.name, "scheduler", lambda: role.queue.condition if role.queue else None)
        self.queues[f"queue of scheduler {region.name}"] = lambda: check_queue(role.queue)

    def add_consumer(self, settings: Settings, region: RegionSettings) -> None:
        role = ConsumerRole(settings, region)
        self.parts.append(Part(f"consumer {region.name}", (region_place(region),), role.run, region.name))
        self.figures.add_consumer(
            region.name,
            # An outcome is a str; Mapping knows that of its values only, not of its keys.
            lambda: cast("Sent", role.consumer.figures) if role.consumer else None,
        )
        self.figures.add_queue(region.name, "consumer", lambda: role.queue.condition if role.queue else None)
        self.figures.add("fanout_malformed_messages", lambda: role.queue.malformed if role.queue else None, region.name)
        self.queues[f"queue of consumer {region.name}"] = lambda: check_queue(role.queue)

    def add_api(self, settings: Settings) -> ASGIApp:
        """The API answers at once, 503 for what is away; a schema of home that is behind ends it as it does every role."""
        check_binding(settings)
        self.parts.append(Part("api home", (home_place(settings),), _until_stopped))
        for region in settings.regions.values():
            self.parts.append(Part(f"api {region.name}", (region_place(region),), _until_stopped, region.name))
        return create_app(settings, self.figures)

    def probes(self) -> ASGIApp:
        """Ready while every database that a part needs answers, and its queue can be used; of several regions each is shown, and none
        decides for the others.
        """
        answers: dict[str, Check] = {place.name: Answers(place) for part in self.parts for place in part.needs}
        checks = answers | self.queues
        shown = {} if self.has_one_region else {name: checks.pop(name) for name in self.regions}
        return create_probes(self.name, checks, self.figures, shown)

    @property
    def regions(self) -> set[str]:
        return {part.region for part in self.parts if part.region}

    @property
    def has_one_region(self) -> bool:
        return len(self.regions) <= 1


class Answers:
    """A check for ``/readyz``: the database answers, on a connection of the probe's own."""

    def __init__(self, place: Place) -> None:
        self._connection = SteadyConnection(place.url, "fanout probe")

    async def __call__(self) -> None:
        await self._connection.fetch("SELECT 1")


def _allow_open_files() -> None:
    """As many as this user may have: a connection for each subscriber is no mistake, and common soft limits are low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def run_process(process: Process, app: ASGIApp, listener: socket.socket, stop: Stop) -> int:
    """Until a signal; the exit status. Raises what ended a part early, after the others were stopped in order.

    Probes answer from the beginning to the end, also while a database is waited for and while the last requests land. Spans are
    exported last.
    """
    async with exported_spans(process.name, process.figures, stop.hurry):
        return await _run_process(process, app, listener, stop)


async def _run_process(process: Process, app: ASGIApp, listener: socket.socket, stop: Stop) -> int:
    _allow_open_files()
    ended = asyncio.Event()
    http = asyncio.create_task(serve(app, listener, ended), name="http")
    run = _run_part if process.has_one_region else _run_part_of_many
    tasks = {asyncio.create_task(run(part, stop), name=part.name): part for part in process.parts}
    hurry = asyncio.create_task(_cut_off(stop, [*tasks, http]), name="hurry")
    parts = [part.name for part in process.parts]
    _log.info("started", role=process.name, listening=url_of(listener), parts=parts)
    try:
        await asyncio.wait({http, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        early = not stop.stopping.is_set()  # then something ended that should not have
        stop.stopping.set()
        _log.info("stopping", role=process.name)
        await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        ended.set()
        await asyncio.gather(http, return_exceptions=True)
        hurry.cancel()
    for task in (*tasks, http):
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
    if early:
        raise RuntimeError(f"a part of {process.name} ended by itself, without an error")
    _log.info("stopped", role=process.name, exit_status=stop.exit_status)
    return stop.exit_status


async def _run_part_of_many(part: Part, stop: Stop) -> None:
    """As ``_run_part``; but what a region refuses (a login, its schema, its queue) ends no process that other regions share: it is
    told, and asked for again until somebody has mended it.
    """
    told = ""
    while not stop.stopping.is_set():
        try:
            await _run_part(part, stop)
        except (Unusable, QueueRefused) as error:
            if not part.region or (isinstance(error, Unusable) and error.place.name != part.region):
                raise
            why = str(error.why if isinstance(error, Unusable) else error)
            if why != told:
                _log.error("region cannot be used, the others go on", part=part.name, region=part.region, error=why)
            told = why
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REFUSED_SECONDS):
                    await stop.stopping.wait()
        else:
            return


async def _run_part(part: Part, stop: Stop) -> None:
    for place in part.needs:
        if not await _unless_stopped(await_schema(place, stop.stopping), stop):
            return
    await part.run(stop)


async def _unless_stopped(work: Awaitable[bool], stop: Stop) -> bool:
    """The result of ``work``, or False when it is time to stop: connecting to what is away can take long."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.create_task(stop.stopping.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        return working.result()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    return False


def _publisher(settings: Settings, region: RegionSettings) -> Callable[[Stop], Awaitable[None]]:
    publisher = RegionPublisher(settings, region)

    async def run(stop: Stop) -> None:
        await publisher.run(stop.stopping)

    return run


async def _until_stopped(stop: Stop) -> None:
    await stop.stopping.wait()


async def _cut_off(stop: Stop, tasks: list[asyncio.Task[None]]) -> None:
    await stop.hurry.wait()
    await asyncio.sleep(HURRY_SECONDS)
    for task in tasks:
        task.cancel()
