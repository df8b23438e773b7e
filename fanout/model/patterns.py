"""Which subscribers want a version: event types, patterns of them, and label filters.

The ledger decides the same in SQL (``pattern = ANY(candidates)`` on an index); these functions are the reference that the
property tests hold it to.
"""

import re
from collections.abc import Mapping, Sequence

from fanout.model.problems import Invalid

EVENT_TYPE_LENGTH_MAX = 128
EVENT_TYPE_RIGHT = (
    "write words of A-Z a-z 0-9 _ - ~ with single dots between, at most 128 characters, as shipment.delayed"
)
PATTERN_RIGHT = "write an event type, or the beginning of one and * at its end, as shipment.*"

_EVENT_TYPE = re.compile(r"[A-Za-z0-9_~-]+(?:\.[A-Za-z0-9_~-]+)*")
_BEGINNING = re.compile(r"(?:[A-Za-z0-9_~-]+(?:\.[A-Za-z0-9_~-]+)*\.?)?")


def check_event_type(field: str, text: object) -> str:
    if not isinstance(text, str):
        raise Invalid.field(field, f"an event type is text, not {type(text).__name__}", EVENT_TYPE_RIGHT)
    if len(text) > EVENT_TYPE_LENGTH_MAX:
        raise Invalid.field(field, f"is {len(text)} characters long", EVENT_TYPE_RIGHT)
    if not _EVENT_TYPE.fullmatch(text):
        raise Invalid.field(field, f"{text!a} is not an event type", EVENT_TYPE_RIGHT)
    return text


def check_pattern(field: str, text: object) -> str:
    """A pattern is an event type, or any beginning of one followed by ``*``. ``*`` alone matches every type."""
    if not isinstance(text, str):
        raise Invalid.field(field, f"a pattern is text, not {type(text).__name__}", PATTERN_RIGHT)
    beginning = text.removesuffix("*")
    if len(beginning) > EVENT_TYPE_LENGTH_MAX:
        raise Invalid.field(field, f"is {len(text)} characters long", PATTERN_RIGHT)
    if not (_BEGINNING if text.endswith("*") else _EVENT_TYPE).fullmatch(beginning):
        raise Invalid.field(field, f"{text!a} matches no event type", PATTERN_RIGHT)
    return text


def pattern_candidates(event_type: str) -> list[str]:
    """Every pattern that matches ``event_type``: itself, and each beginning of it (none and the whole included) with ``*``."""
    return [event_type, *(event_type[:length] + "*" for length in range(len(event_type) + 1))]


def pattern_matches(pattern: str, event_type: str) -> bool:
    return event_type.startswith(pattern[:-1]) if pattern.endswith("*") else event_type == pattern


def labels_match(wanted: Mapping[str, Sequence[str]], labels: Mapping[str, str]) -> bool:
    """Each label that is named must be there with one of the listed values; an empty filter matches all."""
    return all(labels.get(name) in values for name, values in wanted.items())
