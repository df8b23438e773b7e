"""What becomes of a delivery after an attempt: the budget, the backoff, the maximum age. Pure; time and chance are arguments."""

from dataclasses import dataclass
from typing import NamedTuple, assert_never

from fanout.model.states import Outcome, Reason, State

JITTER_PART = 0.25
"""Jitter adds up to this part of a delay, so that it grows with the delay and never shortens it."""
HOLD_JITTER_PART = 0.1
HOLD_SECONDS_MIN = 1.0
"""A destination that asks for zero seconds gets this much rest: an answer of "at once, again" must not become a loop."""
UNAUTHORIZED_MAX = 3
"""The third 401 or 403 in a row is final: keys get rotated, so the first two may pass."""
EXPIRED_IN_A_ROW = 3
"""So many expired leases in a row look like a delivery that kills its worker: it rests, and an operator is told."""
EXPIRED_REST_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The settings of the same names. Seconds."""

    backoff_first_seconds: float = 5
    backoff_factor: float = 3
    backoff_cap_seconds: float = 7200
    attempts: int = 20
    max_age_seconds: float = 259_200
    retry_after_cap_seconds: float = 86_400


class History(NamedTuple):
    """What the delivery had behind it when this attempt ended. ``budget_used`` does not count this attempt."""

    budget_used: int
    unauthorized_streak: int
    expired_streak: int
    age_seconds: float


class Fate(NamedTuple):
    """``delay_seconds`` None: it keeps its place. ``hold_seconds``: what stops the whole destination."""

    state: State
    reason: Reason | None = None
    delay_seconds: float | None = None
    counts: bool = True
    hold_seconds: float | None = None
    alarm: bool = False
    """An operator should hear of this one."""


_DELIVERED = Fate(State.DELIVERED)


def backoff_seconds(policy: RetryPolicy, failures: int, chance: float) -> float:
    """The pause after so many failures (from 1): first × factor^(failures - 1), capped, plus jitter. ``chance`` in [0, 1)."""
    growth = min(failures - 1, 64)  # beyond, any factor above 1 has long met the cap; and powers stay finite
    plain = min(policy.backoff_cap_seconds, policy.backoff_first_seconds * policy.backoff_factor**growth)
    return plain * (1 + JITTER_PART * chance)


def hold_seconds(policy: RetryPolicy, retry_after_seconds: float | None, chance: float) -> float | None:
    """How long a throttled answer stops its destination: what it asked for, capped, plus jitter; None where it did not say."""
    if retry_after_seconds is None:
        return None
    asked = max(HOLD_SECONDS_MIN, min(retry_after_seconds, policy.retry_after_cap_seconds))
    return asked * (1 + HOLD_JITTER_PART * chance)


def fate_of(
    outcome: Outcome,
    history: History,
    policy: RetryPolicy,
    chance: float,
    *,
    retry_after_seconds: float | None = None,
    retry_soon: bool = False,
    expired: bool = False,
) -> Fate:
    """One clause per outcome (docs/reference.md, "Outcomes"). ``retry_soon``: the connection was reused and broke before
    any answer, so the first retry goes at once. ``expired``: the lease ended and nothing was heard of the worker.
    """
    match outcome:
        case Outcome.DELIVERED:
            return _DELIVERED
        case Outcome.THROTTLED:
            hold = hold_seconds(policy, retry_after_seconds, chance)
            if history.age_seconds >= policy.max_age_seconds:
                return Fate(State.DEAD, Reason.EXPIRED, counts=False, hold_seconds=hold)
            return Fate(State.WAITING, counts=False, hold_seconds=hold)
        case Outcome.FAILED | Outcome.UNREACHABLE | Outcome.UNKNOWN:
            return _retried(history, policy, chance, at_once=retry_soon and history.budget_used == 0, expired=expired)
        case Outcome.UNAUTHORIZED:
            if history.unauthorized_streak + 1 >= UNAUTHORIZED_MAX:
                return Fate(State.DEAD, Reason.UNAUTHORIZED)
            return _retried(history, policy, chance)
        case Outcome.REDIRECTED:
            return Fate(State.DEAD, Reason.REDIRECTED)
        case Outcome.GONE:
            return Fate(State.DEAD, Reason.GONE)
        case Outcome.REJECTED:
            return Fate(State.DEAD, Reason.REJECTED)
        case Outcome.FORBIDDEN:
            return Fate(State.DEAD, Reason.FORBIDDEN_DESTINATION)
        case _ as never:
            assert_never(never)


def _retried(
    history: History, policy: RetryPolicy, chance: float, *, at_once: bool = False, expired: bool = False
) -> Fate:
    failures = history.budget_used + 1
    if failures >= policy.attempts:
        return Fate(State.DEAD, Reason.EXHAUSTED)
    if history.age_seconds >= policy.max_age_seconds:
        return Fate(State.DEAD, Reason.EXPIRED)
    delay = 0.0 if at_once else backoff_seconds(policy, failures, chance)
    if expired and history.expired_streak + 1 >= EXPIRED_IN_A_ROW:
        return Fate(State.WAITING, delay_seconds=max(delay, EXPIRED_REST_SECONDS), alarm=True)
    return Fate(State.WAITING, delay_seconds=delay)
