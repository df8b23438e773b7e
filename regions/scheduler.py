"""The scheduler of one region: promotes what is due and what the gates allow, and sweeps up after time and crashes.

It speaks to no subscriber. Any number may run and none leads: each step locks what it takes and skips what others hold.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from fanout.database.connection import SteadyConnection
from fanout.database.schema import Schema
from fanout.database.wakeups import Ear
from fanout.ledger import channels, sweeping
from fanout.ledger.promotion import Promotion, promote, trace_contexts, wake_missed
from fanout.ledger.settlement import Settlement, settle
from fanout.ledger.sweeping import ExpiredLease
from fanout.loops import Patience, run_steps
from fanout.model.states import Outcome
from fanout.model.trace_context import TraceParent
from fanout.settings import DeliveryTable, RegionSettings
from fanout.telemetry.tracing import in_use, messaging_system
from fanout.transports.transport import Publishing, QueueRefused, QueueUnavailable, Reference
from regions.decisions.retry import History, fate_of
from regions.lost_queue import LostQueue
from regions.policy import retry_policy

DESTINATIONS_PER_STEP = 64
PROBATION_PART = 0.1
"""Destinations on probation, all together, get this part of what one consumer can have in flight."""
POLL_SECONDS = 1.0
BUSY_SECONDS = 0.005
"""Another scheduler holds what is due: look again after so long."""
SWEEP_ROWS = 500
CLOSE_OUT_ROWS = 1_000
LOST_AFTER_SECONDS = 60.0
LOST_SOON_SECONDS = 15.0
"""The same where the broker has nothing left to give out: a consumer that is not full claims what it was given within two seconds.
One that is full all the same does no harm: the copies stay with the broker, and there is something left to give out."""
EXPIRED_EVERY_SECONDS = 1.0
LOST_EVERY_SECONDS = 5.0
CLOSE_OUT_EVERY_SECONDS = 0.5
MISSED_EVERY_SECONDS = 10.0
RECOUNT_EVERY_SECONDS = 60.0

_log = structlog.get_logger()


@dataclass(slots=True)
class Figures:
    """What this scheduler has done since it started."""

    promoted: int = 0
    expired: int = 0
    lost: int = 0
    closed_out: int = 0
    missed: int = 0
    drifted: int = 0


class Scheduler:
    """One of any number."""

    def __init__(self, region: RegionSettings, delivery: DeliveryTable, publishing: Publishing) -> None:
        self.figures = Figures()
        self._region = region.name
        self._queue = region.queue
        self._system = messaging_system(region.transport)
        self._schema = Schema(region.schema)
        self._publishing = publishing
        self._policy = retry_policy(delivery)
        self._probes = max(1, int(delivery.in_flight * PROBATION_PART))
        application = f"fanout scheduler {region.name}"
        # A promotion that a crash of the server undoes is done again with the same dispatch number: its first copy is as good as its second.
        self._promoting = SteadyConnection(region.url, application, durable=False)
        self._sweeping = SteadyConnection(region.url, application)
        self._ear = Ear(region.url, application, channels.due(self._schema))
        self._patience = Patience()
        self._lost_queue = LostQueue(self._sweeping, self._schema)
        self._queue_away = False
        self._in_sight_since = time.monotonic()  # as the loop counts
        self._owed: list[Reference] = []
        """Promoted, refused by the queue, and not back to waiting yet: the ledger was away as well."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Until ``stopping``. Promotion and the sweeps run side by side: a long sweep delays no promotion."""
        self._ear.start()
        sweeps: list[tuple[str, Callable[[], Awaitable[None]], float]] = [
            ("expired leases", self.sweep_expired, EXPIRED_EVERY_SECONDS),
            ("close out", self.close_out, CLOSE_OUT_EVERY_SECONDS),
            ("missed wake-ups", self.sweep_missed, MISSED_EVERY_SECONDS),
            ("recount", self.recount, RECOUNT_EVERY_SECONDS),
        ]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(
                    run_steps("promote", self._promote_step, stopping, final=(QueueRefused,), region=self._region)
                )
                lost = _every(self.sweep_lost, LOST_EVERY_SECONDS, stopping, or_at=self._lost_queue.noticed)
                group.create_task(run_steps("lost references", lost, stopping, region=self._region))
                for name, sweep, every_seconds in sweeps:
                    step = _every(sweep, every_seconds, stopping)
                    group.create_task(run_steps(name, step, stopping, region=self._region))
        except* QueueRefused as refused:
            raise refused.exceptions[0] from None
        finally:
            await self.close()

    async def close(self) -> None:
        """Its connections; ``run`` does this itself."""
        await self._ear.close()
        await self._promoting.close()
        await self._sweeping.close()

    async def promote_once(self) -> Promotion:
        """One step of promotion: what was queued, and when the next one is due."""
        began_ns, span = time.time_ns(), None if in_use() is None else TraceParent.new()
        await self._give_back_owed()
        promotion = await promote(self._promoting, self._schema, DESTINATIONS_PER_STEP, self._probes)
        references = promotion.references
        try:
            await self._publishing.publish(references, None if span is None else str(span))
        except QueueUnavailable as error:
            self._owed.extend(error.references)
            await self._give_back_owed()
            raise
        self.figures.promoted += len(references)
        if references and span is not None:
            await self._trace(span, began_ns, references)
        return promotion

    async def _give_back_owed(self) -> None:
        if self._owed:
            await sweeping.give_back(self._promoting, self._schema, self._owed)
            self._owed.clear()

    async def _trace(self, span: TraceParent, began_ns: int, references: Sequence[Reference]) -> None:
        """One span for the step, with a link to the publish of each version that is followed."""
        contexts = await trace_contexts(self._promoting, self._schema, references)
        if (tracing := in_use()) is not None:
            published = [place for text in contexts if (place := TraceParent.parse(text)) is not None]
            tracing.promoted(self._system, self._queue, self._region, span, began_ns, len(references), published)

    async def _promote_step(self) -> None:
        try:
            promotion = await self.promote_once()
        except QueueUnavailable as error:
            if not self._queue_away:
                _log.warning("queue away, promotion pauses", region=self._region, error=str(error))
            self._queue_away = True
            await self._patience.wait()
            return
        if self._queue_away:
            _log.info("queue back, promotion goes on", region=self._region)
        self._queue_away = False
        self._patience.calm()
        due_in = promotion.next_seconds
        if due_in is not None and due_in <= 0:
            if not promotion.references:
                await asyncio.sleep(BUSY_SECONDS)
        else:
            await self._ear.wait(POLL_SECONDS if due_in is None else min(POLL_SECONDS, due_in))

    async def sweep_expired(self) -> None:
        """Leases past their end: the attempt is `unknown`, maybe delivered, and the delivery is tried again."""
        while expired := await sweeping.expired_leases(self._sweeping, self._schema, SWEEP_ROWS):
            fates = [self._fate_of_expired(lease) for lease in expired]
            chance = random.random()  # noqa: S311 - jitter
            count = 0
            for worker in sorted({each.worker for each in expired}):  # an attempt belongs to whoever had the lease
                theirs = [fate for lease, (fate, _) in zip(expired, fates, strict=True) if lease.worker == worker]
                settled = await settle(self._sweeping, self._schema, theirs, worker, chance)
                count += sum(each.settled for each in settled)
            self.figures.expired += count
            _log.warning(
                "leases expired", region=self._region, count=count, workers=sorted({each.worker for each in expired})
            )
            for lease, alarming in fates:
                if alarming:
                    await self._alarm(lease.delivery_id, lease.destination_id)
            if len(expired) < SWEEP_ROWS:
                return

    def _fate_of_expired(self, lease: ExpiredLease) -> tuple[Settlement, bool]:
        history = History(lease.budget_used, 0, lease.expired_streak, lease.age_seconds)
        chance = random.random()  # noqa: S311 - jitter
        fate = fate_of(Outcome.UNKNOWN, history, self._policy, chance, expired=True)
        settlement = Settlement(
            delivery_id=lease.delivery_id,
            token=lease.token,
            destination_id=lease.destination_id,
            attempt=lease.attempt,
            outcome=Outcome.UNKNOWN,
            state=fate.state,
            reason=fate.reason,
            delay_seconds=fate.delay_seconds,
            expired=True,
            error="nothing was heard of its worker until the lease ended: maybe delivered",
        )
        return settlement, fate.alarm

    async def _alarm(self, delivery_id: int, destination_id: int) -> None:
        detail = (
            "three leases of this delivery expired in a row: it rests for 5 minutes; look at the workers that took it"
        )
        await sweeping.tell_operator(
            self._sweeping,
            self._schema,
            "leases_expire",
            detail,
            destination_id=destination_id,
            delivery_id=delivery_id,
        )

    def queue_lost(self) -> None:
        """The queue was deleted, or came back empty: everything that it held is promoted again at once."""
        self._lost_queue.notice()

    async def sweep_lost(self) -> None:
        """References that nobody claimed go back to waiting: at once where the queue itself was lost, else after a while."""
        lost = await self._lost_queue.put_back()
        if (after_seconds := await self._lost_after()) is not None:
            lost += await sweeping.requeue_lost(self._sweeping, self._schema, after_seconds, SWEEP_ROWS)
        if lost:
            self.figures.lost += lost
            self._ear.ring_here()
            _log.warning("references lost, put back to waiting", region=self._region, count=lost)

    async def _lost_after(self) -> float | None:
        """What has been queued for longer than this is lost. None: nothing can be. Ledger and broker have to be in sight for as long:
        while one of them is away, consumers hold what they cannot claim, and the broker what it cannot give out.
        """
        now = asyncio.get_running_loop().time()
        in_sight_since, self._in_sight_since = self._in_sight_since, now
        oldest = await sweeping.oldest_queued_seconds(self._sweeping, self._schema)
        if oldest is not None and oldest >= LOST_SOON_SECONDS:
            try:
                after_seconds = LOST_SOON_SECONDS if await self._publishing.ready() == 0 else LOST_AFTER_SECONDS
            except QueueUnavailable:
                return None
        else:
            after_seconds = None
        self._in_sight_since = in_sight_since
        return after_seconds if after_seconds is not None and now - in_sight_since >= after_seconds else None

    async def close_out(self) -> None:
        """End what is still open for destinations that were disabled or deleted."""
        while ended := await sweeping.close_out(self._sweeping, self._schema, CLOSE_OUT_ROWS):
            self.figures.closed_out += ended

    async def sweep_missed(self) -> None:
        """The floor under the wake-ups: nothing that is due may sleep for ever."""
        missed = await wake_missed(self._sweeping, self._schema)
        if missed:
            self.figures.missed += missed
            self._ear.ring_here()
            _log.error("destinations had work and no wake-up: they are awake now", region=self._region, count=missed)

    async def recount(self) -> None:
        """Permits and queue counters against their rows. Drift is an error of ours: it is reported, and not papered over."""
        for drift in await sweeping.recount_permits(self._sweeping, self._schema):
            self.figures.drifted += 1
            _log.error(
                "counters disagree with rows",
                region=self._region,
                destination=drift.destination_id,
                in_flight=drift.in_flight,
                leased_rows=drift.leased_rows,
                queued=drift.queued,
                queued_rows=drift.queued_rows,
            )


def _every(
    sweep: Callable[[], Awaitable[None]], seconds: float, stopping: asyncio.Event, or_at: asyncio.Event | None = None
) -> Callable[[], Awaitable[None]]:
    """Sweep, then rest, unless it is time to stop, or ``or_at`` calls."""
    calls = [stopping] if or_at is None else [stopping, or_at]

    async def step() -> None:
        await sweep()
        waits = [asyncio.create_task(call.wait()) for call in calls]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    return step
