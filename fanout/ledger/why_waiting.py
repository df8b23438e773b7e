"""Why a delivery is where it is: one sentence for a person, one word for a program. Pure: facts in, sentence out.

All times in the facts are seconds relative to ``now`` on the ledger's clock (P12), positive ahead and negative behind.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from math import inf
from typing import assert_never

from fanout.model.states import Outcome, Reason, State
from fanout.model.times import format_utc, span

OVERDUE_SECONDS = 5.0
"""What a scheduler or a consumer could have taken for so long makes one ask whether there is any."""


class Wait(StrEnum):
    """What a delivery waits for: what has to change first before it moves on. ``ended``: for nothing any more."""

    DISABLED = "disabled"
    PAUSED = "paused"
    ORDER = "order"
    NOT_DUE = "not_due"
    HELD = "held"
    RATE = "rate"
    WINDOW = "window"
    SCHEDULER = "scheduler"
    CONSUMER = "consumer"
    ANSWER = "answer"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class WaitsFor:
    code: Wait
    sentence: str


@dataclass(frozen=True, slots=True)
class DeliveryFacts:
    state: State
    reason: Reason | None
    due_in_seconds: float
    blocked: bool
    behind_version: int | None
    """The lowest version of its shipment that is still open before it."""
    queued_for_seconds: float | None
    worker: str | None
    lease_ends_in_seconds: float | None
    finished_for_seconds: float | None
    attempts: int
    last_outcome: Outcome | None
    """Of the last attempt, once it has ended; with its status and error."""
    last_status: int | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class DestinationFacts:
    concurrency: int
    window: int
    in_flight: int
    queued: int
    waiting: int
    probation: bool
    hold_in_seconds: float | None
    hold_why: str | None
    rate_per_second: float | None
    rate_in_seconds: float | None
    wake_in_seconds: float | None
    """When the scheduler should look at it."""
    window_room: int
    """By the gate, how many more may be queued, were there no rate limit; with it; and how many more may be sent."""
    room: int
    permits: int
    paused_by: str | None
    paused_why: str | None
    disabled_why: Reason | None
    disabled_by: str | None


_HOLDS = {
    "throttled": "throttled, the subscriber asked for a pause",
    "failing": "failing, several attempts in a row came to nothing",
}


def why_waiting(delivery: DeliveryFacts, destination: DestinationFacts, now: datetime) -> WaitsFor:
    match delivery.state:
        case State.WAITING:
            return _waiting(delivery, destination, now)
        case State.QUEUED:
            return _in_the_queue(delivery, destination, now)
        case State.LEASED:
            until = _moment(now, delivery.lease_ends_in_seconds or 0)
            return WaitsFor(Wait.ANSWER, f"being sent by {delivery.worker}, whose lease ends at {until}")
        case State.DELIVERED:
            return WaitsFor(Wait.ENDED, f"delivered at {_moment(now, -(delivery.finished_for_seconds or 0))}")
        case State.DEAD:
            when = _moment(now, -(delivery.finished_for_seconds or 0))
            return WaitsFor(
                Wait.ENDED,
                f"dead since {when}: {delivery.reason}; it will not be tried again{_ended_by(delivery.reason)}",
            )
        case _:
            assert_never(delivery.state)


def _in_the_queue(delivery: DeliveryFacts, destination: DestinationFacts, now: datetime) -> WaitsFor:
    seconds = delivery.queued_for_seconds or 0
    since = f"in the queue since {_moment(now, -seconds)}"
    if destination.permits <= 0 and destination.in_flight > 0:
        room = f"a consumer sends it when there is room, {destination.in_flight} are being sent"
        return WaitsFor(Wait.CONSUMER, f"{since}: {room}")
    if seconds > OVERDUE_SECONDS:
        return WaitsFor(Wait.CONSUMER, f"{since}, and no consumer has taken it: is one running? `fanout doctor` looks")
    return WaitsFor(Wait.CONSUMER, f"{since}: a consumer has to take it")


def _ended_by(reason: str | None) -> str:
    """What happened, where no attempt of this delivery tells."""
    said = {
        "gone": ": its subscriber answered 410, which disabled the destination",
        "disabled": ": its destination was disabled",
        "cancelled": ": its subscriber was deleted",
        "residency": ": its residency class keeps it out of this region",
    }
    return said.get(reason or "", "")


def _waiting(delivery: DeliveryFacts, destination: DestinationFacts, now: datetime) -> WaitsFor:
    if destination.disabled_why is not None:
        return WaitsFor(
            Wait.DISABLED,
            f"the destination is closed ({destination.disabled_why}, by {destination.disabled_by}): "
            f"it is about to end as dead {destination.disabled_why}",
        )
    if destination.paused_by is not None:
        why = f": {destination.paused_why}" if destination.paused_why else ""
        return WaitsFor(Wait.PAUSED, f"paused by {destination.paused_by}{why}")
    if delivery.blocked:
        ahead = "an earlier version" if delivery.behind_version is None else f"version {delivery.behind_version}"
        return WaitsFor(Wait.ORDER, f"behind {ahead} of its shipment, which has not ended yet")
    hold = destination.hold_in_seconds or 0
    if delivery.due_in_seconds > max(hold, 0):
        seconds = delivery.due_in_seconds
        when = f"not due before {_moment(now, seconds)} (in {span(seconds)})"
        return WaitsFor(Wait.NOT_DUE, when + _retry(delivery))
    if hold > 0:
        why = _HOLDS.get(destination.hold_why or "", destination.hold_why or "no reason recorded")
        return WaitsFor(Wait.HELD, f"the destination is held until {_moment(now, hold)} (for {span(hold)}): {why}")
    return _at_the_gate(delivery, destination, now)


def _retry(delivery: DeliveryFacts) -> str:
    """What the attempt before came to, where there was one."""
    if delivery.last_outcome is None:
        return ""
    said = ": ".join(filter(None, [str(delivery.last_status or ""), delivery.last_error]))
    return f": a retry, attempt {delivery.attempts} ended as {delivery.last_outcome}{f' ({said})' if said else ''}"


def _at_the_gate(delivery: DeliveryFacts, destination: DestinationFacts, now: datetime) -> WaitsFor:
    if destination.window_room <= 0:
        window = min(destination.window, destination.concurrency)
        busy = f"{destination.in_flight} being sent, {destination.queued} queued, {destination.waiting} waiting"
        probe = ", one at a time until one is answered 2xx" if destination.probation else ""
        return WaitsFor(Wait.WINDOW, f"window {window} of {destination.concurrency}{probe}: {busy}")
    if destination.room <= 0:
        slot = f"the next slot is in {span(destination.rate_in_seconds or 0)}"
        return WaitsFor(Wait.RATE, f"rate limit of {destination.rate_per_second:g} a second: {slot}")
    # Nothing hinders it since it became due, the hold ended and the scheduler was to look.
    since = max(delivery.due_in_seconds, destination.hold_in_seconds or -inf, destination.wake_in_seconds or -inf)
    if destination.probation:
        return WaitsFor(Wait.SCHEDULER, "due: the scheduler queues it when one of the few places for probes is free")
    if since < -OVERDUE_SECONDS:
        overdue = (
            f"due, and no scheduler has queued it since {_moment(now, since)}: is one running? `fanout doctor` looks"
        )
        return WaitsFor(Wait.SCHEDULER, overdue)
    return WaitsFor(Wait.SCHEDULER, "due: the scheduler queues it at its next step")


def _moment(now: datetime, seconds: float) -> str:
    return format_utc((now + timedelta(seconds=seconds)).replace(microsecond=0))
