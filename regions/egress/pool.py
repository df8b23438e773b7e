"""Connections that wait for their next request, per origin and bounded."""

import asyncio
from collections import OrderedDict, deque

from regions.egress.connection import Connection
from regions.egress.exchange import Origin


class IdlePool:
    """The newest connection of an origin is used first; the one that has been idle longest is closed first.

    An idle connection is closed after ``idle_seconds`` (shorter than the limits of common servers, so that they rarely close
    it under a request), when its origin has ``per_origin_max`` others, or when there are ``total_max`` others.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, idle_seconds: float, per_origin_max: int, total_max: int
    ) -> None:
        self._loop = loop
        self._idle_seconds = idle_seconds
        self._per_origin_max = per_origin_max
        self._total_max = total_max
        self._by_origin: dict[Origin, deque[Connection]] = {}
        self._by_age: OrderedDict[Connection, None] = OrderedDict()
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._by_age)

    def take(self, origin: Origin) -> Connection | None:
        """A connection that is open as far as anyone can tell."""
        waiting = self._by_origin.get(origin)
        if waiting is None:
            return None
        oldest_allowed = self._loop.time() - self._idle_seconds
        found = None
        while waiting and found is None:
            connection = waiting.pop()
            del self._by_age[connection]
            if connection.usable and connection.idle_since > oldest_allowed:
                found = connection
            else:
                connection.abort()
        if not waiting:
            del self._by_origin[origin]
        return found

    def put(self, connection: Connection) -> None:
        if self._per_origin_max < 1 or self._total_max < 1:
            connection.abort()
            return
        waiting = self._by_origin.get(connection.origin)
        if waiting is not None and len(waiting) >= self._per_origin_max:
            self._close(waiting[0])
        elif len(self._by_age) >= self._total_max:
            self._close(next(iter(self._by_age)))
        connection.idle_since = self._loop.time()
        self._by_origin.setdefault(connection.origin, deque()).append(connection)
        self._by_age[connection] = None
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(self._idle_seconds, self._sweep)

    def remove(self, connection: Connection) -> None:
        """Forget a connection, if it is here."""
        if connection not in self._by_age:
            return
        del self._by_age[connection]
        waiting = self._by_origin[connection.origin]
        waiting.remove(connection)
        if not waiting:
            del self._by_origin[connection.origin]

    def clear(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        for connection in list(self._by_age):
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        self.remove(connection)
        connection.abort()

    def _sweep(self) -> None:
        self._sweeping = None
        oldest_allowed = self._loop.time() - self._idle_seconds
        while self._by_age:
            oldest = next(iter(self._by_age))
            if oldest.idle_since > oldest_allowed:
                self._sweeping = self._loop.call_at(oldest.idle_since + self._idle_seconds, self._sweep)
                return
            self._close(oldest)
