"""The figures that a region is watched by: above all, how long its customers have been waiting."""

import pytest

from fanout.ledger.books import region_figures
from fanout.ledger.registry import delete, disable, pause

HOUR_AGO = "now() - interval '1 h'"
MINUTE_AGO = "now() - interval '1 min'"


@pytest.fixture
async def region(eu):
    await eu.subscribe("acme", "bank")
    for number in range(1, 7):
        await eu.version(number)
    return eu


async def figures(place):
    return await region_figures(place.connection, place.schema)


async def test_nothing_due_is_no_age(region):
    await region.delivery(1, "acme", eligible_at="now() + interval '1 h'")
    await region.delivery(2, "acme", "delivered", eligible_at=HOUR_AGO)
    await region.delivery(3, "acme", "dead", eligible_at=HOUR_AGO)
    assert (await figures(region)).oldest_due_age_seconds == 0


@pytest.mark.parametrize("state", ["waiting", "queued", "leased"])
async def test_the_oldest_due_delivery_counts_in_whatever_open_state(region, state):
    await region.delivery(1, "acme", state, eligible_at=HOUR_AGO)
    await region.delivery(2, "bank", "queued", eligible_at=MINUTE_AGO)
    await region.delivery(3, "bank", "leased", eligible_at=MINUTE_AGO)
    await region.delivery(4, "bank", "waiting", eligible_at=MINUTE_AGO)
    assert 3600 <= (await figures(region)).oldest_due_age_seconds < 3610


async def test_what_waits_behind_an_earlier_version_is_not_due(region):
    await region.delivery(1, "acme", eligible_at=MINUTE_AGO, ordered="true")
    await region.delivery(2, "acme", eligible_at=HOUR_AGO, ordered="true", blocked="true")
    assert 60 <= (await figures(region)).oldest_due_age_seconds < 70


async def test_the_customers_of_a_paused_or_held_destination_are_waiting_too(region):
    await region.delivery(1, "acme", eligible_at=HOUR_AGO)
    await pause(region.connection, region.schema, "acme", by="ann", why="moving")
    await region.run("UPDATE {schema}.destination SET hold_until = now() + interval '1 h'")
    now = await figures(region)
    assert (now.held_destinations, now.paused_destinations) == (2, 1)
    assert now.oldest_due_age_seconds >= 3600


async def test_a_hold_that_is_over_is_no_hold(region):
    await region.run("UPDATE {schema}.destination SET hold_until = now() - interval '1 s'")
    assert (await figures(region)).held_destinations == 0


async def test_nobody_waits_at_a_closed_destination(region):
    await region.delivery(1, "acme", eligible_at=HOUR_AGO)
    await region.delivery(1, "bank", eligible_at=HOUR_AGO)
    await disable(region.connection, region.schema, "acme", by="ann")
    await delete(region.connection, region.schema, ["bank"], by="ann")
    now = await figures(region)
    assert (now.oldest_due_age_seconds, now.closed_destinations, now.waiting) == (0, 1, 2)


async def test_states_and_marks_are_summed_over_all_destinations(region):
    for number, state in enumerate(["waiting", "queued", "leased", "delivered", "dead"], start=1):
        await region.delivery(number, "acme", state)
    await region.delivery(6, "bank", "delivered")
    await region.run("UPDATE {schema}.destination SET unknown_attempts = 2, late_results = 1")
    now = await figures(region)
    assert (now.waiting, now.queued, now.leased, now.delivered, now.dead) == (1, 1, 1, 2, 1)
    assert (now.open, now.accepted, now.adds_up, now.unknown_attempts, now.late_results) == (3, 6, True, 4, 2)


async def test_the_age_of_the_queue_is_that_of_its_oldest_reference(region):
    await region.delivery(1, "acme", "queued", queued_at=MINUTE_AGO)
    await region.delivery(2, "acme", "queued")
    assert 60 <= (await figures(region)).queue_age_seconds < 70


async def test_the_figures_of_a_big_region_look_at_few_deliveries_and_scan_none(many):
    async with many.counting_reads("delivery") as read:
        assert (await figures(many)).oldest_due_age_seconds > 0
    assert read.scans == 0
    assert read.rows <= 2_000  # what is queued and leased, and one for each destination that has something waiting


# ---- what could go


async def ready_age(place) -> float:
    return round((await figures(place)).oldest_ready_age_seconds, -1)


@pytest.mark.parametrize("state", ["waiting", "queued"])
async def test_what_is_due_and_hindered_by_nothing_could_go(region, state):
    await region.delivery(1, "acme", state, eligible_at=HOUR_AGO)
    assert await ready_age(region) == 3600


@pytest.mark.parametrize(
    "hindrance",
    [
        "hold_until = now() + interval '1 h'",
        "paused_at = now(), paused_by = 'ann'",
        "disabled_at = now(), disabled_why = 'gone', disabled_by = 'ann'",
        "in_flight = concurrency",
        "send_window = 1, in_flight = 1",
        "rate_per_second = 0.01, rate_next_at = now() + interval '1 min'",
        "probation = true",
    ],
)
@pytest.mark.parametrize("state", ["waiting", "queued"])
async def test_what_is_hindered_could_not_go_and_keeps_nobody_elses_age_from_being_told(region, state, hindrance):
    await region.delivery(1, "acme", state, eligible_at=HOUR_AGO)
    await region.run(f"UPDATE {{schema}}.destination SET {hindrance} WHERE id = 1")
    assert await ready_age(region) == 0
    await region.delivery(1, "bank", state, eligible_at=MINUTE_AGO)
    assert await ready_age(region) == 60


@pytest.mark.parametrize("mark", ["hold_until", "cut_at", "last_success_at"])
async def test_it_could_go_only_since_the_last_hindrance_ended_or_something_got_through(region, mark):
    await region.delivery(1, "acme", eligible_at=HOUR_AGO)
    await region.run(f"UPDATE {{schema}}.destination SET {mark} = {MINUTE_AGO}")
    assert await ready_age(region) == 60


async def test_what_is_not_due_or_behind_another_could_not_go(region):
    await region.delivery(1, "acme", eligible_at="now() + interval '1 h'")
    await region.delivery(2, "bank", eligible_at=HOUR_AGO, ordered="true", blocked="true")
    await region.delivery(3, "bank", "leased", eligible_at=HOUR_AGO)
    assert await ready_age(region) == 0
