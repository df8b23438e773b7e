"""What has to stand on the broker for one region: declared by us, again and again, or made by others and only looked at.

Only durable quorum queues, which 3.10 and 4.x both have. No time to live, no expiry, no length limit on the work queue (losing a
reference to a limit would be silent): the ledger alone decides when something is due.
"""

import json
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog
from aio_pika import ExchangeType
from aio_pika.abc import AbstractChannel

from fanout.transports.rabbitmq.link import LOST, Session, guarded
from fanout.transports.rabbitmq.refusals import is_forbidden, is_missing
from fanout.transports.transport import QueueUnavailable

DELIVERY_LIMIT = 50
"""A message that was given out so often and never acknowledged breaks its consumers: it goes to the dead-letter queue, and its
references are queued again by the ledger, in other company. (4.x has a limit of 20 and drops, unless it is told otherwise.)"""
DEAD_MESSAGES_MAX = 10_000

_log = structlog.get_logger()


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

    def definitions(self, vhost: str) -> dict[str, list[dict[str, Any]]]:
        """The same for ``rabbitmqctl import_definitions``, where others make it."""
        queues = {self.queue: self.queue_arguments, self.dead_queue: self.dead_queue_arguments}
        lasting = {"vhost": vhost, "durable": True, "auto_delete": False}
        return {
            "exchanges": [
                {"name": self.exchange, **lasting, "type": ExchangeType.DIRECT.value, "internal": False, "arguments": {}}
            ],
            "queues": [{"name": name, **lasting, "arguments": arguments} for name, arguments in queues.items()],
            "bindings": [
                {"source": self.exchange, "vhost": vhost, "destination": name, "destination_type": "queue",
                 "routing_key": name, "arguments": {}}
                for name in queues
            ],
        }  # fmt: skip

    def how_to_make(self, vhost: str) -> str:
        """For an administrator of the broker: a command that can be repeated."""
        return f"echo {shlex.quote(json.dumps(self.definitions(vhost)))} | rabbitmqctl import_definitions"

    async def prepare(self, session: Session) -> bool:
        """Make sure that it stands. True if the queue was missing, and with it whatever references it held.

        Where we do not declare, only existence is seen: the broker tells nobody arguments who may not declare. Raises
        ``QueueUnavailable``, with the mend, until all of it is there.
        """
        if not self.declare:
            await self._insist(session)
            return False
        was_missing = await _is_missing(session, lambda channel: channel.declare_queue(self.queue, passive=True))
        channel = await session.open_channel(passing=True)
        await self._declare(channel)
        await guarded(channel.close())
        return was_missing

    async def _insist(self, session: Session) -> None:
        looks: dict[str, Callable[[AbstractChannel], Awaitable[Any]]] = {
            f"exchange '{self.exchange}'": lambda channel: channel.declare_exchange(self.exchange, passive=True),
            f"queue '{self.queue}'": lambda channel: channel.declare_queue(self.queue, passive=True),
            f"queue '{self.dead_queue}'": lambda channel: channel.declare_queue(self.dead_queue, passive=True),
        }
        if missing := [what for what, look in looks.items() if await _is_missing(session, look)]:
            raise QueueUnavailable(
                f"not there in virtual host '{session.vhost}': {', '.join(missing)}; and we are told not to declare "
                f"(`declare = false`): let an administrator of the broker run {self.how_to_make(session.vhost)}"
            )

    async def _declare(self, channel: AbstractChannel) -> None:
        exchange = await guarded(channel.declare_exchange(self.exchange, ExchangeType.DIRECT, durable=True))
        for name, arguments in (
            (self.dead_queue, self.dead_queue_arguments),
            (self.queue, self.queue_arguments),
        ):
            queue = await guarded(channel.declare_queue(name, durable=True, arguments=arguments))
            await guarded(queue.bind(exchange, routing_key=name))


async def _is_missing(session: Session, look: Callable[[AbstractChannel], Awaitable[Any]]) -> bool:
    """Looking needs a permission in some versions; where it is refused, consuming or publishing will show."""
    channel = await session.open_channel(passing=True)
    try:
        await guarded(look(channel))
    except LOST as error:
        if is_missing(error):
            return True
        if not is_forbidden(error):
            raise
    else:
        await guarded(channel.close())
    return False


class Standing:
    """What one end has seen of its queue, for people and for the ledger, to which ``on_lost`` tells."""

    def __init__(self, topology: Topology, on_lost: Callable[[], None]) -> None:
        self._queue = topology.queue
        self._on_lost = on_lost
        self._stood = False

    def found(self, *, was_missing: bool) -> None:
        """It stands now. At the first look nobody knows whether it has ever stood before: what the ledger counts as queued tells."""
        if was_missing and self._stood:
            _log.warning("queue was missing; its references are gone", queue=self._queue)
        elif was_missing:
            _log.info("queue declared", queue=self._queue)
        self._stood = True
        if was_missing:
            self._on_lost()
