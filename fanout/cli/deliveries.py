"""``fanout deliveries list``: the newest of all regions that pass the filters, a page at a time."""

import asyncio
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from fanout.api.naming import read_cursor, write_cursor
from fanout.cli.databases import opened
from fanout.cli.ending import DONE, FAILED, Failed, complain
from fanout.cli.operators import places_of
from fanout.cli.output import moment, say, show_json, table
from fanout.ledger.inspection import Delivery, DeliveryPage, list_deliveries
from fanout.model.identity import check_id
from fanout.model.problems import Invalid
from fanout.model.states import Reason, State
from fanout.running.schemas import Place
from fanout.settings import Settings

CURSOR = "deliveries"
COLUMNS = dict.fromkeys(("key", "region", "state", "attempts", "accepted", "why"), "left") | {"attempts": "right"}
_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)")
_UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_ID_MAX = 2**63 - 1

Word = TypeVar("Word", bound=StrEnum)
Positions = dict[str, int | None]
"""How far each region has been listed: the last delivery shown of it, None for the beginning. A region not named is done."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The options as they were typed."""

    region: str | None = None
    subscriber: str | None = None
    shipment: str | None = None
    state: str | None = None
    reason: str | None = None
    older_than: str | None = None
    limit: int = 50
    cursor: str | None = None


async def list_all(asked: Asked, *, json_output: bool) -> int:
    """A region that is away is told, keeps its place in the cursor, and makes the command fail."""
    filters: dict[str, object] = {
        "subscriber_id": asked.subscriber and check_id("--subscriber", asked.subscriber),
        "shipment_id": asked.shipment and check_id("--shipment", asked.shipment),
        "state": _word("--state", asked.state, State),
        "reason": _word("--reason", asked.reason, Reason),
        "older_than_seconds": _seconds(asked.older_than),
    }
    places = {place.name: place for place in places_of(Settings.load(), asked.region)}
    positions: Positions = dict.fromkeys(places)
    if asked.cursor is not None:
        positions = read_cursor(CURSOR, asked.cursor, lambda place: _check_positions(place, places))
    names = list(positions)
    answers = await asyncio.gather(
        *(_page(places[name], filters | {"cursor": positions[name], "limit": asked.limit}) for name in names)
    )
    pages = {name: answer for name, answer in zip(names, answers, strict=True) if isinstance(answer, DeliveryPage)}
    items = newest(pages, asked.limit)
    after = _positions_after(positions, pages, items)
    cursor = write_cursor(CURSOR, after) if after else None
    if json_output:
        show_json({"items": [each.document(name) for name, each in items], "next": cursor})
    else:
        _show(items, cursor)
    for answer in answers:
        if isinstance(answer, Failed):
            complain(str(answer))
    return DONE if len(pages) == len(names) else FAILED


async def _page(place: Place, filters: dict[str, object]) -> DeliveryPage | Failed:
    try:
        async with opened(place, "deliveries") as connection:
            return await list_deliveries(connection, place.schema, **filters)  # type: ignore[arg-type]  # checked one by one above
    except Failed as error:
        return error


def newest(pages: Mapping[str, DeliveryPage], limit: int) -> list[tuple[str, Delivery]]:
    """The newest of all pages by acceptance, each page in its own order."""
    left = {name: deque(page.items) for name, page in pages.items() if page.items}
    items: list[tuple[str, Delivery]] = []
    while left and len(items) < limit:
        name = max(left, key=lambda each: left[each][0].accepted_at)
        items.append((name, left[name].popleft()))
        if not left[name]:
            del left[name]
    return items


def _positions_after(
    before: Positions, pages: Mapping[str, DeliveryPage], items: Sequence[tuple[str, Delivery]]
) -> Positions:
    """Where each region goes on that has more than was shown, or that was away."""
    after: Positions = {}
    for name, position in before.items():
        shown = [each.delivery_id for region, each in items if region == name]
        page = pages.get(name)
        if page is None or page.next_cursor is not None or len(shown) < len(page.items):
            after[name] = shown[-1] if shown else position
    return after if pages else {}


def _check_positions(place: object, names: Mapping[str, Place]) -> Positions:
    if not isinstance(place, dict) or not place or not set(place) <= set(names):
        raise ValueError(place)
    for position in place.values():
        if position is not None and not (type(position) is int and 0 <= position <= _ID_MAX):
            raise ValueError(position)
    return place


def _show(items: Sequence[tuple[str, Delivery]], cursor: str | None) -> None:
    rows = [
        [each.key, region, each.state.value, str(each.attempts), moment(each.accepted_at), each.why.sentence]
        for region, each in items
    ]
    say(table(COLUMNS, rows) if rows else "no deliveries")
    if cursor:
        say(f"there are more: --cursor {cursor}")


def _word(field: str, text: str | None, words: type[Word]) -> Word | None:
    if text is not None and text not in list(words):
        raise Invalid.field(field, f"{text[:40]!a} is none of them", f"write one of {', '.join(words)}")
    return None if text is None else words(text)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    parts = _AGE.fullmatch(text)
    if parts is None:
        raise Invalid.field("--older-than", f"{text[:40]!a} is not an age", "write it as 90s, 15m, 6h or 2d")
    return float(parts[1]) * _UNIT_SECONDS[parts[2]]
