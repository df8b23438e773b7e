"""What has to stand on the broker for one region: declared by us, again and again, or made by others and only looked at.

Only durable quorum queues, which 3.10 and 4.x both have. No time to live, no expiry, no length limit on the work queue (losing a
reference to a limit would be silent): the ledger alone decides when something is due.
"""

from dataclasses import dataclass
from typing import Any

from aio_pika import ExchangeType
from aio_pika.abc import AbstractChannel

from fanout.transports.rabbitmq.link import LOST, Session, guarded
from fanout.transports.rabbitmq.refusals import is_forbidden, is_missing
from fanout.transports.transport import QueueUnavailable

DELIVERY_LIMIT = 50
"""A message that was given out so often and never acknowledged breaks its consumers: it goes to the dead-letter queue, and its
references are queued again by the ledger, in other company. (4.x has a limit of 20 and drops, unless it is told otherwise.)"""
DEAD_MESSAGES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Topology:
    """Names. The routing key of a queue is its name."""

    exchange: str
    queue: str
    declare: bool = True
    """False: others have made it, and this user may not even have the permission to."""

    @property
    def dead_queue(self) -> str:
        return f"{self.queue}.dead"

    @property
    def queue_arguments(self) -> dict[str, Any]:
        return {
            "x-queue-type": "quorum",
            "x-delivery-limit": DELIVERY_LIMIT,
            "x-dead-letter-exchange": self.exchange,
            "x-dead-letter-routing-key": self.dead_queue,
        }

    @property
    def dead_queue_arguments(self) -> dict[str, Any]:
        return {"x-queue-type": "quorum", "x-max-length": DEAD_MESSAGES_MAX, "x-overflow": "drop-head"}

    async def prepare(self, session: Session) -> bool:
        """Make sure that it stands. True if the queue was missing, and with it whatever references it held."""
        was_missing = await self._is_missing(session)
        if self.declare:
            channel = await session.open_channel(passing=True)
            await self._declare(channel)
            await guarded(channel.close())
        elif was_missing:
            raise QueueUnavailable(
                f"queue '{self.queue}' does not exist, and we are told not to declare it: make it, durable, with {self.queue_arguments}"
            )
        return was_missing

    async def _is_missing(self, session: Session) -> bool:
        """Looking needs a permission in some versions; where it is refused, consuming or publishing will show."""
        channel = await session.open_channel(passing=True)
        try:
            await guarded(channel.declare_queue(self.queue, passive=True))
        except LOST as error:
            if is_missing(error):
                return True
            if not is_forbidden(error):
                raise
        else:
            await guarded(channel.close())
        return False

    async def _declare(self, channel: AbstractChannel) -> None:
        exchange = await guarded(channel.declare_exchange(self.exchange, ExchangeType.DIRECT, durable=True))
        for name, arguments in (
            (self.dead_queue, self.dead_queue_arguments),
            (self.queue, self.queue_arguments),
        ):
            queue = await guarded(channel.declare_queue(name, durable=True, arguments=arguments))
            await guarded(queue.bind(exchange, routing_key=name))
