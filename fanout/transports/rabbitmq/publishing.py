"""The scheduler's end."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fanout.transports.rabbitmq.envelope import TRACEPARENT_HEADER, Headers, encode, pack
from fanout.transports.rabbitmq.link import LinkState
from fanout.transports.rabbitmq.sending import ConfirmedSending, Unroutable
from fanout.transports.rabbitmq.topology import Topology
from fanout.transports.transport import Condition, QueueUnavailable, Reference

CONFIRM_SECONDS = 5.0


class NotConfirmed(QueueUnavailable):
    """The broker has not taken responsibility for these references; publish them again when it is back."""

    def __init__(self, message: str, references: Sequence[Reference]) -> None:
        super().__init__(message)
        self.references = references


@dataclass(slots=True)
class Figures:
    """What this end has done since it started."""

    references_confirmed: int = 0
    messages_confirmed: int = 0
    messages_not_confirmed: int = 0


class RabbitPublishing:
    """Publishes references to one region's queue. Nothing counts as sent without the broker's confirm."""

    def __init__(
        self,
        url: str,
        topology: Topology,
        application: str,
        *,
        confirm_seconds: float = CONFIRM_SECONDS,
        on_queue_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.figures = Figures()
        self._topology = topology
        self._confirm_seconds = confirm_seconds
        self._sending = ConfirmedSending(url, application, topology, on_queue_lost)

    @property
    def state(self) -> LinkState:
        return self._sending.link.state

    @property
    def condition(self) -> Condition:
        return self._sending.link.condition

    @property
    def trouble(self) -> str:
        """What kept the broker from being used, last time."""
        return self._sending.link.trouble

    async def publish(self, references: Sequence[Reference], traceparent: str | None = None) -> None:
        """Raises ``NotConfirmed`` with what has to be published again, within ``confirm_seconds``; or ``QueueRefused``."""
        if not references:
            return
        groups = list(pack(references))
        headers = {} if traceparent is None else {TRACEPARENT_HEADER: traceparent}
        results = await asyncio.gather(*(self._send(group, headers) for group in groups), return_exceptions=True)
        if any(isinstance(each, Unroutable) for each in results):
            self._sending.link.drop("the queue, or its binding, is gone: looking what is there")
        failed = [(group, error) for group, error in zip(groups, results, strict=True) if error is not None]
        for group, error in zip(groups, results, strict=True):
            if error is None:
                self.figures.references_confirmed += len(group)
                self.figures.messages_confirmed += 1
        self.figures.messages_not_confirmed += len(failed)
        if not failed:
            return
        for _, error in failed:
            if not isinstance(error, QueueUnavailable):
                raise error
        first = failed[0][1]
        raise NotConfirmed(str(first), [each for group, _ in failed for each in group]) from first

    async def _send(self, group: Sequence[Reference], headers: Headers) -> None:
        await self._sending.send(encode(group), self._topology.queue, headers, self._confirm_seconds)

    async def ready(self) -> int | None:
        """None where this user may not ask. Raises ``QueueUnavailable`` within ``confirm_seconds``."""
        return await self._sending.ready(self._confirm_seconds)

    async def close(self) -> None:
        await self._sending.close()
