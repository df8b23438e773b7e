"""TLS to the broker: `amqps` in the URL, and where to find the authority."""

import re

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


@pytest.mark.parametrize(
    ("host", "query", "why"),
    [
        ("127.0.0.1", "", "is not trusted: self.signed certificate in certificate chain; if its authority is your own, put .cafile="),
        ("127.1", "?cafile={authority}", "is for other names: Hostname mismatch, .* not valid for '127.1'; put one of its names"),
        ("127.0.0.1", "?cafile=/nowhere.pem", r"certificates in the AMQP URL \(cafile=/nowhere.pem\) .* No such file"),
        ("127.0.0.1", "?cafile={text}", r"certificates in the AMQP URL \(cafile=.*\) .* no certificate or crl found"),
    ],
    ids=["unknown authority", "another name", "no such file", "no certificate in it"],
)  # fmt: skip
async def test_a_broker_whose_certificate_does_not_verify_is_not_spoken_to_and_the_mend_is_said(
    private_broker, own_place, host, query, why
):
    query = query.format(authority=AUTHORITY, text=__file__)
    text = await trouble_of(f"amqps://guest:hidden@{host}:{private_broker.tls_port}/{query}", own_place)
    assert re.search(why, text), text
    assert "hidden" not in text


async def test_a_port_that_speaks_no_tls_is_named(private_broker, own_place):
    text = await trouble_of(f"amqps://guest:hidden@127.0.0.1:{private_broker.port}/", own_place)
    assert f"the broker at 127.0.0.1:{private_broker.port} speaks no TLS there" in text


async def trouble_of(url, place):
    publishing = RabbitPublishing(url, Topology(place.exchange, place.queue), "tests")
    try:
        with pytest.raises(QueueUnavailable) as error:
            await publishing.publish([Reference(1, 1, 1)])
        return str(error.value)
    finally:
        await publishing.close()
