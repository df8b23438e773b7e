"""What a call answers: a status, bytes, and how to write documents."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fanout.model.times import format_utc

JSON = b"application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes = b""
    content_type: bytes = JSON
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)

    def head(self, *more: tuple[bytes, bytes]) -> dict[str, Any]:
        """The ASGI message that begins the response."""
        headers = [(b"content-length", str(len(self.body)).encode()), *self.headers, *more]
        if self.body:
            headers.append((b"content-type", self.content_type))
        return {"type": "http.response.start", "status": self.status, "headers": headers}


def document(status: int, content: Mapping[str, object], *, headers: list[tuple[bytes, bytes]] | None = None) -> Answer:
    return Answer(status, json_bytes(content), JSON, headers or [])


def json_bytes(content: object) -> bytes:
    """Times in UTC with ``Z``. What is not finite is an error of ours: it would not be JSON."""
    return json.dumps(content, default=_plain, separators=(",", ":"), allow_nan=False).encode()


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return format_utc(value)
    raise TypeError(f"{type(value).__name__} is not written as JSON anywhere")
