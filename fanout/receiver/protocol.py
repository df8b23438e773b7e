"""One HTTP/1.1 connection to the receiver: parses requests, waits as long as the script says, answers in order."""

import asyncio
from collections import deque
from typing import Protocol, cast
from urllib.parse import unquote

import httptools

from fanout.receiver.script import Answer

BODY_BYTES_MAX = 16 * 1024 * 1024
PIPELINED_MAX = 100
BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
TOO_BIG = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Request:
    """One request as it came. ``arrival`` is the monotonic time of its first byte."""

    __slots__ = (
        "arrival",
        "began",
        "body",
        "headers",
        "keep_alive",
        "method",
        "number",
        "size",
        "subscriber",
        "target",
    )

    def __init__(self, arrival: float) -> None:
        self.arrival = arrival
        self.target = b""
        self.method = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []
        self.size = 0
        self.keep_alive = False
        self.subscriber = ""
        self.began = False
        """Counted as in flight."""
        self.number = 0

    def header(self, name: bytes) -> str:
        """The first of that (lower-case) name, else empty."""
        for each, value in self.headers:
            if each.lower() == name:
                return value.decode("latin-1")
        return ""

    def first_segment(self) -> str:
        segment = self.target.partition(b"?")[0].removeprefix(b"/").partition(b"/")[0].decode("latin-1")
        return unquote(segment) if "%" in segment else segment


class Audience(Protocol):
    """Who a connection tells what it sees; the server."""

    def opened(self, connection: "Connection") -> None: ...
    def closed(self, connection: "Connection") -> None: ...
    def malformed(self) -> None: ...
    def began(self, request: Request) -> None:
        """Path and some headers are there."""

    def decide(self, request: Request) -> Answer:
        """The request is complete: what shall happen to it?"""

    def respond(self, request: Request, answer: Answer) -> bytes:
        """The bytes to write now."""

    def ended(self, request: Request, status: int | None) -> None:
        """The response was written; without a status, the connection closed instead."""


class Connection(asyncio.Protocol):
    """A request counts from its first byte until its response is written or its connection is closed.

    Reading never pauses: a sender that was killed in the middle is noticed at once.
    """

    def __init__(self, audience: Audience, loop: asyncio.AbstractEventLoop) -> None:
        self._audience = audience
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._reading: Request | None = None
        self._answering: Request | None = None
        self._waiting: deque[Request] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._now = 0.0

    # ------------------------------------------------------------------ asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has transports of its own
        self._audience.opened(self)

    def data_received(self, data: bytes) -> None:
        self._now = self._loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # the request itself is complete and answered; we speak HTTP/1.1 only
            pass
        except httptools.HttpParserError:
            self._audience.malformed()
            self._refuse(BAD_REQUEST)
        else:
            request = self._reading
            if request is not None and not request.began and request.headers:
                self._begin(request)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for request in (self._answering, *self._waiting, self._reading):
            if request is not None and request.began:
                self._audience.ended(request, None)
        self._answering = self._reading = None
        self._waiting.clear()
        self._transport = None
        self._audience.closed(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # ------------------------------------------------------------------ httptools

    def on_message_begin(self) -> None:
        self._reading = Request(self._now)

    def on_url(self, part: bytes) -> None:
        assert self._reading is not None
        self._reading.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        assert self._reading is not None
        self._reading.headers.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._reading is not None
        if self._reading.header(b"expect").lower() == "100-continue" and self._transport is not None:
            self._transport.write(CONTINUE)

    def on_body(self, part: bytes) -> None:
        request = self._reading
        assert request is not None
        request.size += len(part)
        if request.size > BODY_BYTES_MAX:
            self._refuse(TOO_BIG)
        else:
            request.body.append(part)

    def on_message_complete(self) -> None:
        request, self._reading = self._reading, None
        assert request is not None
        request.keep_alive = self._parser.should_keep_alive()
        if not request.began:
            self._begin(request)
        if self._transport is None or self._transport.is_closing() or len(self._waiting) >= PIPELINED_MAX:
            self._audience.ended(request, None)
            self.close()
        elif self._answering is not None:
            self._waiting.append(request)
        else:
            self._answer(request)

    # ------------------------------------------------------------------ answering

    def _begin(self, request: Request) -> None:
        request.began = True
        request.method = self._parser.get_method()
        self._audience.began(request)

    def _refuse(self, response: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(response)
            self._transport.close()

    def _answer(self, request: Request) -> None:
        answer = self._audience.decide(request)
        self._answering = request
        if answer.wait_seconds:
            self._timer = self._loop.call_later(answer.wait_seconds, self._finish, request, answer)
        else:
            self._finish(request, answer)

    def _finish(self, request: Request, answer: Answer) -> None:
        self._timer = None
        transport = self._transport
        if transport is None or transport.is_closing() or answer.close:
            self.close()  # connection_lost ends the request
            return
        transport.write(self._audience.respond(request, answer))
        self._answering = None
        self._audience.ended(request, answer.status)
        if not request.keep_alive:
            transport.close()
        elif self._waiting:
            self._answer(self._waiting.popleft())
