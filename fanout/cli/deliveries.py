"""``fanout deliveries list``: the newest of all regions that pass the filters, a page at a time."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from fanout.api.merging import merge, positions_of
from fanout.cli.databases import opened
from fanout.cli.ending import DONE, FAILED, Failed, complain
from fanout.cli.operators import find_registered, places_of
from fanout.cli.output import moment, say, show_json, table
from fanout.ledger.inspection import Delivery, DeliveryPage, list_deliveries
from fanout.model.identity import check_id
from fanout.model.problems import Invalid
from fanout.model.states import Reason, State
from fanout.running.schemas import Place
from fanout.settings import Settings

COLUMNS = dict.fromkeys(("key", "region", "state", "attempts", "accepted", "why"), "left") | {"attempts": "right"}
_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)")
_UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}

Word = TypeVar("Word", bound=StrEnum)


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
    settings = Settings.load()
    places = {place.name: place for place in places_of(settings, asked.region)}
    positions = positions_of(asked.cursor, places)
    names = list(positions)
    answers = await asyncio.gather(
        *(_page(places[name], filters | {"cursor": positions[name], "limit": asked.limit}) for name in names)
    )
    pages = {name: answer for name, answer in zip(names, answers, strict=True) if isinstance(answer, DeliveryPage)}
    merged = merge(pages, positions, asked.limit)
    if not merged.items and asked.subscriber is not None:
        await find_registered(settings, asked.subscriber)
    cursor = merged.cursor if pages else None
    if json_output:
        show_json({"items": [each.document(name) for name, each in merged.items], "next": cursor})
    else:
        _show(merged.items, cursor)
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
