"""What stands in a URL: ids, versions, filters and cursors, each of which can only be right or malformed."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

from fanout.model.documents import json_kind
from fanout.model.problems import Invalid

LIMIT_MAX = 500
LIMIT_DEFAULT = 50

Value = TypeVar("Value")
Word = TypeVar("Word", bound=StrEnum)


def named(field: str, text: str, read: Callable[[str, object], Value]) -> Value:
    """Read a part of the URL. A URL that names nothing that could exist is malformed (400), not merely not allowed."""
    try:
        return read(field, text)
    except Invalid as error:
        raise Invalid(*(replace(each, malformed=True) for each in error.problems)) from None


def filter_of(given: Mapping[str, str], field: str, read: Callable[[str, object], Value]) -> Value | None:
    return named(field, given[field], read) if field in given else None


def word_of(given: Mapping[str, str], field: str, words: type[Word]) -> Word | None:
    """One of a fixed list of words; any other is well-formed, and not one of them."""
    if field not in given:
        return None
    if given[field] not in list(words):
        raise Invalid.field(field, f"{given[field][:40]!a} is none of them", f"write one of {', '.join(words)}")
    return words(given[field])


def limit_of(given: Mapping[str, str]) -> int:
    text = given.get("limit", str(LIMIT_DEFAULT))
    right = f"write a whole number from 1 to {LIMIT_MAX}"
    if not (text.isascii() and text.isdecimal()):
        raise Invalid.field("limit", f"{text[:40]!a} is not a number", right, malformed=True)
    if len(text) > len(str(LIMIT_MAX)) or not 1 <= int(text) <= LIMIT_MAX:
        raise Invalid.field("limit", "is out of range", right)
    return int(text)


def write_cursor(kind: str, place: object) -> str:
    """Where a list goes on, as text that nobody should read. ``kind`` keeps the cursors of different lists apart."""
    return urlsafe_b64encode(json.dumps([kind, place], separators=(",", ":")).encode()).decode().rstrip("=")


def read_cursor(kind: str, text: str, check: Callable[[object], Value]) -> Value:
    """Back from ``write_cursor``. ``check`` judges the place, which anyone may have made up; it raises ValueError."""
    try:
        return check(_place_in(kind, text))
    except (ValueError, RecursionError):
        right = "give `next` of the page before as it stands, with the same filters"
        raise Invalid.field("cursor", "is not a cursor of this list", right, malformed=True) from None


def _place_in(kind: str, text: str) -> object:
    padded = text.encode("ascii") + b"=" * (-len(text) % 4)
    written = json.loads(urlsafe_b64decode(padded))
    if not isinstance(written, list) or len(written) != 2 or written[0] != kind:  # noqa: PLR2004 - kind and place
        raise ValueError(json_kind(written))
    return written[1]
