"""A link that a test may cut, hang and delay: a TCP proxy in front of one service, in the test's own process."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time to linger: closing sends RST and forgets what is unsent."""


Watch = Callable[[object, bytes, bool], None]
"""Called with each piece: the end that it came to, the bytes, and whether they go inward, to the service."""


class _End(asyncio.Protocol):
    """One of the two connections of a pair. What arrives here leaves at ``other``."""

    def __init__(self, proxy: "Proxy", *, inward: bool) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None
        self._proxy = proxy
        self._inward = inward
        self._early: list[bytes] = []
        self._due_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self._proxy.refusing:
            self.reset()
            return
        self._proxy.joined(self)
        for data in self._early:
            transport.write(data)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self._proxy.watch is not None:
            self._proxy.watch(self, data, self._inward)
        loop = asyncio.get_running_loop()
        due_at = max(self._due_at, loop.time() + self._proxy.delay_seconds)
        if due_at <= loop.time():
            self._pass_on(data)
        else:
            self._due_at = due_at  # later pieces may not overtake this one
            loop.call_at(due_at, self._pass_on, data)

    def _pass_on(self, data: bytes) -> None:
        assert self.other is not None
        self.other.write(data)

    def write(self, data: bytes) -> None:
        if self.transport is None:
            self._early.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None and not self._proxy.hung:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._proxy.left(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def reset(self) -> None:
        if self.transport is not None:
            raw = self.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.transport.abort()


class Proxy:
    """Passes everything until it is told otherwise."""

    def __init__(self, host: str, port: int) -> None:
        self.delay_seconds = 0.0
        self.hung = False
        self.refusing = False
        self.watch: Watch | None = None
        self._service = (host, port)
        self._ends: set[_End] = set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def before(cls, url: str) -> "Proxy":
        """For the service that ``url`` names."""
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        return cls(parts.hostname, parts.port)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, "127.0.0.1", 0, backlog=256)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def url(self, url: str) -> str:
        """The same service by way of this link."""
        parts = urlsplit(url)
        who, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{who}{at}127.0.0.1:{self.port}").geturl()

    # ------------------------------------------------------------------ troubles

    def cut(self) -> None:
        """RST to both ends of every connection, and to each that is opened from now on."""
        self.refusing = True
        for end in tuple(self._ends):
            end.reset()

    def hang(self) -> None:
        """Nothing passes in either direction, and nobody is told. Connections are still accepted."""
        self.hung = True
        for end in self._ends:
            if end.transport is not None:
                end.transport.pause_reading()

    def delay(self, seconds: float) -> None:
        """In each direction."""
        self.delay_seconds = seconds

    def mend(self) -> None:
        """Everything passes again, what was held back first."""
        self.hung = self.refusing = False
        self.delay_seconds = 0.0
        for end in self._ends:
            if end.transport is not None:
                end.transport.resume_reading()

    # ------------------------------------------------------------------ connections

    def joined(self, end: _End) -> None:
        self._ends.add(end)
        if self.hung and end.transport is not None:
            end.transport.pause_reading()

    def left(self, end: _End) -> None:
        self._ends.discard(end)

    def _accept(self) -> _End:
        outer, inner = _End(self, inward=True), _End(self, inward=False)
        outer.other, inner.other = inner, outer
        task = asyncio.get_running_loop().create_task(self._connect(outer, inner))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return outer

    async def _connect(self, outer: _End, inner: _End) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: inner, *self._service)
        except OSError:
            outer.reset()
        if outer.transport is None or outer.transport.is_closing():  # gone while we connected
            inner.reset()
