"""HTTP/1.1 under the API: uvicorn's own protocol, with a bound on what a request's head may be and on how long it may take.

Beyond it a caller who never ends a head would hold as much memory as they like to send.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fanout.api.problems import problem

HEAD_BYTES_MAX = 32 * 1024
"""Target and header fields together."""
HEAD_SECONDS = 30.0
LINGER_SECONDS = 2.0
"""So long is taken in, and dropped, what the caller still sends: closing at once would reset the connection under our answer."""


class _HeadTooLarge(Exception):  # noqa: N818 - never leaves the parser, which makes an error of its own of it
    pass


class BoundedHeads(HttpToolsProtocol):
    """Refuses with 431 what is too long, with 408 what takes too long, with 400 what is not HTTP: each a problem document."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._refused = False
        self._in_head = True
        self._fields_bytes = 0
        self._head_bytes = 0
        """What came while the head was not complete: a field that never ends is told to nobody."""
        self._ended_here = False
        """A request ended in the piece at hand: how much of it belongs to the next head, nobody has told."""
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._ended_here = False
        super().data_received(data)
        if self._in_head and not self._refused and not self._ended_here:
            self._head_bytes += len(data)
            if self._head_bytes > 2 * HEAD_BYTES_MAX:
                self._refuse(431)
            elif self._late is None:
                self._await_head()

    def on_message_begin(self) -> None:
        self._fields_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_is_there()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._ended_here, self._head_bytes = True, True, 0
        super().on_message_complete()

    def send_400_response(self, _msg: str) -> None:
        """Uvicorn's answer to whatever the parser does not take, what we refused while it parsed included."""
        self._refuse(431 if self._fields_bytes > HEAD_BYTES_MAX else 400)

    def _count(self, count: int) -> None:
        self._fields_bytes += count
        if self._fields_bytes > HEAD_BYTES_MAX:
            raise _HeadTooLarge

    def _await_head(self) -> None:
        self._late = self.loop.call_later(HEAD_SECONDS, self._refuse, 408)

    def _head_is_there(self) -> None:
        self._in_head = False
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, status: int) -> None:
        self._refused = True
        self._head_is_there()
        if self.transport.is_closing():
            return
        answer = problem(status, _DETAILS[status])
        fields = {b"content-type": answer.content_type, b"content-length": str(len(answer.body)).encode()}
        lines = [f"HTTP/1.1 {status} ".encode(), *(name + b": " + value for name, value in fields.items())]
        self.transport.write(b"\r\n".join([*lines, b"connection: close", b"", answer.body]))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


_DETAILS = {
    400: "this is not HTTP/1.1 as it is written down",
    408: f"the head of the request did not arrive within {HEAD_SECONDS:.0f} seconds; repeat the call",
    431: f"the target and the header fields may be {HEAD_BYTES_MAX} bytes long together",
}
