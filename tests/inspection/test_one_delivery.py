"""One delivery with its timeline, from the ledger alone."""

import pytest

from fanout.ledger.inspection import list_deliveries, show_delivery, version_counts
from fanout.ledger.registry import delete, pause
from fanout.ledger.why_waiting import Wait
from fanout.model.states import Outcome, Reason, State

FIELDS = (
    "key region subscriber_id shipment_id version event_type state reason attempts budget_used eligible_at accepted_at finished_at "
    "waits_for trace_id webhook_id attempt_list"
)
ATTEMPT_FIELDS = (
    "n outcome status started_at duration_ms config_version error retry_after_seconds late response_excerpt"
)


@pytest.fixture
async def acme(eu):
    await eu.subscribe("acme", ordering="per_shipment")
    await eu.version(1, "S1", 7)
    return eu


async def show(place, version=7):
    return await show_delivery(place.connection, place.schema, "S1", "acme", version)


async def test_a_delivery_shows_every_promised_field(acme):
    delivery_id = await acme.delivery(1, "acme", "dead", attempts="2", budget_used="1")
    await acme.run(
        "INSERT INTO {schema}.attempt (delivery_id, n, token, outcome, status, started_at, duration_ms, config_version, "
        "retry_after_seconds, response_excerpt) VALUES ($1, 1, 1, 'throttled', 429, now(), 12, 3, 0.1, '\\xff')",
        delivery_id,
    )
    document = (await show(acme)).document("eu")
    assert list(document) == FIELDS.split()
    assert document["key"] == "shipment:S1:subscriber:acme:version:7"
    assert (document["state"], document["reason"], document["waits_for"]) == ("dead", "exhausted", None)
    assert (document["event_type"], document["trace_id"]) == ("shipment.moved", "ab" * 16)
    assert document["webhook_id"].startswith("msg_")
    assert document["accepted_at"].endswith("Z")
    (attempt,) = document["attempt_list"]
    assert list(attempt) == ATTEMPT_FIELDS.split()
    assert (attempt["outcome"], attempt["status"], attempt["retry_after_seconds"]) == ("throttled", 429, 0.1)
    assert (attempt["late"], attempt["response_excerpt"]) == (False, "\N{REPLACEMENT CHARACTER}")


async def test_the_timeline_has_late_results_after_the_attempt_that_they_belong_to(acme):
    delivery_id = await acme.delivery(1, "acme", "delivered", attempts="2")
    await acme.run(
        "INSERT INTO {schema}.late_result (delivery_id, n, token, outcome, status, duration_ms, worker) "
        "VALUES ($1, 1, 1, 'delivered', 200, 40000, 'w1')",
        delivery_id,
    )
    await acme.run(
        "INSERT INTO {schema}.attempt (delivery_id, n, token, outcome, status, started_at, duration_ms, expired, worker) "
        "VALUES ($1, 2, 2, 'delivered', 200, now(), 9, false, 'w2'), ($1, 1, 1, 'unknown', NULL, now(), 30000, true, 'w1')",
        delivery_id,
    )
    attempts = (await show(acme)).attempt_list
    assert [(a.n, a.outcome, a.late, a.expired) for a in attempts] == [
        (1, Outcome.UNKNOWN, False, True),
        (1, Outcome.DELIVERED, True, False),
        (2, Outcome.DELIVERED, False, False),
    ]


async def test_a_delivery_that_is_not_there_is_none(acme):
    assert await show(acme) is None
    await acme.delivery(1, "acme")
    assert await show(acme, version=8) is None
    assert (await show(acme)).attempt_list == ()


async def test_a_forbidden_delivery_shows_its_key_and_its_reason_and_nothing_else(acme):
    await acme.run(
        "UPDATE {schema}.version SET forbidden = true, event_type = NULL, payload = NULL, labels = NULL, traceparent = NULL"
    )
    await acme.delivery(1, "acme", "dead", reason="'residency'")
    shown = await show(acme)
    assert (shown.reason, shown.event_type, shown.trace_id) == (Reason.RESIDENCY, None, None)


async def test_the_deliveries_of_a_deleted_subscriber_can_still_be_looked_at(acme):
    await acme.delivery(1, "acme")
    await delete(acme.connection, acme.schema, ["acme"], by="ann")
    assert (await show(acme)).why.code is Wait.DISABLED


async def test_it_says_behind_which_version_it_waits(acme):
    for number, version in ((2, 8), (3, 9)):
        await acme.version(number, "S1", version)
    await acme.delivery(1, "acme", ordered="true")
    await acme.delivery(2, "acme", ordered="true", blocked="true")
    await acme.delivery(3, "acme", ordered="true", blocked="true")
    assert "behind version 7 " in (await show(acme, 9)).why.sentence
    await acme.run("UPDATE {schema}.delivery SET state = 'delivered', finished_at = now() WHERE version_no = 1")
    assert "behind version 8 " in (await show(acme, 9)).why.sentence


async def test_it_says_who_paused_it_and_why(acme):
    await acme.delivery(1, "acme")
    await pause(acme.connection, acme.schema, "acme", by="ann", why="they are moving")
    shown = await show(acme)
    assert shown.document("eu")["waits_for"] == {"code": "paused", "sentence": "paused by ann: they are moving"}


@pytest.mark.parametrize(
    ("state", "columns", "code"),
    [
        ("waiting", {}, Wait.SCHEDULER),
        ("waiting", {"eligible_at": "now() + interval '1 h'"}, Wait.NOT_DUE),
        ("queued", {}, Wait.CONSUMER),
        ("leased", {}, Wait.ANSWER),
        ("delivered", {}, Wait.ENDED),
    ],
)
async def test_the_facts_come_from_the_rows(acme, state, columns, code):
    await acme.delivery(1, "acme", state, **columns)
    assert (await show(acme)).why.code is code
    listed = await list_deliveries(acme.connection, acme.schema)
    assert [d.why.code for d in listed.items] == [code]
    assert listed.items[0].attempt_list is None


async def test_a_version_tells_how_far_it_has_come(acme):
    await acme.subscribe("b", "c", "d", "e", "f")
    for subscriber_id, state in zip("bcdef", ["queued", "leased", "delivered", "dead", "delivered"], strict=True):
        await acme.delivery(1, subscriber_id, state)
    await acme.delivery(1, "acme", "waiting")
    counts = await version_counts(acme.connection, acme.schema, "S1", 7)
    assert (counts.expanded, counts.created, counts.waiting) == (True, 6, 1)
    assert (counts.queued, counts.leased, counts.delivered, counts.dead) == (1, 1, 2, 1)
    assert await version_counts(acme.connection, acme.schema, "S1", 8) is None


async def test_state_is_the_word_of_the_model(acme):
    await acme.delivery(1, "acme", "leased")
    assert (await show(acme)).state is State.LEASED


async def test_a_retry_says_what_its_last_attempt_came_to(acme):
    delivery_id = await acme.delivery(1, "acme", attempts="2", budget_used="2", eligible_at="now() + interval '1 h'")
    await acme.run(
        "INSERT INTO {schema}.attempt (delivery_id, n, token, outcome, status, started_at, duration_ms, error) "
        "VALUES ($1, 1, 1, 'failed', 500, now(), 1, NULL), ($1, 2, 2, 'unreachable', NULL, now(), 1, 'connection refused')",
        delivery_id,
    )
    assert (await show(acme)).why.sentence.endswith(": a retry, attempt 2 ended as unreachable (connection refused)")


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("in_flight = 4, queued = 4", Wait.WINDOW),
        ("in_flight = 4, queued = 3, wake_at = NULL", Wait.WINDOW),
        ("in_flight = 4, queued = 2, wake_at = NULL", Wait.SCHEDULER),
        ("send_window = 1, probation = true, in_flight = 1", Wait.WINDOW),
        ("rate_per_second = 0.5, rate_next_at = now() + interval '1 min'", Wait.RATE),
        ("rate_per_second = 0.5, rate_next_at = now() - interval '1 min'", Wait.SCHEDULER),
    ],
)
async def test_whether_the_gate_has_room_is_what_the_gate_itself_says(acme, gate, code):
    await acme.delivery(1, "acme")
    await acme.run("UPDATE {schema}.destination SET " + gate)
    assert (await show(acme)).why.code is code


async def test_work_that_no_scheduler_looks_at_asks_whether_one_is_running(acme):
    await acme.delivery(1, "acme", eligible_at="now() - interval '1 h'")
    await acme.run("UPDATE {schema}.destination SET wake_at = now() - interval '10 min'")
    assert "is one running?" in (await show(acme)).why.sentence
    await acme.run("UPDATE {schema}.destination SET wake_at = now()")
    assert "is one running?" not in (await show(acme)).why.sentence
