"""W3C Trace Context of a publisher, read without trust: what cannot be read counts as absent, never as an error."""

import re
import secrets
from dataclasses import dataclass
from typing import Self

TRACESTATE_BYTES_MAX = 512

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_PRINTABLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")
_INVALID_VERSION = "ff"
_NO_TRACE = "0" * 32
_NO_SPAN = "0" * 16
_SAMPLED = 0x01


@dataclass(frozen=True, slots=True)
class TraceParent:
    """A position in a trace. ``str`` gives the header, always in version 00."""

    trace_id: str
    span_id: str
    sampled: bool

    @classmethod
    def parse(cls, text: object) -> Self | None:
        """Read a ``traceparent`` header (W3C Trace Context, level 1, section 3.2); ``None`` if it is not valid.

        A later version than 00 is read by its first four fields, as section 3.2.4 asks.
        """
        if not isinstance(text, str) or (parts := _TRACEPARENT.fullmatch(text)) is None:
            return None
        version, trace_id, span_id, flags, more = parts.groups()
        if version == _INVALID_VERSION or trace_id == _NO_TRACE or span_id == _NO_SPAN:
            return None
        if more is not None and version == "00":
            return None
        return cls(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))

    @classmethod
    def new(cls, *, trace_id: str | None = None, sampled: bool = True) -> Self:
        """A random position: in a new trace, or a new span of the trace with ``trace_id``."""
        return cls(trace_id or _random_hex(16), _random_hex(8), sampled)

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


def _random_hex(size_bytes: int) -> str:
    """All zeros are no id. One chance in 2^64 at the smallest, yet cheap to rule out."""
    while not int(text := secrets.token_hex(size_bytes), 16):  # pragma: no cover - not to be met in a lifetime
        pass
    return text


def usable_tracestate(text: object) -> str | None:
    """``text`` if it may be passed on as a ``tracestate`` header; ``None`` if it is too long or could not be sent."""
    if not isinstance(text, str) or len(text) > TRACESTATE_BYTES_MAX or not _PRINTABLE.fullmatch(text):
        return None
    return text
