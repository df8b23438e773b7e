"""Deliveries of several regions as one list, newest first, a page at a time. What the API and the command line share."""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fanout.api.naming import read_cursor, write_cursor
from fanout.ledger.inspection import Delivery, DeliveryPage

CURSOR = "deliveries"
_ID_MAX = 2**63 - 1

Positions = dict[str, int | None]
"""How far each region has been listed: the last delivery shown of it, None for the beginning. A region that is not named is done."""


@dataclass(frozen=True, slots=True)
class Merged:
    items: list[tuple[str, Delivery]]
    """Each with its region."""
    cursor: str | None
    """Where the list goes on; None at its end. A region that was away keeps its place: the list is not over before it has answered."""


def positions_of(cursor: str | None, names: Collection[str]) -> Positions:
    """Where to begin in each of these regions. Raises Invalid for a cursor that is none of this list."""
    if cursor is None:
        return dict.fromkeys(names)
    return read_cursor(CURSOR, cursor, lambda place: _checked(place, names))


def merge(pages: Mapping[str, DeliveryPage], before: Positions, limit: int) -> Merged:
    """The newest of all pages by acceptance, each page in its own order. A region of ``before`` without a page was away."""
    left = {name: deque(page.items) for name, page in pages.items() if page.items}
    items: list[tuple[str, Delivery]] = []
    reached = dict(before)
    while left and len(items) < limit:
        name = max(left, key=lambda each: left[each][0].accepted_at)
        taken = left[name].popleft()
        reached[name] = taken.delivery_id
        items.append((name, taken))
        if not left[name]:
            del left[name]
    ended = {name for name, page in pages.items() if name not in left and page.next_cursor is None}
    after = {name: position for name, position in reached.items() if name not in ended}
    return Merged(items, write_cursor(CURSOR, after) if after else None)


def _checked(place: object, names: Collection[str]) -> Positions:
    if not isinstance(place, dict) or not place or not set(place) <= set(names):
        raise ValueError(place)
    for position in place.values():
        if position is not None and not (type(position) is int and 0 <= position <= _ID_MAX):
            raise ValueError(position)
    return place
