"""HTTP/1.1 to subscribers over connections of ours, behind the seam that httpx defines for transports."""

import asyncio
import contextlib
import re
import socket
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import Final

import httpx2

from regions.decisions.classification import Phase
from regions.egress.connection import Connection, Origin
from regions.egress.errors import (
    DeadlineExceeded,
    EgressError,
    ForbiddenDestination,
    connect_error,
    describe,
    tls_error,
)
from regions.egress.guard import Address, AddressGuard, read_literal
from regions.egress.pool import IdlePool
from regions.egress.resolver import Resolver
from regions.egress.response import ResponseReader
from regions.egress.tls import tls_context

DEFAULT_DEADLINE_SECONDS = 15.0
CLOSE_SECONDS_MAX = 1.0

_HEADERS = re.compile(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+: (?:[^\x00-\x1f\x7f]|\t)*\r\n)*\r\n")
_TARGET = re.compile(rb"/[\x21-\x7e]*")
_CLOSING: Final = "this process is closing its connections"
_PORTS: Final = {"http": 80, "https": 443}


class WireTransport(httpx2.AsyncBaseTransport):
    """Sends one request and returns one response that is already read (at most 16 KiB of it). Never retries, never redirects.

    Understands three ``extensions`` of a request:

    ``deadline``   when everything must be over, in seconds of ``loop.time()``: resolving, connecting, TLS, writing and reading
    ``may_write``  ``() -> bool``, called in the very step that writes the first byte; False raises ``NotSent``
    ``origin``     an ``Origin`` that was prepared from the URL

    Sets ``address``, ``reused`` and ``timings`` (``connect_ms``, ``first_byte_ms``, ``total_ms``) on the response. Raises only
    ``EgressError`` and, when cancelled, ``CancelledError``: the connection is closed then, and no other request suffers.
    The number of requests at once is the caller's to limit: there is a connection for each, and idle ones are bounded.
    """

    keeps_deadline: Final = True

    def __init__(
        self,
        *,
        allow_networks: Sequence[IPv4Network | IPv6Network] = (),
        ca_file: Path | None = None,
        resolver: Resolver | None = None,
        idle_seconds: float = 4.0,
        idle_per_origin_max: int = 64,
        idle_max: int = 1000,
    ) -> None:
        self._guard = AddressGuard(allow_networks)
        self._tls = tls_context(ca_file)
        self._resolver = resolver or Resolver()
        self._idle_seconds = idle_seconds
        self._idle_per_origin_max = idle_per_origin_max
        self._idle_max = idle_max
        self._open: set[Connection] = set()
        self._pool: IdlePool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._all_lost: asyncio.Event = asyncio.Event()

    @property
    def open_connections(self) -> int:
        """Connections that exist now, in use and idle."""
        return len(self._open)

    @property
    def idle_connections(self) -> int:
        return 0 if self._pool is None else len(self._pool)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        pool = self._start()
        assert self._loop is not None
        started = self._loop.time()
        extensions = request.extensions
        connection: Connection | None = None
        used_before = 0
        try:
            deadline: float = extensions.get("deadline") or started + DEFAULT_DEADLINE_SECONDS
            origin: Origin = extensions.get("origin") or origin_of(request.url)
            head = _head_of(request)
            body = request.read() if isinstance(request.stream, httpx2.ByteStream) else await request.aread()
            connection = pool.take(origin) or await self._connect(origin, deadline)
            connected = self._loop.time()
            used_before = connection.used
            reader = await connection.exchange(head, body, deadline, extensions.get("may_write"))
        except EgressError:
            raise
        except Exception as error:  # a class nobody expected: what counts is whether the subscriber may have got it
            written = connection is not None and connection.used > used_before
            phase = Phase.RESPONSE if written else Phase.CONNECT
            raise EgressError(f"unexpected {describe(error)}", phase=phase, written=written) from error
        finally:
            if connection is not None:
                untouched = connection.used == used_before and connection.usable
                if (untouched or connection.reusable) and not self._closed:
                    pool.put(connection)
                else:
                    connection.abort()
        return _response(request, reader, connection, used_before > 0, started, connected, self._loop.time())

    async def aclose(self) -> None:
        """Close every connection; requests in flight fail as broken. Returns when the sockets are closed, in 1 s at the most."""
        self._closed = True
        if self._pool is not None:
            self._pool.clear()
        for connection in list(self._open):
            connection.abort()
        if self._open:
            self._all_lost.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    await self._all_lost.wait()
        await self._resolver.aclose()

    def _start(self) -> IdlePool:
        if self._closed:
            raise EgressError(_CLOSING)
        if self._pool is None:
            self._loop = asyncio.get_running_loop()
            self._pool = IdlePool(
                self._loop,
                idle_seconds=self._idle_seconds,
                per_origin_max=self._idle_per_origin_max,
                total_max=self._idle_max,
            )
        return self._pool

    async def _connect(self, origin: Origin, deadline: float) -> Connection:
        """A new connection to an address that was judged just now. A TCP failure leads on to the next address."""
        reached: list[tuple[Phase, str | None]] = [(Phase.RESOLVE, None)]
        try:
            async with asyncio.timeout_at(deadline):
                literal = read_literal(origin.host)
                found = (literal,) if literal is not None else await self._resolver.resolve(origin.host)
                addresses = self._guard.choose(origin.scheme, origin.host, found)
                reached.append((Phase.CONNECT, str(addresses[0])))
                connected = await self._connect_any(origin, addresses, deadline)
                reached.append((Phase.TLS, str(connected[1])))
                return await self._begin(origin, *connected)
        except TimeoutError:
            phase, address = reached[-1]
            what = {Phase.RESOLVE: f"{origin.host} was not resolved", Phase.CONNECT: f"no connection to {address}"}
            message = f"{what.get(phase, f'no TLS session with {origin.host}')} before the deadline"
            raise DeadlineExceeded(message, phase=phase, address=address) from None

    async def _connect_any(
        self, origin: Origin, addresses: Sequence[Address], deadline: float
    ) -> tuple[socket.socket, Address]:
        assert self._loop is not None
        failed: EgressError | None = None
        for tried, address in enumerate(addresses):
            now = self._loop.time()
            share = now + (deadline - now) / (len(addresses) - tried)
            try:
                async with asyncio.timeout_at(share if tried + 1 < len(addresses) else None):
                    return await _connect_tcp(self._loop, address, origin.port), address
            except OSError as error:  # TimeoutError is one, with a number if it is the kernel's
                failed = connect_error(error, str(address), origin.port)
        assert failed is not None
        raise failed

    async def _begin(self, origin: Origin, connected: socket.socket, address: Address) -> Connection:
        assert self._loop is not None
        connection = Connection(self._loop, origin, str(address), on_made=self._open.add, on_lost=self._forget)
        secure = origin.scheme == "https"
        try:
            await self._loop.create_connection(
                lambda: connection,
                sock=connected,
                ssl=self._tls if secure else None,
                server_hostname=origin.host.removesuffix(".") if secure else None,
            )
        except BaseException as error:
            # uvloop closes a connection that was cancelled here without saying that it is lost.
            connection.abandon()
            self._forget(connection)
            if isinstance(error, TimeoutError) or not isinstance(error, (OSError, UnicodeError, ValueError)):
                raise
            if secure:
                raise tls_error(error, origin.host, str(address)) from error
            raise connect_error(error, str(address), origin.port) from error
        if self._closed:
            connection.abort()
            raise EgressError(_CLOSING)
        return connection

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if self._pool is not None:
            self._pool.remove(connection)
        if not self._open:
            self._all_lost.set()


def origin_of(url: httpx2.URL) -> Origin:
    """Raises ``ForbiddenDestination`` for what is no http(s) URL with a host and a possible port."""
    scheme, host = url.scheme, url.raw_host.decode("ascii")
    if scheme not in _PORTS or not host:
        raise ForbiddenDestination("the endpoint is not an http or https URL with a host")
    port = url.port if url.port is not None else _PORTS[scheme]
    if not 0 < port <= 65_535:  # noqa: PLR2004 - TCP's
        raise ForbiddenDestination(f"port {port} does not exist")
    return Origin(scheme, host, port)


def _head_of(request: httpx2.Request) -> bytes:
    target = request.url.raw_path
    headers = request.headers.raw
    lines = b"".join([b"%b: %b\r\n" % field for field in headers]) + b"\r\n"
    # The count catches a value that brings a whole header line of its own, which the pattern cannot see.
    if not _HEADERS.fullmatch(lines) or lines.count(b"\n") != len(headers) + 1:
        raise ForbiddenDestination(
            "a header of this subscriber cannot be sent: name or value has a forbidden character"
        )
    if not _TARGET.fullmatch(target):
        raise ForbiddenDestination("the path of the endpoint cannot be sent")
    return b"%b %b HTTP/1.1\r\n%b" % (request.method.encode("ascii"), target, lines)


async def _connect_tcp(loop: asyncio.AbstractEventLoop, address: Address, port: int) -> socket.socket:
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(connecting, (str(address), port))
    except BaseException:
        connecting.close()
        raise
    return connecting


def _response(
    request: httpx2.Request,
    reader: ResponseReader,
    connection: Connection,
    reused: bool,
    started: float,
    connected: float,
    ended: float,
) -> httpx2.Response:
    assert reader.status is not None
    first_byte = connection.first_byte_at or ended
    return httpx2.Response(
        reader.status,
        headers=reader.headers,
        stream=httpx2.ByteStream(bytes(reader.body)),
        request=request,
        extensions={
            "address": connection.address,
            "reused": reused,
            "timings": {
                "connect_ms": (connected - started) * 1e3,
                "first_byte_ms": (first_byte - started) * 1e3,
                "total_ms": (ended - started) * 1e3,
            },
        },
    )
