"""What stands on the broker, who makes it, and what is said where it stands differently."""

import asyncio

import pytest

from fanout.transports.rabbitmq import QueueRefused, RabbitConsuming, RabbitPublishing, Topology
from fanout.transports.transport import QueueUnavailable, Reference
from services.waiting import eventually


async def test_only_durable_quorum_queues_without_expiry_and_with_a_limited_dead_letter_queue(
    private_broker, own_place
):
    topology = Topology(own_place.exchange, own_place.queue)
    publishing = RabbitPublishing(own_place.url, topology, "tests publishing")
    try:
        await publishing.publish([Reference(1, 1, 1)])
    finally:
        await publishing.close()
    table = await private_broker.control("list_queues", "name", "durable", "auto_delete", "arguments")
    rows = dict(line.split("\t", 1) for line in table.splitlines() if own_place.queue in line)
    assert set(rows) == {own_place.queue, f"{own_place.queue}.dead"}
    for row in rows.values():
        assert row.startswith("true\tfalse\t")
        assert '{"x-queue-type","quorum"}' in row
        assert "ttl" not in row
        assert "expires" not in row
    assert '{"x-delivery-limit",50}' in rows[own_place.queue]
    assert f'{{"x-dead-letter-routing-key","{own_place.queue}.dead"}}' in rows[own_place.queue]
    assert "max-length" not in rows[own_place.queue]
    assert '{"x-max-length",10000}' in rows[f"{own_place.queue}.dead"]
    assert '{"x-overflow","drop-head"}' in rows[f"{own_place.queue}.dead"]


async def test_declaring_again_changes_nothing(place):
    topology = Topology(place.exchange, place.queue)
    for n in range(2):
        publishing = RabbitPublishing(place.url, topology, "tests publishing")
        await publishing.publish([Reference(n, 1, 1)])
        await publishing.close()
    assert (await place.counts())[0] == 2


async def test_many_that_start_at_once_on_an_empty_broker_do_not_get_in_each_others_way(place):
    """3.10 throws some of those out that declare a quorum queue at the same moment, and nacks before it has a leader."""
    topology = Topology(place.exchange, place.queue)
    ends = [RabbitPublishing(place.url, topology, f"tests {n}") for n in range(6)]

    async def patiently(publishing):
        while True:
            try:
                return await publishing.publish([Reference(1, 1, 1)])
            except QueueUnavailable:
                await asyncio.sleep(0.1)

    try:
        async with asyncio.timeout(20):
            await asyncio.gather(*map(patiently, ends))
        assert (await place.counts())[0] == 6
    finally:
        await asyncio.gather(*(each.close() for each in ends))


async def test_a_queue_with_other_arguments_is_one_clear_error_with_the_mend(place):
    channel = await place.channel()
    topology = Topology(place.exchange, place.queue)
    await channel.declare_queue(place.queue, durable=True, arguments=topology.queue_arguments | {"x-delivery-limit": 7})
    consuming = RabbitConsuming(place.url, topology, "tests consuming")
    try:
        for _ in range(2):
            with pytest.raises(QueueRefused) as error:
                await consuming.take(1, 5)
            text = str(error.value)
            assert f"queue '{place.queue}' in virtual host '/' exists, but not as we need it" in text
            assert "argument 'x-delivery-limit', received '50' but current is '7'" in text
            assert f"rabbitmqctl -p / delete_queue {place.queue}" in text
        assert consuming.state == "refused"
    finally:
        await consuming.close()


async def test_a_classic_queue_of_the_same_name_is_one_clear_error(place):
    await (await place.channel()).declare_queue(place.queue, durable=True)
    publishing = RabbitPublishing(place.url, Topology(place.exchange, place.queue), "tests publishing")
    try:
        with pytest.raises(
            QueueRefused, match=rf"queue '{place.queue}' .* exists, but not as we need it: argument 'x-"
        ):
            await publishing.publish([Reference(1, 1, 1)])
    finally:
        await publishing.close()


async def test_an_exchange_of_another_kind_is_one_clear_error(place):
    await (await place.channel()).declare_exchange(place.exchange, "fanout", durable=True)
    publishing = RabbitPublishing(place.url, Topology(place.exchange, place.queue), "tests publishing")
    try:
        with pytest.raises(QueueRefused, match=f"exchange '{place.exchange}' in virtual host '/' exists, but not as"):
            await publishing.publish([Reference(1, 1, 1)])
    finally:
        await publishing.close()


async def test_where_we_do_not_declare_a_missing_queue_is_said_and_waited_for(place):
    locked = Topology(place.exchange, place.queue, declare=False)
    consuming = RabbitConsuming(place.url, locked, "tests consuming")
    publishing = RabbitPublishing(place.url, locked, "tests publishing")
    try:
        for use in (lambda: consuming.take(1, 2), lambda: publishing.publish([Reference(1, 1, 1)])):
            with pytest.raises(QueueUnavailable, match=f"queue '{place.queue}' does not exist, and we are told not to"):
                await use()
        with pytest.raises(Exception, match="NOT_FOUND"):
            await place.counts()
        made = RabbitPublishing(place.url, Topology(place.exchange, place.queue), "an operator")
        await made.publish([Reference(2, 1, 1)])
        await made.close()
        await eventually(
            lambda: (publishing.state, consuming.state) == ("open", "open"), what="both recover by themselves"
        )
        await publishing.publish([Reference(3, 1, 1)])
        seen = set()
        async with asyncio.timeout(5):
            while seen != {2, 3}:
                seen |= {each.references[0].delivery_id for each in await consuming.take(10, 1)}
    finally:
        await publishing.close()
        await consuming.close()
