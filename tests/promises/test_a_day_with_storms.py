"""P1, P3, P6 over a real day: consumers killed, the database stopped and killed, and the sum is right.

The size of the day and the length of the outage come from the environment, so that the same claims run small in every test run and at
full size when wanted: FANOUT_TEST_DAY_VERSIONS (3231 is the whole day), FANOUT_TEST_OUTAGE_SECONDS. FANOUT_TEST_DAY_AMQP_URL sends the
references through that broker.
"""

import asyncio
import gzip
import json
import os
import time
from importlib.resources import files

import pytest

from fanout.receiver import serve
from services.deployment import QUICK
from services.region import Region
from services.waiting import eventually

VERSIONS = int(os.environ.get("FANOUT_TEST_DAY_VERSIONS", "250"))
OUTAGE_SECONDS = float(os.environ.get("FANOUT_TEST_OUTAGE_SECONDS", "3"))
BROKER = os.environ.get("FANOUT_TEST_DAY_AMQP_URL", "")
DEADLINE = 60 + VERSIONS / 10
DAY = files("fanout.demo") / "data"
REGIONS = ("eu", "us")

pytestmark = pytest.mark.timeout(600)


class Day:
    """The day's subscribers and versions, every role a process, and one receiver that judges."""

    def __init__(self, url, roles, receiver, folder) -> None:
        self.url, self.roles, self.receiver, self.folder = url, roles, receiver, folder
        roles.environment |= QUICK | {
            "FANOUT_DATABASE_URL": url,
            "FANOUT__DELIVERY__TIMEOUT_SECONDS": "3",
            "FANOUT__DELIVERY__BACKOFF_CAP_SECONDS": "5",
        }
        if BROKER:
            roles.environment["FANOUT_AMQP_URL"] = BROKER
        self.limits: dict[str, int] = {}
        self.regions: dict[str, Region] = {}

    async def command(self, *arguments) -> str:
        role = self.roles.start(*arguments)
        assert await role.ended(120) == 0, role.log
        return role.log

    async def begin(self) -> None:
        """Migrate, register everyone, start one of each role (and a second consumer in each region)."""
        await self.command("migrate")
        document = json.loads((DAY / "subscribers.json").read_text())
        for each in document["subscribers"]:
            each["endpoint"] = self.receiver.endpoint(each["subscriber_id"])
            each["rate_per_second"], each["ordering"] = None, "any"
            self.limits[each["subscriber_id"]] = each["concurrency"]
        (self.folder / "subscribers.json").write_text(json.dumps(document))
        await self.command("subscribers", "apply", self.folder / "subscribers.json")
        self.regions = {name: await Region.open(self.url, name, watched=False) for name in REGIONS}
        self.roles.start("publisher")
        for name in REGIONS:
            self.roles.start("scheduler", name)
        self.consumers = [self.roles.start("consumer", name) for name in REGIONS for _ in range(2)]
        lines = gzip.decompress((DAY / "air-cargo-day.jsonl.gz").read_bytes()).splitlines(keepends=True)
        (self.folder / "day.jsonl").write_bytes(b"".join(lines[:VERSIONS]))

    async def publish(self) -> None:
        await self.command("publish", self.folder / "day.jsonl")

    async def figures(self) -> dict:
        role = self.roles.start("status", "--json", "--recount")
        assert await role.ended(60) == 0, role.log
        return json.loads(role.log[role.log.index("{") :])

    async def delivered(self, count: int) -> None:
        await eventually(
            lambda: self.receiver.stats.total("delivered_keys") >= count, DEADLINE, f"{count} delivered keys"
        )

    async def over(self) -> None:
        async def nothing_open() -> bool:
            pending = 0
            for region in self.regions.values():
                pending += await region.value(
                    "SELECT (SELECT sum(waiting + queued + in_flight) FROM {schema}.destination) "
                    "+ (SELECT count(*) FROM fanout.outbox WHERE NOT done)"
                )
            return pending == 0

        await eventually(nothing_open, DEADLINE, "nothing open")

    async def judge(self, expected: int) -> None:
        """The sum is right, nothing is lost, each duplicate has its unknown attempt, and no limit was exceeded."""
        figures = await self.figures()
        regions = figures["regions"]
        assert figures["balanced"] is True
        assert sum(each["accepted"] for each in regions.values()) == expected
        assert sum(each["delivered"] for each in regions.values()) == expected
        assert sum(each["open"] for each in regions.values()) == 0
        stats = self.receiver.stats
        assert stats.total("delivered_keys") == expected
        unknown = sum(each["unknown_attempts"] for each in regions.values())
        assert stats.total("duplicates") <= unknown
        over = {
            name: (each.peak_in_flight, self.limits[name])
            for name, each in stats.subscribers.items()
            if each.peak_in_flight > self.limits[name]
        }
        assert over == {}
        for region in self.regions.values():
            assert await region.drift() == []
            duplicates = [key for each in stats.subscribers.values() for key in each.duplicate_keys]
            assert len(duplicates) <= unknown
        print(
            f"day: {expected} delivered, {stats.total('requests')} requests, {stats.total('duplicates')} duplicates, {unknown} unknown attempts"
        )


@pytest.fixture
async def day(own_postgres, roles, tmp_path):
    url = await own_postgres.create_database("day")
    async with await serve([]) as receiver:
        day = Day(url, roles, receiver, tmp_path)
        await day.begin()
        yield day
        for role in reversed(roles.started):
            if role.running:
                role.kill()
    for region in day.regions.values():
        await region.connection.close()


async def expected(day) -> int:
    """What the day should come to, by the reference matcher over its subscribers and versions: not by the ledger."""
    from fanout.model.patterns import labels_match, pattern_matches
    from fanout.model.publish_line import parse_publish_line

    subscribers = json.loads((day.folder / "subscribers.json").read_text())["subscribers"]
    lines = (day.folder / "day.jsonl").read_bytes().splitlines()
    versions = [parse_publish_line(line, number) for number, line in enumerate(lines, 1)]
    return sum(
        any(pattern_matches(pattern, version.event_type) for pattern in each["event_types"])
        and labels_match(each["labels"], version.labels)
        for version in versions
        for each in subscribers
    )


async def test_consumers_killed_in_the_middle_lose_nothing_and_never_exceed_a_limit(day):
    count = await expected(day)
    day.receiver.use([{"answer": 200, "delay_seconds": 0.02}])
    await day.publish()
    for part in (1, 2, 3):
        await day.delivered(count * part // 5)
        victim = day.consumers[0]
        victim.kill()
        await victim.ended()
        day.consumers[0] = day.roles.start("consumer", "eu")
    await day.over()
    await day.judge(count)


async def test_a_database_that_is_stopped_killed_and_restarted_is_waited_for(day, own_postgres):
    count = await expected(day)
    day.receiver.use([{"answer": 200, "delay_seconds": 0.02}])
    await day.publish()
    await day.delivered(count // 4)
    started = [role for role in day.roles.started if role.running]
    await own_postgres.stop("fast")
    await asyncio.sleep(OUTAGE_SECONDS)  # the outage itself
    await own_postgres.start()
    back = time.monotonic()
    before = day.receiver.stats.total("delivered_keys")
    await eventually(lambda: day.receiver.stats.total("delivered_keys") > before, 30, "deliveries after the stop")
    print(f"deliveries went on {time.monotonic() - back:.1f} s after the database was back")
    await day.delivered(count // 2)
    await own_postgres.kill()
    await own_postgres.start()
    for name in REGIONS:
        await day.regions[name].connection.close()
        day.regions[name] = await Region.open(day.url, name, watched=False)
    await day.over()
    await day.judge(count)
    assert all(role.running for role in started), "no role had to be restarted"
