"""Messages that are none of ours go to the dead-letter queue with the reason; they are never given back to the queue."""

import asyncio
from collections.abc import Callable

import structlog
from aio_pika.abc import AbstractIncomingMessage

from fanout.transports.rabbitmq.link import LOST, guarded
from fanout.transports.rabbitmq.sending import ConfirmedSending, Unroutable
from fanout.transports.rabbitmq.topology import Topology
from fanout.transports.transport import QueueRefused, QueueUnavailable

BURIAL_SECONDS = 5.0
REASON_HEADER, QUEUE_HEADER = "fanout-reason", "fanout-queue"
_REASON_LENGTH_MAX = 500

_log = structlog.get_logger()


class Burials:
    """One after the other, beside consuming. Its connection is opened when the first malformed message comes: mostly never."""

    def __init__(self, url: str, name: str, topology: Topology) -> None:
        self._url = url
        self._name = name
        self._topology = topology
        self._sending: ConfirmedSending | None = None
        self._waiting: asyncio.Queue[tuple[AbstractIncomingMessage, str, Callable[[bool], None]]] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(), name=f"amqp burials {name}")

    def bury(self, message: AbstractIncomingMessage, reason: str, done: Callable[[bool], None]) -> None:
        """``done(True)``: it lies in the dead-letter queue and is to be acknowledged; ``done(False)``: the broker has it back."""
        self._waiting.put_nowait((message, reason[:_REASON_LENGTH_MAX], done))

    async def _run(self) -> None:
        while True:
            message, reason, done = await self._waiting.get()
            _log.error("malformed message, to the dead-letter queue", queue=self._topology.queue, reason=reason)
            try:
                buried = await self._publish(message.body, reason)
                if not buried:
                    # The broker moves a rejected message there itself, only without our reason.
                    await guarded(message.reject(requeue=False))
            except LOST:
                continue  # its channel is gone: it comes again
            done(buried)

    async def _publish(self, body: bytes, reason: str) -> bool:
        if self._sending is None:
            self._sending = ConfirmedSending(self._url, self._name, self._topology)
        headers = {REASON_HEADER: reason, QUEUE_HEADER: self._topology.queue}
        try:
            try:
                await self._sending.send(body, self._topology.dead_queue, headers, BURIAL_SECONDS)
            except Unroutable:
                if not self._topology.declare:
                    raise
                self._sending.link.drop("the dead-letter queue is gone: declaring it again")
                await self._sending.send(body, self._topology.dead_queue, headers, BURIAL_SECONDS)
        except (QueueUnavailable, QueueRefused) as error:
            _log.warning("dead-letter queue not reached", queue=self._topology.dead_queue, error=str(error))
            return False
        return True

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._sending is not None:
            await self._sending.close()
