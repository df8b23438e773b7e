"""A real node with config/rabbitmq/rabbitmq.conf: our roles can do what they have to, and no more."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aio_pika import ExchangeType, connect
from aiormq.exceptions import AMQPError

from fanout.settings import Settings
from fanout.transports.rabbitmq import RabbitConsuming, RabbitPublishing, Topology
from fanout.transports.transport import Reference
from services.broker import MISSING, STANDARD_URL, OwnBroker, programs

from .compose import ROOT, environment_of, services

CONFIGURATION = ROOT / "config" / "rabbitmq" / "rabbitmq.conf"
USER, PASSWORD, VHOST = "fanout", "secret", "fanout"


class ComposedBroker(OwnBroker):
    """Configured as the container is. Its first user comes from the file: the variables are the image's way to the same keys."""

    @property
    def url(self) -> str:
        return self.url_for(USER, PASSWORD, VHOST)


@pytest.fixture
async def broker() -> AsyncIterator[ComposedBroker]:
    if programs() is None:
        pytest.skip(MISSING.format(url=STANDARD_URL))
    broker = ComposedBroker()
    first = [f"default_user = {USER}", f"default_pass = {PASSWORD}", f"default_vhost = {VHOST}"]
    broker.configure(*CONFIGURATION.read_text().splitlines(), *first)
    try:
        await broker.start()
        yield broker
    finally:
        await broker.close()


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
