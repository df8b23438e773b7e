"""One call of the API as it came in: path, query and headers read strictly, the body within limits that hold while it streams."""

import asyncio
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.types import Message, Receive, Scope

from fanout.api.problems import Refused, unavailable
from fanout.model.documents import read_object
from fanout.model.problems import Invalid, Problem

DOCUMENT_BYTES_MAX = 256 * 1024
BODY_SECONDS = 30.0
"""A body that takes longer to arrive is given up: nobody holds our memory by dripping."""
BUFFERED_BYTES_MAX = 256 * 1024 * 1024
"""Bodies of all calls together. Beyond it the API answers 503 instead of growing."""
LINGER_SECONDS = 2.0
LINGER_BYTES = 8 * 1024 * 1024


class CallerGone(Exception):  # noqa: N818 - says what happened
    """The connection broke before the body was whole. Nobody waits for an answer, and nothing may be done."""


class Buffered:
    """How many bytes of bodies this process holds now."""

    def __init__(self, most: int = BUFFERED_BYTES_MAX) -> None:
        self.most = most
        self.held = 0


class Call:
    """``names`` are the variable parts of the path, decoded and otherwise as they came."""

    def __init__(self, scope: Scope, receive: Receive, buffered: Buffered) -> None:
        self.scope = scope
        self.names: tuple[str, ...] = ()
        self._receive = receive
        self._buffered = buffered
        self._held = 0
        self._consumed = False
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def caller(self) -> str:
        """Who changed a subscriber, as far as a call without a key tells."""
        client = self.scope.get("client")
        return f"http {client[0]}" if client else "http"

    # ---- headers

    def headers_beginning(self, prefix: bytes) -> set[str]:
        return {name.decode("latin-1") for name, _ in self._headers if name.startswith(prefix)}

    def header_lines(self, name: str) -> list[str]:
        wanted = name.lower().encode()
        return [value.decode("latin-1").strip(" \t") for each, value in self._headers if each == wanted]

    def header(self, name: str) -> str | None:
        """The one value. A header that is there twice is malformed: nobody can say which one was meant."""
        lines = self.header_lines(name)
        if len(lines) > 1:
            raise Invalid.field(name, f"is there {len(lines)} times", "send it once", malformed=True)
        return lines[0] if lines else None

    # ---- query

    def query(self, *known: str) -> dict[str, str]:
        """The parameters by name. An unknown one is refused (a filter with a typo would match everything), as is one twice."""
        text: bytes = self.scope["query_string"]
        if not text:
            return {}
        try:
            pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
        except ValueError:
            raise Invalid.field(
                "query", "cannot be read", "write NAME=VALUE&NAME=VALUE, percent-encoded UTF-8", malformed=True
            ) from None
        given: dict[str, str] = {}
        problems: list[Problem] = []
        for name, value in pairs:
            if name not in known:
                right = f"the parameters are {', '.join(known)}" if known else "this call has no parameters"
                problems.append(Problem(ascii(name[:64])[1:-1], "is not a parameter of this call", right))
            elif name in given:
                problems.append(Problem(name, "is there twice", "write it once", malformed=True))
            given[name] = value
        if problems:
            raise Invalid(*problems)
        return given

    # ---- body

    async def document(self) -> dict[str, Any]:
        """The body as a JSON object, read strictly. A form or plain text is not taken for JSON: browsers send those to any site."""
        content_type = (self.header("Content-Type") or "").partition(";")[0].strip().lower()
        if content_type != "application/json" and not content_type.endswith("+json"):
            said = f"Content-Type is {content_type[:80]!a}" if content_type else "there is no Content-Type"
            raise Refused(415, f"{said}: send JSON with Content-Type: application/json")
        self.refuse_encoding()
        return read_object("body", await self.body(DOCUMENT_BYTES_MAX))

    def refuse_encoding(self) -> None:
        """A coded body would have to be decoded (then it is not what came in) or stored in a code that nobody is told of."""
        codings = ", ".join(self.header_lines("Content-Encoding"))
        if codings.lower() not in {"", "identity"}:
            raise Refused(
                415,
                f"Content-Encoding is {codings[:80]!a}: send the bytes as they are, without a Content-Encoding "
                "(bytes that are compressed for the subscriber are named by their Content-Type)",
                headers=[(b"accept-encoding", b"identity")],
            )

    async def body(self, bytes_max: int) -> bytes:
        """The whole body. Beyond ``bytes_max`` it is refused with 413 as soon as that is known, announced or not."""
        announced = self.header("Content-Length")
        if announced is not None and announced.isdecimal() and int(announced) > bytes_max:
            raise self._too_large(bytes_max, f"announces {announced[:20]} bytes")
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await self._read(bytes_max)
        except TimeoutError:
            raise Refused(408, f"the body did not arrive within {BODY_SECONDS:.0f} seconds; repeat the call") from None

    async def _read(self, bytes_max: int) -> bytes:
        piece = await self._next_piece(bytes_max)
        if self._consumed:
            return piece
        whole = bytearray(piece)  # a list of pieces would cost 40 bytes for each byte that drips in
        while not self._consumed:
            whole += await self._next_piece(bytes_max)
        return bytes(whole)

    async def _next_piece(self, bytes_max: int) -> bytes:
        message: Message = await self._receive()
        if message["type"] == "http.disconnect":
            raise CallerGone
        piece: bytes = message.get("body", b"")
        self._held += len(piece)
        self._buffered.held += len(piece)
        if self._held > bytes_max:
            raise self._too_large(bytes_max, "is longer than that")
        if self._buffered.held > self._buffered.most:
            raise unavailable("too many bodies are arriving at once; repeat the call")
        self._consumed = not message.get("more_body", False)
        return piece

    def _too_large(self, bytes_max: int, why: str) -> Refused:
        return Refused(413, f"the body may be {bytes_max} bytes long, and this one {why}")

    @property
    def leaves_body(self) -> bool:
        """Whether there is a body that nobody has read to its end."""
        if self._consumed:
            return False
        length = self.header_lines("Content-Length")
        return bool(self.header_lines("Transfer-Encoding")) or bool(length and length != ["0"])

    async def linger(self) -> None:
        """Take in, and drop, what the caller still sends: closing at once would reset the connection under our answer."""
        passed = 0
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while passed < LINGER_BYTES:
                    message = await self._receive()
                    passed += len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        return
        except TimeoutError:
            return

    def let_go(self) -> None:
        """The call is over, and with it the bytes it held."""
        self._buffered.held -= self._held
        self._held = 0


def segments_of(scope: Scope) -> list[str]:
    """The path in its segments, each decoded on its own: ``%2F`` stays inside its segment, and ``..`` is a segment like any
    other. Nothing is normalised away, so nothing is swallowed.
    """
    raw: bytes = scope["raw_path"]
    try:
        return [unquote_to_bytes(segment).decode("utf-8") for segment in raw.split(b"/")[1:]]
    except UnicodeDecodeError:
        raise Invalid.field("path", "holds percent-encoded bytes that are not UTF-8", malformed=True) from None
