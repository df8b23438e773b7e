"""Group commit: batches, repeats while the ledger is away, and one bad item that must not spoil the others."""

import asyncio

import pytest
import structlog

from fanout.database.errors import is_transient
from regions.consumer.lane import Lane


class Ledger:
    """Records what is committed; fails as told."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.given_up: list[str] = []
        self.away = 0
        self.refuses: set[str] = set()

    async def commit(self, batch: list[str]) -> None:
        await asyncio.sleep(0)
        if self.away:
            self.away -= 1
            raise ConnectionResetError
        if self.refuses & set(batch):
            raise ValueError("a check was violated")
        self.batches.append(batch)


@pytest.fixture(autouse=True)
def quiet():
    with structlog.testing.capture_logs():
        yield


@pytest.fixture
async def ledger():
    return Ledger()


@pytest.fixture
async def lane(ledger):
    lane = Lane("test", ledger.commit, ledger.given_up.append, lambda item: item[0], most=8, linger_seconds=0.001)
    yield lane
    await lane.close()


async def drained(lane):
    async with asyncio.timeout(10):
        await lane.drained()


async def test_what_arrives_together_is_committed_together_in_order(lane, ledger):
    for item in "abcde":
        lane.put(item)
    await drained(lane)
    assert ledger.batches == [list("abcde")]


async def test_a_batch_has_a_size_and_the_rest_goes_into_the_next(lane, ledger):
    for item in "abcdefghij":
        lane.put(item)
    await drained(lane)
    assert ledger.batches == [list("abcdefgh"), list("ij")]


async def test_two_items_with_one_key_never_share_a_batch_and_keep_their_order(lane, ledger):
    for item in ("a1", "b1", "a2", "a3"):
        lane.put(item)
    await drained(lane)
    assert ledger.batches == [["a1", "b1"], ["a2"], ["a3"]]


async def test_while_the_ledger_is_away_the_batch_waits_and_is_repeated(lane, ledger):
    assert is_transient(ConnectionResetError())
    ledger.away = 3
    lane.put("a")
    lane.put("b")
    await drained(lane)
    assert ledger.batches == [["a", "b"]]
    assert ledger.given_up == []


async def test_the_item_that_spoils_a_batch_is_given_up_alone(lane, ledger):
    ledger.refuses = {"c"}
    for item in "abcdefg":
        lane.put(item)
    await drained(lane)
    assert sorted(item for batch in ledger.batches for item in batch) == list("abdefg")
    assert ledger.given_up == ["c"]


async def test_forgetting_lets_the_commit_under_way_end_and_keeps_the_others(ledger):
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def commit(batch):
        begun.set()
        await go_on.wait()
        await ledger.commit(batch)

    lane = Lane("test", commit, ledger.given_up.append, lambda item: item, most=2, linger_seconds=0)
    for item in "abcde":
        lane.put(item)
    await begun.wait()
    forgetting = asyncio.create_task(lane.forget(lambda item: item in "ac"))
    await asyncio.sleep(0)
    assert not forgetting.done()
    go_on.set()
    await forgetting
    await lane.drained()
    await lane.close()
    assert ledger.batches == [["a", "b"], ["d", "e"]]
