"""The gate's arithmetic. It stands in SQL, so it is asked in SQL."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fanout.ledger.claiming import Lease
from fanout.model.states import Outcome, State
from services.region import result

NOW = datetime(2030, 1, 1, tzinfo=UTC)
GATE = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

counts = st.integers(0, 20)


async def gate_after(region, **facts):
    defaults = {
        "send_window": 4, "concurrency": 8, "probation": False, "hold_until": None, "hold_why": None, "cut_at": None,
        "fail_streak": 0, "throttle_streak": 0, "successes": 0, "answers": 0, "failures": 0, "throttles": 0,
        "hold_seconds": None, "throttled_plainly": False, "moment": NOW, "jitter": 0.0,
    }  # fmt: skip
    values = defaults | facts
    [row] = await region.rows(
        "SELECT * FROM {schema}.gate_after($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16)", *values.values()
    )
    return row


@pytest.fixture
async def asked(region):
    async def ask(**facts):
        return await gate_after(region, **facts)

    return ask


@GATE
@given(
    window=st.integers(1, 50), concurrency=st.integers(1, 50), probation=st.booleans(), fail_streak=counts, throttle_streak=counts,
    successes=counts, answers=counts, failures=counts, throttles=counts,
    held_for=st.none() | st.floats(-100, 100), asks=st.none() | st.floats(1, 86400), plainly=st.booleans(),
    jitter=st.integers(0, 999).map(lambda n: n / 1000),
)  # fmt: skip
async def test_for_any_results(
    region, window, concurrency, probation, fail_streak, throttle_streak, successes, answers, failures, throttles, held_for,
    asks, plainly, jitter,
):  # fmt: skip
    held_until = None if held_for is None else NOW + timedelta(seconds=held_for)
    gate = await gate_after(
        region, send_window=window, concurrency=concurrency, probation=probation, hold_until=held_until, fail_streak=fail_streak,
        throttle_streak=throttle_streak, successes=successes, answers=answers, failures=failures, throttles=throttles,
        hold_seconds=asks, throttled_plainly=plainly, jitter=jitter,
    )  # fmt: skip
    assert 1 <= gate["next_window"] <= max(concurrency, window // 2)
    if held_until is not None:
        assert gate["next_hold_until"] >= held_until, "no result shortens a hold"
    if asks is not None:
        assert gate["next_hold_until"] >= NOW + timedelta(seconds=asks) - timedelta(microseconds=1), (
            "it waits as long as it was asked to"
        )
    if gate["next_hold_until"] != held_until:
        assert (gate["next_window"], gate["next_probation"]) == (1, True), "one probe follows a hold"
    if throttles or failures:
        assert gate["next_window"] <= max(window, min(concurrency, window + successes))
    if throttles:
        assert gate["next_window"] <= max(1, window // 2), "throttling halves the window, or holds"
        assert gate["next_cut_at"] == NOW
    if successes + answers:
        assert gate["next_fail_streak"] == 0
    elif failures:
        assert gate["next_fail_streak"] == (min(3, fail_streak + failures) if fail_streak < 3 else fail_streak + 1)
    else:
        assert gate["next_fail_streak"] == fail_streak


async def test_each_success_opens_the_window_by_one_up_to_the_limit(asked):
    assert (await asked(send_window=1, concurrency=8, successes=1))["next_window"] == 2
    assert (await asked(send_window=6, concurrency=8, successes=5))["next_window"] == 8


async def test_a_limit_that_was_lowered_closes_the_window(asked):
    assert (await asked(send_window=8, concurrency=3, successes=1))["next_window"] == 3


async def test_the_third_failure_in_a_row_leaves_one_probe_and_the_fifth_a_growing_pause(asked):
    windows, pauses = [], []
    for streak in range(12):
        gate = await asked(fail_streak=streak, failures=1)
        windows.append(gate["next_window"])
        pauses.append(gate["next_hold_until"] and (gate["next_hold_until"] - NOW).total_seconds())
    assert windows == [4, 4, *[1] * 10]
    assert pauses == [None] * 4 + [5, 10, 20, 40, 80, 160, 300, 300]


async def test_however_many_fail_at_once_they_are_one_episode(asked):
    gate = await asked(failures=16, concurrency=16, send_window=16)
    assert (gate["next_window"], gate["next_fail_streak"], gate["next_hold_until"]) == (1, 3, None)


async def test_a_lease_that_expired_says_nothing_about_the_destination(region):
    number = await region.subscriber("a", concurrency=8)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(8)))
    leases = await region.leased(8)
    await region.settle(*(result(each, Outcome.UNKNOWN, expired=True) for each in leases))
    row = await region.destination(number)
    assert (row["send_window"], row["fail_streak"], row["hold_until"], row["failing_since"]) == (8, 0, None, None)


async def test_throttling_that_names_no_time_pauses_from_one_second_up_to_a_minute(asked):
    pauses = []
    for streak in range(9):
        gate = await asked(throttle_streak=streak, throttles=1, throttled_plainly=True)
        pauses.append((gate["next_hold_until"] - NOW).total_seconds())
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_results_from_before_the_last_cut_neither_cut_again_nor_shorten_the_hold(region):
    number = await region.subscriber("a", concurrency=8)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(8)))
    leases: list[Lease] = await region.leased(8)
    await region.settle(result(leases[0], Outcome.THROTTLED, hold_seconds=60.0))
    first = await region.destination(number)
    assert (first["send_window"], first["probation"], first["hold_why"]) == (1, True, "throttled")
    await region.settle(
        result(leases[1], Outcome.THROTTLED, hold_seconds=5.0), *(result(each, Outcome.FAILED) for each in leases[2:6])
    )
    second = await region.destination(number)
    assert second["hold_until"] == first["hold_until"]
    assert (second["cut_at"], second["fail_streak"]) == (first["cut_at"], 0)
    await region.settle(*(result(each) for each in leases[6:]))
    third = await region.destination(number)
    assert (third["send_window"], third["probation"]) == (1, True), "old successes do not open the window either"


async def test_a_late_throttle_that_asks_for_longer_does_extend_the_hold(region):
    number = await region.subscriber("a", concurrency=2)
    await region.arrive(region.announcement("s-1"), region.announcement("s-2"))
    one, two = await region.leased(2)
    await region.settle(result(one, Outcome.THROTTLED, hold_seconds=5.0))
    first = await region.destination(number)
    await region.settle(result(two, Outcome.THROTTLED, hold_seconds=60.0))
    second = await region.destination(number)
    assert second["hold_until"] > first["hold_until"]


async def test_after_a_hold_one_probe_goes_first_and_then_traffic_opens_slowly(region):
    number = await region.subscriber("a", concurrency=4)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(20)))
    leases = await region.leased(4)
    await region.settle(*(result(each, Outcome.THROTTLED, hold_seconds=60.0) for each in leases))
    assert await region.promote() == []
    assert (await region.rows("SELECT sum(budget_used) AS used FROM {schema}.delivery"))[0]["used"] == 0
    await region.execute(
        "UPDATE {schema}.destination SET hold_until = clock_timestamp(), wake_at = clock_timestamp() WHERE id = $1",
        number,
    )
    in_flight = []
    for _ in range(4):
        leases = await region.claim(await region.promote())
        in_flight.append(len(leases))
        await region.settle(*(result(each) for each in leases))
    assert in_flight == [1, 2, 4, 4]
    assert not (await region.destination(number))["probation"]


@pytest.mark.parametrize(
    ("failing_for", "outcome", "closed"),
    [
        ("4 days 23 hours", Outcome.FAILED, False),
        ("5 days", Outcome.FAILED, True),
        ("5 days", Outcome.UNREACHABLE, True),
        ("5 days", Outcome.REJECTED, True),
        ("5 days", Outcome.THROTTLED, False),
        ("5 days", Outcome.DELIVERED, False),
    ],
)
async def test_five_days_of_failures_without_a_success_disable_a_destination(region, failing_for, outcome, closed):
    number = await region.subscriber("a")
    await region.arrive(region.announcement("s-1"), region.announcement("s-2"))
    leases = await region.leased(2)
    await region.execute(
        "UPDATE {schema}.destination SET failing_since = clock_timestamp() - $1::text::interval", failing_for
    )
    await region.settle(
        result(
            leases[0], outcome, **({"state": State.DEAD, "reason": "rejected"} if outcome is Outcome.REJECTED else {})
        )
    )
    destination = await region.destination(number)
    events = [row["kind"] for row in await region.rows("SELECT kind FROM {schema}.operator_event")]
    if closed:
        assert destination["disabled_why"] == "disabled"
        assert destination["disabled_by"] == "five days of failures without a success"
        assert events == ["destination_disabled"]
    else:
        assert destination["disabled_at"] is None
        assert events == []


async def test_one_success_starts_the_five_days_anew(region):
    number = await region.subscriber("a")
    await region.arrive(region.announcement("s-1"), region.announcement("s-2"))
    leases = await region.leased(2)
    await region.execute("UPDATE {schema}.destination SET failing_since = clock_timestamp() - interval '6 days'")
    await region.settle(result(leases[0]))
    assert (await region.destination(number))["failing_since"] is None
    await region.settle(result(leases[1], Outcome.FAILED))
    assert (await region.destination(number))["disabled_at"] is None
