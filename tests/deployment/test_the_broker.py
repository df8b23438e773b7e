"""A real node with config/rabbitmq/rabbitmq.conf: our roles can do what they have to, and no more."""

from pathlib import Path

import pytest
from aio_pika import ExchangeType, connect
from aiormq.exceptions import AMQPError

from fanout.settings import Settings
from fanout.transports.rabbitmq import RabbitConsuming, RabbitPublishing, Topology
from fanout.transports.transport import Reference

from .compose import environment_of, services
from .conftest import USER, ComposedBroker


async def test_our_user_has_what_the_roles_need_and_nothing_beyond(broker: ComposedBroker, tmp_path: Path):
    settings = Settings.load(environment_of(services()["consumer-eu"]), tmp_path)
    topology = Topology(settings.exchange, settings.regions["eu"].queue)
    publishing = RabbitPublishing(broker.url, topology, "test publishing")
    consuming = RabbitConsuming(broker.url, topology, "test consuming")
    try:
        await publishing.publish([Reference(1, 1, 1)])
        (message,) = await consuming.take(1, 10)
        assert message.references[0].delivery_id == 1
        message.done()
    finally:
        await publishing.close()
        await consuming.close()

    connection = await connect(broker.url)
    try:
        for name in ("other.eu", "fanoutx"):
            channel = await connection.channel()
            with pytest.raises(AMQPError, match=r"ACCESS_REFUSED|access .* refused"):
                await channel.declare_queue(name, durable=True)
        channel = await connection.channel()
        with pytest.raises(AMQPError, match=r"ACCESS_REFUSED|access .* refused"):
            await channel.declare_exchange("other", ExchangeType.DIRECT, durable=True)
    finally:
        await connection.close()

    users = (await broker.control("list_users", "--no-table-headers")).split("\n")
    assert [line.split("\t") for line in users if line] == [[USER, "[monitoring]"]], "no guest, no administrator"
