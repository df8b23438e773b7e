"""HTTP/1.1 to subscribers over connections of ours."""

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import Final

from regions.decisions.classification import Phase
from regions.egress.connection import Connection
from regions.egress.errors import DeadlineExceeded, EgressError, connect_error, describe, tls_error
from regions.egress.exchange import Answered, Ended, Origin, Outgoing, Underway
from regions.egress.guard import Address, AddressGuard, read_literal
from regions.egress.pool import IdlePool
from regions.egress.resolver import Resolver
from regions.egress.response import ResponseReader
from regions.egress.tls import tls_context

CLOSE_SECONDS_MAX = 1.0

_CLOSING: Final = "this process is closing its connections"


class _Underway:
    """One exchange: on the way to a connection, or on it."""

    __slots__ = ("cancelled", "connecting", "connection", "ended", "outgoing")

    def __init__(self, outgoing: Outgoing, ended: Ended) -> None:
        self.outgoing = outgoing
        self.ended = ended
        self.connecting: asyncio.Task[None] | None = None
        self.connection: Connection | None = None
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        if self.connection is not None:
            self.connection.abort()
        elif self.connecting is not None:
            self.connecting.cancel()


class WireTransport:
    """An ``Exchange``: of a response at most 16 KiB are read. When one is cancelled, no other request suffers. The number of requests at once is the caller's to
    limit: there is a connection for each, and idle ones are bounded.
    """

    def __init__(
        self,
        *,
        allow_networks: Sequence[IPv4Network | IPv6Network] = (),
        ca_file: Path | None = None,
        resolver: Resolver | None = None,
        idle_seconds: float = 4.0,
        idle_per_origin_max: int = 500,
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
        self._boarded: list[_Underway] = []

    @property
    def open_connections(self) -> int:
        """Connections that exist now, in use and idle."""
        return len(self._open)

    @property
    def idle_connections(self) -> int:
        return 0 if self._pool is None else len(self._pool)

    def begin(self, outgoing: Outgoing, ended: Ended) -> Underway:
        """As promised there; where this transport was closed it ends with an ``EgressError``."""
        underway = _Underway(outgoing, ended)
        self._provide(underway)
        return underway

    def _provide(self, underway: "_Underway") -> None:
        """A connection: one that idles, at once, else a new one, when it stands."""
        if self._closed:
            asyncio.get_running_loop().call_soon(underway.ended, EgressError(_CLOSING))
            return
        pool = self._pool or self._start()
        if (connection := pool.take(underway.outgoing.origin)) is not None:
            self._board(underway, connection)
        else:
            assert self._loop is not None
            underway.connecting = self._loop.create_task(self._reach(underway), name="connect")

    async def _reach(self, underway: "_Underway") -> None:
        try:
            connection = await self._connect(underway.outgoing.origin, underway.outgoing.deadline)
        except EgressError as error:
            underway.ended(error)
        except Exception as error:  # noqa: BLE001 - a class nobody expected; what counts is that nothing was written
            underway.ended(EgressError(f"unexpected {describe(error)}", phase=Phase.CONNECT))
        else:
            self._board(underway, connection)

    def _board(self, underway: "_Underway", connection: Connection) -> None:
        """What has a connection is written at the end of this step of the event loop, all of it in one go: whoever receives them is
        woken for the first and still awake for the others. To wake a process costs more than to write to it.
        """
        underway.connection = connection
        self._boarded.append(underway)
        if len(self._boarded) == 1:
            assert self._loop is not None
            self._loop.call_soon(self._depart)

    def _depart(self) -> None:
        boarded, self._boarded = self._boarded, []
        for underway in boarded:
            connection = underway.connection
            assert connection is not None
            if underway.cancelled:
                self._keep(connection)
            elif connection.used and not connection.usable:  # it was closed while it waited here
                self._provide(underway)
            else:
                self._write(underway, connection)

    def _write(self, underway: "_Underway", connection: Connection) -> None:
        used_before = connection.used

        def ended(result: ResponseReader | EgressError) -> None:
            self._keep(connection)
            if isinstance(result, EgressError):
                underway.ended(result)
                return
            assert result.status is not None
            body = bytes(result.body)
            underway.ended(Answered(result.status, result.headers, body, connection.address, used_before > 0))

        try:
            connection.begin(underway.outgoing, ended)
        except EgressError as error:
            ended(error)
        except Exception as error:  # noqa: BLE001 - the others that have boarded must not suffer
            written = connection.used > used_before
            phase = Phase.RESPONSE if written else Phase.CONNECT
            connection.abort()
            ended(EgressError(f"unexpected {describe(error)}", phase=phase, written=written))

    def _keep(self, connection: Connection) -> None:
        """For the next request, if it is good for one."""
        fresh = connection.used == 0 and connection.usable
        if (fresh or connection.reusable) and not self._closed:
            assert self._pool is not None
            self._pool.put(connection)
        else:
            connection.abort()

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
