"""From a version to one delivery per subscriber that wants it: matching, chunks, books, repeats."""

import asyncio

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fanout.ledger.expansion import expand, wanted
from fanout.model.patterns import labels_match, pattern_candidates, pattern_matches

words = st.text("abAB01._-~", min_size=1, max_size=8)
SQL = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SQL
@given(event_type=words)
async def test_the_database_tries_the_patterns_that_the_reference_tries(region, event_type):
    assert set(await region.value("SELECT {schema}.pattern_candidates($1)", event_type)) == set(
        pattern_candidates(event_type)
    )
    assert all(pattern_matches(each, event_type) for each in pattern_candidates(event_type))


@SQL
@given(
    wanted_labels=st.dictionaries(
        st.sampled_from("abc"), st.lists(st.sampled_from(["x", "y", "ü", ""]), max_size=3), max_size=3
    ),
    labels=st.dictionaries(st.sampled_from("abc"), st.sampled_from(["x", "y", "ü"]), max_size=3),
)
async def test_the_database_matches_labels_as_the_reference_does(region, wanted_labels, labels):
    import json

    answer = await region.value("SELECT {schema}.labels_match($1, $2)", json.dumps(wanted_labels), json.dumps(labels))
    assert answer is labels_match(wanted_labels, labels)


async def test_who_wants_a_version_gets_it_and_nobody_else(region):
    await region.subscriber("all", event_types=["*"])
    await region.subscriber("shipments", event_types=["shipment.*"])
    await region.subscriber("twice", event_types=["shipment.*", "shipment.booked"])
    await region.subscriber("exactly", event_types=["shipment.booked"])
    await region.subscriber("others", event_types=["shipment.arrived", "invoice.*"])
    await region.subscriber("united", labels={"carrier": ["UA", "AA"], "destination": ["ORD"]})
    await region.subscriber("delta", labels={"carrier": ["DL"]})
    [page] = await region.arrive(region.announcement(labels='{"carrier": "UA", "destination": "ORD", "more": "x"}'))
    assert (page.created, page.done) == (5, True)
    names = await region.rows(
        "SELECT s.subscriber_id FROM {schema}.delivery y JOIN {schema}.subscriber s ON s.id = y.destination_id ORDER BY 1"
    )
    assert [row[0] for row in names] == ["all", "exactly", "shipments", "twice", "united"]


async def test_a_region_says_whether_it_wants_a_version_from_metadata_alone(region):
    await region.subscriber("united", labels={"carrier": ["UA"]})
    notes = [
        region.announcement(labels='{"carrier": "UA"}'),
        region.announcement(labels='{"carrier": "DL"}'),
        region.announcement(event_type="invoice.sent", labels='{"carrier": "UA"}'),
    ]
    assert await wanted(region.connection, region.schema, notes) == [True, False, False]
    assert await wanted(region.connection, region.schema, []) == []


async def test_a_subscriber_created_after_the_version_was_accepted_is_left_out(region):
    await region.subscriber("old")
    number = await region.subscriber("new")
    await region.execute("UPDATE {schema}.subscriber SET created_at = now() WHERE id = $1", number)
    [page] = await region.arrive(region.announcement("before", age_seconds=60.0))
    assert page.created == 1
    [page] = await region.arrive(region.announcement("after"))
    assert page.created == 2


async def test_expansion_resumes_where_it_stopped_and_creates_each_delivery_once(region):
    for number in range(25):
        await region.subscriber(f"d-{number}")
    notes = [region.announcement("s-1"), region.announcement("s-2"), region.announcement("s-3")]
    pages = await region.arrive(*notes, budget=10)
    rounds = 1
    while not all(page.done for page in pages):
        pages = await expand(region.connection, region.schema, notes, 10)
        rounds += 1
    assert [(page.created, page.done) for page in pages] == [(25, True)] * 3
    assert rounds == 8
    assert await region.value("SELECT count(*) FROM {schema}.delivery") == 75


async def test_publishers_that_expand_one_version_at_once_create_each_delivery_once(region, database_url):
    for number in range(30):
        await region.subscriber(f"d-{number}")
    note = region.announcement()
    await region.arrive(note, budget=1)
    connections = [await asyncpg.connect(database_url) for _ in range(4)]

    async def finish(connection):
        while not (await expand(connection, region.schema, [note], 7))[0].done:
            pass

    try:
        await asyncio.gather(*map(finish, connections))
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))
    assert await region.value("SELECT count(*) FROM {schema}.delivery") == 30
    assert await region.value("SELECT created FROM {schema}.expansion") == 30


async def test_a_forbidden_version_leaves_its_key_and_reason_and_nothing_else(region):
    await region.subscriber("a")
    await region.arrive(region.announcement(labels='{"carrier": "UA"}'), forbidden=True, payload=b"secret")
    [delivery] = await region.rows("SELECT * FROM {schema}.delivery")
    assert (delivery["state"], delivery["reason"]) == ("dead", "residency")
    [version] = await region.rows("SELECT * FROM {schema}.version")
    assert [version[name] for name in ("payload", "event_type", "labels", "content_type")] == [None] * 4


async def test_deliveries_for_a_disabled_destination_are_dead_from_the_start_and_counted(region):
    number = await region.subscriber("a")
    await region.execute("UPDATE {schema}.destination SET disabled_at = now(), disabled_why = 'gone'")
    [page] = await region.arrive(region.announcement())
    assert page.created == 1
    [delivery] = await region.rows("SELECT * FROM {schema}.delivery")
    assert (delivery["state"], delivery["reason"]) == ("dead", "disabled")
    assert (await region.destination(number))["dead"] == 1


async def test_a_delayed_version_becomes_due_when_the_publisher_said(region):
    number = await region.subscriber("a")
    await region.arrive(region.announcement(delay_seconds=3600.0))
    assert await region.promote() == []
    assert (await region.destination(number))["wake_at"] > await region.value("SELECT now() + interval '59 minutes'")


async def test_the_same_version_number_with_another_identity_is_refused(region):
    await region.subscriber("a")
    note = region.announcement("s-1")
    await region.arrive(note)
    with pytest.raises(asyncpg.UniqueViolationError):
        await region.arrive(region.announcement("s-1"))
