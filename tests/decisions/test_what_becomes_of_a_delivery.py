"""The budget, the backoff, the maximum age: one clause per outcome."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanout.model.states import Outcome, Reason, State
from regions.decisions.retry import (
    EXPIRED_REST_SECONDS,
    History,
    RetryPolicy,
    backoff_seconds,
    fate_of,
    hold_seconds,
)

POLICY = RetryPolicy()
FRESH = History(budget_used=0, unauthorized_streak=0, expired_streak=0, age_seconds=0)
chances = st.floats(0, 1, exclude_max=True)
policies = st.builds(
    RetryPolicy,
    backoff_first_seconds=st.floats(0.01, 100),
    backoff_factor=st.floats(1, 100),
    backoff_cap_seconds=st.floats(100, 1e6),
    attempts=st.integers(1, 100),
)
retried = [Outcome.FAILED, Outcome.UNREACHABLE, Outcome.UNKNOWN, Outcome.UNAUTHORIZED]


def test_the_backoff_of_the_defaults_is_the_documented_one():
    assert [backoff_seconds(POLICY, n, 0.0) for n in (1, 2, 3, 7, 8, 20)] == [5, 15, 45, 3645, 7200, 7200]


@given(policies, st.integers(1, 10_000), chances)
def test_jitter_only_adds_and_grows_with_the_delay(policy, failures, chance):
    plain = backoff_seconds(policy, failures, 0.0)
    assert plain <= backoff_seconds(policy, failures, chance) <= plain * 1.25
    assert plain <= policy.backoff_cap_seconds


@given(policies, st.integers(1, 100))
def test_the_backoff_never_shrinks(policy, failures):
    assert backoff_seconds(policy, failures, 0.0) <= backoff_seconds(policy, failures + 1, 0.0)


@given(st.floats(0, 1e9), chances)
def test_a_hold_is_never_shorter_than_asked_but_for_the_cap(asked, chance):
    held = hold_seconds(POLICY, asked, chance)
    assert held >= min(asked, POLICY.retry_after_cap_seconds)
    assert held >= 1, "zero seconds must not become a loop"
    assert held <= POLICY.retry_after_cap_seconds * 1.1


def test_who_names_no_time_is_held_by_the_gate_rules_and_not_by_ours():
    assert hold_seconds(POLICY, None, 0.5) is None


@given(chances, st.integers(0, 1000))
def test_throttling_costs_no_budget_and_the_delivery_keeps_its_place(chance, used):
    fate = fate_of(Outcome.THROTTLED, History(used, 0, 0, 10), POLICY, chance, retry_after_seconds=60)
    assert (fate.state, fate.counts, fate.delay_seconds) == (State.WAITING, False, None)
    assert fate.hold_seconds >= 60


@pytest.mark.parametrize("outcome", retried)
def test_the_last_attempt_of_the_budget_exhausts_it(outcome):
    before = fate_of(outcome, History(18, 0, 0, 0), POLICY, 0.0)
    last = fate_of(outcome, History(19, 0, 0, 0), POLICY, 0.0)
    assert before.state is State.WAITING
    assert (last.state, last.reason, last.counts) == (State.DEAD, Reason.EXHAUSTED, True)


@pytest.mark.parametrize("outcome", [*retried, Outcome.THROTTLED])
def test_too_old_is_expired_but_only_when_an_attempt_did_not_succeed(outcome):
    old = History(0, 0, 0, POLICY.max_age_seconds)
    fate = fate_of(outcome, old, POLICY, 0.0)
    assert (fate.state, fate.reason) == (State.DEAD, Reason.EXPIRED)
    assert fate_of(Outcome.DELIVERED, old, POLICY, 0.0).state is State.DELIVERED


def test_the_third_unauthorized_in_a_row_is_final():
    fates = [fate_of(Outcome.UNAUTHORIZED, History(n, n, 0, 0), POLICY, 0.0) for n in range(3)]
    assert [fate.state for fate in fates] == [State.WAITING, State.WAITING, State.DEAD]
    assert fates[2].reason is Reason.UNAUTHORIZED


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome.REDIRECTED, Reason.REDIRECTED),
        (Outcome.GONE, Reason.GONE),
        (Outcome.REJECTED, Reason.REJECTED),
        (Outcome.FORBIDDEN, Reason.FORBIDDEN_DESTINATION),
    ],
)
def test_what_cannot_succeed_is_dead_at_once(outcome, reason):
    fate = fate_of(outcome, FRESH, POLICY, 0.0)
    assert (fate.state, fate.reason) == (State.DEAD, reason)


def test_a_kept_connection_that_broke_before_any_answer_is_retried_at_once_the_first_time():
    assert fate_of(Outcome.UNKNOWN, FRESH, POLICY, 0.9, retry_soon=True).delay_seconds == 0
    assert fate_of(Outcome.UNKNOWN, History(1, 0, 0, 0), POLICY, 0.0, retry_soon=True).delay_seconds == 15
    assert fate_of(Outcome.UNKNOWN, FRESH, POLICY, 0.0).delay_seconds == 5


def test_three_expired_leases_in_a_row_give_the_delivery_a_rest_and_alarm_an_operator():
    fates = [fate_of(Outcome.UNKNOWN, History(n, 0, n, 0), POLICY, 0.0, expired=True) for n in range(3)]
    assert [fate.alarm for fate in fates] == [False, False, True]
    assert fates[2].delay_seconds == EXPIRED_REST_SECONDS


@given(
    st.sampled_from(Outcome),
    st.integers(0, 30),
    st.integers(0, 5),
    st.integers(0, 5),
    st.floats(0, 1e6),
    chances,
    st.booleans(),
)
def test_every_outcome_has_a_fate_that_says_all_it_must(
    outcome, used, unauthorized, expired_streak, age, chance, expired
):
    fate = fate_of(outcome, History(used, unauthorized, expired_streak, age), POLICY, chance, expired=expired)
    assert fate.state in {State.DELIVERED, State.DEAD, State.WAITING}
    assert (fate.reason is not None) == (fate.state is State.DEAD)
    assert fate.delay_seconds is None or fate.state is State.WAITING
    assert fate.hold_seconds is None or outcome is Outcome.THROTTLED
