"""A consumer's end."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from fanout.database.errors import describe
from fanout.transports.rabbitmq.acknowledgements import Acknowledgements
from fanout.transports.rabbitmq.burials import Burials
from fanout.transports.rabbitmq.envelope import TRACEPARENT_HEADER, Malformed, decode
from fanout.transports.rabbitmq.link import LOST, Link, LinkState, Session, guarded, within
from fanout.transports.rabbitmq.refusals import is_forbidden, leaderless
from fanout.transports.rabbitmq.topology import Standing, Topology
from fanout.transports.transport import Condition, QueueUnavailable, Reference

PREFETCH = 500
"""Messages, and one may carry a single reference: less than the sends of a consumer would starve it. The consumer's own limit
rules, never this number."""
CHECK_SECONDS = 5.0
SILENT_SECONDS = 15.0
FLUSH_SECONDS = 0.5

_log = structlog.get_logger()


@dataclass(slots=True)
class Figures:
    """What this end has done since it started."""

    messages: int = 0
    malformed: int = 0
    acknowledged: int = 0
    acks_forgotten: int = 0
    """Of a channel that is gone: the broker gives these messages out again."""
    acks_failed: int = 0
    silences: int = 0
    """How often messages were ready, there was room, and nothing came: the connection was opened anew."""


class _Channel:
    """One epoch: a channel, its tags, and what came on it and was not taken yet."""

    def __init__(self, session: Session, channel: AbstractChannel) -> None:
        self.session = session
        self.channel = channel
        self.queue: AbstractQueue | None = None
        self.consumer_tag: str | None = None
        self.acknowledgements = Acknowledgements()
        self.arrived: deque[RabbitMessage] = deque()
        self.unfinished = 0
        self.last_arrival = asyncio.get_running_loop().time()


class RabbitMessage:
    """References that came together. Acknowledged when the last one is done, on the channel that it came on or not at all."""

    def __init__(
        self, references: Sequence[Reference], traceparent: str | None, tag: int, finish: Callable[[int], None]
    ) -> None:
        self.references = references
        self.traceparent = traceparent
        self._left = len(references)
        self._tag = tag
        self._finish = finish

    def done(self, count: int = 1) -> None:
        assert 0 < count <= self._left, "a reference is done once"
        self._left -= count
        if self._left == 0:
            self._finish(self._tag)


class RabbitConsuming:
    """Consumes one region's queue. The library's callback only puts a message aside: losing the channel cuts no send."""

    def __init__(
        self,
        url: str,
        topology: Topology,
        application: str,
        *,
        prefetch: int = PREFETCH,
        check_seconds: float = CHECK_SECONDS,
        silent_seconds: float = SILENT_SECONDS,
        on_queue_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.figures = Figures()
        self._topology = topology
        self._prefetch = prefetch
        self._check_seconds = check_seconds
        self._silent_seconds = silent_seconds
        self._standing = Standing(topology, on_queue_lost)
        self._epoch: _Channel | None = None
        self._was_deleted = False
        self._something = asyncio.Event()
        self._to_acknowledge = asyncio.Event()
        self._all_acknowledged = asyncio.Event()
        self._all_acknowledged.set()
        self._burials = Burials(url, f"{application} dead letters", topology)
        self._acknowledging = asyncio.create_task(self._acknowledge(), name="amqp acknowledging")
        self._link = Link(url, application, self._furnish, self._something.set)

    @property
    def state(self) -> LinkState:
        return self._link.state

    @property
    def condition(self) -> Condition:
        return self._link.condition

    @property
    def malformed(self) -> int:
        return self.figures.malformed

    @property
    def trouble(self) -> str:
        """What kept the broker from being used, last time."""
        return self._link.trouble

    # ------------------------------------------------------------------------------------------------ taking

    async def take(self, most: int, at_most_seconds: float) -> Sequence[RabbitMessage]:
        """Raises ``QueueUnavailable`` while the broker is away, ``QueueRefused`` where it refuses us for good."""
        try:
            async with asyncio.timeout(at_most_seconds):
                while True:
                    if messages := self._take_now(most):
                        return messages
                    await self._link.opened()
                    self._something.clear()
                    if not self._has_arrivals():
                        await self._something.wait()
        except TimeoutError:
            if self._link.state is LinkState.CONNECTING:
                raise QueueUnavailable(f"the broker cannot be used yet: {self._link.trouble}") from None
            return []

    def _has_arrivals(self) -> bool:
        return self._epoch is not None and bool(self._epoch.arrived) and not self._epoch.session.over.is_set()

    def _take_now(self, most: int) -> list[RabbitMessage]:
        messages: list[RabbitMessage] = []
        epoch = self._epoch
        if epoch is None or not self._has_arrivals():
            return messages
        while epoch.arrived and most > 0:
            messages.append(epoch.arrived.popleft())
            most -= len(messages[-1].references)
        return messages

    # ------------------------------------------------------------------------------------------------ consuming

    async def _furnish(self, session: Session) -> None:
        was_missing = await self._topology.prepare(session)
        epoch = _Channel(session, await session.open_channel())
        await guarded(epoch.channel.set_qos(self._prefetch))  # before consuming: it holds for consumers made after it
        underlay = await epoch.channel.get_underlay_channel()
        underlay.on_consumer_cancel_callbacks.add(lambda _: self._cancelled(session))
        epoch.queue = await epoch.channel.get_queue(self._topology.queue, ensure=False)

        async def aside(message: AbstractIncomingMessage) -> None:
            self._put_aside(epoch, message)

        session.suspect = leaderless(self._topology.queue, session.vhost)
        epoch.consumer_tag = await guarded(epoch.queue.consume(aside))
        session.suspect = ""
        self._epoch = epoch
        session.watch(self._watch(epoch, await session.open_channel(passing=True)))
        self._standing.found(was_missing=was_missing or self._was_deleted)
        self._was_deleted = False

    def _cancelled(self, session: Session) -> None:
        """Another end may have declared it anew before we look: its references are gone all the same."""
        self._was_deleted = True
        session.end("the queue was deleted under its consumer")

    def _put_aside(self, epoch: _Channel, message: AbstractIncomingMessage) -> None:
        tag = message.delivery_tag
        assert tag is not None
        epoch.unfinished += 1
        epoch.last_arrival = asyncio.get_running_loop().time()
        self.figures.messages += 1
        try:
            references = decode(message.body)
        except Exception as error:  # noqa: BLE001 - whatever it is, a message that stays neither taken nor acknowledged is worse
            self.figures.malformed += 1
            reason = str(error) if isinstance(error, Malformed) else f"an error of ours: {describe(error)}"
            self._burials.bury(message, reason, lambda buried: self._finish(epoch, tag, acknowledge=buried))
            return
        traceparent = message.headers.get(TRACEPARENT_HEADER)
        traceparent = traceparent if isinstance(traceparent, str) else None
        epoch.arrived.append(RabbitMessage(references, traceparent, tag, lambda over: self._finish(epoch, over)))
        self._something.set()

    async def _watch(self, epoch: _Channel, channel: AbstractChannel) -> None:
        """Do not take the library's word for it: ask the broker what is ready, and how long it takes to say so."""
        queue = await channel.get_queue(self._topology.queue, ensure=False)
        underlay = await channel.get_underlay_channel()
        while True:
            await asyncio.sleep(self._check_seconds)
            try:
                answer = await within(
                    max(self._check_seconds, FLUSH_SECONDS), underlay.queue_declare(queue.name, passive=True)
                )
            except TimeoutError:
                epoch.session.end(f"the broker did not answer within {self._check_seconds:g} s")
                return
            except LOST as error:
                if not is_forbidden(error):
                    epoch.session.end(error)
                return
            self._judge(epoch, answer.message_count or 0, answer.consumer_count or 0)

    def _judge(self, epoch: _Channel, ready: int, consumers: int) -> None:
        silent_for = asyncio.get_running_loop().time() - epoch.last_arrival
        if consumers == 0:
            why = "the broker knows no consumer of the queue, though we are one"
        elif ready and epoch.unfinished < self._prefetch and silent_for >= self._silent_seconds:
            why = f"{ready} messages are ready and nothing came for {silent_for:.0f} s"
        else:
            return
        self.figures.silences += 1
        epoch.session.end(why)

    # ------------------------------------------------------------------------------------------------ acknowledging

    def _finish(self, epoch: _Channel, tag: int, *, acknowledge: bool = True) -> None:
        epoch.unfinished -= 1
        if epoch is not self._epoch or epoch.session.over.is_set():
            self.figures.acks_forgotten += 1
        elif acknowledge:
            epoch.acknowledgements.over(tag)
            self._all_acknowledged.clear()
            self._to_acknowledge.set()
        else:
            epoch.acknowledgements.rejected(tag)

    async def _acknowledge(self) -> None:
        """All that is over by the next tick of the event loop, in as few words as possible."""
        while True:
            await self._to_acknowledge.wait()
            self._to_acknowledge.clear()
            await asyncio.sleep(0)
            if (epoch := self._epoch) is not None:
                await self._tell_over(epoch)
            if not self._to_acknowledge.is_set():
                self._all_acknowledged.set()

    async def _tell_over(self, epoch: _Channel) -> None:
        due = epoch.acknowledgements.due()
        for place, ack in enumerate(due):
            try:
                channel = await epoch.channel.get_underlay_channel()
                await guarded(channel.basic_ack(ack.tag, multiple=ack.multiple, wait=False))
            except LOST as error:
                self.figures.acks_failed += len(due) - place
                _log.info("acks not sent; these messages come again", error=describe(error), count=len(due) - place)
                return
            self.figures.acknowledged += 1

    # ------------------------------------------------------------------------------------------------ closing

    async def close(self) -> None:
        """Take nothing more, say what is over, go. Every step has its own deadline; the broker may be dead."""
        epoch = self._epoch
        if epoch is not None and not epoch.session.over.is_set():
            await self._stop_consuming(epoch)
            try:
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._all_acknowledged.wait()
            except TimeoutError:
                _log.warning("acks not sent before the end; these messages come again")
        self._acknowledging.cancel()
        await asyncio.gather(self._acknowledging, return_exceptions=True)
        await self._burials.close()
        await self._link.close()

    async def _stop_consuming(self, epoch: _Channel) -> None:
        if epoch.queue is None or epoch.consumer_tag is None:
            return
        try:
            await within(FLUSH_SECONDS, epoch.queue.cancel(epoch.consumer_tag))
        except LOST as error:
            _log.info("consumer not cancelled", error=describe(error))
