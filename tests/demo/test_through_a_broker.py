"""With FANOUT_AMQP_URL the demo goes through that broker, and leaves it as it was."""

import json
import re

import pytest

from fanout.transports.rabbitmq import RabbitPublishing, Topology, remove
from fanout.transports.transport import Reference
from services.broker import Place, free_port

REAL = Topology("fanout", "fanout.eu")


@pytest.fixture
async def stands(private_broker, monkeypatch):
    """What stands on the broker, where a real deployment has its queue and something in it."""
    monkeypatch.setenv("FANOUT_AMQP_URL", private_broker.url)
    publishing = RabbitPublishing(private_broker.url, REAL, "a real deployment")
    await publishing.publish([Reference(1, 1, 1)])
    await publishing.close()

    async def stands() -> list[str]:
        queues = await private_broker.control("list_queues", "name", "--no-table-headers")
        exchanges = await private_broker.control("list_exchanges", "name", "--no-table-headers")
        return sorted([*queues.splitlines(), *exchanges.splitlines()])

    yield stands
    await remove(private_broker.url, [REAL])


async def test_it_goes_through_the_broker_and_what_a_real_deployment_has_there_is_not_touched(
    start_demo, private_broker, stands
):
    before = await stands()
    demo = start_demo("--json", "--versions", "60")
    await demo.says("publishing and delivering")
    during = set(await stands()) - set(before)
    assert len(during) == 5, "an exchange, and for each region a queue and its dead letters"
    assert all(re.fullmatch(r"fanout_demo_[0-9a-f]{8}(\.(eu|us)(\.dead)?)?", name) for name in during)
    assert await demo.ended(150) == 0
    document = json.loads(demo.out)
    assert (document["transport"], document["balanced"]) == ("rabbitmq", True)
    assert await stands() == before
    place = Place(private_broker.url)
    assert await place.get(REAL.queue) is not None
    assert await place.get(REAL.queue) is None
    await place.close(leave=True)


@pytest.mark.long
async def test_ctrl_c_leaves_nothing_on_the_broker(start_demo, stands):
    before = await stands()
    demo = start_demo()
    await demo.says("us: ")
    known = demo.descendants()
    demo.press_ctrl_c()
    assert await demo.ended() == 130
    assert await stands() == before
    await demo.left_nothing(known)


async def test_a_broker_that_is_not_there_or_refuses_is_said_and_what_to_do_without_it(
    start_demo, private_broker, monkeypatch
):
    for url, why in (
        (f"amqp://guest:guest@127.0.0.1:{free_port()}/", "the broker cannot be used: ConnectionRefusedError"),
        (private_broker.url_for(password="hidden"), "the broker refuses user 'guest'"),
    ):
        monkeypatch.setenv("FANOUT_AMQP_URL", url)
        demo = start_demo()
        assert await demo.ended() == 1
        assert why in demo.err
        assert "FANOUT_AMQP_URL names this broker; without it the demo needs none" in demo.err
        assert "hidden" not in demo.err
        assert "Traceback" not in demo.err
        assert "queues stay" not in demo.err
        await demo.left_nothing({})
