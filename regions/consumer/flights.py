"""What a consumer has in the air: each leased delivery from its start to its landing, by callbacks, without a task of its own."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

import structlog

from fanout.ledger.settlement import Settlement
from fanout.model.identity import delivery_key
from fanout.model.states import Outcome
from fanout.signing import webhook_id
from fanout.telemetry.attempt_trace import trace_of_attempt
from regions.consumer.caches import Prepared, Sendable
from regions.consumer.flight import Flight
from regions.consumer.pacing import Pacing
from regions.consumer.silence import Silence
from regions.decisions.classification import AttemptResult
from regions.decisions.retry import HOLD_SECONDS_MIN, RetryPolicy
from regions.egress.errors import describe
from regions.egress.exchange import Underway
from regions.egress.request import build_request
from regions.egress.sender import Sender

SEND_SECONDS_MIN = 0.5
"""With less time than this a send is not begun: the delivery is released."""

_log = structlog.get_logger()


class Flights:
    """Each flight that is started lands once: ``landed`` is told of it, and what it is to be settled as."""

    def __init__(self, sender: Sender, policy: RetryPolicy, landed: Callable[[Flight, Settlement], None]) -> None:
        self.grounded = False
        """No request may be begun any more: this worker is stopping."""
        self._loop = asyncio.get_running_loop()
        self.silence = Silence(self._loop.time)
        self._sender = sender
        self._policy = policy
        self._landed = landed
        self._aloft: dict[Flight, Underway | asyncio.TimerHandle | None] = {}
        self._pacing = Pacing()
        self._quiet: dict[int, float] = {}
        """By destination: until when (``loop.time()``) it has asked to be left alone, before the ledger may have heard of it."""
        self._down = asyncio.Event()
        self._down.set()

    def __len__(self) -> int:
        return len(self._aloft)

    async def all_down(self) -> None:
        await self._down.wait()

    def start(self, flight: Flight, version: Sendable, prepared: Prepared) -> None:
        stored, config = version.stored, prepared.config
        if stored.payload is None:
            self._landed(flight, flight.payload_gone())
            return
        flight.prepared = prepared
        flight.key = key = delivery_key(stored.shipment_id, config.subscriber_id, stored.version)
        flight.trace = trace_of_attempt(version.published, key, flight.lease.attempt, sampled=version.sampled)
        if prepared.target is None or version.why:
            flight.started_at = self._loop.time()
            result = AttemptResult(Outcome.FORBIDDEN, error=prepared.why or version.why)
            self._landed(flight, flight.concluded(result, self._policy, self._loop.time()))
            return
        self._aloft[flight] = None
        self._down.clear()
        if config.rate_per_second is None:
            self._send(flight, version)
        else:
            self._send_in_turn(flight, version, 1 / config.rate_per_second)

    def end(self) -> None:
        """At once: what may have arrived lands as unknown, the rest is released."""
        self.grounded = True
        for flight, underway in list(self._aloft.items()):
            if flight.written:
                self._ended(flight, AttemptResult(Outcome.UNKNOWN, error="this worker stopped before the answer came"))
            else:
                self._ended(flight, None)
            if underway is not None:
                underway.cancel()

    def _send_in_turn(self, flight: Flight, version: Sendable, interval_seconds: float) -> None:
        """Where there is a rate: at its slot, and not too close behind the one before."""
        destination, slot_at = flight.lease.destination_id, flight.granted_at + flight.lease.wait_seconds
        goes_at = self._pacing.turn(destination, slot_at, interval_seconds, self._loop.time())
        if goes_at is None:
            self._send(flight, version)
        else:
            self._aloft[flight] = self._loop.call_at(goes_at, self._send_in_turn, flight, version, interval_seconds)

    def _send(self, flight: Flight, version: Sendable) -> None:
        lease, prepared, trace = flight.lease, flight.prepared, flight.trace
        assert prepared is not None
        assert prepared.target is not None
        assert trace is not None
        assert version.stored.payload is not None
        flight.started_at = now = self._loop.time()
        self.silence.begun(lease.destination_id)
        deadline = min(now + lease.timeout_seconds, flight.closes_at)
        if deadline - now < SEND_SECONDS_MIN:
            self._ended(flight, None)
            return
        try:
            request = build_request(
                prepared.target,
                version.lines,
                payload=version.stored.payload,
                key=flight.key,
                webhook_id=webhook_id(flight.key),
                timestamp=int(time.time()),
                attempt=lease.attempt,
                traceparent=trace.traceparent,
                deadline=deadline,
                may_write=partial(self._may_write, flight, deadline),
            )
        except Exception as error:  # noqa: BLE001 - an error of ours: it must strand neither this delivery nor its batch
            _log.exception("the request could not be made", key=flight.key)
            self._ended(
                flight, AttemptResult(Outcome.FAILED, error=f"the request could not be made: {describe(error)}")
            )
            return
        self._aloft[flight] = self._sender.send(
            request, retry_statuses=prepared.config.retry_statuses, ended=partial(self._ended, flight)
        )

    def _may_write(self, flight: Flight, deadline: float) -> bool:
        """Asked in the very step that writes the first byte."""
        now = self._loop.time()
        destination = flight.lease.destination_id
        flight.written = not self.grounded and now < deadline and self._quiet.get(destination, now) <= now
        if flight.written:
            self._pacing.written(destination, now)
        return flight.written

    def _ended(self, flight: Flight, result: AttemptResult | None) -> None:
        """None: nothing was sent."""
        if flight not in self._aloft:  # `end` has landed it
            return
        del self._aloft[flight]
        if flight.started_at:
            self.silence.ended(flight.lease.destination_id, answered=result is not None and result.status is not None)
        if not self._aloft:
            self._down.set()
        if result is None:
            self._landed(flight, flight.released())
            return
        settlement = flight.concluded(result, self._policy, self._loop.time())
        if result.outcome is Outcome.THROTTLED:
            self._hush(settlement)
        self._landed(flight, settlement)

    def _hush(self, throttled: Settlement) -> None:
        """The ledger holds the destination once the result is settled; what is leased already stays on the ground from now on."""
        now = self._loop.time()
        for destination in [each for each, until in self._quiet.items() if until <= now]:
            del self._quiet[destination]
        until = now + (throttled.hold_seconds or HOLD_SECONDS_MIN)
        self._quiet[throttled.destination_id] = max(until, self._quiet.get(throttled.destination_id, until))
