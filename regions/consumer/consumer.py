"""The consumer of one region: take references, claim them, send, settle, and only then let go of the message (P4).

```
 take ──▶ parking ──▶ lane ──▶ flight, a task each ──▶ lane ──▶ message done
             │         ▲                                │
             └─────────┴── a permit becomes free ◀──────┘
```

There is one lane: each of its turns settles what has come back and claims what can go, in one transaction. So a permit that a result
frees is used in the same moment, and claims and settlements, which lock the same destinations, never wait for each other.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import structlog

from fanout.database.connection import SteadyConnection
from fanout.database.errors import describe, is_transient
from fanout.database.schema import Schema
from fanout.database.wakeups import Bell
from fanout.ledger import channels
from fanout.ledger.claiming import Lease
from fanout.ledger.sending import destination_configs, stored_versions
from fanout.ledger.settlement import Settled, Settlement
from fanout.ledger.turn import settle_and_claim
from fanout.loops import Patience, run_steps
from fanout.model.states import Outcome
from fanout.settings import DeliveryTable, RegionSettings
from fanout.transports.transport import Consuming, QueueRefused, QueueUnavailable
from regions.consumer.caches import ConfigCache, Prepared, Sendable, VersionCache
from regions.consumer.flight import Flight, fly
from regions.consumer.lane import Lane
from regions.consumer.marks import Marks
from regions.consumer.pacing import Pacing
from regions.consumer.parking import Parking, Ticket
from regions.decisions.classification import AttemptResult
from regions.decisions.retry import HOLD_SECONDS_MIN
from regions.egress.sender import Sender
from regions.lost_queue import LostQueue
from regions.policy import retry_policy

TAKEN_AT_ONCE = 200
TURN = 400
"""So many results and claims at most go into one transaction."""
LINGER_SECONDS = 0.004
STARTED_AT_ONCE = 16
"""Between so many the event loop looks at what has come: the answers to them, and the ledger's to the next turn."""
TAKE_SECONDS = 1.0
PARK_CHECK_SECONDS = 0.25
GRACE_SECONDS = 30.0
CLOSE_SECONDS = 5.0
HURRY_SECONDS = 0.8
"""What settling and closing may take after the last send has ended."""

_log = structlog.get_logger()

Result = TypeVar("Result")


@dataclass(slots=True)
class Figures:
    """What this consumer has done since it started."""

    outcomes: dict[Outcome, int] = field(default_factory=dict)
    claims: int = 0
    settlements: int = 0
    late: int = 0
    released: int = 0
    in_flight_peak: int = 0


class _Landed(NamedTuple):
    """A flight that has ended, and what the ledger is to be told of it."""

    settlement: Settlement
    ticket: Ticket
    flight: Flight


class Consumer:
    """Sends for one region. Any number may run: claims and fences make them strangers to each other."""

    def __init__(
        self, region: RegionSettings, delivery: DeliveryTable, consuming: Consuming, sender: Sender, *, worker: str
    ) -> None:
        self.worker = worker
        self.figures = Figures()
        self._schema = Schema(region.schema)
        self._region = region.name
        self._margin_seconds = delivery.lease_margin_seconds
        self._in_flight_max = delivery.in_flight
        self._policy = retry_policy(delivery)
        self._consuming = consuming
        self._sender = sender
        application = f"fanout consumer {region.name}"
        sisters: list[SteadyConnection] = []
        self._turning = SteadyConnection(region.url, application, sisters)
        self._reading = SteadyConnection(region.url, application, sisters)
        self._bell = Bell(region.url, application, channels.due(self._schema))
        self._parking = Parking()
        self._versions = VersionCache()
        self._configs = ConfigCache()
        self._flights: dict[Flight, asyncio.Task[None]] = {}
        self._launches: set[asyncio.Task[None]] = set()
        self._quiet: dict[int, float] = {}
        self._pacing = Pacing()
        self._held = 0
        """On the way to a claim, in flight, or on the way to be settled. What is parked takes no place from others."""
        self._room = asyncio.Event()
        self._closing = False
        self._grounded = False
        self._marks = Marks(region, worker)
        self._lost_queue = LostQueue(self._reading, self._schema)

    async def run(self, stopping: asyncio.Event, hurry: asyncio.Event, grace_seconds: float = GRACE_SECONDS) -> None:
        """Until ``stopping`` is set; then nothing new is taken, what is in flight may finish within the grace period, and the
        rest is released; ``hurry`` ends the grace at once. Whatever cannot be settled in time is left to its lease.
        """
        self._lane: Lane[Ticket | _Landed] = Lane(
            "turn", self._turn, self._give_up, _name, most=TURN, linger_seconds=LINGER_SECONDS
        )
        unpark = asyncio.create_task(self._give_back_overdue(), name="unpark")
        lost = asyncio.create_task(
            run_steps("lost queue", self._put_back_lost, stopping, region=self._region), name="lost"
        )
        watch = asyncio.create_task(_stop_when_broken({unpark, self._lane.task}, stopping))
        try:
            try:
                await self._take_until(stopping)
            finally:  # what flies may land also where taking has ended for good
                await self._finish(hurry, grace_seconds)
        finally:
            await _cancelled(watch, unpark, lost)
            await self._lane.close()
            await self._bell.close()
            for connection in (self._turning, self._reading):
                await connection.close()
        if watch.done() and not watch.cancelled():
            watch.result()

    # ------------------------------------------------------------------------------------------------ taking

    async def _take_until(self, stopping: asyncio.Event) -> None:
        patience = Patience()
        away = False
        ended = asyncio.create_task(stopping.wait())
        try:
            while not stopping.is_set():
                room = self._in_flight_max - self._held
                if room <= 0:
                    self._room.clear()
                    await _until_either(self._room.wait(), ended)
                    continue
                try:
                    messages = await _until_either(self._consuming.take(min(room, TAKEN_AT_ONCE), TAKE_SECONDS), ended)
                except QueueRefused:
                    raise
                except Exception as error:  # noqa: BLE001 - as in every loop of ours: a step that fails is not the end
                    if not isinstance(error, QueueUnavailable):
                        _log.exception("taking failed", region=self._region)
                    elif not away:
                        _log.warning("queue away", region=self._region, error=str(error))
                    away = True
                    await patience.wait()
                    continue
                if away:
                    _log.info("queue back", region=self._region)
                away = False
                patience.calm()
                now = asyncio.get_running_loop().time()
                for message in messages or ():
                    for reference in message.references:
                        ticket = Ticket(reference, message)
                        if self._parking.admit(ticket, now):
                            self._claim(ticket)
                for ticket in self._parking.shed(self._in_flight_max):
                    self._claim(ticket)
        finally:
            ended.cancel()

    async def _give_back_overdue(self) -> None:
        while True:
            await asyncio.sleep(PARK_CHECK_SECONDS)
            for ticket in self._parking.overdue(asyncio.get_running_loop().time()):
                self._claim(ticket)

    def queue_lost(self) -> None:
        """The queue was deleted: everything that it held is to be promoted again at once."""
        self._lost_queue.notice()

    async def _put_back_lost(self) -> None:
        await self._lost_queue.noticed.wait()
        if lost := await self._lost_queue.put_back():
            self._bell.ring()
            _log.warning("references lost, put back to waiting", region=self._region, count=lost)

    # ------------------------------------------------------------------------------------------------ the ledger's turn

    def _claim(self, ticket: Ticket) -> None:
        self._held += 1
        if not self._closing:
            self._lane.put(ticket)

    async def _turn(self, batch: list[Ticket | _Landed]) -> None:
        landed = [each for each in batch if isinstance(each, _Landed)]
        tickets = [each for each in batch if isinstance(each, Ticket)]
        asked_at = asyncio.get_running_loop().time()
        settled, leases = await settle_and_claim(
            self._turning,
            self._schema,
            [each.settlement for each in landed],
            [ticket.reference for ticket in tickets],
            self.worker,
            random.random(),  # noqa: S311 - jitter
            self._margin_seconds,
        )
        if landed:
            self._settled(landed, settled)
        if tickets:
            self._claimed(tickets, leases, asked_at)

    def _settled(self, landed: list[_Landed], settled: list[Settled]) -> None:
        self.figures.settlements += len(landed)
        if any(answer.more_waits for answer in settled):
            self._bell.ring()
        permits = {answer.destination_id: answer.permits_left for answer in settled}
        late = {answer.delivery_id for answer in settled if not answer.settled}
        self.figures.late += len(late)
        self._marks.leave(((each.flight, each.settlement) for each in landed), late)
        for each in landed:
            each.ticket.message.done()
        for destination, count in Counter(each.settlement.destination_id for each in landed).items():
            self._leave(destination, count, permits.get(destination))

    def _claimed(self, tickets: list[Ticket], leases: list[Lease], asked_at: float) -> None:
        granted_at = asyncio.get_running_loop().time()
        self.figures.claims += len(leases)
        by_delivery = {ticket.reference.delivery_id: ticket for ticket in tickets}
        for ticket in tickets:
            self._parking.answered(ticket.reference.destination_id)
        leased: list[tuple[Flight, Ticket]] = []
        for lease in leases:
            ticket = by_delivery.pop(lease.delivery_id)
            promote = ticket.message.traceparent
            leased.append((Flight(lease, asked_at, granted_at, self._margin_seconds, promote=promote), ticket))
            self._parking.learn(lease.destination_id, lease.permits_left)
        for ticket in by_delivery.values():
            self._let_go(ticket)
        if self._grounded:  # too late: this worker sends no more
            for flight, ticket in leased:
                self._land(flight.released(), ticket, flight)
        elif leased:
            task = asyncio.create_task(self._launch(leased), name="launch")
            self._launches.add(task)
            task.add_done_callback(self._launches.discard)

    def _let_go(self, ticket: Ticket) -> None:
        """There is nothing to do for this reference: it was a copy, or the ledger put it back to waiting."""
        ticket.message.done()
        self._leave(ticket.reference.destination_id)

    def _give_up(self, item: Ticket | _Landed) -> None:
        """The ledger refuses this very claim or result. Its message is not acknowledged: the reference counts as lost after a while, a
        lease ends by itself and is swept.
        """
        if isinstance(item, Ticket):
            self._parking.answered(item.reference.destination_id)
            self._leave(item.reference.destination_id)
        else:
            self._leave(item.settlement.destination_id)

    def _leave(self, destination: int, count: int = 1, permits_left: int | None = None) -> None:
        self._held -= count
        self._room.set()
        for ticket in self._parking.left(destination, count, permits_left):
            self._claim(ticket)

    # ------------------------------------------------------------------------------------------------ sending

    async def _launch(self, leased: list[tuple[Flight, Ticket]]) -> None:
        """Read what the batch needs and is not in memory, then start every flight. Where that fails, nothing more is sent."""
        try:
            versions = await self._read([flight.lease for flight, _ in leased])
            while leased:
                part, leased = leased[:STARTED_AT_ONCE], leased[STARTED_AT_ONCE:]
                for flight, ticket in part:
                    self._start(flight, ticket, versions.get(flight.lease.version_no))
                await asyncio.sleep(0)
        except (asyncio.CancelledError, Exception) as error:
            for flight, ticket in leased:
                self._land(flight.released(), ticket, flight)
            if isinstance(error, asyncio.CancelledError):
                raise
            trouble = _log.warning if is_transient(error) else _log.exception
            trouble("could not read what to send", region=self._region, error=describe(error), size=len(leased))

    def _start(self, flight: Flight, ticket: Ticket, version: Sendable | None) -> None:
        prepared = self._configs.get(flight.lease.destination_id)
        if version is None or prepared is None:  # rows that were removed under a lease
            self._land(flight.payload_gone(), ticket, flight)
            return
        self._flights[flight] = asyncio.create_task(self._fly(flight, version, prepared, ticket), name="flight")
        self.figures.in_flight_peak = max(self.figures.in_flight_peak, len(self._flights))

    async def _read(self, leases: Sequence[Lease]) -> dict[int, Sendable]:
        """The versions of these leases; their configurations are in the cache afterwards."""
        configs = self._configs.missing((lease.destination_id, lease.config_version) for lease in leases)
        if configs:
            for config in await destination_configs(self._reading, self._schema, configs):
                self._configs.put(config)
        wanted = {lease.version_no for lease in leases}
        versions = self._versions.known(wanted)
        if len(versions) < len(wanted):
            for stored in await stored_versions(self._reading, self._schema, list(wanted - versions.keys())):
                versions[stored.version_no] = self._versions.put(stored)
        return versions

    async def _fly(self, flight: Flight, version: Sendable, prepared: Prepared, ticket: Ticket) -> None:
        try:
            settlement = await fly(flight, version, prepared, self._sender, self._policy, self._quiet, self._pacing)
        except asyncio.CancelledError:
            if flight.written:
                result = AttemptResult(Outcome.UNKNOWN, error="this worker stopped before the answer came")
                self._land(flight.concluded(result, self._policy, prepared.config.config_version), ticket, flight)
            else:
                self._land(flight.released(), ticket, flight)
            raise
        finally:
            del self._flights[flight]
        if settlement.outcome is Outcome.THROTTLED:
            self._hush(settlement)
        self._land(settlement, ticket, flight)

    def _hush(self, throttled: Settlement) -> None:
        """The ledger holds the destination once the result is settled; what is leased already stays on the ground from now on."""
        now = asyncio.get_running_loop().time()
        for destination in [each for each, until in self._quiet.items() if until <= now]:
            del self._quiet[destination]
        until = now + (throttled.hold_seconds or HOLD_SECONDS_MIN)
        self._quiet[throttled.destination_id] = max(until, self._quiet.get(throttled.destination_id, until))

    def _land(self, settlement: Settlement, ticket: Ticket, flight: Flight) -> None:
        if settlement.outcome is not None:
            self.figures.outcomes[settlement.outcome] = self.figures.outcomes.get(settlement.outcome, 0) + 1
        else:
            self.figures.released += 1
        self._lane.put(_Landed(settlement, ticket, flight))
        if settlement.outcome is Outcome.DELIVERED and (follower := self._parking.follow(settlement.destination_id)):
            self._claim(follower)

    # ------------------------------------------------------------------------------------------------ stopping

    async def _finish(self, hurry: asyncio.Event, grace_seconds: float) -> None:
        """In order: nothing new, let what flies land, release the rest, settle."""
        ends_at = asyncio.get_running_loop().time() + grace_seconds
        self._closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(grace_seconds, CLOSE_SECONDS)):
                await self._lane.forget(lambda each: isinstance(each, Ticket))
        await self._let_land(hurry, ends_at)
        self._grounded = True
        for flight in self._flights:
            flight.grounded = True
        await _cancelled(*self._launches)
        await _cancelled(*self._flights.values())
        try:
            async with asyncio.timeout(HURRY_SECONDS if hurry.is_set() else CLOSE_SECONDS):
                await self._lane.drained()
        except TimeoutError:
            _log.warning("results not settled before the end; their leases will expire", region=self._region)

    async def _let_land(self, hurry: asyncio.Event, ends_at: float) -> None:
        hurried = asyncio.create_task(hurry.wait(), name="hurry")
        while (self._flights or self._launches) and not hurry.is_set():
            left = ends_at - asyncio.get_running_loop().time()
            if left <= 0:
                break
            await asyncio.wait(
                {*self._flights.values(), *self._launches, hurried}, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
        hurried.cancel()


def _name(item: Ticket | _Landed) -> tuple[bool, int]:
    """A delivery may be settled and, as another reference, asked for in one turn."""
    if isinstance(item, Ticket):
        return False, item.reference.delivery_id
    return True, item.settlement.delivery_id


async def _cancelled(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _stop_when_broken(tasks: "set[asyncio.Task[None]]", stopping: asyncio.Event) -> None:
    """None of these ends by itself. One that does is an error of ours: better a process that ends than one that only looks alive."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stopping.set()
    for task in done:
        task.result()


async def _until_either(work: Coroutine[None, None, Result], ended: "asyncio.Task[Literal[True]]") -> Result | None:
    """The result of ``work``, or None when ``ended`` came first: then the work was cancelled."""
    task = asyncio.create_task(work)
    await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        return task.result()
    await _cancelled(task)
    return None
