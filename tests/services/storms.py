"""What happens to a deployment: each is a context manager that brings the trouble about and, at its end, takes it away."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import aio_pika

from services.day import Day
from services.deployments import Deployments
from services.waiting import eventually

DELAY_SECONDS = 0.1
_OLDER = "UPDATE {schema}.delivery SET queued_at = queued_at - interval '15 seconds' WHERE state = 'queued'"


class Storms:
    """``seconds``: how long one is going to rage; what comes again and again comes several times in it. ``patient``: our own waiting times pass
    as they do; else they are taken as over."""

    def __init__(self, deployments: Deployments, day: Day, seconds: float, *, patient: bool) -> None:
        self._postgres, self._broker = deployments.postgres, deployments.broker
        self._links = {"database": deployments.database_link, "broker": deployments.broker_link}
        self._day = day
        self._seconds = seconds
        self._patient = patient

    @asynccontextmanager
    async def roles_are_killed(self):
        """A random one, every 2 seconds."""
        chance = random.Random(20130710)

        async def kill() -> None:
            await self._day.kill(chance.choice(sorted(self._day.running)))

        async with _again_and_again(kill, min(2, self._seconds / 4)):
            yield

    @asynccontextmanager
    async def consumers_are_replaced(self):
        """One after the other."""
        for name in self._day.names("consumer"):
            await self._day.replace(name)
        yield

    @asynccontextmanager
    async def broker_is_stopped(self):
        await self._broker.stop()
        yield
        await self._broker.start()

    @asynccontextmanager
    async def broker_is_killed(self):
        await self._broker.kill()
        await self._broker.start()
        yield

    @asynccontextmanager
    async def queues_are_purged(self):
        """With something in them: while nobody consumes."""
        async with self._nobody_consumes(), self._channel() as channel:
            for stand in self._day.stands.values():
                assert (await channel.queue_purge(stand.queue)).message_count > 0
            for region in () if self._patient else self._day.stands:
                async with self._day.region(region) as ledger:
                    await ledger.execute(_OLDER)
        yield

    @asynccontextmanager
    async def queues_are_deleted(self):
        """Likewise."""
        async with self._nobody_consumes():
            await self._delete("")
        yield

    @asynccontextmanager
    async def queues_are_deleted_in_use(self):
        await self._delete("")
        yield

    @asynccontextmanager
    async def dead_letter_queues_are_deleted(self):
        await self._delete(".dead")
        yield

    @asynccontextmanager
    async def memory_alarm(self):
        await self._broker.alarm(on=True)
        yield
        await self._broker.alarm(on=False)

    @asynccontextmanager
    async def connections_are_closed(self):
        async with _again_and_again(self._broker.close_connections, min(5, self._seconds / 4)):
            yield

    @asynccontextmanager
    async def database_is_stopped(self):
        await self._postgres.stop("fast")
        yield
        await self._postgres.start()

    @asynccontextmanager
    async def database_is_killed(self):
        await self._postgres.kill()
        await self._postgres.start()
        yield

    @asynccontextmanager
    async def link_is(self, which: str, trouble: str):
        link = self._links[which]
        assert link is not None
        if trouble == "cut":
            link.cut()
        elif trouble == "hangs":
            link.hang()
        else:
            link.delay(DELAY_SECONDS)
        yield
        link.mend()

    # ------------------------------------------------------------------

    @asynccontextmanager
    async def _nobody_consumes(self):
        """Consumers are stopped until every queue holds something, and come back afterwards."""
        consumers = self._day.names("consumer")
        await self._day.stop(*consumers)
        for region in self._day.stands:
            await eventually(lambda region=region: self._day.queued(region), 20, f"references in the queue of {region}")
        yield
        self._day.restart(*consumers)

    async def _delete(self, suffix: str) -> None:
        async with self._channel() as channel:
            for stand in self._day.stands.values():
                await channel.queue_delete(f"{stand.queue}{suffix}")

    @asynccontextmanager
    async def _channel(self):
        connection = await aio_pika.connect(self._broker.url)
        try:
            yield await (await connection.channel()).get_underlay_channel()
        finally:
            await connection.close()


@asynccontextmanager
async def _again_and_again(trouble: Callable[[], Awaitable[None]], pause_seconds: float):
    async def rage() -> None:
        while not over.is_set():
            await trouble()
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), pause_seconds)

    over = asyncio.Event()
    raging = asyncio.create_task(rage())
    try:
        yield
    finally:
        over.set()
        await raging
