"""One connection to a subscriber: at most one request on it at a time, and one timer for each."""

import asyncio
from collections.abc import Callable
from typing import cast

from regions.decisions.classification import Phase
from regions.egress.errors import BadResponse, ConnectionBroken, DeadlineExceeded, EgressError, NotSent, describe
from regions.egress.exchange import Origin, Outgoing
from regions.egress.response import ResponseReader

PIECE_BYTES = 64 * 1024
"""A request up to this size is one write. The rest of a larger one follows as the socket takes it, so a connection never
holds a second copy of a large payload, and an early answer ends the writing."""


class Connection(asyncio.Protocol):
    """Lives from the TCP (and TLS) handshake until ``connection_lost``. Not reusable after anything unexpected."""

    __slots__ = (
        "_body",
        "_deadline_passed",
        "_ended",
        "_loop",
        "_lost",
        "_lost_because",
        "_on_lost",
        "_on_made",
        "_paused",
        "_reader",
        "_sent",
        "_timer",
        "_transport",
        "address",
        "idle_since",
        "origin",
        "used",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        origin: Origin,
        address: str,
        *,
        on_made: Callable[["Connection"], None],
        on_lost: Callable[["Connection"], None],
    ) -> None:
        self.origin = origin
        self.address = address
        """The address that was judged, and that this connection goes to."""
        self.used = 0
        """How many requests were begun on it."""
        self.idle_since = 0.0
        self._loop = loop
        self._on_made = on_made
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._reader: ResponseReader | None = None
        self._ended: Callable[[ResponseReader | EgressError], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._body = memoryview(b"")
        self._sent = 0
        self._paused = False
        self._lost = False
        self._lost_because: Exception | None = None
        self._deadline_passed = False

    @property
    def usable(self) -> bool:
        return not self._lost and self._transport is not None and not self._transport.is_closing()

    @property
    def reusable(self) -> bool:
        """After an exchange: whether the next request may go on this connection."""
        reader = self._reader
        return (
            reader is not None
            and reader.complete
            and reader.keep_alive
            and self._sent >= len(self._body)
            and self._transport is not None
            and self._transport.get_write_buffer_size() == 0
            and self.usable
        )

    def abort(self) -> None:
        """Close at once, without a TLS goodbye: what was not written is dropped."""
        if self._transport is not None and not self._lost:
            self._transport.abort()

    def abandon(self) -> None:
        """Close, and never count as made, even if the event loop says so later."""
        self.abort()
        self._lost = True

    def begin(self, outgoing: Outgoing, ended: Callable[[ResponseReader | EgressError], None]) -> None:
        """Write one request. ``ended`` is called once, later: when its response has ended, has broken or is large enough, or at the
        deadline: with a reader that has a final status, or with ``BadResponse``, ``ConnectionBroken`` or ``DeadlineExceeded``.

        Raises ``NotSent`` (the connection stays usable), ``ConnectionBroken`` or ``DeadlineExceeded`` where nothing is written.
        """
        assert self._transport is not None
        assert self._ended is None
        if outgoing.may_write is not None and not outgoing.may_write():
            raise NotSent("the request may not be sent any more", address=self.address, reused=self.used > 0)
        if not self.usable:  # a new one that was closed, or spoken to, while it was handed over
            message = "the subscriber closed the connection before anything was written"
            raise ConnectionBroken(message, phase=Phase.CONNECT, written=False, address=self.address)
        if outgoing.deadline <= self._loop.time():
            message = "the deadline passed before the request was written"
            raise DeadlineExceeded(message, phase=Phase.WRITE, address=self.address, reused=self.used > 0)
        head, body = outgoing.head, outgoing.body
        self._reader = ResponseReader()
        self.used += 1
        room = max(PIECE_BYTES - len(head), 0)
        self._body, self._sent = memoryview(body), min(room, len(body))
        self._transport.write(head + body[:room])
        self._write_on_later()
        self._timer = self._loop.call_at(outgoing.deadline, self._expire)
        self._ended = ended  # last: what raises above was not begun

    def _error(self, reader: ResponseReader) -> EgressError:
        phase = Phase.RESPONSE if self._sent >= len(self._body) else Phase.WRITE
        kind: type[EgressError]
        if reader.broken:
            kind, message, phase = BadResponse, reader.broken, Phase.RESPONSE
        elif self._deadline_passed:
            kind = DeadlineExceeded
            if phase is Phase.WRITE:
                message = "the subscriber did not take the whole request before the deadline"
            else:
                message = f"no {'whole status line' if reader.started else 'answer'} before the deadline"
        else:
            kind = ConnectionBroken
            message = f"the connection broke before a final status line: {describe(self._lost_because)}"
        return kind(
            message,
            phase=phase,
            written=True,
            response_started=reader.started,
            reused=self.used > 1,
            address=self.address,
        )

    def _write_on(self) -> None:
        """Write the next piece of a large body, if the socket takes it and nothing has ended the exchange."""
        if self._paused or self._sent >= len(self._body) or self._ended is None:
            return
        piece = self._body[self._sent : self._sent + PIECE_BYTES]
        self._sent += len(piece)
        assert self._transport is not None
        self._transport.write(piece)
        self._write_on_later()

    def _write_on_later(self) -> None:
        # A timer, not call_soon: asyncio runs due timers after what is readable. An early answer followed by a reset is
        # so read before the next write can fail, and a failed write makes asyncio throw away what was not read.
        if not self._paused and self._sent < len(self._body):
            self._loop.call_later(0, self._write_on)

    def _finish(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            assert self._timer is not None
            assert self._reader is not None
            self._timer.cancel()
            ended(self._error(self._reader) if self._reader.status is None else self._reader)

    def _expire(self) -> None:
        self._deadline_passed = True
        self._finish()
        self.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        if self._lost:
            self._transport.abort()
            return
        self._on_made(self)

    def data_received(self, data: bytes) -> None:
        if self._ended is None:  # nobody asked: whatever it is, it answers no request of ours
            self.abort()
            return
        reader = self._reader
        assert reader is not None
        if reader.feed(data):
            self._finish()

    def eof_received(self) -> bool:
        self._finish()
        return False  # close: a subscriber that will say nothing more is not written to any more

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._lost_because = exc
        self._finish()
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._write_on()
