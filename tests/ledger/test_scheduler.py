"""The scheduler with a queue that cannot take what was promoted."""

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

    async def publish(self, references) -> None:
        if self.refuses and references:
            self.taken += references[1:]
            raise QueueUnavailable("blocked", references[:1])
        self.taken += references

    async def close(self) -> None:
        pass


async def test_what_the_queue_did_not_take_goes_back_to_waiting_and_the_rest_stays_queued(region: Region, database_url):
    settings = Settings.load({"FANOUT_DATABASE_URL": database_url})
    queue = Queue()
    scheduler = Scheduler(settings.regions["eu"], settings.delivery, queue, name="s")
    await region.subscriber("a", concurrency=4)
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(3)))
    queue.refuses = True
    with pytest.raises(QueueUnavailable):
        await scheduler.promote_once()
    states = sorted(row["state"] for row in await region.rows("SELECT state FROM {schema}.delivery"))
    assert states == ["queued", "queued", "waiting"]
    queue.refuses = False
    assert await scheduler.promote_once() == 1
    assert len(await region.claim(queue.taken)) == 3
    await scheduler.close()
