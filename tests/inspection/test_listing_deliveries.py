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


@pytest.fixture
async def many(eu):
    """40,000 deliveries of 200 versions to 200 subscribers: most are delivered, one in forty is dead, the last versions are open."""
    await eu.subscribe(*(f"s{n:03}" for n in range(200)))
    await eu.run("""
        INSERT INTO {schema}.version (version_no, shipment_no, shipment_id, version, accepted_at, eligible_at)
        SELECT n, n / 4, 'S' || n / 4, n, now() - interval '1 h', now() - interval '1 h' FROM generate_series(1, 200) AS n
    """)
    await eu.run("""
        INSERT INTO {schema}.delivery (version_no, shipment_no, version, destination_id, eligible_at, aged_from, state, reason, finished_at,
                                       queued_at, worker, lease_until)
        SELECT n, n / 4, n, d.id, now(), now() - interval '1 h', t.state::{schema}.delivery_state,
               CASE WHEN t.state = 'dead' THEN (CASE n % 3 WHEN 0 THEN 'gone' ELSE 'exhausted' END)::{schema}.death_reason END,
               CASE WHEN t.state IN ('delivered', 'dead') THEN now() END, CASE WHEN t.state = 'queued' THEN now() END,
               CASE WHEN t.state = 'leased' THEN 'w' END, CASE WHEN t.state = 'leased' THEN now() END
        FROM generate_series(1, 200) AS n CROSS JOIN {schema}.destination d
        CROSS JOIN LATERAL (SELECT CASE WHEN n > 180 AND d.id % 20 = 0 THEN 'queued' WHEN n > 180 AND d.id % 20 = 1 THEN 'leased'
                                        WHEN n > 180 THEN 'waiting' WHEN (n + d.id) % 40 = 0 THEN 'dead' ELSE 'delivered' END) AS t(state)
        ORDER BY n, d.id
    """)
    await eu.run("""
        UPDATE {schema}.destination d SET waiting = c.waiting
        FROM (SELECT destination_id, count(*) AS waiting FROM {schema}.delivery WHERE state = 'waiting' GROUP BY 1) AS c
        WHERE c.destination_id = d.id
    """)
    await eu.run("VACUUM ANALYZE {schema}.delivery")
    await eu.run("ANALYZE {schema}.version")
    await eu.run("ANALYZE {schema}.destination")
    return eu


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
READ = """
    SELECT seq_scan, seq_tup_read + idx_tup_fetch AS rows FROM pg_stat_xact_user_tables WHERE relid = $1::regclass
"""


async def test_a_list_of_a_big_table_reads_little_of_it_and_never_scans_it(many):
    """Counted by PostgreSQL itself while the list is made: rows of the delivery table that were read, and scans of all of it."""
    too_much = {}
    for filters, rows_max in LITTLE:
        async with many.connection.transaction():
            before = await many.connection.fetchrow(READ, "fanout_eu.delivery")
            assert (await list_deliveries(many.connection, many.schema, **filters)).items, filters
            after = await many.connection.fetchrow(READ, "fanout_eu.delivery")
        if after["seq_scan"] > before["seq_scan"] or after["rows"] - before["rows"] > rows_max:
            too_much[str(filters)] = f"{after['rows'] - before['rows']} rows, of at most {rows_max}"
    assert too_much == {}
