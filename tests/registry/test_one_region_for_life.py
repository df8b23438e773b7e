"""Home ties every subscriber id to one region, for life."""

import asyncio

import pytest

from fanout.database.connection import connect
from fanout.home.registry import (
    RegionChanged,
    Reservation,
    UnknownRegion,
    list_registered,
    mark_deleted,
    region_of,
    regions,
    reserve,
    reserve_all,
    revive,
    set_regions,
)
from services import eventually


@pytest.fixture
async def book(home):
    await set_regions(home.connection, home.schema, ["eu", "us"])
    return home


async def test_regions_are_added_and_never_taken_away(home):
    assert await set_regions(home.connection, home.schema, ["us", "eu"]) == ["eu", "us"]
    assert await set_regions(home.connection, home.schema, ["us", "ap"]) == ["ap"]
    assert await regions(home.connection, home.schema) == ["ap", "eu", "us"]


async def test_the_first_reservation_creates_and_the_next_finds_it(book):
    assert await reserve(book.connection, book.schema, "acme", "eu") is Reservation.CREATED
    assert await reserve(book.connection, book.schema, "acme", "eu") is Reservation.EXISTING
    assert (await region_of(book.connection, book.schema, "acme")).region == "eu"
    assert await region_of(book.connection, book.schema, "nobody") is None


async def test_another_region_is_refused_and_both_are_named(book):
    await reserve(book.connection, book.schema, "acme", "eu")
    with pytest.raises(RegionChanged, match="acme is in eu, not in us"):
        await reserve(book.connection, book.schema, "acme", "us")


async def test_a_deleted_id_still_belongs_to_its_region(book):
    await reserve(book.connection, book.schema, "acme", "eu")
    await mark_deleted(book.connection, book.schema, ["acme", "nobody"])
    assert (await region_of(book.connection, book.schema, "acme")).deleted
    with pytest.raises(RegionChanged):
        await reserve(book.connection, book.schema, "acme", "us")
    assert await reserve(book.connection, book.schema, "acme", "eu") is Reservation.DELETED
    await revive(book.connection, book.schema, ["acme"])
    assert await reserve(book.connection, book.schema, "acme", "eu") is Reservation.EXISTING


async def test_one_id_in_another_region_leaves_the_whole_batch_unreserved(book):
    await reserve(book.connection, book.schema, "b", "us")
    with pytest.raises(RegionChanged, match="b is in us") as refused:
        await reserve_all(book.connection, book.schema, ["a", "b", "c"], "eu")
    assert refused.value.regions == {"b": "us"}
    assert [r.subscriber_id for r in await list_registered(book.connection, book.schema)] == ["b"]


async def test_a_region_that_home_was_not_told_of_is_an_error_that_says_what_to_do(book):
    with pytest.raises(UnknownRegion, match="region mars yet: run `fanout migrate`"):
        await reserve(book.connection, book.schema, "acme", "mars")


async def test_an_empty_batch_reserves_nothing(book):
    assert await reserve_all(book.connection, book.schema, [], "eu") == {}


async def test_of_two_regions_that_reserve_at_once_one_wins(book):
    """Held at the decisive moment: the second reservation waits on the key of the first, which then commits."""
    other = await connect(book.url, "test")
    async with book.connection.transaction():
        await reserve(book.connection, book.schema, "acme", "eu")
        late = asyncio.create_task(reserve(other, book.schema, "acme", "us"))
        pid = other.get_server_pid()
        await eventually(lambda: book.values("SELECT 1 FROM pg_locks WHERE pid = $1 AND NOT granted", pid))
    with pytest.raises(RegionChanged, match="acme is in eu, not in us"):
        await late
    await other.close()


async def test_listing_leaves_out_the_deleted_and_goes_on_after_a_cursor(book):
    await reserve_all(book.connection, book.schema, ["a", "b", "c"], "eu")
    await reserve_all(book.connection, book.schema, ["d"], "us")
    await mark_deleted(book.connection, book.schema, ["b"])
    listed = await list_registered(book.connection, book.schema, limit=2)
    assert [(r.subscriber_id, r.region) for r in listed] == [("a", "eu"), ("c", "eu")]
    rest = await list_registered(book.connection, book.schema, after="c")
    assert [r.subscriber_id for r in rest] == ["d"]
    assert [r.subscriber_id for r in await list_registered(book.connection, book.schema, region="us")] == ["d"]
