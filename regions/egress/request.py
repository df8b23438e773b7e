"""The POST that a subscriber gets: which headers, in which order, and what a subscriber may add."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import httpx2

from fanout.signing import sign
from regions.egress.errors import ForbiddenDestination
from regions.egress.exchange import Origin, Outgoing

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


_HEADERS = re.compile(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+: (?:[^\x00-\x1f\x7f]|\t)*\r\n)*")
_TARGET = re.compile(rb"/[\x21-\x7e]*")
_PORTS: Final = {"http": 80, "https": 443}


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
    origin: Origin = field(init=False)
    path: str = field(init=False)
    """Without the query: people put credentials there."""
    first: bytes = field(init=False, repr=False)
    """The head up to what belongs to a version."""
    last: bytes = field(init=False, repr=False)
    """The end of the head: the subscriber's own headers and the blank line."""

    def __post_init__(self) -> None:
        try:
            url = httpx2.URL(self.endpoint)
        except (httpx2.InvalidURL, ValueError):  # UnicodeError and idna's errors are ValueErrors
            raise ForbiddenDestination("the endpoint is not a URL that can be used") from None
        self.origin = origin_of(url)
        self.path = url.path
        own = [
            (name.encode(errors="replace"), value.encode(errors="replace"))
            for name, value in self.own_headers
            if not is_reserved(name)
        ]
        named = {name.lower() for name, _ in own}
        polite = [(b"User-Agent", USER_AGENT), (b"Accept", b"*/*")]
        target = url.raw_path
        if not _TARGET.fullmatch(target):
            raise ForbiddenDestination("the path of the endpoint cannot be sent")
        self.first = b"POST %b HTTP/1.1\r\n" % target + header_lines(
            (b"Host", url.netloc),
            *(header for header in polite if header[0].lower() not in named),
            (b"Accept-Encoding", b"identity"),
        )
        self.last = header_lines(*own) + b"\r\n"

    def __repr__(self) -> str:
        return f"Target({self.origin.scheme}://{self.origin.host}:{self.origin.port})"


def origin_of(url: httpx2.URL) -> Origin:
    """Raises ``ForbiddenDestination`` for what is no http(s) URL with a host and a possible port."""
    scheme, host = url.scheme, url.raw_host.decode("ascii")
    if scheme not in _PORTS or not host:
        raise ForbiddenDestination("the endpoint is not an http or https URL with a host")
    port = url.port if url.port is not None else _PORTS[scheme]
    if not 0 < port <= 65_535:  # noqa: PLR2004 - TCP's
        raise ForbiddenDestination(f"port {port} does not exist")
    return Origin(scheme, host, port)


def header_lines(*headers: tuple[bytes, bytes]) -> bytes:
    """Raises ``ForbiddenDestination`` where one of them could not be told from something else on the wire."""
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    # The count catches a value that brings a whole header line of its own, which the pattern cannot see.
    if not _HEADERS.fullmatch(lines) or lines.count(b"\n") != len(headers):
        raise ForbiddenDestination("a header cannot be sent: name or value has a forbidden character")
    return lines


def version_lines(*, payload: bytes, content_type: str, shipment_id: str, version: int, event_type: str) -> bytes:
    """The part of the head that is the same for every delivery of a version. Raises ``ForbiddenDestination``."""
    return header_lines(
        (b"Content-Type", content_type.encode("latin-1", "replace")),
        (b"Content-Length", b"%d" % len(payload)),
        (b"Fanout-Shipment-Id", shipment_id.encode()),
        (b"Fanout-Version", b"%d" % version),
        (b"Fanout-Event-Type", event_type.encode()),
    )


def build_request(
    target: Target,
    lines: bytes,
    *,
    payload: bytes,
    key: str,
    webhook_id: str,
    timestamp: int,
    attempt: int,
    traceparent: str,
    deadline: float,
    may_write: Callable[[], bool] | None = None,
) -> Outgoing:
    """One attempt, ready to send. The payload goes out as it is; no payload is ``Content-Length: 0``.

    ``lines`` are those of the version. ``timestamp`` (seconds since 1970) belongs to this attempt and is signed; ``webhook_id`` and
    ``key`` belong to the delivery. ``deadline`` is in seconds of ``loop.time()``. Ids come from the strict alphabet of the model.
    """
    head = (
        b"%b%bIdempotency-Key: %b\r\nwebhook-id: %b\r\nwebhook-timestamp: %d\r\nwebhook-signature: %b\r\nFanout-Attempt: %d\r\ntraceparent: %b\r\n%b"
        % (
            target.first,
            lines,
            key.encode(),
            webhook_id.encode(),
            timestamp,
            sign(target.secrets, webhook_id, timestamp, payload).encode(),
            attempt,
            traceparent.encode(),
            target.last,
        )
    )
    return Outgoing(target.endpoint, target.origin, head, payload, deadline, may_write)
