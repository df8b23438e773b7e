"""P1, P3, P4, P6 over a real day: every role a process, published over HTTP, and whatever operators meet in between.

One judge for all of it: the sum is right by the reference matcher, nothing is lost, a request with a key that was seen before has
its `unknown` attempt of that very key, and no limit was exceeded as the receiver counts.

How much comes from the environment, so that the same claims run small in every test run and at full size when wanted:
FANOUT_TEST_DAY_VERSIONS (3231 is the whole day), FANOUT_TEST_OUTAGE_SECONDS, FANOUT_TEST_DAY_EACH (schedulers and consumers of a
region).
"""

import asyncio
import os
import time

import pytest

from services.day import renamed, versions_of_the_day
from services.storms import Storms
from services.waiting import eventually

VERSIONS = int(os.environ.get("FANOUT_TEST_DAY_VERSIONS", "120"))
SECONDS = float(os.environ.get("FANOUT_TEST_OUTAGE_SECONDS", "2"))
AT_FULL_SIZE = VERSIONS > 1000
DEADLINE = 120 + VERSIONS / 10
RECOVERED_SECONDS = 20
"""With much to spare, for a machine with much else to do: it takes one to five seconds."""

pytestmark = [pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.parametrize("transport", ["rabbitmq", pytest.param("ledger", marks=pytest.mark.long)])
async def test_a_day_published_over_http_reaches_everyone_once(deployments, transport):
    day = await deployments.get(rabbitmq=transport == "rabbitmq", links=not AT_FULL_SIZE and transport == "rabbitmq")
    versions, twice = renamed(versions_of_the_day(VERSIONS), "calm"), day.witness.twice
    began = time.monotonic()
    await day.publish(versions)
    published = time.monotonic() - began
    await day.over(DEADLINE)
    took = time.monotonic() - began
    verdict = await day.judge()
    assert verdict.twice == twice
    assert day.fallen() == []
    deliveries = len(day.keys(versions))
    print(
        f"{transport}: {len(versions)} versions in {published:.1f} s over HTTP, "
        f"{deliveries} deliveries in {took:.1f} s, {deliveries / took:.0f}/s; {verdict}"
    )
    deployments.sound = not AT_FULL_SIZE


STORMS = {
    "roles are killed again and again": Storms.roles_are_killed,
    "consumers are replaced one after the other": Storms.consumers_are_replaced,
    "the broker is stopped and started": Storms.broker_is_stopped,
    "the broker is killed": Storms.broker_is_killed,
    "full queues are purged": Storms.queues_are_purged,
    "full queues are deleted": Storms.queues_are_deleted,
    "queues in use are deleted": Storms.queues_are_deleted_in_use,
    "the dead-letter queues are deleted": Storms.dead_letter_queues_are_deleted,
    "the broker's memory alarm is on": Storms.memory_alarm,
    "the broker closes all connections again and again": Storms.connections_are_closed,
    "the database is stopped and started": Storms.database_is_stopped,
    "the database is killed": Storms.database_is_killed,
}
ALWAYS = {"roles are killed again and again", "queues in use are deleted", "the database is stopped and started"}
"""One for each of our roles, the broker and the database in every run of the tests; the others are long."""
LONGER = {"roles are killed again and again": 3}
"""It also takes longer to recover from: leases of the dead end after 8 seconds here, and roles have to start."""
HARMLESS = {"consumers are replaced one after the other"}
"""Nothing may be sent twice for it."""
LINKS = [(which, trouble) for which in ("database", "broker") for trouble in ("cut", "hangs", "slow")]


@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.long) for name in STORMS]
)
async def test_a_day_survives_when(deployments, name):
    await survives(deployments, name, STORMS[name], links=not AT_FULL_SIZE, seconds=SECONDS * LONGER.get(name, 1))


@pytest.mark.long
@pytest.mark.parametrize(("which", "trouble"), LINKS)
async def test_a_day_survives_a_link_that_is(deployments, which, trouble):
    def storm(storms):
        return storms.link_is(which, trouble)

    await survives(deployments, f"the link to the {which}: {trouble}", storm, links=True, seconds=SECONDS)


async def survives(deployments, name, storm, *, links, seconds):
    """A third of the day is under way when the storm breaks, a third is published while it rages, a third when it is over. Nobody
    restarts what the storm did not end."""
    day = await deployments.get(links=links)
    versions = renamed(versions_of_the_day(VERSIONS), "".join(each for each in name if each.isalpha()))
    before, twice = len(day.witness.first_at), day.witness.twice
    first = asyncio.create_task(day.publish(versions[0::3]))
    await eventually(lambda: len(day.witness.first_at) > before + VERSIONS // 10, 30, "deliveries flow")
    began = time.monotonic()
    async with storm(Storms(deployments, day, seconds, patient=AT_FULL_SIZE)):
        second = asyncio.create_task(day.publish(versions[1::3], over_seconds=seconds))
        await asyncio.sleep(seconds)
    ended = time.monotonic()
    await day.publish(versions[2::3])
    await asyncio.gather(first, second)
    await day.over(DEADLINE)
    over = time.monotonic()
    verdict = await day.judge()
    assert day.fallen() == [], "no role had to be restarted by hand"
    assert AT_FULL_SIZE or over - ended < RECOVERED_SECONDS * LONGER.get(name, 1)
    assert name not in HARMLESS or verdict.twice == twice
    during = sum(began < moment < ended for moment in day.witness.moments)
    print(
        f"{name}, {ended - began:.1f} s: {len(day.keys(versions))} deliveries, {during} requests during it; after it the first request "
        f"came in {day.witness.after(ended) or 0:.1f} s, the longest silence was {day.witness.longest_silence(ended, over):.1f} s, and all was over in {over - ended:.1f} s; {verdict}"
    )
    deployments.sound = not AT_FULL_SIZE
