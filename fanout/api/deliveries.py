"""Deliveries: lists over regions, and one with its timeline."""

from typing import Any

from fanout.api.answers import Answer, document
from fanout.api.call import Call
from fanout.api.merging import merge, positions_of
from fanout.api.naming import filter_of, limit_of, named, word_of
from fanout.api.places import Away, Place, Places
from fanout.api.problems import Refused
from fanout.ledger.inspection import DeliveryPage, list_deliveries, show_delivery
from fanout.model.identity import check_id, parse_key
from fanout.model.states import Reason, State


class Deliveries:
    def __init__(self, places: Places) -> None:
        self._places = places

    async def page(self, call: Call) -> Answer:
        """Newest first. Over several regions, one that is away is named in ``unreachable``, and the cursor keeps its place. An
        id that no subscriber ever had is 404.
        """
        given = call.query("region", "subscriber_id", "shipment_id", "state", "reason", "limit", "cursor")
        filters: dict[str, Any] = {
            "subscriber_id": filter_of(given, "subscriber_id", check_id),
            "shipment_id": filter_of(given, "shipment_id", check_id),
            "state": word_of(given, "state", State),
            "reason": word_of(given, "reason", Reason),
        }
        limit = limit_of(given)
        names = [self._places.region(given["region"]).region] if "region" in given else list(self._places.regions)
        positions = positions_of(given.get("cursor"), names)

        async def newest(name: str, place: Place) -> DeliveryPage:
            return await list_deliveries(
                place.connections, place.schema, **filters, cursor=positions[name], limit=limit
            )

        answers = await self._places.ask_regions(newest, list(positions))
        away = {name: answer for name, answer in answers.items() if isinstance(answer, Away)}
        pages = {name: answer for name, answer in answers.items() if isinstance(answer, DeliveryPage)}
        if away and not pages:
            raise next(iter(away.values()))
        merged = merge(pages, positions, limit)
        if not merged.items and filters["subscriber_id"] is not None:
            await self._places.of_subscriber(filters["subscriber_id"])
        answer: dict[str, object] = {
            "items": [each.document(name) for name, each in merged.items],
            "next": merged.cursor,
        }
        if away:
            answer["unreachable"] = sorted(away)
        return document(200, answer)

    async def get(self, call: Call) -> Answer:
        call.query()
        key = named("key", call.names[0], lambda field, text: parse_key(str(text), field))
        place = await self._places.of_subscriber(key.subscriber_id)
        found = await show_delivery(place.connections, place.schema, key.shipment_id, key.subscriber_id, key.version)
        if found is None:
            raise Refused(404, f"there is no delivery {key}: nothing was created for it, or not yet")
        return document(200, found.document(place.region))
