"""Receivers that answer with whatever a test wants, on real sockets of 127.0.0.1, and names that lead there."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from regions.egress.errors import ResolveFailed

CERTIFICATES = Path(__file__).parent / "certificates"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Got:
    """One request as it came in."""

    line: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    raw_head: bytes

    def values(self, name: str) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name.lower().encode()]

    def value(self, name: str) -> str:
        (value,) = self.values(name)
        return value.decode("latin-1")


class Wire:
    """One accepted connection, for a behaviour to misuse."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes, pause: float | None = None) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            if pause is not None:
                await asyncio.sleep(pause)

    async def request(self) -> Got | None:
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        line, *lines = head[:-4].split(b"\r\n")
        headers = [(name, value) for name, _, value in (each.partition(b": ") for each in lines)]
        length = next(int(value) for name, value in headers if name.lower() == b"content-length")
        return Got(line, headers, await self.reader.readexactly(length), head)

    async def gone(self) -> None:
        """Returns when the sender has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def half_close(self) -> None:
        self.writer.write_eof()

    def reset(self) -> None:
        """Close with RST, at once."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Answer = Callable[[Wire, Got], Awaitable[None]]
"""What to do after a whole request was read. The connection is closed when it raises ``Close``; else it goes on."""


class Close(Exception):  # noqa: N818 - an order, not an error
    pass


def answer(*pieces: bytes, close: bool = False) -> Answer:
    async def behave(wire: Wire, _got: Got) -> None:
        await wire.send(*pieces)
        if close:
            raise Close

    return behave


@dataclass
class Receiver:
    port: int
    scheme: str = "http"
    got: list[Got] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    async def until(self, condition: Callable[[], bool], seconds: float = 5.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@contextlib.asynccontextmanager
async def receiver(
    behave: Answer,
    *,
    host: str = "127.0.0.1",
    certificate: str | None = None,
    on_connect: Callable[[Wire], Awaitable[None]] | None = None,
) -> AsyncIterator[Receiver]:
    """A receiver that reads whole requests, one after the other, and lets ``behave`` answer each.

    ``on_connect`` takes a connection over instead. ``certificate`` names a file of ``certificates/`` and makes it https.
    """
    here = Receiver(0, "https" if certificate else "http")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        here.connections += 1
        here.open += 1
        here.changed.set()
        wire = Wire(reader, writer)
        try:
            if on_connect is not None:
                await on_connect(wire)
                return
            while (got := await wire.request()) is not None:
                here.got.append(got)
                here.changed.set()
                await behave(wire, got)
        except (Close, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            here.open -= 1
            here.changed.set()
            tasks.discard(task)
            writer.close()
            with contextlib.suppress(Exception):
                await writer.wait_closed()

    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATES / certificate)
    limit = 64 * 1024 if on_connect else 4 * 1024 * 1024  # how much is read ahead of what was asked for
    server = await asyncio.start_server(serve, host, 0, ssl=context, limit=limit)
    here.port = server.sockets[0].getsockname()[1]
    try:
        yield here
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


class Names:
    """A resolver with the answers in a dictionary, in a fixed order."""

    def __init__(self, **names: Sequence[str]) -> None:
        self.names = names
        self.asked: list[str] = []

    async def resolve(self, host: str) -> tuple[IPv4Address | IPv6Address, ...]:
        self.asked.append(host)
        if host not in self.names:
            raise ResolveFailed(f"cannot resolve {host}: the name does not exist")
        return tuple(IPv6Address(each) if ":" in each else IPv4Address(each) for each in self.names[host])

    async def aclose(self) -> None:
        pass


class NameServer(asyncio.DatagramProtocol):
    """A DNS server on a UDP port. Names that begin with ``hang`` are never answered; unknown ones do not exist."""

    def __init__(self, names: dict[str, list[str]], ttl: int = 1) -> None:
        self.names = names
        self.ttl = ttl
        self.asked: list[str] = []
        self.changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        labels, at = [], 12
        while length := data[at]:
            labels.append(data[at + 1 : at + 1 + length].decode())
            at += length + 1
        kind = int.from_bytes(data[at + 1 : at + 3], "big")
        name = ".".join(labels).lower()
        self.asked.append(name)
        self.changed.set()
        if name.startswith("hang"):
            return
        found = [IPv4Address(each).packed for each in self.names.get(name, [])] if kind == 1 else []
        records = b"".join(b"\xc0\x0c\x00\x01\x00\x01" + struct.pack("!IH", self.ttl, 4) + each for each in found)
        code = 0x8180 if name in self.names else 0x8183
        head = data[:2] + struct.pack("!HHHHH", code, 1, len(found), 0, 0)
        self.transport.sendto(head + data[12 : at + 5] + records, addr)


@contextlib.asynccontextmanager
async def name_server(names: dict[str, list[str]], ttl: int = 1) -> AsyncIterator[tuple[NameServer, str]]:
    """The server and its ``host:port``."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(lambda: NameServer(names, ttl), local_addr=("127.0.0.1", 0))
    try:
        yield server, "127.0.0.1:{}".format(transport.get_extra_info("sockname")[1])
    finally:
        transport.close()
        await asyncio.sleep(0)
