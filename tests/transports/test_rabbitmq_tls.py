"""TLS to the broker: `amqps` in the URL, and where to find the authority."""

import pytest

from fanout.transports.rabbitmq import RabbitConsuming, RabbitPublishing, Topology
from fanout.transports.transport import QueueUnavailable, Reference
from services.broker import AUTHORITY


async def test_references_travel_over_tls(private_broker, own_place):
    url = f"amqps://guest:guest@127.0.0.1:{private_broker.tls_port}/%2F?cafile={AUTHORITY}"
    topology = Topology(own_place.exchange, own_place.queue)
    publishing, consuming = RabbitPublishing(url, topology, "tests"), RabbitConsuming(url, topology, "tests")
    try:
        await publishing.publish([Reference(1, 1, 1)])
        (message,) = await consuming.take(1, 5)
        assert message.references == [Reference(1, 1, 1)]
        message.done()
    finally:
        await publishing.close()
        await consuming.close()


async def test_a_broker_whose_certificate_does_not_verify_is_not_spoken_to_and_the_reason_is_said(
    private_broker, own_place
):
    url = f"amqps://guest:guest@127.0.0.1:{private_broker.tls_port}/"
    publishing = RabbitPublishing(url, Topology(own_place.exchange, own_place.queue), "tests")
    try:
        with pytest.raises(QueueUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await publishing.publish([Reference(1, 1, 1)])
    finally:
        await publishing.close()
