"""What passes over an AMQP 0-9-1 link, told apart by its frames (2.3.5 of the specification)."""

import struct
from collections import Counter

_FRAME = struct.Struct(">BHI")
_KINDS = {1: "method", 2: "message", 3: "body", 8: "heartbeat"}
_PROTOCOL_HEADER_BYTES, _END_BYTES = 8, 1


class Frames:
    """Watches a ``Proxy`` from before its first connection. ``counts``: by kind; a content header is one message."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._streams: dict[object, bytearray] = {}

    def __call__(self, end: object, data: bytes, inward: bool) -> None:
        stream = self._streams.setdefault(end, bytearray())
        stream += data
        if inward and stream.startswith(b"AMQP"):
            del stream[:_PROTOCOL_HEADER_BYTES]
        while len(stream) >= _FRAME.size:
            kind, _, size = _FRAME.unpack_from(stream)
            whole = _FRAME.size + size + _END_BYTES
            if len(stream) < whole:
                return
            self.counts[_KINDS[kind]] += 1
            del stream[:whole]
