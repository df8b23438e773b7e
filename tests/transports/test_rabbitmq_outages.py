"""The broker is stopped, killed, frozen, blocked, and throws everyone out. On a private node."""

import asyncio
import sys
import time

import pytest

from fanout.transports.rabbitmq import NotConfirmed, RabbitConsuming, RabbitPublishing, Topology, link
from fanout.transports.transport import QueueUnavailable, Reference
from services.roles import ROOT
from services.waiting import eventually

ROUNDS = 3


def references(count, start=0):
    return [Reference(start + n, 1, n % 5) for n in range(count)]


@pytest.fixture
async def ends(private_broker, own_place):
    topology = Topology(own_place.exchange, own_place.queue)
    publishing = RabbitPublishing(own_place.url, topology, "tests publishing", confirm_seconds=2)
    consuming = RabbitConsuming(own_place.url, topology, "tests consuming", check_seconds=0.5)
    await eventually(lambda: (publishing.state, consuming.state) == ("open", "open"), what="both ends open")
    yield publishing, consuming
    private_broker.thaw()
    await publishing.close()
    await consuming.close()


class Scheduler:
    """Publishes what it has until all is confirmed, as the region's scheduler does."""

    def __init__(self, publishing):
        self.publishing = publishing
        self.refusals = 0

    async def publish(self, references):
        left = references
        while left:
            try:
                await self.publishing.publish(left)
            except NotConfirmed as error:
                self.refusals += 1
                left = error.references
                await asyncio.sleep(0.05)
            else:
                return


async def consume(consuming, wanted, seen):
    while not wanted <= seen:
        try:
            messages = await consuming.take(100, 0.5)
        except QueueUnavailable:
            await asyncio.sleep(0.05)
            continue
        for message in messages:
            seen.update(each.delivery_id for each in message.references)
            message.done(len(message.references))


async def through(ends, trouble):
    """Publish and consume while ``trouble`` happens; everything confirmed has to arrive. Seconds until it had, after it."""
    publishing, consuming = ends
    wanted, seen = set(range(400)), set()
    async with asyncio.timeout(60):
        consumer = asyncio.create_task(consume(consuming, wanted, seen))
        scheduler = Scheduler(publishing)
        await scheduler.publish(references(100))
        troubled = asyncio.create_task(trouble())
        for start in range(100, 300, 20):
            await scheduler.publish(references(20, start))
            await asyncio.sleep(0.01)
        await troubled
        ended = time.monotonic()
        await scheduler.publish(references(100, 300))
        await consumer
    assert wanted <= seen
    return time.monotonic() - ended


async def test_everyone_is_thrown_out_again_and_again_and_all_that_was_confirmed_arrives(private_broker, ends):
    async def trouble():
        for _ in range(ROUNDS):
            await private_broker.close_connections()

    print(f"recovered {await through(ends, trouble):.2f} s after the last")
    assert ends[1]._link.reconnections >= 1


async def test_a_broker_that_is_restarted_in_order_is_found_again(private_broker, ends):
    async def trouble():
        await private_broker.stop()
        await eventually(lambda: "away" in (ends[0].state, ends[1].state), what="away is a state")
        with pytest.raises(QueueUnavailable):
            await ends[1].take(1, 1)
        await private_broker.start()

    print(f"recovered {await through(ends, trouble):.2f} s after the start")


async def test_a_broker_that_is_killed_keeps_what_it_confirmed(private_broker, ends):
    async def trouble():
        await asyncio.sleep(1)  # killed sooner, a node of 3.10 forgets a queue that is half a second old, for ever
        await private_broker.kill()
        await private_broker.start()

    print(f"recovered {await through(ends, trouble):.2f} s after the start")


async def test_a_frozen_broker_is_noticed_by_both_ends_and_found_again(private_broker, ends, monkeypatch):
    monkeypatch.setattr(link, "CONNECT_SECONDS", 1.0)
    publishing, consuming = ends
    private_broker.freeze()
    started = time.monotonic()
    with pytest.raises(NotConfirmed, match="confirmed nothing within 2 s"):
        await publishing.publish(references(1))
    await eventually(lambda: consuming.state == "away", 10, "the consumer's end notices by itself")
    assert time.monotonic() - started < 10
    private_broker.thaw()
    await through(ends, lambda: asyncio.sleep(0))


async def test_while_the_memory_alarm_is_on_nothing_is_sent_and_consuming_goes_on(private_broker, ends):
    publishing, consuming = ends
    await publishing.publish(references(20))
    await private_broker.alarm(on=True)
    try:
        refused = []
        async with asyncio.timeout(10):
            while publishing.state != "blocked":  # the broker says so when something is published
                try:
                    await publishing.publish(references(1, 100))
                except NotConfirmed as error:
                    refused.append(error)
        started = time.monotonic()
        with pytest.raises(NotConfirmed, match="blocked: its memory or disk alarm"):
            await publishing.publish(references(50, 200))
        assert time.monotonic() - started < 1, "a state that is known costs no deadline"
        seen = set()
        async with asyncio.timeout(10):
            await consume(consuming, set(range(20)), seen)
            await eventually(lambda: consuming.figures.acknowledged > 0, what="acknowledged under the alarm")
        assert consuming._link.reconnections == publishing._sending.link.reconnections == 0
    finally:
        await private_broker.alarm(on=False)
    await eventually(lambda: publishing.state == "open", what="unblocked by itself")
    await through(ends, lambda: asyncio.sleep(0))


PROCESS = """
import asyncio, sys
from fanout.transports.rabbitmq import RabbitConsuming, RabbitPublishing, Topology
from fanout.transports.transport import QueueUnavailable, Reference

async def main(url, exchange, queue):
    topology = Topology(exchange, queue)
    publishing = RabbitPublishing(url, topology, "a role", confirm_seconds=3)
    consuming = RabbitConsuming(url, topology, "a role")
    await publishing.publish([Reference(n, 1, 1, True) for n in range(200)])
    (message, *_) = await consuming.take(1, 5)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    message.done(len(message.references))
    try:
        await publishing.publish([Reference(1, 1, 1)])
    except QueueUnavailable:
        pass
    started = asyncio.get_running_loop().time()
    await consuming.close()
    await publishing.close()
    print(f"{asyncio.get_running_loop().time() - started:.1f}")

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("trouble", ["none", "frozen", "killed"])
async def test_closing_ends_in_time_and_without_noise_whatever_the_broker_does(private_broker, own_place, trouble):
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-W",
            "error",
            "-X",
            "dev",
            "-c",
            PROCESS,
            own_place.url,
            own_place.exchange,
            own_place.queue,
        ),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        while (line := (await asyncio.wait_for(process.stdout.readline(), 20)).decode()) != "ready\n":
            assert line, (await process.communicate())[1].decode()
        if trouble == "frozen":
            private_broker.freeze()
        elif trouble == "killed":
            await private_broker.kill()
        output, errors = await asyncio.wait_for(process.communicate(b"\n"), 20)
    finally:
        private_broker.thaw()
        if process.returncode is None:
            process.kill()
            await process.wait()
        if trouble == "killed":
            await private_broker.start()
    assert errors.decode() == ""
    assert process.returncode == 0
    assert float(output.decode().splitlines()[-1]) < 5
