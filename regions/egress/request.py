"""The POST that a subscriber gets: which headers, in which order, and what a subscriber may add."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import httpx2

from fanout.signing import sign
from regions.egress.connection import Origin
from regions.egress.errors import ForbiddenDestination
from regions.egress.transport import origin_of

USER_AGENT: Final = b"regional-fanout"

RESERVED_HEADERS: Final = frozenset(
    {
        *("host", "accept-encoding", "content-type", "content-length", "idempotency-key", "traceparent", "tracestate"),
        *("connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "expect"),
    }
)
RESERVED_PREFIXES: Final = ("fanout-", "webhook-", "proxy-")
"""What a subscriber's own headers cannot set (lower case): ours, and those that change how a message is read. Registration
refuses the same ones; this is the last line."""


def is_reserved(name: str) -> bool:
    lower = name.strip().lower()
    return lower in RESERVED_HEADERS or lower.startswith(RESERVED_PREFIXES)


@dataclass(slots=True, repr=False)
class Target:
    """Where one configuration of a destination is sent to: made once per ``config_version`` and used for every attempt.

    ``secrets`` are key bytes, newest first. Own headers that are reserved are left out; one that cannot be sent makes
    every attempt ``forbidden`` (they are checked when they are saved). Raises ``ForbiddenDestination`` for an endpoint
    that cannot be used: ``classify_failure(error.failure())`` is then the outcome of each of its attempts.
    """

    endpoint: str
    secrets: Sequence[bytes]
    own_headers: Sequence[tuple[str, str]] = ()
    url: httpx2.URL = field(init=False)
    origin: Origin = field(init=False)
    first_headers: list[tuple[bytes, bytes]] = field(init=False, repr=False)
    last_headers: list[tuple[bytes, bytes]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            self.url = httpx2.URL(self.endpoint)
        except (httpx2.InvalidURL, ValueError):  # UnicodeError and idna's errors are ValueErrors
            raise ForbiddenDestination("the endpoint is not a URL that can be used") from None
        self.origin = origin_of(self.url)
        self.last_headers = [
            (name.encode(errors="replace"), value.encode(errors="replace"))
            for name, value in self.own_headers
            if not is_reserved(name)
        ]
        own = {name.lower() for name, _ in self.last_headers}
        polite = [(b"User-Agent", USER_AGENT), (b"Accept", b"*/*")]
        self.first_headers = [
            (b"Host", self.url.netloc),
            *(header for header in polite if header[0].lower() not in own),
            (b"Accept-Encoding", b"identity"),
        ]

    def __repr__(self) -> str:
        return f"Target({self.origin.scheme}://{self.origin.host}:{self.origin.port})"


def build_request(
    target: Target,
    *,
    payload: bytes,
    content_type: str,
    key: str,
    webhook_id: str,
    timestamp: int,
    shipment_id: str,
    version: int,
    event_type: str,
    attempt: int,
    traceparent: str | None,
    deadline: float,
    may_write: Callable[[], bool] | None = None,
) -> httpx2.Request:
    """One attempt, ready to send. The payload goes out as it is; no payload is ``Content-Length: 0``.

    ``timestamp`` (seconds since 1970) belongs to this attempt and is signed; ``webhook_id`` and ``key`` belong to the delivery.
    ``deadline`` is in seconds of ``loop.time()``. Ids come from the strict alphabet of the model and are not checked again.
    """
    headers = [
        *target.first_headers,
        (b"Content-Type", content_type.encode("latin-1", "replace")),
        (b"Content-Length", b"%d" % len(payload)),
        (b"Idempotency-Key", key.encode()),
        (b"webhook-id", webhook_id.encode()),
        (b"webhook-timestamp", b"%d" % timestamp),
        (b"webhook-signature", sign(target.secrets, webhook_id, timestamp, payload).encode()),
        (b"Fanout-Shipment-Id", shipment_id.encode()),
        (b"Fanout-Version", b"%d" % version),
        (b"Fanout-Event-Type", event_type.encode()),
        (b"Fanout-Attempt", b"%d" % attempt),
    ]
    if traceparent:
        headers.append((b"traceparent", traceparent.encode()))
    headers += target.last_headers
    return httpx2.Request(
        "POST",
        target.url,
        headers=headers,
        stream=httpx2.ByteStream(payload),
        extensions={"deadline": deadline, "may_write": may_write, "origin": target.origin},
    )
