"""What a message carries: references and a version, so that old and new consumers can run side by side.

JSON, because at three in the morning someone reads it in the broker's console. Fields may be added at the end: older readers
skip what they do not know. A change that older readers would misread raises the version; they then dead-letter the message, and
the ledger queues its references again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated

import msgspec

from fanout.transports.transport import Reference

VERSION = 1
CONTENT_TYPE = "application/json"
REFERENCES_PER_MESSAGE = 50
HEADERS_MAX = 16
HEADER_BYTES_MAX = 1_024
"""All headers of a message have to fit one frame (128 KiB by default); one that does not resets the connection."""

TRACEPARENT_HEADER = "traceparent"
"""W3C Trace Context of the span that queued the references. It has no tracestate: that span begins a trace of its own."""

Headers = Mapping[str, str]

Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Dispatch = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""What the ledger's columns hold: a larger one would spoil the whole claim that it is in."""


class Envelope(msgspec.Struct, forbid_unknown_fields=False):
    v: int
    references: list[tuple[Number, Dispatch, Number]]
    """Delivery, dispatch, destination."""
    probation: bool = False


class Malformed(Exception):  # noqa: N818 - a finding about somebody's message
    """Not a message of ours. The text is the reason that goes with it to the dead-letter queue."""


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decoder = msgspec.json.Decoder(Envelope)
_version_decoder = msgspec.json.Decoder(dict[str, object])


def pack(references: Sequence[Reference], most: int = REFERENCES_PER_MESSAGE) -> Iterator[Sequence[Reference]]:
    """Which references share a message: up to ``most``, in order; those on probation share one only within their destination."""
    sound = [each for each in references if not each.probation]
    by_destination: dict[int, list[Reference]] = {}
    for each in references:
        if each.probation:
            by_destination.setdefault(each.destination_id, []).append(each)
    for group in (sound, *by_destination.values()):
        for start in range(0, len(group), most):
            yield group[start : start + most]


def encode(references: Sequence[Reference]) -> bytes:
    """One message. Its references are all on probation or none is."""
    rows = [(each.delivery_id, each.dispatch, each.destination_id) for each in references]
    return msgspec.json.encode(Envelope(VERSION, rows, references[0].probation))


def decode(body: bytes) -> list[Reference]:
    """Raises ``Malformed``."""
    try:
        envelope = _decoder.decode(body)
    except _UNREADABLE as error:
        raise Malformed(_version_trouble(body) or f"not an envelope of references: {error}") from None
    if envelope.v != VERSION:
        raise Malformed(_strange(envelope.v))
    if not envelope.references:
        raise Malformed("no references in it")
    return [Reference(*row, probation=envelope.probation) for row in envelope.references]


def _version_trouble(body: bytes) -> str | None:
    """A later version may have any shape beside its number."""
    try:
        version = _version_decoder.decode(body).get("v")
    except _UNREADABLE:
        return None
    return None if version == VERSION or not isinstance(version, int) else _strange(version)


def _strange(version: int) -> str:
    return f"envelope version {version}; this consumer reads version {VERSION}"


def bounded(headers: Headers) -> dict[str, str]:
    """At most so many headers, none longer than so many bytes: what is over is left out, never cut."""
    fitting = ((name, value) for name, value in headers.items() if _fits(name, value))
    return dict(_first(HEADERS_MAX, fitting))


def _fits(name: str, value: str) -> bool:
    return len(name.encode()) <= 255 and len(value.encode()) <= HEADER_BYTES_MAX  # noqa: PLR2004 - AMQP's short string


def _first(most: int, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for place, pair in enumerate(pairs):
        if place == most:
            return
        yield pair
