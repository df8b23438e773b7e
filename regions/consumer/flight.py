"""One attempt as a value, from a lease to a settlement."""

import random
from dataclasses import dataclass

from fanout.ledger.claiming import Lease
from fanout.ledger.settlement import Settlement, unsent
from fanout.model.states import Reason, State
from fanout.telemetry.attempt_trace import AttemptTrace
from regions.consumer.caches import Prepared
from regions.consumer.parking import Ticket
from regions.decisions.classification import AttemptResult
from regions.decisions.retry import History, RetryPolicy, fate_of

CLOSE_PART = 1 / 3
"""The connection is closed this part of the lease margin before the lease ends: time for the close to reach the subscriber."""


@dataclass(slots=True, eq=False)
class Flight:
    """One leased delivery on its way. ``claimed_at`` is ``loop.time()`` from before the claim was sent, ``granted_at`` from after
    its answer: so the lease surely ends later than we think, and the slot of a rate surely began before.
    """

    lease: Lease
    ticket: Ticket
    claimed_at: float
    granted_at: float
    margin_seconds: float
    started_at: float = 0.0
    written: bool = False
    """The request was begun: from here on nobody can say that the subscriber did not get it."""
    ended_at: float = 0.0
    """When the result was there, in ``loop.time()`` as all times here."""
    key: str = ""
    prepared: Prepared | None = None
    trace: AttemptTrace | None = None

    @property
    def closes_at(self) -> float:
        """When the connection must be closed, in ``loop.time()``: surely before the ledger takes the lease for ended (P6)."""
        return self.claimed_at + self.lease.lease_seconds - self.margin_seconds * CLOSE_PART

    def released(self) -> Settlement:
        """The delivery keeps its place."""
        return unsent(self.lease)

    def payload_gone(self) -> Settlement:
        return unsent(self.lease, State.DEAD, Reason.PAYLOAD_GONE)

    def concluded(self, result: AttemptResult, policy: RetryPolicy, now: float) -> Settlement:
        """What the ledger is told: the outcome, and what it does to the delivery and to its destination."""
        lease = self.lease
        self.ended_at = now
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
            outcome=result.outcome,
            state=fate.state,
            reason=fate.reason,
            delay_seconds=fate.delay_seconds,
            counts=fate.counts,
            hold_seconds=fate.hold_seconds,
            status=result.status,
            started_ms=int((self.started_at - self.claimed_at) * 1000),
            duration_ms=int((now - self.started_at) * 1000),
            config_version=self.prepared.config.config_version if self.prepared else None,
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
