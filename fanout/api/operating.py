"""What an operator does to a destination: each order names who gives it, may be repeated, and is written down in the region."""

from collections.abc import Awaitable, Callable

from fanout.api.answers import Answer, document
from fanout.api.call import Call
from fanout.api.places import Places, unknown_subscriber
from fanout.api.subscribers import describe, subscriber_named
from fanout.ledger import registry
from fanout.ledger.registry import UnknownSubscriber
from fanout.model.documents import Form
from fanout.model.labels import check_label_text

Order = Callable[..., Awaitable[bool]]
"""One of the registry's: connection, schema, whom, ``by``, ``why``."""


class Operating:
    """``{"by": …, "why": …}``. Whoever stops something says why: the next one on call has to know."""

    def __init__(self, places: Places) -> None:
        self._places = places

    async def pause(self, call: Call) -> Answer:
        return await self._follow(call, registry.pause, why_required=True)

    async def resume(self, call: Call) -> Answer:
        return await self._follow(call, registry.resume)

    async def disable(self, call: Call) -> Answer:
        return await self._follow(call, registry.disable, why_required=True)

    async def enable(self, call: Call) -> Answer:
        return await self._follow(call, registry.enable)

    async def _follow(self, call: Call, order: Order, *, why_required: bool = False) -> Answer:
        """Give the order, wake the region's scheduler, and answer with the subscriber as it is then."""
        subscriber_id, by, why = await self._read(call, why_required=why_required)
        place = await self._places.of_subscriber(subscriber_id)
        try:
            await order(place.connections, place.schema, subscriber_id, by=by, why=why or None)
        except UnknownSubscriber:
            raise unknown_subscriber(subscriber_id) from None
        place.bell.ring()
        return document(200, await describe(place, subscriber_id))

    async def rotate_secret(self, call: Call) -> Answer:
        """The new secret stands in this answer and in no other. The one before signs beside it for 24 hours."""
        subscriber_id, by, _ = await self._read(call, why_required=False)
        place = await self._places.of_subscriber(subscriber_id)
        try:
            saved = await registry.rotate_secret(place.connections, place.schema, subscriber_id, by=by)
        except UnknownSubscriber:
            raise unknown_subscriber(subscriber_id) from None
        secrets = [] if saved.secret is None else [saved.secret.reveal()]
        answer = {"subscriber_id": subscriber_id, "config_version": saved.config_version, "secrets": secrets}
        return document(200, answer)

    async def _read(self, call: Call, *, why_required: bool) -> tuple[str, str, str]:
        call.query()
        subscriber_id = subscriber_named(call)
        form = Form(await call.document())
        by = form.required("by", check_label_text)
        why = form.required("why", check_label_text) if why_required else form.optional("why", check_label_text, "")
        form.finish()
        return subscriber_id, by, why
