"""Deliveries: lists over regions, and one with its timeline."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from fanout.api.answers import Answer, document
from fanout.api.call import Call
from fanout.api.naming import filter_of, limit_of, named, read_cursor, word_of, write_cursor
from fanout.api.places import Away, Place, Places
from fanout.api.problems import Refused
from fanout.ledger.inspection import Delivery, DeliveryPage, list_deliveries, show_delivery
from fanout.model.identity import check_id, parse_key
from fanout.model.states import Reason, State

CURSOR = "deliveries"
_ID_MAX = 2**63 - 1

Positions = dict[str, int | None]
"""How far each region has been listed: the last delivery of the page before, None for the beginning. A region that is not named is done."""


class Deliveries:
    def __init__(self, places: Places) -> None:
        self._places = places

    async def page(self, call: Call) -> Answer:
        """Newest first. Over several regions, one that is away is named in ``unreachable``, and the cursor keeps its place."""
        given = call.query("region", "subscriber_id", "shipment_id", "state", "reason", "limit", "cursor")
        filters: dict[str, Any] = {
            "subscriber_id": filter_of(given, "subscriber_id", check_id),
            "shipment_id": filter_of(given, "shipment_id", check_id),
            "state": word_of(given, "state", State),
            "reason": word_of(given, "reason", Reason),
        }
        limit = limit_of(given)
        positions = self._positions(given)

        async def newest(name: str, place: Place) -> DeliveryPage:
            return await list_deliveries(
                place.connections, place.schema, **filters, cursor=positions[name], limit=limit
            )

        answers = await self._places.ask_regions(newest, list(positions))
        away = {name: answer for name, answer in answers.items() if isinstance(answer, Away)}
        pages = {name: answer for name, answer in answers.items() if isinstance(answer, DeliveryPage)}
        if away and not pages:
            raise next(iter(away.values()))
        items, reached = _newest(pages, limit)
        after = {name: positions[name] if reached[name] is None else reached[name] for name in reached}
        more = {name: place for name, place in after.items() if name in _unfinished(pages, items)}
        answer: dict[str, object] = {"items": [each.document(name) for name, each in items], "next": None}
        if more:
            answer["next"] = write_cursor(CURSOR, more | {name: positions[name] for name in away})
        if away:
            answer["unreachable"] = sorted(away)
        return document(200, answer)

    def _positions(self, given: Mapping[str, str]) -> Positions:
        names = [given["region"]] if "region" in given else list(self._places.regions)
        for name in names:
            self._places.region(name)
        if "cursor" in given:
            return read_cursor(CURSOR, given["cursor"], lambda place: _check_positions(place, names))
        return dict.fromkeys(names)

    async def get(self, call: Call) -> Answer:
        call.query()
        key = named("key", call.names[0], lambda field, text: parse_key(str(text), field))
        place = await self._places.of_subscriber(key.subscriber_id)
        found = await show_delivery(place.connections, place.schema, key.shipment_id, key.subscriber_id, key.version)
        if found is None:
            raise Refused(404, f"there is no delivery {key}: nothing was created for it, or not yet")
        return document(200, found.document(place.region))


def _newest(pages: Mapping[str, DeliveryPage], limit: int) -> tuple[list[tuple[str, Delivery]], Positions]:
    """The newest of all pages by acceptance, each page in its own order; and the last that was taken from each."""
    waiting = {name: deque(page.items) for name, page in pages.items()}
    reached: Positions = dict.fromkeys(pages)
    items: list[tuple[str, Delivery]] = []
    while len(items) < limit and any(waiting.values()):
        name = max((each for each in waiting if waiting[each]), key=lambda each: waiting[each][0].accepted_at)
        taken = waiting[name].popleft()
        reached[name] = taken.delivery_id
        items.append((name, taken))
    return items, reached


def _unfinished(pages: Mapping[str, DeliveryPage], items: list[tuple[str, Delivery]]) -> set[str]:
    """Regions that have more than what was taken."""
    taken = [name for name, _ in items]
    return {name for name, page in pages.items() if page.next_cursor is not None or taken.count(name) < len(page.items)}


def _check_positions(place: object, names: list[str]) -> Positions:
    if not isinstance(place, dict) or not place or not set(place) <= set(names):
        raise ValueError(place)
    for position in place.values():
        whole = isinstance(position, int) and not isinstance(position, bool)
        if not (position is None or (whole and 0 <= position <= _ID_MAX)):
            raise ValueError(position)
    return place
