"""What a change of settings does to the gate, and what an operator can order."""

import pytest

from fanout.ledger.registry import UnknownSubscriber, disable, enable, pause, resume, save, tune
from fanout.ledger.registry_reading import changes_of, show

TROUBLED = """
    UPDATE {schema}.destination SET send_window = 1, probation = true, fail_streak = 7, failing_since = now() - interval '1 day',
           hold_until = now() + interval '1 hour', hold_why = 'failing', cut_at = now() - interval '1 minute', waiting = 3
"""


@pytest.fixture
async def acme(eu, wish):
    await save(eu.connection, eu.schema, "acme", wish(concurrency=8), by="ann")
    return eu


async def tuned(place, **limits):
    return await tune(place.connection, place.schema, "acme", **limits, by="ann")


async def test_lowering_the_concurrency_cuts_the_window_at_once(acme):
    await tuned(acme, concurrency=3)
    gate = await acme.gate("acme")
    assert (gate["concurrency"], gate["send_window"], gate["config_version"]) == (3, 3, 2)


async def test_lowering_the_concurrency_leaves_a_smaller_window_alone(acme):
    await acme.run("UPDATE {schema}.destination SET send_window = 2")
    await tuned(acme, concurrency=3)
    assert (await acme.gate("acme"))["send_window"] == 2


async def test_a_healthy_destination_gets_a_raised_limit_at_once_and_is_looked_at(acme):
    await acme.run("UPDATE {schema}.destination SET waiting = 5")
    await tuned(acme, concurrency=20)
    gate = await acme.gate("acme")
    assert (gate["send_window"], gate["wake_at"] <= gate["now"]) == (20, True)


@pytest.mark.parametrize(
    "state", ["send_window = 4", "probation = true, send_window = 8", "probation = true, send_window = 1"]
)
async def test_a_destination_that_was_cut_grows_into_a_raised_limit_by_its_own_successes(acme, state):
    await acme.run(f"UPDATE {{schema}}.destination SET {state}")
    before = (await acme.gate("acme"))["send_window"]
    await tuned(acme, concurrency=20)
    assert (await acme.gate("acme"))["send_window"] == before


async def test_a_held_destination_is_looked_at_when_its_hold_ends_and_not_before(acme):
    await acme.run(TROUBLED)
    await tuned(acme, concurrency=20)
    gate = await acme.gate("acme")
    assert gate["wake_at"] == gate["hold_until"] > gate["now"]


async def test_a_destination_without_waiting_work_is_not_woken(acme):
    await tuned(acme, concurrency=20)
    assert (await acme.gate("acme"))["wake_at"] is None


async def test_a_faster_rate_does_not_wait_for_the_slot_of_the_slower_one(acme):
    await tuned(acme, rate_per_second=0.001)
    assert (await acme.gate("acme"))["rate_next_at"] is None
    await acme.run("UPDATE {schema}.destination SET rate_next_at = now() + interval '1000 s'")
    await tuned(acme, rate_per_second=2)
    gate = await acme.gate("acme")
    assert (gate["rate_next_at"] - gate["now"]).total_seconds() <= 0.5
    await tuned(acme, rate_per_second=None)
    gate = await acme.gate("acme")
    assert (gate["rate_next_at"], gate["rate_per_second"]) == (None, None)


async def test_tuning_one_limit_keeps_the_other(acme):
    await tuned(acme, rate_per_second=5)
    await tuned(acme, concurrency=2)
    gate = await acme.gate("acme")
    assert (gate["concurrency"], gate["rate_per_second"]) == (2, 5)


async def test_tuning_to_what_is_there_changes_nothing(acme):
    saved = await tuned(acme, concurrency=8, rate_per_second=None)
    assert (saved.change, saved.config_version) == ("unchanged", 1)


async def test_a_new_endpoint_starts_with_an_open_gate(acme, wish):
    await acme.run(TROUBLED)
    await save(acme.connection, acme.schema, "acme", wish(concurrency=8, endpoint="https://new.example.com/"), by="ann")
    gate = await acme.gate("acme")
    assert (gate["send_window"], gate["probation"], gate["fail_streak"], gate["failing_since"]) == (8, False, 0, None)
    assert (gate["hold_until"], gate["hold_why"]) == (None, None)
    assert gate["wake_at"] <= gate["now"]


async def test_what_was_leased_for_the_old_endpoint_says_nothing_about_the_new_one(acme, wish):
    await save(acme.connection, acme.schema, "acme", wish(concurrency=8, endpoint="https://new.example.com/"), by="ann")
    leased_at = (await acme.one("SELECT now() - interval '1 second' AS moment"))["moment"]
    assert (await acme.gate("acme"))["cut_at"] > leased_at


async def test_another_change_leaves_a_troubled_gate_closed(acme, wish):
    await acme.run(TROUBLED)
    await save(acme.connection, acme.schema, "acme", wish(concurrency=8, headers={"X-A": "b"}), by="ann")
    gate = await acme.gate("acme")
    assert (gate["send_window"], gate["probation"], gate["fail_streak"], gate["hold_why"]) == (1, True, 7, "failing")
    shown = await show(acme.connection, acme.schema, "eu", "acme")
    assert (shown.status, shown.gate.hold_why, 3590 < shown.gate.held_for_seconds <= 3600) == ("held", "failing", True)


async def test_pausing_says_who_and_why_and_repeating_it_changes_nothing(acme):
    assert await pause(acme.connection, acme.schema, "acme", by="bob", why="they are moving")
    assert not await pause(acme.connection, acme.schema, "acme", by="bob", why="they are moving")
    shown = await show(acme.connection, acme.schema, "eu", "acme")
    assert (shown.status, shown.gate.paused_by, shown.gate.paused_why) == ("paused", "bob", "they are moving")
    assert shown.config_version == 2
    assert await pause(acme.connection, acme.schema, "acme", by="eve", why="still moving")
    assert (await show(acme.connection, acme.schema, "eu", "acme")).gate.paused_at == shown.gate.paused_at
    newest = (await changes_of(acme.connection, acme.schema, "acme"))[0]
    assert (newest.changed_by, newest.change) == ("eve", {"action": "pause", "why": "still moving"})


async def test_resuming_wakes_what_waits(acme):
    await acme.run("UPDATE {schema}.destination SET waiting = 5")
    await pause(acme.connection, acme.schema, "acme", by="bob", why="they are moving")
    assert await resume(acme.connection, acme.schema, "acme", by="bob")
    assert not await resume(acme.connection, acme.schema, "acme", by="bob")
    gate = await acme.gate("acme")
    assert (gate["paused_at"], gate["paused_by"], gate["wake_at"] <= gate["now"]) == (None, None, True)


async def test_disabling_and_enabling(acme):
    await acme.run(TROUBLED)
    assert await disable(acme.connection, acme.schema, "acme", by="bob", why="contract ended")
    assert not await disable(acme.connection, acme.schema, "acme", by="bob")
    shown = await show(acme.connection, acme.schema, "eu", "acme")
    assert (shown.status, shown.gate.disabled_why, shown.gate.disabled_by) == ("disabled", "disabled", "bob")
    assert await enable(acme.connection, acme.schema, "acme", by="bob")
    assert not await enable(acme.connection, acme.schema, "acme", by="bob")
    gate = await acme.gate("acme")
    assert (gate["disabled_at"], gate["send_window"], gate["hold_until"], gate["probation"]) == (None, 8, None, False)


@pytest.mark.parametrize("order", [pause, resume, disable, enable])
async def test_an_order_for_nobody_is_an_error(eu, order):
    with pytest.raises(UnknownSubscriber, match="there is no subscriber nobody in this region"):
        await order(eu.connection, eu.schema, "nobody", by="bob", why="why not")


async def test_tuning_nobody_is_an_error(eu):
    with pytest.raises(UnknownSubscriber):
        await tuned(eu, concurrency=3)
