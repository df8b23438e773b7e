"""P4: a message is let go when the ledger holds the outcome of each of its references, and not before."""

import asyncio

import pytest
import structlog

from fanout.receiver import serve
from fanout.settings import Settings
from regions.consumer.consumer import Consumer
from regions.egress.sender import Sender
from regions.egress.transport import WireTransport
from services.region import Region
from services.waiting import eventually


class Message:
    traceparent = None

    def __init__(self, references) -> None:
        self.references = references
        self.left = len(references)

    def done(self, count: int = 1) -> None:
        self.left -= count


class Queue:
    """A queue of the test's own: hands over one message, and remembers what was let go."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._waiting: asyncio.Queue[Message] = asyncio.Queue()

    def put(self, references) -> Message:
        message = Message(references)
        self.messages.append(message)
        self._waiting.put_nowait(message)
        return message

    async def take(self, most, at_most_seconds):
        try:
            async with asyncio.timeout(at_most_seconds):
                return [await self._waiting.get()]
        except TimeoutError:
            return []

    async def close(self) -> None:
        pass


class Stage:
    """One consumer in this process, with a queue and a receiver of the test's own."""

    def __init__(self, region: Region, receiver, queue: Queue, consumer: Consumer) -> None:
        self.region, self.receiver, self.queue, self.consumer = region, receiver, queue, consumer
        self.stopping, self.hurry = asyncio.Event(), asyncio.Event()
        self.running = asyncio.create_task(consumer.run(self.stopping, self.hurry, grace_seconds=5))

    async def arrived(self, count: int) -> None:
        await eventually(lambda: self.receiver.stats.total("requests") >= count, 10, f"{count} requests")

    async def stop(self) -> None:
        self.stopping.set()
        async with asyncio.timeout(20):
            await self.running


@pytest.fixture
async def stage(database_url):
    region = await Region.open(database_url)
    settings = Settings.load({"FANOUT_DATABASE_URL": database_url, "FANOUT_ALLOW_NETWORKS": "127.0.0.0/8"})
    transport = WireTransport(allow_networks=settings.regions["eu"].allow_networks)
    queue = Queue()
    async with await serve([]) as receiver:
        consumer = Consumer(settings.regions["eu"], settings.delivery, queue, Sender(transport), worker="w")
        stage = Stage(region, receiver, queue, consumer)
        yield stage
        await stage.stop()
        await transport.aclose()
    await region.connection.close()


async def test_nothing_is_let_go_before_its_outcome_is_committed(stage):
    number = await stage.region.subscriber("a", endpoint=stage.receiver.endpoint("a"))
    stage.receiver.use([{"answer": 200, "delay_seconds": 0.3}])
    await stage.region.arrive(stage.region.announcement())
    message = stage.queue.put(await stage.region.promote())
    await stage.arrived(1)
    transaction = stage.region.connection.transaction()
    await transaction.start()
    await stage.region.rows("SELECT FROM {schema}.destination WHERE id = $1 FOR UPDATE", number)
    await eventually(lambda: stage.receiver.stats.answers[200] == 1, 10, "the answer")
    await eventually(lambda: stage.consumer.figures.outcomes, 10, "the worker to know it")
    assert message.left == 1, "the subscriber has answered, and nothing is on disk yet"
    await transaction.rollback()
    await eventually(lambda: message.left == 0, 10, "the message to be let go")
    assert (await stage.region.rows("SELECT state FROM {schema}.delivery"))[0]["state"] == "delivered"


async def test_references_with_nothing_to_do_are_let_go_at_once(stage):
    await stage.region.subscriber("a", endpoint=stage.receiver.endpoint("a"), concurrency=1)
    await stage.region.arrive(stage.region.announcement("s-1"), stage.region.announcement("s-2"))
    references = await stage.region.promote()
    message, copy = stage.queue.put(references), stage.queue.put(references)
    await eventually(lambda: (message.left, copy.left) == (0, 0), 10, "both copies to be let go")
    states = [row["state"] for row in await stage.region.rows("SELECT state FROM {schema}.delivery ORDER BY id")]
    assert states in (["delivered", "waiting"], ["delivered", "delivered"])
    assert stage.receiver.stats.total("duplicates") == 0


async def test_stopping_lets_what_flies_land_and_releases_the_rest(stage):
    await stage.region.subscriber("a", endpoint=stage.receiver.endpoint("a"), concurrency=8)
    stage.receiver.use([{"answer": 200, "delay_seconds": 0.5}])
    await stage.region.arrive(*(stage.region.announcement(f"s-{n}") for n in range(6)))
    stage.queue.put(await stage.region.promote())
    await stage.arrived(6)
    await stage.stop()
    states = [row["state"] for row in await stage.region.rows("SELECT state FROM {schema}.delivery")]
    assert states == ["delivered"] * 6
    assert stage.receiver.stats.total("requests") == 6


async def test_in_a_hurry_what_flies_is_cut_and_says_that_it_may_have_arrived(stage):
    await stage.region.subscriber("a", endpoint=stage.receiver.endpoint("a"))
    stage.receiver.use([{"hang_seconds": 30}])
    await stage.region.arrive(stage.region.announcement())
    stage.queue.put(await stage.region.promote())
    await stage.arrived(1)
    stage.hurry.set()
    await stage.stop()
    [attempt] = await stage.region.rows("SELECT outcome, expired, error FROM {schema}.attempt")
    assert (attempt["outcome"], attempt["expired"]) == ("unknown", False)
    assert "stopped" in attempt["error"]
    assert (await stage.region.rows("SELECT state FROM {schema}.delivery"))[0]["state"] == "waiting"


async def test_a_version_whose_payload_is_gone_ends_dead_without_an_attempt(stage):
    await stage.region.subscriber("a", endpoint=stage.receiver.endpoint("a"))
    await stage.region.arrive(stage.region.announcement())
    await stage.region.execute("UPDATE {schema}.version SET payload = NULL")
    message = stage.queue.put(await stage.region.promote())
    await eventually(lambda: message.left == 0, 10, "the message to be let go")
    [row] = await stage.region.rows("SELECT state, reason, attempts FROM {schema}.delivery")
    assert tuple(row) == ("dead", "payload_gone", 0)
    assert stage.receiver.stats.total("requests") == 0


async def test_a_changed_endpoint_is_used_by_the_next_attempt(stage):
    number = await stage.region.subscriber("a", endpoint=stage.receiver.endpoint("old"))
    await stage.region.arrive(stage.region.announcement("s-1"))
    first = stage.queue.put(await stage.region.promote())
    await eventually(lambda: first.left == 0, 10, "the first to be settled")
    await stage.region.execute(
        "UPDATE {schema}.subscriber SET endpoint = $2 WHERE id = $1", number, stage.receiver.endpoint("new")
    )
    await stage.region.execute(
        "UPDATE {schema}.destination SET config_version = config_version + 1 WHERE id = $1", number
    )
    await stage.region.arrive(stage.region.announcement("s-2"))
    stage.queue.put(await stage.region.promote())
    await stage.arrived(2)
    assert (stage.receiver.stats.of("old").requests, stage.receiver.stats.of("new").requests) == (1, 1)


async def test_a_consumer_whose_inside_is_broken_ends_with_the_error_instead_of_looking_alive(stage, monkeypatch):
    await stage.region.subscriber("a", endpoint=stage.receiver.endpoint("a"))
    await stage.region.arrive(stage.region.announcement())
    monkeypatch.setattr(stage.consumer._parking, "left", lambda *_: 1 / 0)
    with structlog.testing.capture_logs():
        stage.queue.put(await stage.region.promote())
        async with asyncio.timeout(20):
            await asyncio.wait({stage.running})
    assert stage.stopping.is_set(), "the whole process is told"
    assert isinstance(stage.running.exception(), ZeroDivisionError)
    stage.running = asyncio.create_task(asyncio.sleep(0))  # it has ended: nothing to stop
