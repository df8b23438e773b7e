"""The consumer of one region: take references, claim them, send, settle, and only then let go of the message (P4).

```
 take ──▶ parking ──▶ lane ──▶ flight ──▶ lane ──▶ message done
             │         ▲                     │
             └─────────┴─ a permit is free ◀─┘
```

There is one lane: each of its turns settles what has come back and claims what can go, in one transaction. So a permit that a result
frees is used in the same moment, and claims and settlements, which lock the same destinations, never wait for each other.
"""

import asyncio
import contextlib
import random
from collections import Counter, deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import structlog

from fanout.database.connection import SteadyConnection
from fanout.database.errors import describe, is_transient, may_pass
from fanout.database.schema import Schema
from fanout.database.wakeups import Bell
from fanout.ledger import channels
from fanout.ledger.claiming import Lease
from fanout.ledger.sending import destination_configs, stored_versions
from fanout.ledger.settlement import Settled, Settlement
from fanout.ledger.sweeping import give_back
from fanout.ledger.turn import settle_and_claim
from fanout.loops import Patience, run_steps
from fanout.model.states import Outcome
from fanout.settings import DeliveryTable, RegionSettings
from fanout.transports.transport import Consuming, QueueRefused, QueueUnavailable
from regions.consumer.caches import ConfigCache, Sendable, VersionCache
from regions.consumer.flight import Flight
from regions.consumer.flights import Flights
from regions.consumer.lane import Lane
from regions.consumer.marks import Marks
from regions.consumer.parking import Parking, Released, Ticket
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
SILENT_PART = 2
"""So many times ``in_flight`` may be open to destinations that answer nothing, beside all others."""
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

    flight: Flight
    settlement: Settlement


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
        self._consuming = consuming
        self._flights = Flights(sender, retry_policy(delivery), self._land)
        application = f"fanout consumer {region.name}"
        sisters: list[SteadyConnection] = []
        self._turning = SteadyConnection(region.url, application, sisters)
        self._reading = SteadyConnection(region.url, application, sisters)
        self._bell = Bell(region.url, application, channels.due(self._schema))
        self._parking = Parking(asyncio.get_running_loop().time, self._flights.silence.of)
        self._versions = VersionCache()
        self._configs = ConfigCache()
        self._launches: set[asyncio.Task[None]] = set()
        self._held = 0
        """On the way to a claim, in flight, or on the way to be settled. What is parked takes no place from others."""
        self._silent = 0
        """Of these, with destinations that answer nothing: they take no place from others either, up to a bound."""
        self._returning: list[Ticket] = []
        self._room = asyncio.Event()
        self._closing = False
        self._marks = Marks(region, worker)
        self._lost_queue = LostQueue(self._reading, self._schema)

    async def run(self, stopping: asyncio.Event, hurry: asyncio.Event, grace_seconds: float = GRACE_SECONDS) -> None:
        """Until ``stopping`` is set; then nothing new is taken, what is in flight may finish within the grace period, and the
        rest is released; ``hurry`` ends the grace at once. Whatever cannot be settled in time is left to its lease.
        """
        self._lane: Lane[Ticket | _Landed] = Lane(
            "turn", self._turn, self._give_up, _name, most=TURN, linger_seconds=LINGER_SECONDS
        )
        parking = asyncio.create_task(self._watch_parking(), name="parking")
        lost = asyncio.create_task(
            run_steps("lost queue", self._put_back_lost, stopping, region=self._region), name="lost"
        )
        watch = asyncio.create_task(_stop_when_broken({parking, self._lane.task}, stopping))
        try:
            try:
                await self._take_until(stopping)
            finally:  # what flies may land also where taking has ended for good
                await self._finish(hurry, grace_seconds)
        finally:
            await _cancelled(watch, parking, lost)
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
                room = self._in_flight_max - self._held + self._silent
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
                for message in messages or ():
                    for reference in message.references:
                        ticket = Ticket(reference, message)
                        if self._parking.admit(ticket):
                            self._claim(ticket)
                self._release(self._parking.shed(self._in_flight_max))
        finally:
            ended.cancel()

    async def _watch_parking(self) -> None:
        while True:
            await asyncio.sleep(PARK_CHECK_SECONDS)
            self._release(self._parking.overdue())
            self._silent = min(self._flights.silence.held(), SILENT_PART * self._in_flight_max)
            self._room.set()
            await self._give_back()

    def _release(self, released: Released) -> None:
        for ticket in released.claims:
            self._claim(ticket)
        self._returning += released.returns

    async def _give_back(self) -> None:
        """To the ledger, without a claim. While that is away they wait here."""
        tickets = list(self._returning)
        if not tickets:
            return
        try:
            await give_back(self._reading, self._schema, [ticket.reference for ticket in tickets])
        except Exception as error:
            if not may_pass(error):
                raise
            return
        del self._returning[: len(tickets)]
        for ticket in tickets:
            ticket.message.done()
        self._bell.ring()

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
        self._marks.leave(landed, late)
        for each in landed:
            each.flight.ticket.message.done()
        for destination, count in Counter(each.settlement.destination_id for each in landed).items():
            self._leave(destination, count, permits.get(destination))

    def _claimed(self, tickets: list[Ticket], leases: list[Lease], asked_at: float) -> None:
        granted_at = asyncio.get_running_loop().time()
        self.figures.claims += len(leases)
        by_delivery = {ticket.reference.delivery_id: ticket for ticket in tickets}
        for ticket in tickets:
            self._parking.answered(ticket.reference.destination_id)
        leased: deque[Flight] = deque()
        for lease in leases:
            ticket = by_delivery.pop(lease.delivery_id)
            leased.append(Flight(lease, ticket, asked_at, granted_at, self._margin_seconds))
            self._parking.learn(lease.destination_id, lease.permits_left)
        for ticket in by_delivery.values():
            self._let_go(ticket)
        if self._flights.grounded:  # too late: this worker sends no more
            for flight in leased:
                self._land(flight, flight.released())
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

    async def _launch(self, leased: deque[Flight]) -> None:
        """Read what the batch needs and is not in memory, then start every flight. Where that fails, nothing more is sent."""
        try:
            versions = await self._read([flight.lease for flight in leased])
            while leased:
                for _ in range(min(len(leased), STARTED_AT_ONCE)):
                    self._start(leased[0], versions.get(leased[0].lease.version_no))
                    leased.popleft()
                await asyncio.sleep(0)
        except (asyncio.CancelledError, Exception) as error:
            for flight in leased:
                self._land(flight, flight.released())
            if isinstance(error, asyncio.CancelledError):
                raise
            trouble = _log.warning if is_transient(error) else _log.exception
            trouble("could not read what to send", region=self._region, error=describe(error), size=len(leased))

    def _start(self, flight: Flight, version: Sendable | None) -> None:
        prepared = self._configs.get(flight.lease.destination_id)
        if version is None or prepared is None:  # rows that were removed under a lease
            self._land(flight, flight.payload_gone())
        else:
            self._flights.start(flight, version, prepared)
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

    def _land(self, flight: Flight, settlement: Settlement) -> None:
        if settlement.outcome is not None:
            self.figures.outcomes[settlement.outcome] = self.figures.outcomes.get(settlement.outcome, 0) + 1
        else:
            self.figures.released += 1
        self._lane.put(_Landed(flight, settlement))
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
        self._flights.grounded = True
        await _cancelled(*self._launches)
        self._flights.end()
        try:
            async with asyncio.timeout(HURRY_SECONDS if hurry.is_set() else CLOSE_SECONDS):
                await self._lane.drained()
        except TimeoutError:
            _log.warning("results not settled before the end; their leases will expire", region=self._region)

    async def _let_land(self, hurry: asyncio.Event, ends_at: float) -> None:
        left = max(0.0, ends_at - asyncio.get_running_loop().time())
        down = asyncio.create_task(self._all_down(), name="down")
        hurried = asyncio.create_task(hurry.wait(), name="hurry")
        await asyncio.wait({down, hurried}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        await _cancelled(down, hurried)

    async def _all_down(self) -> None:
        while self._launches or self._flights:
            if self._launches:
                await asyncio.wait(self._launches)
            await self._flights.all_down()


def _name(item: Ticket | _Landed) -> int:
    """A delivery may be settled and, as another reference, asked for in one turn."""
    return -item.settlement.delivery_id if isinstance(item, _Landed) else item.reference.delivery_id


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
