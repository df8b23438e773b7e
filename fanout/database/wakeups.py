"""Wake-ups between roles: LISTEN and NOTIFY, as a hint. Every loop also polls, so a lost wake-up costs a second, never work.

A NOTIFY is sent on a connection of its own, after the commit it tells of, and at most once per ``QUIET_SECONDS`` and channel:
PostgreSQL serialises the commits of transactions that carry notifications.
"""

import asyncio
import contextlib

import asyncpg
import structlog

from fanout.database.connection import SteadyConnection, connect
from fanout.database.errors import describe, may_pass

QUIET_SECONDS = 0.02
RECONNECT_SECONDS = 1.0

_log = structlog.get_logger()


class Bell:
    """Rings a channel. ``ring`` never blocks and never fails: a ring that cannot be sent is only a later poll."""

    def __init__(self, url: str, application: str, channel: str) -> None:
        self._connection = SteadyConnection(url, application)
        self._channel = channel
        self._pending = False
        self._task: asyncio.Task[None] | None = None

    def ring(self) -> None:
        self._pending = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send(), name=f"ring {self._channel}")

    async def _send(self) -> None:
        while self._pending:
            self._pending = False
            try:
                await self._connection.fetch("SELECT pg_notify($1, '')", self._channel)
            except Exception as error:  # noqa: BLE001 - a wake-up is a hint: whoever misses it polls
                _log.debug("not rung", channel=self._channel, error=describe(error))
            await asyncio.sleep(QUIET_SECONDS)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._connection.close()


class Ear:
    """Listens on a channel, on a connection of its own that is opened again whenever it is lost."""

    def __init__(self, url: str, application: str, channel: str) -> None:
        self._url = url
        self._application = application
        self._channel = channel
        self._rung = asyncio.Event()
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._listen(), name=f"listen {self._channel}")

    async def wait(self, at_most_seconds: float) -> bool:
        """Until the next ring since the last call, or so long. True where it rang."""
        try:
            async with asyncio.timeout(at_most_seconds):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True

    def ring_here(self) -> None:
        """Wake the waiter of this process without the database: there is more to do at once."""
        self._rung.set()

    async def _listen(self) -> None:
        while True:
            connection: asyncpg.Connection | None = None
            try:
                connection = await connect(self._url, self._application)
                self._lost.clear()
                connection.add_termination_listener(lambda _: self._lost.set())
                await connection.add_listener(self._channel, lambda *_: self._rung.set())
                self._rung.set()  # whatever was rung while we were deaf
                await self._lost.wait()
            except Exception as error:  # noqa: BLE001 - deaf is not dead: the owner polls, and this listens again
                if not may_pass(error):
                    _log.exception("not listening", channel=self._channel)
            finally:
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
