"""One message to the broker, and its word that it has it."""

import asyncio
import secrets
from collections.abc import Callable

from aio_pika import DeliveryMode, Message
from aio_pika.abc import AbstractExchange
from aiormq.abc import AbstractChannel
from aiormq.exceptions import DeliveryError, PublishError

from fanout.database.errors import describe
from fanout.transports.rabbitmq.envelope import CONTENT_TYPE, Headers, bounded
from fanout.transports.rabbitmq.link import LOST, Link, Session, guarded, within
from fanout.transports.rabbitmq.refusals import is_forbidden, is_missing, leaderless
from fanout.transports.rabbitmq.topology import Standing, Topology
from fanout.transports.transport import QueueUnavailable


class Unroutable(QueueUnavailable):
    """The exchange knows no queue for it: the queue or its binding was deleted."""


class ConfirmedSending:
    """Persistent, mandatory, confirmed messages on one long-lived channel of a connection of its own.

    Apart from consuming, because a broker with an alarm stops reading connections that publish, acknowledgements included.
    """

    def __init__(
        self, url: str, name: str, topology: Topology, on_queue_lost: Callable[[], None] = lambda: None
    ) -> None:
        self._topology = topology
        self._standing = Standing(topology, on_queue_lost)
        self._exchange: AbstractExchange | None = None
        self._looking: AbstractChannel | None = None
        self._may_not_look = False
        self._silent: list[Session] = []
        """Those in a row that were opened, and confirmed nothing."""
        self.link = Link(url, name, self._furnish)

    async def _furnish(self, session: Session) -> None:
        self._standing.found(was_missing=await self._topology.prepare(session))
        channel = await session.open_channel()
        self._exchange = await guarded(channel.get_exchange(self._topology.exchange, ensure=False))

    async def send(self, body: bytes, routing_key: str, headers: Headers, seconds: float) -> None:
        """Returns with the broker's confirm. Raises ``QueueUnavailable`` within ``seconds`` where there is none, or
        ``QueueRefused``. The message may have arrived all the same: references can stand twice, and a copy does nothing.
        """
        session: Session | None = None
        try:
            async with asyncio.timeout(seconds):
                session = await self.link.opened()
                if await session.is_blocked():
                    raise QueueUnavailable(
                        "the broker is blocked: its memory or disk alarm is on, and it takes no messages"
                    )
                await self._publish(session, body, routing_key, headers)
            self._silent.clear()
        except TimeoutError:
            if await self.link.is_blocked():
                raise QueueUnavailable("the broker became blocked: its memory or disk alarm is on") from None
            self.link.drop(f"no confirm within {seconds:g} s")
            if session is not None and session not in self._silent:
                self._silent = [*self._silent[-1:], session]
            mend = f"; {leaderless(routing_key, self._silent[-1].vhost)}" if len(self._silent) > 1 else ""
            raise QueueUnavailable(f"the broker confirmed nothing within {seconds:g} s{mend}") from None

    async def ready(self, seconds: float) -> int | None:
        """What stands in the work queue and was given to nobody; None where we may not ask. Raises ``QueueUnavailable``; a queue that
        is missing is made again by then, or soon.
        """
        if self._may_not_look:
            return None
        try:
            async with asyncio.timeout(seconds):
                session = await self.link.opened()
            if await session.is_blocked():  # it answers nothing on this connection
                raise QueueUnavailable("the broker is blocked: its memory or disk alarm is on")
            return await within(seconds, self._look(session))
        except LOST as error:  # a timeout is among them
            if is_forbidden(error):
                self._may_not_look = True
                return None
            if is_missing(error):
                self.link.drop("the queue is gone: declaring it again")
            raise QueueUnavailable(f"the broker did not say what is in the queue: {describe(error)}") from error

    async def _look(self, session: Session) -> int | None:
        if self._looking is None or self._looking.is_closed:
            self._looking = await (await session.open_channel(passing=True)).get_underlay_channel()
        answer = await self._looking.queue_declare(self._topology.queue, passive=True)
        return answer.message_count

    async def _publish(self, session: Session, body: bytes, routing_key: str, headers: Headers) -> None:
        assert self._exchange is not None
        message = Message(
            body,
            headers=dict(bounded(headers)),
            content_type=CONTENT_TYPE,
            delivery_mode=DeliveryMode.PERSISTENT,
            # Unique for each attempt, else the library charges a return to another publish with the same id.
            message_id=secrets.token_hex(16),
        )
        where = f"queue '{routing_key}' by exchange '{self._topology.exchange}'"
        try:
            await guarded(self._exchange.publish(message, routing_key, mandatory=True))
        except PublishError as error:
            mend = (
                ""
                if self._topology.declare
                else f"; an administrator can run {self._topology.how_to_make(session.vhost)}"
            )
            raise Unroutable(f"no way to {where}: it, or its binding, was deleted{mend}") from error
        except DeliveryError as error:
            raise QueueUnavailable(
                f"the broker did not take a message for {where}: it is full, or has no majority"
            ) from error
        except LOST as error:
            session.end(error)
            if refusal := self.link.refusal_of(error):
                raise refusal from error
            raise QueueUnavailable(f"the broker was lost before it confirmed: {describe(error)}") from error

    async def close(self) -> None:
        await self.link.close()
