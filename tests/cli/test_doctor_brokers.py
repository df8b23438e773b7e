"""`fanout doctor` and the broker: whether it is there, holds what we need, and takes messages. It leaves no trace there."""

import aio_pika
import pytest

from fanout.cli.brokers import examine_broker
from fanout.settings import Settings
from fanout.transports.rabbitmq import Topology
from services.broker import OwnBroker, Place


@pytest.fixture
async def place(private_broker: OwnBroker):
    place = Place(private_broker.url)
    yield place
    await place.close(leave=True)


async def seen(place: Place, url: str | None = None, **environment: str) -> dict[str, tuple[bool, str, str]]:
    """By what was looked at: whether it is well, what was found, how to mend it."""
    settings = Settings.load(
        {
            "FANOUT_AMQP_URL": url or place.url,
            "FANOUT__REGIONS__EU__QUEUE": place.queue,
            "FANOUT_DATABASE_URL": "postgresql://h/d",
            **environment,
        }
    )
    checks = await examine_broker(settings.regions["eu"], place.exchange)
    return {each.what.removeprefix("eu: "): (each.ok, each.found, each.mend) for each in checks}


async def made(place: Place, **arguments: object) -> None:
    """What our roles make there; ``arguments`` of the work queue, where they are others."""
    topology = Topology(place.exchange, place.queue)
    channel = await place.channel()
    await channel.declare_exchange(place.exchange, aio_pika.ExchangeType.DIRECT, durable=True)
    await channel.declare_queue(
        place.queue, durable=True, arguments=topology.queue_arguments | {f"x-{k}": v for k, v in arguments.items()}
    )
    await channel.declare_queue(topology.dead_queue, durable=True, arguments=topology.dead_queue_arguments)


async def test_a_broker_that_is_as_we_need_it_is_well_and_left_as_it_was(place: Place):
    await made(place)
    found = await seen(place)
    assert all(ok for ok, _, _ in found.values()), found
    assert list(found) == [
        "broker", f"exchange {place.exchange}", f"queue {place.queue}", f"queue {place.queue}.dead", "broker's alarms",
    ]  # fmt: skip
    assert "guest:***@" in found["broker"][1]
    assert ", RabbitMQ 3." in found["broker"][1] or ", RabbitMQ 4." in found["broker"][1]
    assert found[f"queue {place.queue}"][1] == "as it has to be; 0 messages ready, 0 consumers"
    assert found["broker's alarms"][1] == "none is on: it takes messages"
    assert await place.counts() == (0, 0), "what was sent to try it reached no queue"


async def test_what_no_role_has_made_yet_is_no_mistake_and_is_not_made_by_looking(place: Place):
    for _ in range(2):
        found = await seen(place)
        assert all(ok for ok, _, _ in found.values()), found
        assert found[f"queue {place.queue}"][1].startswith("not there yet")
        assert found["broker's alarms"][1].startswith("not tried")


async def test_where_we_may_not_declare_what_is_missing_is_wrong_and_what_differs_is_told(place: Place):
    locked = {"FANOUT__REGIONS__EU__DECLARE": "false"}
    ok, said, mend = (await seen(place, **locked))[f"queue {place.queue}"]
    assert (ok, said) == (False, "not there, and we are told not to declare it")
    assert "' | rabbitmqctl import_definitions" in mend
    await made(place, **{"delivery-limit": 3})
    found = await seen(place, **locked)
    assert "argument 'x-delivery-limit', received '50' but current is '3'" in found[f"queue {place.queue}"][1]
    assert found[f"queue {place.queue}.dead"][0] is True


async def test_a_queue_with_other_arguments_is_told_with_how_to_mend_it(place: Place):
    await made(place, **{"delivery-limit": 3})
    found = await seen(place)
    ok, said, mend = found[f"queue {place.queue}"]
    assert (ok, found[f"queue {place.queue}.dead"][0]) == (False, True)
    assert "argument 'x-delivery-limit'" in said
    assert "rabbitmqctl" in mend
    assert found["broker's alarms"][0] is True, "what is wrong with one queue ends no other check"


async def test_an_exchange_of_another_kind_is_told(place: Place):
    await (await place.channel()).declare_exchange(place.exchange, aio_pika.ExchangeType.FANOUT, durable=True)
    ok, said, mend = (await seen(place))[f"exchange {place.exchange}"]
    assert (ok, bool(mend)) == (False, True)
    assert "'type'" in said


async def test_an_alarm_is_told_and_over_when_it_is_over(place: Place, private_broker: OwnBroker):
    await made(place)
    await private_broker.alarm(True)
    try:
        ok, said, mend = (await seen(place))["broker's alarms"]
    finally:
        await private_broker.alarm(False)
    assert (ok, said) == (False, "one is on: the broker takes no messages")
    assert "rabbitmq-diagnostics alarms" in mend
    assert (await seen(place))["broker's alarms"][0] is True


@pytest.mark.parametrize(
    ("url", "said", "mend"),
    [
        ("amqp://guest:geheim@127.0.0.1:1/", "cannot be used", "see whether it runs"),
        ("amqp://guest:geheim@127.0.0.1:{port}/", "refuses user 'guest'", "put the right user and password"),
        ("amqp://guest:guest@127.0.0.1:{port}/nowhere", "virtual host 'nowhere'", "rabbitmqctl add_vhost"),
    ],
)
async def test_a_broker_that_is_away_or_refuses_us_is_one_check_with_its_mend(
    place: Place, private_broker: OwnBroker, url: str, said: str, mend: str
):
    url = url.replace("{port}", str(private_broker.port))
    found = await seen(place, url)
    assert list(found) == ["broker"]
    assert found["broker"][0] is False
    assert said in found["broker"][1]
    assert mend in found["broker"][2]
    assert "geheim" not in str(found)
