"""Reading one HTTP/1.x response from a stream of bytes that may be anything. No I/O: bytes go in, facts come out.

The status line is read here, because it alone decides the outcome of an attempt; everything after it goes through
``httptools`` and can only end the reading, not change what was decided.
"""

import re

import httptools

BODY_BYTES_MAX = 16 * 1024
HEAD_BYTES_MAX = 64 * 1024
STATUS_LINE_BYTES_MAX = 8 * 1024
INTERIM_MAX = 100
INTERIM_BYTES_MAX = 16 * 1024
"""How many 1xx responses may come before the final one, and how large they may be together."""
FRAMING_BYTES_MAX = 256 * 1024
"""What may come after the head in all, body included: chunk extensions and trailers are not free."""

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?\r?\n")
_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_START = b"HTTP/1."
_SWITCHING_PROTOCOLS = 101
_FINAL_MIN = 200


class ResponseReader:
    """One response. ``feed`` until it returns True; then ``status`` is the final status, or None if there was none."""

    __slots__ = (
        "_counted",
        "_in_body",
        "_interim",
        "_parser",
        "_pending",
        "body",
        "broken",
        "complete",
        "headers",
        "keep_alive",
        "started",
        "status",
    )

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()
        """At most ``BODY_BYTES_MAX``, as it came: not decoded, not decompressed."""
        self.started = False
        """Whether any byte came."""
        self.complete = False
        """The whole response was read, to the byte, and nothing followed it."""
        self.keep_alive = False
        self.broken = ""
        """Why what came is no HTTP; then there is no status."""
        self._pending = b""
        self._interim = 0
        self._counted = 0
        self._in_body = False
        self._parser: httptools.HttpResponseParser | None = None

    def feed(self, chunk: bytes) -> bool:
        """Take what arrived. True: nothing more is needed, or wanted."""
        self.started = True
        if self.status is None:
            found = self._read_status_line(self._pending + chunk if self._pending else chunk)
            if found is None or self._parser is None:
                return self.broken != "" or self.status is not None
            chunk = found
        self._counted += len(chunk)
        try:
            assert self._parser is not None
            self._parser.feed_data(chunk)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.complete = False
            return True
        if self.complete or len(self.body) >= BODY_BYTES_MAX:
            return True
        return self._counted > (FRAMING_BYTES_MAX if self._in_body else HEAD_BYTES_MAX)

    def _read_status_line(self, received: bytes) -> bytes | None:
        """Skip interim responses, then set the status. The bytes from the final status line on, or None if not there yet."""
        while True:
            received = received.lstrip(b"\r\n") if received[:1] in (b"\r", b"\n") else received
            line = _STATUS_LINE.match(received)
            if line is None:
                self._pending = received
                if (
                    received[:7] != _START[: len(received)]
                    or b"\n" in received
                    or len(received) > STATUS_LINE_BYTES_MAX
                ):
                    self.broken = "the subscriber answered, but not in HTTP/1.1"
                return None
            status = int(line[1])
            if status >= _FINAL_MIN or status == _SWITCHING_PROTOCOLS:
                self.status = status
                self._pending = b""
                if status != _SWITCHING_PROTOCOLS:
                    self._parser = httptools.HttpResponseParser(self)
                return received
            end = _BLANK_LINE.search(received, line.end() - 2)
            if end is None:
                self._pending = received
                if self._counted + len(received) > INTERIM_BYTES_MAX:
                    self.broken = "the subscriber sent interim responses without end"
                return None
            self._interim += 1
            self._counted += end.end()
            received = received[end.end() :]
            if self._interim > INTERIM_MAX or self._counted > INTERIM_BYTES_MAX:
                self.broken = "the subscriber sent interim responses without end"
                return None

    # Called by httptools.

    def on_message_begin(self) -> None:
        if self.complete:  # bytes after the response: what they answer nobody knows
            self.keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        assert self._parser is not None
        self.keep_alive = self._parser.should_keep_alive()
        self._in_body = True
        self._counted = 0

    def on_body(self, chunk: bytes) -> None:
        if not self.complete and len(self.body) < BODY_BYTES_MAX:
            self.body += chunk[: BODY_BYTES_MAX - len(self.body)]

    def on_message_complete(self) -> None:
        self.complete = True
