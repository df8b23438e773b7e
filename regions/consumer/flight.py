"""One attempt, from a lease to a settlement, as a value that passes through named steps: place in time, build, send, decide."""

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

from fanout.ledger.claiming import Lease
from fanout.ledger.settlement import Settlement, unsent
from fanout.model.identity import delivery_key
from fanout.model.states import Outcome, Reason, State
from fanout.signing import webhook_id
from fanout.telemetry.attempt_trace import AttemptTrace, trace_of_attempt
from regions.consumer.caches import Prepared, Sendable
from regions.consumer.pacing import Pacing
from regions.decisions.classification import AttemptResult
from regions.decisions.retry import History, RetryPolicy, fate_of
from regions.egress.request import Target, build_request
from regions.egress.sender import Sender

CLOSE_PART = 1 / 3
"""The connection is closed this part of the lease margin before the lease ends: time for the close to reach the subscriber."""
SEND_SECONDS_MIN = 0.5
"""With less time than this a send is not begun: the delivery is released."""


@dataclass(slots=True, eq=False)
class Flight:
    """One leased delivery on its way. ``claimed_at`` is ``loop.time()`` from before the claim was sent, ``granted_at`` from after
    its answer: so the lease surely ends later than we think, and the slot of a rate surely began before.
    """

    lease: Lease
    claimed_at: float
    granted_at: float
    margin_seconds: float
    started_at: float = 0.0
    written: bool = False
    """The request was begun: from here on nobody can say that the subscriber did not get it."""
    grounded: bool = False
    """No request may be begun any more: this worker is stopping."""
    ended_at: float = 0.0
    """When the result was there, in ``loop.time()`` as all times here."""
    key: str = ""
    subscriber_id: str = ""
    target: Target | None = None
    trace: AttemptTrace | None = None
    promote: str | None = None
    """The span that queued it, as the message says."""

    @property
    def closes_at(self) -> float:
        """When the connection must be closed, in ``loop.time()``: surely before the ledger takes the lease for ended (P6)."""
        return self.claimed_at + self.lease.lease_seconds - self.margin_seconds * CLOSE_PART

    def released(self) -> Settlement:
        """The delivery keeps its place."""
        return unsent(self.lease)

    def payload_gone(self) -> Settlement:
        return unsent(self.lease, State.DEAD, Reason.PAYLOAD_GONE)

    def concluded(self, result: AttemptResult, policy: RetryPolicy, config_version: int) -> Settlement:
        """What the ledger is told: the outcome, and what it does to the delivery and to its destination."""
        lease = self.lease
        self.ended_at = now = asyncio.get_running_loop().time()
        history = History(
            budget_used=lease.budget_used,
            unauthorized_streak=lease.unauthorized_streak,
            expired_streak=0,
            age_seconds=lease.age_seconds + now - self.claimed_at,
        )
        fate = fate_of(
            result.outcome,
            history,
            policy,
            random.random(),  # noqa: S311 - jitter
            retry_after_seconds=result.retry_after_seconds,
            retry_soon=result.retry_soon,
        )
        return Settlement(
            delivery_id=lease.delivery_id,
            token=lease.token,
            destination_id=lease.destination_id,
            attempt=lease.attempt,
            sent=True,
            outcome=result.outcome,
            state=fate.state,
            reason=fate.reason,
            delay_seconds=fate.delay_seconds,
            counts=fate.counts,
            hold_seconds=fate.hold_seconds,
            status=result.status,
            started_ms=int((self.started_at - self.claimed_at) * 1000),
            duration_ms=int((now - self.started_at) * 1000),
            config_version=config_version,
            retry_after_seconds=result.retry_after_seconds,
            error=_explained(result),
            response_excerpt=result.excerpt or None,
            address=result.address,
            trace_id=self.trace.trace_id if self.trace else None,
        )


def _explained(result: AttemptResult) -> str | None:
    if result.location:
        return f"redirects are not followed; it points to {result.location}: update the endpoint if it has moved"
    return result.error or None


Quiet = Mapping[int, float]
"""By destination: until when (``loop.time()``) it has asked to be left alone, before the ledger may have heard of it."""


async def fly(
    flight: Flight,
    version: Sendable,
    prepared: Prepared,
    sender: Sender,
    policy: RetryPolicy,
    quiet: Quiet,
    pacing: Pacing,
) -> Settlement:
    """Send once and decide. Raises only CancelledError; ``flight`` then tells whether anything was written."""
    loop = asyncio.get_running_loop()
    lease = flight.lease
    stored, config, target = version.stored, prepared.config, prepared.target
    if stored.payload is None:
        return flight.payload_gone()
    key = delivery_key(stored.shipment_id, config.subscriber_id, stored.version)
    flight.key, flight.subscriber_id, flight.target = key, config.subscriber_id, target
    flight.trace = trace = trace_of_attempt(version.published, key, lease.attempt, sampled=version.sampled)
    if target is None or version.why:
        flight.started_at = loop.time()
        result = AttemptResult(Outcome.FORBIDDEN, error=prepared.why or version.why)
        return flight.concluded(result, policy, config.config_version)

    if config.rate_per_second is not None:
        await pacing.turn(lease.destination_id, flight.granted_at + lease.wait_seconds, 1 / config.rate_per_second)
    flight.started_at = loop.time()
    deadline = min(flight.started_at + lease.timeout_seconds, flight.closes_at)
    if deadline - flight.started_at < SEND_SECONDS_MIN:
        return flight.released()

    def may_write() -> bool:
        now = loop.time()
        flight.written = not flight.grounded and now < deadline and quiet.get(lease.destination_id, now) <= now
        if flight.written:
            pacing.written(lease.destination_id, now)
        return flight.written

    request = build_request(
        target,
        version.lines,
        payload=stored.payload,
        key=key,
        webhook_id=webhook_id(key),
        timestamp=int(time.time()),
        attempt=lease.attempt,
        traceparent=trace.traceparent,
        deadline=deadline,
        may_write=may_write,
    )
    sent = await sender.send(request, retry_statuses=config.retry_statuses)
    return flight.released() if sent is None else flight.concluded(sent, policy, config.config_version)
