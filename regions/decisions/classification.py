"""What one attempt came to: the table of outcomes in docs/reference.md, as two pure functions.

``classify_response`` decides once a final status line was read, ``classify_failure`` when there was none.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from fanout.model.states import Outcome
from regions.decisions.retry_after import parse_retry_after

EXCERPT_BYTES_DELIVERED = 256
EXCERPT_BYTES_OTHER = 2048
LOCATION_CHARACTERS = 256

_RETRIED_BY_DEFAULT = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY})
_UNAUTHORIZED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_NOT_UP_TO_THE_SUBSCRIBER: dict[int, Outcome] = {
    HTTPStatus.GONE: Outcome.GONE,
    HTTPStatus.TOO_MANY_REQUESTS: Outcome.THROTTLED,
}
_CONTROL = re.compile(r"[\x00-\x20\x7f-\xa0]")


class Phase(StrEnum):
    """How far an attempt had come when it failed."""

    ADDRESS = "address"
    """The endpoint cannot be used or its address is not allowed. Trying again cannot help."""
    RESOLVE = "resolve"
    CONNECT = "connect"
    TLS = "tls"
    WRITE = "write"
    RESPONSE = "response"


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that ended before a final status line. ``message`` is ours, for a person, and holds no secret."""

    message: str
    phase: Phase
    written: bool
    """Whether any byte of the request was handed to the socket: then the subscriber may have got it."""
    response_started: bool = False
    reused: bool = False
    unparsable: bool = False
    """The subscriber did answer, but not in HTTP."""
    address: str | None = None


class AttemptResult(NamedTuple):
    """The outcome of one attempt and what the ledger keeps of it."""

    outcome: Outcome
    status: int | None = None
    error: str = ""
    """Short, for a person, without secrets; empty if the status says it all."""
    retry_after_seconds: float | None = None
    """As asked for, rounded up, not capped; only with ``throttled``."""
    location: str | None = None
    """Where a 3xx pointed, without userinfo, query and fragment."""
    excerpt: bytes = b""
    retry_soon: bool = False
    """The first retry may follow at once: a kept-alive connection broke before any byte of a response."""
    address: str | None = None


def delivered(status: int, body: bytes, address: str | None) -> AttemptResult:
    """Any 2xx."""
    return AttemptResult(Outcome.DELIVERED, status, excerpt=body[:EXCERPT_BYTES_DELIVERED], address=address)


def classify_response(
    status: int,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
    retry_statuses: frozenset[int] | None,
    now: datetime,
    *,
    address: str | None = None,
) -> AttemptResult:
    """The outcome of a response whose status line was read; ``body`` is as much of it as was read. Total and never raises.

    **Retried statuses.** ``None`` means the default: 408, 425 and every 5xx are ``failed`` (retried), other 4xx are
    ``rejected``. A set, also the empty one, replaces that default as a whole: a 4xx or 5xx in it is ``failed``, one not
    in it is ``rejected``. Not up to the subscriber are 2xx, 3xx, 410, 429, 503 with a readable ``Retry-After``, and what
    is no HTTP status; 401 and 403 stay ``unauthorized`` (retried twice) unless they are in the set.
    """
    if 200 <= status <= 299:  # noqa: PLR2004 - as everywhere below, the classes of RFC 9110
        return delivered(status, body, address)
    outcome, error = _outcome(status, retry_statuses)
    retry_after = location = None
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        date = next(iter(_field(headers, b"date")), None)
        retry_after = parse_retry_after(_field(headers, b"retry-after"), date, now)
        if retry_after is not None:
            outcome, error = Outcome.THROTTLED, ""
    elif outcome is Outcome.REDIRECTED:
        location = _shown_location(next(iter(_field(headers, b"location")), ""))
    return AttemptResult(
        outcome, status, error, retry_after, location, excerpt=body[:EXCERPT_BYTES_OTHER], address=address
    )


def classify_failure(failure: Failure) -> AttemptResult:
    """The outcome of an attempt without a status line: what matters is whether the subscriber may have got the request."""
    retry_soon = False
    if failure.phase is Phase.ADDRESS:
        outcome = Outcome.FORBIDDEN
    elif failure.unparsable:
        outcome = Outcome.FAILED
    elif not failure.written:
        outcome = Outcome.UNREACHABLE
    else:
        outcome = Outcome.UNKNOWN
        retry_soon = failure.reused and not failure.response_started
    return AttemptResult(outcome, error=failure.message, retry_soon=retry_soon, address=failure.address)


def _outcome(status: int, retry_statuses: frozenset[int] | None) -> tuple[Outcome, str]:
    """Every status but 2xx, as if no ``Retry-After`` were there."""
    if status < 200:  # noqa: PLR2004
        return Outcome.FAILED, f"answered with {status} as if that were final"
    if status < 400:  # noqa: PLR2004
        return Outcome.REDIRECTED, "redirects are not followed: the endpoint has to be changed to where it moved"
    if status > 599:  # noqa: PLR2004
        return Outcome.FAILED, f"{status} is not an HTTP status"
    if status in _NOT_UP_TO_THE_SUBSCRIBER:
        return _NOT_UP_TO_THE_SUBSCRIBER[status], ""
    if retry_statuses is None:
        retried = status in _RETRIED_BY_DEFAULT or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    else:
        retried = status in retry_statuses
    refused = Outcome.UNAUTHORIZED if status in _UNAUTHORIZED else Outcome.REJECTED
    return (Outcome.FAILED if retried else refused), ""


def _field(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key.lower() == name]


def _shown_location(location: str) -> str | None:
    """A Location that may be shown: tokens travel in userinfo, query and fragment, so none of those is kept."""
    location = _CONTROL.sub("", location).partition("#")[0].partition("?")[0]
    try:
        scheme, netloc, path, _, _ = urlsplit(location)
    except ValueError:
        return None
    netloc = netloc.rpartition("@")[2]
    shown = (f"{scheme}:" if scheme else "") + (f"//{netloc}" if netloc else "") + path
    return shown[:LOCATION_CHARACTERS] or None
