"""Lists are newest first, page without gaps or repeats, and read little of a big table."""

import itertools

import pytest

from fanout.ledger.inspection import list_deliveries
from fanout.model.states import Reason, State

SUBSCRIBERS = ["acme", "bank", "carrier"]
STATES = ["waiting", "queued", "leased", "delivered", "dead"]


@pytest.fixture
async def few(eu):
    """Three subscribers, ten versions of two shipments; 30 deliveries in every state, the older versions older by an hour each."""
    await eu.subscribe(*SUBSCRIBERS)
    states = itertools.cycle(STATES)
    for number in range(1, 11):
        await eu.version(number, f"S{number % 2}", number, age_seconds=3600 * (10 - number))
        for subscriber_id in SUBSCRIBERS:
            state = next(states)
            reason = {"reason": "'gone'" if number % 3 else "'exhausted'"} if state == "dead" else {}
            await eu.delivery(number, subscriber_id, state, **reason)
    await eu.version(99, "S9", 99)
    await eu.version(100, "S9", 100)
    await eu.delivery(99, "acme", ordered="true")
    await eu.delivery(100, "acme", ordered="true", blocked="true")
    return eu


FILTERS = [
    {},
    {"subscriber_id": "acme"},
    {"shipment_id": "S1"},
    {"shipment_id": "S1", "subscriber_id": "bank"},
    {"reason": Reason.GONE},
    {"reason": Reason.GONE, "subscriber_id": "bank"},
    {"reason": Reason.GONE, "shipment_id": "S1"},
    {"reason": Reason.GONE, "state": State.DEAD},
    {"older_than_seconds": 7000},
    {"older_than_seconds": 7000, "subscriber_id": "bank", "state": State.DELIVERED},
    *({"state": State(state)} for state in STATES),
    *({"state": State(state), "subscriber_id": "acme"} for state in STATES),
    *({"state": State(state), "shipment_id": "S1"} for state in STATES),
    {"subscriber_id": "nobody"},
    {"shipment_id": "nothing"},
    {"state": State.WAITING, "reason": Reason.GONE},
]


def passes(row, subscriber_id=None, shipment_id=None, state=None, reason=None, older_than_seconds=None):
    wanted = {"subscriber_id": subscriber_id, "shipment_id": shipment_id, "state": state, "reason": reason}
    return all(value is None or row[name] == value for name, value in wanted.items()) and (
        older_than_seconds is None or row["age"] > older_than_seconds
    )


async def test_a_filter_lets_through_exactly_what_it_names_newest_first(few):
    rows = await few.connection.fetch(
        few.schema.sql("""
        SELECT y.id, s.subscriber_id, v.shipment_id, y.state::text, y.reason::text, extract(epoch FROM now() - v.accepted_at) AS age
        FROM {schema}.delivery y JOIN {schema}.version v USING (version_no) JOIN {schema}.subscriber s ON s.id = y.destination_id
        ORDER BY y.id DESC
    """)
    )
    for filters in FILTERS:
        expected = [row["id"] for row in rows if passes(row, **filters)]
        page = await list_deliveries(few.connection, few.schema, **filters, limit=500)
        assert [d.delivery_id for d in page.items] == expected, filters
        assert page.next_cursor is None
        assert bool(expected) == (filters not in FILTERS[-3:]), filters


async def test_pages_join_without_gaps_or_repeats(few):
    for filters in FILTERS:
        whole = await list_deliveries(few.connection, few.schema, **filters, limit=500)
        pages = await all_pages(few, filters)
        assert [d.key for d in pages] == [d.key for d in whole.items], filters


async def all_pages(place, filters):
    page = await list_deliveries(place.connection, place.schema, **filters, limit=2)
    pages = page.items
    while page.next_cursor is not None:
        assert len(page.items) == 2
        page = await list_deliveries(place.connection, place.schema, **filters, cursor=page.next_cursor, limit=2)
        pages = pages + page.items
    return pages


LITTLE = [
    ({}, 300),
    ({"subscriber_id": "s050"}, 600),
    ({"shipment_id": "S20"}, 2_000),
    ({"shipment_id": "S20", "subscriber_id": "s050"}, 20),
    ({"state": State.DEAD}, 300),
    ({"state": State.DEAD, "reason": Reason.GONE}, 1_300),
    ({"reason": Reason.GONE, "subscriber_id": "s050"}, 1_000),
    ({"state": State.DEAD, "subscriber_id": "s050"}, 1_000),
    ({"state": State.DELIVERED, "subscriber_id": "s050"}, 1_000),
    ({"state": State.WAITING, "subscriber_id": "s050"}, 200),
    ({"state": State.WAITING}, 8_000),
    ({"state": State.QUEUED}, 500),
    ({"state": State.LEASED, "subscriber_id": "s040"}, 500),
]


async def test_a_list_of_a_big_table_reads_little_of_it_and_never_scans_it(many):
    too_much = {}
    for filters, rows_max in LITTLE:
        async with many.counting_reads("delivery") as read:
            assert (await list_deliveries(many.connection, many.schema, **filters)).items, filters
        if read.scans or read.rows > rows_max:
            too_much[str(filters)] = f"{read.rows} rows, of at most {rows_max}, and {read.scans} scans"
    assert too_much == {}
