"""A broker that takes nothing: probes, figures and log say so, promotion pauses, and goes on when it is over."""

import re

import aio_pika
import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.deployment import versions
from services.waiting import eventually


class Seen:
    """A role as its probes and its figures show it."""

    def __init__(self, role, client) -> None:
        self.role, self._client = role, client
        self._base = ""

    async def _get(self, path):
        if not self._base:
            self._base = re.search(r"http://[\d.]+:\d+", await self.role.says("listening"))[0]
        return await self._client.get(self._base + path)

    async def readiness(self) -> tuple[int, dict]:
        answer = await self._get("/readyz")
        return answer.status_code, answer.json()["checks"]

    async def figures(self) -> dict[str, float]:
        families = text_string_to_metric_families((await self._get("/metrics")).text)
        return {sample.name: sample.value for family in families for sample in family.samples}


@pytest.fixture
async def client():
    async with httpx2.AsyncClient(timeout=5, trust_env=False) as client:
        yield client


async def test_a_blocked_broker_is_seen_and_promotion_pauses_and_goes_on(over_rabbitmq, private_broker, client):
    await over_rabbitmq.subscriber("a")
    _, scheduler, consumer = (Seen(role, client) for role in over_rabbitmq.start())
    await over_rabbitmq.publish(*versions(1))
    await over_rabbitmq.delivered(1)
    for role in (scheduler, consumer):
        assert (await role.readiness())[0] == 200
        figures = await role.figures()
        assert (figures["fanout_broker_up"], figures["fanout_broker_blocked"]) == (1, 0)
    await private_broker.alarm(on=True)
    try:
        await over_rabbitmq.publish(*versions(5)[1:])
        await scheduler.role.says("queue away, promotion pauses")
        await eventually(lambda: "broker blocks publishing: its alarm is on" in scheduler.role.log, what="a line")

        async def is_blocked():
            return (await scheduler.figures())["fanout_broker_blocked"] == 1

        await eventually(is_blocked, 10, "the figure")
        status, checks = await scheduler.readiness()
        assert status == 503
        assert "memory or disk alarm is on" in checks["queue of scheduler eu"]["why"]
        assert (await consumer.readiness())[0] == 200, "what is out is delivered and acknowledged"
        waiting = "SELECT sum(waiting + queued) FROM {schema}.destination"
        assert await over_rabbitmq.region.value(waiting) == 4
    finally:
        await private_broker.alarm(on=False)
    await scheduler.role.says("queue back, promotion goes on")
    await over_rabbitmq.delivered(5)

    async def is_ready():
        return (await scheduler.readiness())[0] == 200

    await eventually(is_ready, 5, "the scheduler to be ready again")
    assert scheduler.role.log.count("promotion pauses") == 1, "once, not at each try"


async def test_a_broker_that_is_away_is_seen_and_a_malformed_message_is_counted(
    over_rabbitmq, private_broker, place, client
):
    _, scheduler, consumer = (Seen(role, client) for role in over_rabbitmq.start())

    async def ready(role):
        return (await role.readiness())[0] == 200

    for role in (scheduler, consumer):
        await eventually(lambda role=role: ready(role), 20, "ready")
    channel = await place.channel()
    exchange = await channel.get_exchange("fanout", ensure=False)
    await exchange.publish(aio_pika.Message(b'{"v": 2, "batch": "of another shape"}'), place.queue)
    dead = await eventually(lambda: place.get(f"{place.queue}.dead"), 20, "a dead letter")
    assert dead.headers["fanout-reason"] == "envelope version 2; this consumer reads version 1"
    assert (await consumer.figures())["fanout_malformed_messages_total"] == 1
    await private_broker.stop()
    try:
        for name, role in (("scheduler", scheduler), ("consumer", consumer)):

            async def is_away(role=role, name=name):
                status, checks = await role.readiness()
                return status == 503 and "the broker cannot be used" in checks[f"queue of {name} eu"]["why"]

            await eventually(is_away, 20, f"the {name} is not ready")
            assert (await role.figures())["fanout_broker_up"] == 0
    finally:
        await private_broker.start()
    for role in (scheduler, consumer):
        await eventually(lambda role=role: ready(role), 30, "ready again")
        assert (await role.figures())["fanout_broker_reconnections_total"] >= 1
