"""P1: nothing accepted is lost, and two books prove it. Each way of losing something makes them disagree."""

from dataclasses import replace

import asyncpg
import pytest

from fanout.database.connection import open_pool
from fanout.database.schema import Schema
from fanout.home import outbox
from fanout.home.inspection import finished_pages, home_version
from fanout.home.publishing import publish_many
from fanout.home.registry import set_regions
from fanout.ledger.books import UnconfirmedPage, recount, region_figures
from fanout.ledger.expansion import Copy, copy_versions, expand
from fanout.model.shipment import ShipmentVersion
from fanout.reconciliation import Disagreement, balanced, compare, status_document

FIGURES = "accepted delivered dead open waiting queued leased oldest_due_age_seconds held_destinations outbox_pending unknown_attempts late_results"


async def publish(home, *versions, event_type="shipment.moved"):
    await set_regions(home.connection, home.schema, ["eu"])
    shipments = [ShipmentVersion("S1", version, event_type, b"hello") for version in versions]
    await publish_many(home.connection, shipments, schema=home.schema)


async def expand_all(home, eu, *, finish=True):
    """What a publisher does for a region, until nothing is pending."""
    while rows := await outbox.take(home.connection, home.schema, "eu", 100, 0):
        notes = [row.announcement for row in rows]
        copies = [Copy(note, False, "text/plain", b"hello", f"00-{'ab' * 16}-{'cd' * 8}-01") for note in notes]
        await copy_versions(eu.connection, eu.schema, copies)
        pages = await expand(eu.connection, eu.schema, notes, 1000)
        if not finish:
            return
        await outbox.finish(home.connection, home.schema, "eu", {page.version_no: page.created for page in pages})


async def book(home, eu, **options):
    return await compare(home.connection, home.schema, "eu", eu.connection, eu.schema, **options)


@pytest.fixture
async def day(home, eu):
    """Two subscribers, three versions, expanded and booked: six deliveries."""
    await eu.subscribe("acme", "bank")
    await publish(home, 1, 2, 3)
    await expand_all(home, eu)


async def test_an_empty_deployment_is_balanced(home, eu):
    await set_regions(home.connection, home.schema, ["eu"])
    assert (await book(home, eu)).balanced is True


async def test_what_is_not_expanded_yet_is_pending_and_in_no_other_figure(home, eu):
    await eu.subscribe("acme")
    await publish(home, 1, 2)
    pending = await book(home, eu)
    assert (pending.balanced, pending.outbox.pending, pending.figures.accepted) == (True, 2, 0)


async def test_every_version_is_compared_and_every_delivery_counted(day, home, eu):
    whole = await book(home, eu)
    assert (whole.balanced, whole.compared, whole.disagreements) == (True, 3, [])
    assert (whole.figures.accepted, whole.figures.open, whole.outbox.pending) == (6, 6, 0)


async def test_an_expansion_that_home_has_not_booked_yet_is_balanced(home, eu):
    await eu.subscribe("acme")
    await publish(home, 1)
    await expand_all(home, eu, finish=False)
    half = await book(home, eu)
    assert (half.balanced, half.outbox.pending, half.figures.accepted) == (True, 1, 1)


async def test_a_delivery_that_vanished_unbalances_the_region(day, home, eu):
    await eu.run("UPDATE {schema}.destination SET waiting = waiting - 1 WHERE id = 1")
    assert (await book(home, eu)).balanced is False


async def test_home_and_region_that_count_differently_are_named(day, home, eu):
    await home.run("UPDATE {schema}.outbox SET created = 7 WHERE version = 2")
    whole = await book(home, eu)
    assert whole.balanced is False
    assert list(map(str, whole.disagreements)) == ["shipment S1 version 2: home says 7 deliveries, the region says 2"]


async def test_an_expansion_that_vanished_from_the_region_is_named(day, home, eu):
    await eu.run(
        "DELETE FROM {schema}.expansion WHERE version_no = (SELECT version_no FROM {schema}.version WHERE version = 3)"
    )
    whole = await book(home, eu)
    assert list(map(str, whole.disagreements)) == [
        "shipment S1 version 3: home says 2 deliveries, the region has no record of it"
    ]


async def test_an_expansion_that_home_took_for_finished_too_early_is_named(day, home, eu):
    await eu.run(
        "UPDATE {schema}.expansion SET done = false WHERE version_no = (SELECT max(version_no) FROM {schema}.version)"
    )
    whole = await book(home, eu)
    assert list(map(str, whole.disagreements)) == [
        "shipment S1 version 3: home says 2 deliveries, the region says 2 and is not done"
    ]


async def test_a_version_that_nobody_wanted_needs_no_page_in_the_region(day, home, eu):
    await publish(home, 4, event_type="nothing.for.us")
    rows = await outbox.take(home.connection, home.schema, "eu", 10, 0)
    await outbox.finish(home.connection, home.schema, "eu", {row.announcement.version_no: 0 for row in rows})
    whole = await book(home, eu)
    assert (whole.balanced, whole.compared) == (True, 4)


async def test_what_retention_removed_counts_on_both_sides(day, home, eu):
    await eu.run("UPDATE {schema}.removed SET accepted = 10, delivered = 7, dead = 3")
    figures = await region_figures(eu.connection, eu.schema)
    assert (figures.adds_up, figures.accepted, figures.delivered, figures.dead, figures.open) == (True, 16, 7, 3, 6)


async def test_watching_compares_only_what_may_be_new(day, home, eu):
    first = await book(home, eu)
    await home.run("UPDATE {schema}.outbox SET created = 7 WHERE version = 1")
    assert (await book(home, eu, since=first.watch_from)).balanced is False
    newest = (await home.values("SELECT max(version_no) FROM {schema}.outbox"))[0]
    again = await book(home, eu, since=newest)
    assert (again.balanced, again.compared) == (True, 1)


async def test_home_is_read_in_pages_without_a_gap(home, eu):
    await publish(home, *range(7))
    rows = await outbox.take(home.connection, home.schema, "eu", 1, 0)
    while rows:
        await outbox.finish(home.connection, home.schema, "eu", {rows[0].announcement.version_no: 5})
        rows = await outbox.take(home.connection, home.schema, "eu", 1, 0)
    for page_rows in (1, 3, 7, 8):
        pages = [page async for page in finished_pages(home.connection, home.schema, "eu", page_rows=page_rows)]
        assert sum(map(len, pages)) == len(set().union(*pages)) == 7


async def test_a_region_that_cannot_be_reached_leaves_the_balance_unknown_and_says_why(day, home, eu):
    nowhere = await open_pool("postgresql://nobody@127.0.0.1:9/nothing", "test", most=1)
    lost = await compare(home.connection, home.schema, "us", nowhere, eu.schema)
    assert lost.balanced is None
    assert lost.error
    document = status_document([await book(home, eu), lost])
    assert document["balanced"] is None
    assert set(document["regions"]["us"].values()) == {None, 0}
    await nowhere.close()


async def test_a_region_that_was_never_migrated_says_what_to_do(day, home, eu):
    lost = await compare(home.connection, home.schema, "eu", eu.connection, Schema("fanout_mars"))
    assert lost.balanced is None
    assert "run `fanout migrate`" in lost.error


async def test_an_error_of_home_is_not_taken_for_one_of_the_region(day, home, eu):
    await home.run("ALTER TABLE {schema}.outbox RENAME COLUMN created TO made")
    with pytest.raises(asyncpg.UndefinedColumnError):
        await book(home, eu)


async def test_the_status_document_has_exactly_the_promised_figures(day, home, eu):
    whole = await book(home, eu)
    document = status_document([whole])
    assert list(document) == ["balanced", "regions"]
    assert document["balanced"] is True
    assert list(document["regions"]["eu"]) == FIGURES.split()
    assert document["regions"]["eu"]["accepted"] == 6


async def test_one_region_that_is_wrong_makes_the_whole_wrong(day, home, eu):
    right = await book(home, eu)
    wrong = replace(right, disagreements=[Disagreement("S1", 1, UnconfirmedPage(1, 2, 3, True))])
    unknown = replace(right, figures=None)
    assert balanced([right, right]) is True
    assert balanced([right, wrong]) is False
    assert balanced([wrong, unknown]) is None


async def test_home_tells_what_it_knows_of_a_version(day, home):
    await publish(home, 4)
    known = await home_version(home.connection, home.schema, "S1", 1)
    assert (known.payload_bytes, known.sha256[:8]) == (5, "2cf24dba")
    assert (known.regions["eu"].done, known.regions["eu"].created) == (True, 2)
    assert (await home_version(home.connection, home.schema, "S1", 4)).regions["eu"].done is False
    assert await home_version(home.connection, home.schema, "S1", 5) is None


async def test_a_recount_finds_a_counter_that_drifted_and_reports_as_it_goes(day, eu):
    steps = [step async for step in recount(eu.connection, eu.schema, destinations_per_step=1)]
    assert (steps[-1].destinations, steps[-1].destinations_in_all, steps[-1].deliveries, steps[-1].drifts) == (
        2,
        2,
        6,
        (),
    )
    assert len(steps) >= 2
    await eu.run("UPDATE {schema}.destination SET waiting = waiting + 1, dead = 4 WHERE id = 2")
    *_, last = [step async for step in recount(eu.connection, eu.schema)]
    assert [(drift.destination_id, drift.state, drift.counter, drift.rows) for drift in last.drifts] == [
        (2, "waiting", 4, 3),
        (2, "dead", 4, 0),
    ]
