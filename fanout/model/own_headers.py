"""Headers that a subscriber adds to its own deliveries, checked with exactly the rules of the wire (RFC 9110, section 5)."""

import re

from fanout.model.documents import check_object
from fanout.model.problems import Invalid, Problem

HEADERS_MAX = 32
HEADER_BYTES_MAX = 4096
MASK = "***"
"""What listings show in place of a value."""

NAME_RIGHT = "write a name of A-Z a-z 0-9 and ! # $ % & ' * + - . ^ _ ` | ~"
VALUE_RIGHT = "write printable ASCII without a blank at either end"

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")
_OURS = frozenset(
    {
        "accept-encoding", "connection", "content-length", "content-type", "expect", "host", "idempotency-key",
        "keep-alive", "te", "traceparent", "tracestate", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_OUR_PREFIXES = ("fanout-", "proxy-", "webhook-")


def check_headers(field: str, headers: object) -> dict[str, str]:
    """A copy of the headers, or ``Invalid`` naming each wrong one. Values are never repeated: they are often credentials."""
    given = check_object(field, headers)
    problems: list[Problem] = []
    if len(given) > HEADERS_MAX:
        problems.append(Problem(field, f"there are {len(given)} headers", f"write at most {HEADERS_MAX}"))
    seen: set[str] = set()
    for name, value in given.items():
        at = f"{field}.{name[:128]!a}"
        if name.lower() in seen:
            problems.append(Problem(at, "stands there twice (upper and lower case are one name)", "write it once"))
        seen.add(name.lower())
        problems.extend(_wrong_name(at, name))
        problems.extend(_wrong_value(at, name, value))
    if problems:
        raise Invalid(*problems)
    return {name: str(value) for name, value in given.items()}


def _wrong_name(at: str, name: str) -> list[Problem]:
    if not _TOKEN.fullmatch(name):
        return [Problem(at, "cannot be the name of a header", NAME_RIGHT)]
    if name.lower() in _OURS or name.lower().startswith(_OUR_PREFIXES):
        return [Problem(at, "is set by the sender itself", "choose another name")]
    return []


def _wrong_value(at: str, name: str, value: object) -> list[Problem]:
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        return [Problem(at, "the value cannot be sent as a header", VALUE_RIGHT)]
    if value == MASK:
        return [Problem(at, f"{MASK} stands for a hidden value in listings", "write the value itself")]
    if len(name) + len(value) > HEADER_BYTES_MAX:
        return [Problem(at, f"is longer than {HEADER_BYTES_MAX} bytes", "shorten it")]
    return []
