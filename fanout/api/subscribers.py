"""Subscribers: home ties an id to its region for life, the region holds all the rest.

A change goes first to home, then to the region; each step may be repeated, and what a broken call left behind (an id that is tied
to a region which does not know it yet) reads as not there and is mended by the same call again.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from fanout.api.answers import Answer, document
from fanout.api.call import Call
from fanout.api.naming import limit_of, named, read_cursor, write_cursor
from fanout.api.places import Away, Place, Places, unknown_subscriber
from fanout.api.problems import Refused, unavailable
from fanout.home import registry as home_registry
from fanout.home.registry import RegionChanged, Registered, Reservation, UnknownRegion
from fanout.ledger import registry, registry_reading
from fanout.ledger.registry import Change, ChangedMeanwhile, StillClosing, TooManyOpen, UnknownSubscriber
from fanout.ledger.registry_reading import Subscriber
from fanout.model.identity import check_id
from fanout.model.subscriber import SubscriberRules, SubscriberSpec, parse_subscriber

CURSOR = "subscribers"
PATCHES_AT_ONCE = 20
"""So often a patch is merged anew because another one was quicker. One of those that race always gets through."""


def subscriber_named(call: Call) -> str:
    return named("subscriber_id", call.names[0], check_id)


async def describe(place: Place, subscriber_id: str) -> dict[str, object]:
    """The subscriber as anyone may see it, or 404."""
    try:
        shown = await registry_reading.show(place.connections, place.schema, place.region, subscriber_id)
    except UnknownSubscriber:
        raise unknown_subscriber(subscriber_id) from None
    return shown.document()


class Subscribers:
    def __init__(self, places: Places, rules: SubscriberRules) -> None:
        self._places = places
        self._home = places.home
        self._rules = rules

    async def put(self, call: Call) -> Answer:
        """Create or replace; 201 or 200. The answer to a creation is the only one that holds the generated secret."""
        call.query()
        subscriber_id = subscriber_named(call)
        spec = parse_subscriber(await call.document(), self._rules)
        place = self._places.region(spec.region)
        if await self._reserve(subscriber_id, spec.region) is Reservation.DELETED:
            # Before the region has it again: the answer with the secret must be the last step, which nothing can spoil.
            await home_registry.revive(self._home.connections, self._home.schema, [subscriber_id])
        try:
            saved = await registry.save(place.connections, place.schema, subscriber_id, spec, by=call.caller)
        except StillClosing as error:
            await home_registry.mark_deleted(self._home.connections, self._home.schema, [subscriber_id])
            raise Refused(409, str(error)) from None
        except TooManyOpen as error:
            raise Refused(409, str(error)) from None
        place.bell.ring()
        answer = settings_document(subscriber_id, spec, saved.config_version)
        if saved.secret is not None:
            answer["secrets"] = [saved.secret.reveal()]
        return document(201 if saved.change is Change.CREATED else 200, answer)

    async def _reserve(self, subscriber_id: str, region: str) -> Reservation:
        try:
            return await home_registry.reserve(self._home.connections, self._home.schema, subscriber_id, region)
        except RegionChanged as error:
            raise Refused(409, str(error)) from None
        except UnknownRegion as error:
            raise Away("home", str(error)) from None

    async def get(self, call: Call) -> Answer:
        call.query()
        subscriber_id = subscriber_named(call)
        place = await self._places.of_subscriber(subscriber_id)
        return document(200, await describe(place, subscriber_id))

    async def patch(self, call: Call) -> Answer:
        """RFC 7396 over the settings as they stand, header values with them; secrets stay unless the patch brings some. Of several
        at once each is merged into what the one before left.
        """
        call.query()
        subscriber_id = subscriber_named(call)
        patch = await call.document()
        place = await self._places.of_subscriber(subscriber_id)
        for _ in range(PATCHES_AT_ONCE):
            with contextlib.suppress(ChangedMeanwhile):
                return await self._patch(place, subscriber_id, patch, call.caller)
        raise unavailable("others keep changing this subscriber at the same moment; repeat the call")

    async def _patch(self, place: Place, subscriber_id: str, patch: Mapping[str, Any], by: str) -> Answer:
        """Raises ChangedMeanwhile."""
        try:
            before, seen = await registry_reading.spec_of(place.connections, place.schema, place.region, subscriber_id)
            spec = before.patched(patch, self._rules)
            if spec.region != place.region:
                raise Refused(409, str(RegionChanged(spec.region, {subscriber_id: place.region})))
            saved = await registry.replace(place.connections, place.schema, subscriber_id, spec, seen=seen, by=by)
        except UnknownSubscriber:
            raise unknown_subscriber(subscriber_id) from None
        except TooManyOpen as error:
            raise Refused(409, str(error)) from None
        place.bell.ring()
        return document(200, settings_document(subscriber_id, spec, saved.config_version))

    async def delete(self, call: Call) -> Answer:
        """204, also where an earlier call got no further than the region. Its open deliveries end as dead ``cancelled``."""
        call.query()
        subscriber_id = subscriber_named(call)
        place = await self._places.of_subscriber(subscriber_id, deleted_too=False)
        await registry.delete(place.connections, place.schema, [subscriber_id], by=call.caller)
        await home_registry.mark_deleted(self._home.connections, self._home.schema, [subscriber_id])
        return Answer(204)

    async def page(self, call: Call) -> Answer:
        """By id, of one region or of all. Of a region that is away only the ids are known, and are listed as ``unreachable``."""
        given = call.query("region", "limit", "cursor")
        limit = limit_of(given)
        after = (
            read_cursor(CURSOR, given["cursor"], lambda place: check_id("cursor", place)) if "cursor" in given else ""
        )
        region = given.get("region")
        if region is not None:
            self._places.region(region)
        registered = await home_registry.list_registered(
            self._home.connections, self._home.schema, region=region, after=after, limit=limit
        )
        items = await self._described(registered, after, limit, whole_region=region is not None)
        last = registered[-1].subscriber_id if len(registered) == limit else None
        return document(200, {"items": items, "next": last and write_cursor(CURSOR, last)})

    async def _described(
        self, page: Sequence[Registered], after: str, limit: int, *, whole_region: bool
    ) -> list[dict[str, object]]:
        """The first ``limit`` of every region that has one on the page hold all that are on the page."""

        async def first(name: str, place: Place) -> dict[str, Subscriber]:
            found = await registry_reading.list_subscribers(
                place.connections, place.schema, name, after=after, limit=limit
            )
            return {each.subscriber_id: each for each in found}

        there = [name for name in self._places.regions if any(each.region == name for each in page)]
        answers = await self._places.ask_regions(first, there)
        items: list[dict[str, object]] = []
        for each in page:
            found = answers.get(each.region)
            if found is None or isinstance(found, Away):
                if whole_region and found is not None:
                    raise found
                items.append({"subscriber_id": each.subscriber_id, "region": each.region, "status": "unreachable"})
            elif each.subscriber_id in found:
                items.append(found[each.subscriber_id].document())
        return items


def settings_document(subscriber_id: str, spec: SubscriberSpec, config_version: int) -> dict[str, object]:
    return {"subscriber_id": subscriber_id, **spec.listing(), "config_version": config_version}
