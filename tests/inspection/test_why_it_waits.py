"""Every delivery that is open can say what it waits for, in one sentence and one word."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fanout.ledger.why_waiting import DeliveryFacts, DestinationFacts, Wait, why_waiting
from fanout.model.states import Outcome, Reason, State

NOW = datetime(2026, 3, 1, 12, 0, 0, 123, tzinfo=UTC)
DUE = DeliveryFacts(
    state=State.WAITING, reason=None, due_in_seconds=-2, blocked=False, behind_version=None, queued_for_seconds=None,
    worker=None, lease_ends_in_seconds=None, finished_for_seconds=None, attempts=0, last_outcome=None, last_status=None, last_error=None,
)  # fmt: skip
IDLE = DestinationFacts(
    concurrency=8, window=8, in_flight=0, queued=0, waiting=12, probation=False, hold_in_seconds=None, hold_why=None,
    rate_per_second=None, rate_in_seconds=None, wake_in_seconds=None, window_room=12, room=12, permits=8, paused_by=None, paused_why=None, disabled_why=None, disabled_by=None,
)  # fmt: skip
HELD = {"hold_in_seconds": 42.4, "hold_why": "throttled"}
FULL = {"in_flight": 8, "queued": 4, "window_room": 0, "room": 0, "permits": 0}
LATE = "due, and no scheduler has queued it since 2026-03-01T11:59:20Z: is one running? `fanout doctor` looks"
SLOW = {"rate_per_second": 0.5, "rate_in_seconds": 1.8, "room": 0, "permits": 0}
FAILED = {"due_in_seconds": 7.2, "attempts": 2, "last_outcome": Outcome.FAILED, "last_status": 500}
QUEUED = {"state": State.QUEUED, "queued_for_seconds": 65}
CASES = [
    ({}, {}, Wait.SCHEDULER, "due: the scheduler queues it at its next step"),
    ({"due_in_seconds": 7.2}, {}, Wait.NOT_DUE, "not due before 2026-03-01T12:00:07Z (in 7 s)"),
    ({"due_in_seconds": 0.44}, {}, Wait.NOT_DUE, "not due before 2026-03-01T12:00:00Z (in 0.4 s)"),
    ({"due_in_seconds": 20_000}, {}, Wait.NOT_DUE, "not due before 2026-03-01T17:33:20Z (in 6 h)"),
    ({"blocked": True, "behind_version": 3}, {}, Wait.ORDER, "behind version 3 of its shipment, which has not ended yet"),
    ({"blocked": True}, {}, Wait.ORDER, "behind an earlier version of its shipment, which has not ended yet"),
    ({}, HELD, Wait.HELD, "the destination is held until 2026-03-01T12:00:42Z (for 42 s): throttled, the subscriber asked for a pause"),
    ({}, HELD | {"hold_why": "failing"}, Wait.HELD, "the destination is held until 2026-03-01T12:00:42Z (for 42 s): failing, several attempts in a row came to nothing"),
    ({}, {"hold_in_seconds": -3, "hold_why": "throttled"}, Wait.SCHEDULER, "due: the scheduler queues it at its next step"),
    ({}, {"paused_by": "ann", "paused_why": "they are moving"}, Wait.PAUSED, "paused by ann: they are moving"),
    ({}, {"disabled_why": Reason.GONE, "disabled_by": "the subscriber answered 410"}, Wait.DISABLED,
     "the destination is closed (gone, by the subscriber answered 410): it is about to end as dead gone"),
    ({}, FULL, Wait.WINDOW, "window 8 of 8: 8 being sent, 4 queued, 12 waiting"),
    ({}, {"window": 1, "probation": True, "in_flight": 1, "window_room": 0, "room": 0}, Wait.WINDOW,
     "window 1 of 8, one at a time until one is answered 2xx: 1 being sent, 0 queued, 12 waiting"),
    ({"due_in_seconds": -99}, {"window": 1, "probation": True}, Wait.SCHEDULER,
     "due: the scheduler queues it when one of the few places for probes is free"),
    ({}, SLOW, Wait.RATE, "rate limit of 0.5 a second: the next slot is in 2 s"),
    ({}, SLOW | FULL, Wait.WINDOW, "window 8 of 8: 8 being sent, 4 queued, 12 waiting"),
    # What is overdue asks who should have taken it; a hold that has just ended, or a wake-up just set, makes nothing overdue.
    ({"due_in_seconds": -40}, {}, Wait.SCHEDULER, LATE),
    ({"due_in_seconds": -40}, {"hold_in_seconds": -2, "hold_why": "throttled"}, Wait.SCHEDULER, "due: the scheduler queues it at its next step"),
    ({"due_in_seconds": -90}, {"wake_in_seconds": -40}, Wait.SCHEDULER, LATE),
    ({"due_in_seconds": -90}, {"wake_in_seconds": -4}, Wait.SCHEDULER, "due: the scheduler queues it at its next step"),
    (QUEUED | {"queued_for_seconds": 4}, {}, Wait.CONSUMER, "in the queue since 2026-03-01T11:59:56Z: a consumer has to take it"),
    (QUEUED, {}, Wait.CONSUMER,
     "in the queue since 2026-03-01T11:58:55Z, and no consumer has taken it: is one running? `fanout doctor` looks"),
    (QUEUED, FULL, Wait.CONSUMER, "in the queue since 2026-03-01T11:58:55Z: a consumer sends it when there is room, 8 are being sent"),
    # A retry says what came before.
    (FAILED, {}, Wait.NOT_DUE, "not due before 2026-03-01T12:00:07Z (in 7 s): a retry, attempt 2 ended as failed (500)"),
    (FAILED | {"last_outcome": Outcome.UNREACHABLE, "last_status": None, "last_error": "connection refused"}, {}, Wait.NOT_DUE,
     "not due before 2026-03-01T12:00:07Z (in 7 s): a retry, attempt 2 ended as unreachable (connection refused)"),
    (FAILED | {"last_outcome": Outcome.UNKNOWN, "last_status": None}, {}, Wait.NOT_DUE,
     "not due before 2026-03-01T12:00:07Z (in 7 s): a retry, attempt 2 ended as unknown"),
    ({"state": State.LEASED, "worker": "eu-1", "lease_ends_in_seconds": 29.6}, {}, Wait.ANSWER,
     "being sent by eu-1, whose lease ends at 2026-03-01T12:00:29Z"),
    ({"state": State.DELIVERED, "finished_for_seconds": 60}, {}, Wait.ENDED, "delivered at 2026-03-01T11:59:00Z"),
    ({"state": State.DEAD, "reason": Reason.EXHAUSTED, "finished_for_seconds": 60}, {}, Wait.ENDED,
     "dead since 2026-03-01T11:59:00Z: exhausted; it will not be tried again"),
]  # fmt: skip


@pytest.mark.parametrize(("delivery", "destination", "code", "sentence"), CASES)
def test_one_sentence_and_one_word(delivery, destination, code, sentence):
    answer = why_waiting(replace(DUE, **delivery), replace(IDLE, **destination), NOW)
    assert (answer.code, answer.sentence) == (code, sentence)


def test_of_a_hold_and_a_due_time_the_later_one_counts():
    held = replace(IDLE, **HELD)
    assert why_waiting(replace(DUE, due_in_seconds=2), held, NOW).code is Wait.HELD
    assert why_waiting(replace(DUE, due_in_seconds=3600), held, NOW).code is Wait.NOT_DUE


@pytest.mark.parametrize(
    ("stronger", "code"),
    [
        ({"paused_by": "ann", "disabled_why": Reason.DISABLED, "disabled_by": "bob"}, Wait.DISABLED),
        ({"paused_by": "ann"}, Wait.PAUSED),
        ({}, Wait.HELD),
    ],
)
def test_what_stops_everything_is_named_before_what_stops_this_one(stronger, code):
    assert why_waiting(DUE, replace(IDLE, **HELD, **FULL, **stronger), NOW).code is code
