"""One connection to the broker for the life of a process. Whatever is lost on it, it is opened again from scratch.

A plain connection and this loop, not the library's own restoration: there is one way to start, and recovery is the same way, so
prefetch, consumers and topology cannot be half restored (a connection that is up and consumes nothing is the classic failure).
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from enum import StrEnum
from typing import Any, TypeVar

import structlog
from aio_pika.abc import AbstractChannel
from aio_pika.connection import Connection
from aiormq.exceptions import AMQPError, ConnectionInternalError
from yarl import URL

from fanout.database.errors import describe
from fanout.loops import Patience
from fanout.transports.rabbitmq.refusals import refusal_of, trouble_of, vhost_of
from fanout.transports.rabbitmq.wire import Wire
from fanout.transports.transport import Condition, QueueRefused, QueueUnavailable

CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 1.0
HEARTBEAT_SECONDS = 10
BLOCKED_CHECK_SECONDS = 0.5
REFUSED_SECONDS = 30.0
"""A broker that has let us in before and refuses us now may be half up, its users not loaded yet: so long it counts as away."""

COLLISIONS_MAX = 5
COLLISION_SECONDS_MAX = 0.3
"""Two that declare the same new quorum queue at the same moment can both be thrown out ("cluster_not_formed"): that is no trouble,
the next try finds the queue."""

LOST = (AMQPError, OSError, EOFError, RuntimeError)
"""What aio-pika raises for a connection or channel that is gone; a plain ``RuntimeError`` is among it. Timeouts are ``OSError``."""

# What these report, with tracebacks, is reported here in one line.
for _name in ("aiormq", "aio_pika"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

_log = structlog.get_logger()

Result = TypeVar("Result")


class LinkState(StrEnum):
    CONNECTING = "connecting"
    """No trouble is known: the first attempt, or the first one after a loss, is under way."""
    OPEN = "open"
    BLOCKED = "blocked"
    """Open, but the broker takes no messages: its memory or disk alarm is on."""
    AWAY = "away"
    """The last attempt failed; the next one follows within 2 seconds."""
    REFUSED = "refused"
    """For good: see ``QueueRefused``."""
    CLOSED = "closed"


class Session:
    """One connection with its channels, from opening to loss. Losing one channel ends it."""

    def __init__(self, connection: Connection, wire: Wire) -> None:
        self.over = asyncio.Event()
        self.why: BaseException | str = "closed"
        self.suspect = ""
        """What may be the matter if the step that furnishing is at takes for ever."""
        self._connection = connection
        self._wire = wire
        self._channels: list[AbstractChannel] = []  # held here for life: the library keeps weak references only
        self._tasks: list[asyncio.Task[None]] = []
        connection.close_callbacks.add(self._lost)

    @property
    def vhost(self) -> str:
        return vhost_of(str(self._connection.url))

    async def open_channel(self, *, passing: bool = False) -> AbstractChannel:
        """With confirms, and an error for what cannot be routed. Losing a ``passing`` one ends nothing."""
        channel = self._connection.channel(publisher_confirms=True, on_return_raises=True)
        self._channels.append(channel)
        await channel.initialize()
        if not passing:
            channel.close_callbacks.add(self._lost)
        return channel

    def watch(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs beside the session and ends with it."""
        self._tasks.append(asyncio.create_task(work, name="amqp watch"))

    def end(self, why: BaseException | str) -> None:
        if not self.over.is_set():
            self.why = why
            self.over.set()

    @property
    def server_version(self) -> str:
        """As the broker told it when the connection was opened; empty where it did not."""
        transport = self._connection.transport
        said = {} if transport is None else transport.connection.server_properties
        version = said.get("version", "")
        return version.decode(errors="replace") if isinstance(version, bytes) else str(version)

    async def is_blocked(self) -> bool:
        """Whether the broker has said ``connection.blocked``. The library only lets one wait for the opposite."""
        transport = self._connection.transport
        if transport is None:
            return False
        try:
            async with asyncio.timeout(0):
                await transport.ready()
        except TimeoutError:
            return True
        return False

    async def close(self) -> None:
        """With a goodbye if the broker answers in time, else without."""
        self.end("closed")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        closing = asyncio.create_task(self._connection.close(), name="amqp close")
        closing.add_done_callback(_heard)
        try:
            await asyncio.wait({closing}, timeout=CLOSE_SECONDS)
        finally:
            self._wire.abort()
            await asyncio.wait({closing}, timeout=CLOSE_SECONDS)
            closing.cancel()  # and not waited for: the library may not heed it

    def _lost(self, _sender: object, error: BaseException | None) -> None:
        self.end(error or "closed")


class Link:
    """Keeps a session open. ``furnish`` makes it usable (channels, topology, consumers); a session counts as open after that."""

    def __init__(
        self,
        url: str,
        name: str,
        furnish: Callable[[Session], Awaitable[None]],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.reconnections = 0
        self.trouble = "not connected yet"
        self._url = url
        self._name = name
        self._furnish = furnish
        self._on_change = on_change
        self._state = LinkState.CONNECTING
        self._blocked = False
        self._told: set[str] = set()
        """What was logged since it was open: each trouble once."""
        self._session: Session | None = None
        self._refusal: QueueRefused | None = None
        self._refused_at: float | None = None
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"amqp link {name}")

    @property
    def state(self) -> LinkState:
        return LinkState.BLOCKED if self._state is LinkState.OPEN and self._blocked else self._state

    @property
    def condition(self) -> Condition:
        is_up = self._state is LinkState.OPEN
        blocked = "the broker is blocked: its memory or disk alarm is on, and it takes no messages"
        trouble = (
            "" if is_up and not self._blocked else blocked if is_up else f"the broker cannot be used: {self.trouble}"
        )
        return Condition(is_up, self._blocked, self.reconnections, trouble)

    async def opened(self) -> Session:
        """The open session; waits while no trouble is known. Raises ``QueueUnavailable`` or ``QueueRefused``."""
        while True:
            changed = self._changed
            if self._session is not None and self._state is LinkState.OPEN and not self._session.over.is_set():
                return self._session
            self.check()
            await changed.wait()

    def check(self) -> None:
        """Raises ``QueueUnavailable`` while the broker is away, ``QueueRefused`` where it refuses us for good."""
        if self._refusal is not None:
            raise QueueRefused(*self._refusal.args)
        if self._state in (LinkState.AWAY, LinkState.CLOSED):
            raise QueueUnavailable(f"the broker cannot be used: {self.trouble}")

    async def is_blocked(self) -> bool:
        self._blocked = self._session is not None and await self._session.is_blocked()
        return self._blocked

    def drop(self, why: BaseException | str) -> None:
        """Give the present session up and start anew."""
        if self._session is not None:
            self._session.end(why)

    async def close(self) -> None:
        """Within ``2 * CLOSE_SECONDS``, whatever the broker does."""
        self.trouble = "closed"
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._enter(LinkState.CLOSED)

    async def _run(self) -> None:
        patience, collisions = Patience(), 0
        while True:
            try:
                session = await self._open()
            except Exception as error:  # noqa: BLE001 - the boundary of a loop that must not die
                if self._is_final(error, patient=self.reconnections > 0):
                    return
                if isinstance(error, ConnectionInternalError) and collisions < COLLISIONS_MAX:
                    collisions += 1
                    await asyncio.sleep(random.uniform(0, COLLISION_SECONDS_MAX))  # noqa: S311 - jitter
                    continue
                if not isinstance(error, (QueueUnavailable, *LOST)):
                    _log.exception("could not connect, by an error of ours", link=self._name)
                self._fail(error)
                await patience.wait()
                continue
            patience.calm()
            self._refused_at, collisions = None, 0
            self._session = session
            if self._state is LinkState.AWAY or self.reconnections:
                _log.info("broker back", link=self._name)
            self._told.clear()
            self._enter(LinkState.OPEN)
            try:
                await self._until_over(session)
                self.reconnections += 1
                self._lose(session)
            finally:
                await session.close()
            if isinstance(session.why, BaseException) and self._is_final(session.why, patient=False):
                return

    async def _open(self) -> Session:
        wire = Wire()
        url = URL(self._url)
        if "heartbeat" not in url.query:
            url = url.update_query(heartbeat=HEARTBEAT_SECONDS)
        connection = Connection(url, client_properties={"connection_name": self._name})
        connection.kwargs["transport_factory"] = wire
        session = Session(connection, wire)
        try:
            await within(CONNECT_SECONDS, self._connect(connection, wire, session))
        except TimeoutError:
            await session.close()
            suspect = session.suspect and f"; {session.suspect}"
            raise ConnectionError(f"no answer within {CONNECT_SECONDS:g} s{suspect}") from None
        except BaseException:
            await session.close()
            raise
        return session

    async def _connect(self, connection: Connection, wire: Wire, session: Session) -> None:
        try:
            await connection.connect()
        except AMQPError as error:
            raise wire.refusal() or error from error
        await self._furnish(session)

    async def _until_over(self, session: Session) -> None:
        was_blocked = False
        while not session.over.is_set():
            blocked = await self.is_blocked()
            if blocked != was_blocked:
                _log.warning("broker blocks publishing: its alarm is on" if blocked else "unblocked", link=self._name)
                self._tell()
            was_blocked = blocked
            try:
                async with asyncio.timeout(BLOCKED_CHECK_SECONDS):
                    await session.over.wait()
            except TimeoutError:
                pass

    def refusal_of(self, error: BaseException) -> QueueRefused | None:
        return refusal_of(error, self._url)

    def _is_final(self, error: BaseException, *, patient: bool) -> bool:
        refusal = self.refusal_of(error)
        if refusal is None:
            self._refused_at = None
            return False
        now = asyncio.get_running_loop().time()
        if self._refused_at is None:
            self._refused_at = now
        if patient and now - self._refused_at < REFUSED_SECONDS:
            return False
        self._refusal = refusal
        self.trouble = str(refusal)
        _log.error("broker refuses us", link=self._name, error=self.trouble)
        self._enter(LinkState.REFUSED)
        return True

    def _fail(self, error: BaseException) -> None:
        refusal = self.refusal_of(error)
        ours = refusal or isinstance(error, QueueUnavailable)
        self.trouble = str(refusal or error) if ours else trouble_of(error, self._url)
        if self.trouble not in self._told:
            self._told.add(self.trouble)
            _log.warning("broker away", link=self._name, error=self.trouble)
        if self._state is not LinkState.AWAY:
            self._enter(LinkState.AWAY)

    def _lose(self, session: Session) -> None:
        self._session, self._blocked = None, False
        self.trouble = session.why if isinstance(session.why, str) else describe(session.why)
        _log.warning("connection to the broker lost", link=self._name, error=self.trouble)
        self._enter(LinkState.CONNECTING)

    def _enter(self, state: LinkState) -> None:
        self._state = state
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self._on_change()


async def guarded(work: Awaitable[Result]) -> Result:
    """``work``, where a cancellation that nobody asked of us is a lost connection.

    aiormq cancels whatever waits on a channel that closes.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        return await work
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() > before:
            raise
        raise ConnectionError("the channel was closed while waiting for the broker") from error


async def within(seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
    """``work``, or ``TimeoutError`` after so many seconds even where it does not heed its cancellation.

    aiormq answers the cancellation of a call by queueing one more frame, which waits for ever behind a writer that is stuck; it
    ends when the stream is cut.
    """
    task = asyncio.create_task(guarded(work), name="amqp call")
    task.add_done_callback(_heard)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
    if not done:
        raise TimeoutError
    return task.result()


def _heard(task: "asyncio.Task[Any]") -> None:
    """Nobody may be left to ask for the error: it is not news."""
    if not task.cancelled():
        task.exception()
