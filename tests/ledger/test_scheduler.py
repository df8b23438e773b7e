"""The scheduler with a queue that cannot take what was promoted."""

import asyncpg
import pytest

from fanout.settings import Settings
from fanout.transports.transport import QueueUnavailable
from regions.scheduler import Scheduler
from services.region import Region


class Queue:
    """Takes references, or all but some of them."""

    def __init__(self) -> None:
        self.taken = []
        self.refuses = False
        self.away = False
        self.left = 0

    async def publish(self, references, traceparent=None) -> None:
        if self.refuses and references:
            self.taken += references[1:]
            raise QueueUnavailable("blocked", references[:1])
        self.taken += references

    async def ready(self) -> int:
        if self.away:
            raise QueueUnavailable("away")
        return self.left

    async def close(self) -> None:
        pass


@pytest.fixture
async def queue():
    return Queue()


@pytest.fixture
async def scheduler(region: Region, database_url, queue):
    settings = Settings.load({"FANOUT_DATABASE_URL": database_url})
    scheduler = Scheduler(settings.regions["eu"], settings.delivery, queue)
    yield scheduler
    await scheduler.close()


async def test_what_the_queue_did_not_take_goes_back_to_waiting_and_the_rest_stays_queued(
    region: Region, queue, scheduler
):
    await region.subscriber("a", concurrency=4)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(3)))
    queue.refuses = True
    with pytest.raises(QueueUnavailable):
        await scheduler.promote_once()
    states = sorted(row["state"] for row in await region.rows("SELECT state FROM {schema}.delivery"))
    assert states == ["queued", "queued", "waiting"]
    queue.refuses = False
    assert len((await scheduler.promote_once()).references) == 1
    assert len(await region.claim(queue.taken)) == 3


@pytest.mark.parametrize(
    ("left", "away", "age_seconds", "lost"),
    [(0, False, 14, 0), (0, False, 16, 1), (1, False, 59, 0), (1, False, 61, 1), (0, True, 3600, 0)],
)
async def test_what_nobody_claims_is_lost_after_a_minute_or_sooner_where_nothing_is_left_in_the_queue(
    region: Region, queue, scheduler, left, away, age_seconds, lost
):
    await region.subscriber("a")
    await region.arrive(region.announcement())
    await scheduler.promote_once()
    await region.execute(
        "UPDATE {schema}.delivery SET queued_at = queued_at - make_interval(secs => $1)", float(age_seconds)
    )
    queue.left, queue.away = left, away
    scheduler._in_sight_since -= 3600
    await scheduler.sweep_lost()
    assert scheduler.figures.lost == lost
    assert await region.value("SELECT sum(queued) FROM {schema}.destination") == 1 - lost


async def test_nothing_is_lost_that_was_out_of_sight_while_the_broker_or_the_ledger_was_away(
    region: Region, queue, scheduler
):
    await region.subscriber("a")
    await region.arrive(region.announcement())
    await scheduler.promote_once()
    await region.execute("UPDATE {schema}.delivery SET queued_at = queued_at - interval '1 hour'")
    scheduler._in_sight_since -= 3600
    queue.away = True
    await scheduler.sweep_lost()
    queue.away = False
    await scheduler.sweep_lost()
    assert scheduler.figures.lost == 0, "the broker is back just now"
    scheduler._in_sight_since -= 15
    await scheduler.sweep_lost()
    assert scheduler.figures.lost == 1


async def test_what_the_queue_held_when_it_was_lost_goes_back_at_once_and_what_came_later_stays(
    region: Region, queue, scheduler
):
    await region.subscriber("a")
    await region.arrive(region.announcement("s-1"))
    await scheduler.promote_once()
    scheduler.queue_lost()
    await region.arrive(region.announcement("s-2"))
    await region.promote()
    await region.execute(
        "UPDATE {schema}.delivery SET queued_at = queued_at + interval '1 minute' "
        "WHERE version_no = (SELECT version_no FROM {schema}.version WHERE shipment_id = 's-2')"
    )
    await scheduler.sweep_lost()
    rows = await region.rows(
        "SELECT v.shipment_id, y.state FROM {schema}.delivery y JOIN {schema}.version v USING (version_no)"
    )
    assert {row["shipment_id"]: row["state"] for row in rows} == {"s-1": "waiting", "s-2": "queued"}


async def test_what_the_queue_refused_while_the_ledger_was_away_is_given_back_first(region: Region, queue, scheduler):
    await region.subscriber("a")
    await region.arrive(region.announcement())
    queue.refuses = True
    await region.execute("ALTER FUNCTION {schema}.give_back(bigint[], int[]) RENAME TO away")
    with pytest.raises(asyncpg.UndefinedFunctionError):
        await scheduler.promote_once()
    await region.execute("ALTER FUNCTION {schema}.away(bigint[], int[]) RENAME TO give_back")
    queue.refuses = False
    assert len((await scheduler.promote_once()).references) == 1


async def test_an_attempt_whose_lease_ended_names_the_worker_that_had_it(region: Region, scheduler):
    await region.subscriber("a", concurrency=4)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(4)))
    references = await region.promote()
    await region.claim(references[:1], worker="w-1")
    await region.claim(references[1:], worker="w-2")
    await region.execute("UPDATE {schema}.delivery SET lease_until = now() - interval '1 s'")
    await scheduler.sweep_expired()
    attempts = await region.rows("SELECT worker, error FROM {schema}.attempt ORDER BY worker")
    assert [row["worker"] for row in attempts] == ["w-1", "w-2", "w-2", "w-2"]
    assert {row["error"] for row in attempts} == {
        "nothing was heard of its worker until the lease ended: maybe delivered"
    }
    assert scheduler.figures.expired == 4
