"""What stands on the broker, who makes it, and what is said where it stands differently."""

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from fanout.running.regional import topology_of
from fanout.settings import Settings
from fanout.transports.rabbitmq import QueueRefused, RabbitConsuming, RabbitPublishing, Topology
from fanout.transports.rabbitmq.sending import ConfirmedSending
from fanout.transports.transport import QueueUnavailable, Reference
from services.roles import ROOT
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


async def test_a_direct_exchange_that_lasts_and_a_heartbeat_of_our_own_choice(private_broker, own_place):
    topology = Topology(own_place.exchange, own_place.queue)
    name = own_place.exchange
    ends = [RabbitPublishing(own_place.url, topology, f"{name} publishing")]
    ends.append(RabbitConsuming(own_place.url, topology, f"{name} consuming"))
    ends.append(RabbitConsuming(f"{own_place.url}?heartbeat=77", topology, f"{name} slow"))
    try:
        await eventually(lambda: {end.state for end in ends} == {"open"}, what="open")
        exchanges = await private_broker.control("list_exchanges", "name", "type", "durable", "auto_delete")
        assert f"{name}\tdirect\ttrue\tfalse" in exchanges.splitlines()
        connections = (await private_broker.control("list_connections", "timeout", "client_properties")).splitlines()
        heartbeats = {
            end: next(line.split("\t")[0] for line in connections if f'"{name} {end}"' in line)
            for end in ("publishing", "consuming", "slow")
        }
        assert heartbeats == {"publishing": "10", "consuming": "10", "slow": "77"}
    finally:
        for end in ends:
            await end.close()


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


async def trouble_of(use):
    with pytest.raises(QueueUnavailable) as error:
        await use
    return str(error.value)


async def test_where_we_do_not_declare_what_is_missing_is_said_with_the_mend_and_waited_for(private_broker, own_place):
    locked = Topology(own_place.exchange, own_place.queue, declare=False)
    consuming = RabbitConsuming(own_place.url, locked, "tests consuming")
    publishing = RabbitPublishing(own_place.url, locked, "tests publishing", confirm_seconds=2)
    try:
        for use in (consuming.take(1, 5), publishing.publish([Reference(1, 1, 1)])):
            text = await trouble_of(use)
            missing = f"exchange '{locked.exchange}', queue '{locked.queue}', queue '{locked.queue}.dead'"
            assert f"not there in virtual host '/': {missing}; and we are told not to declare" in text
        with pytest.raises(Exception, match="NOT_FOUND"):
            await own_place.counts()
        definitions, command = text.split("echo '")[1].split("' | ")
        (private_broker.folder / "mend.json").write_text(definitions)
        assert command == "rabbitmqctl import_definitions"
        await private_broker.control("import_definitions", private_broker.inside("mend.json"))
        await eventually(
            lambda: (publishing.state, consuming.state) == ("open", "open"), 20, "both recover by themselves"
        )
        await publishing.publish([Reference(3, 1, 1)])
        (message,) = await consuming.take(1, 5)
        assert message.references == [Reference(3, 1, 1)]
        message.done()

        channel = await own_place.channel()
        await (await channel.get_queue(own_place.queue, ensure=False)).unbind(own_place.exchange, own_place.queue)
        text = await trouble_of(publishing.publish([Reference(4, 1, 1)]))
        assert "it, or its binding, was deleted; an administrator can run echo '{" in text
    finally:
        await publishing.close()
        await consuming.close()


async def test_what_an_administrator_makes_from_our_definitions_is_what_we_declare(private_broker, own_place):
    """Declared over it with everything compared: nothing differs."""
    topology = Topology(own_place.exchange, own_place.queue)
    (private_broker.folder / "ours.json").write_text(json.dumps(topology.definitions("/")))
    await private_broker.control("import_definitions", private_broker.inside("ours.json"))
    publishing = RabbitPublishing(own_place.url, topology, "tests publishing")
    try:
        await publishing.publish([Reference(1, 1, 1)])
        assert (await own_place.counts())[0] == 1
    finally:
        await publishing.close()


def test_the_definitions_that_are_delivered_are_what_the_delivered_settings_need(tmp_path):
    settings = Settings.load({"FANOUT_AMQP_URL": "amqp://h"}, tmp_path)
    wanted = {"exchanges": [], "queues": [], "bindings": []}
    for region in settings.regions.values():
        for kind, items in topology_of(settings, region).definitions("fanout").items():
            wanted[kind] += [each for each in items if each not in wanted[kind]]
    assert json.loads((ROOT / "config" / "rabbitmq" / "definitions.json").read_text()) == wanted


async def test_the_first_declaration_is_no_loss_and_the_second_is_one(place):
    lost = []
    publishing = RabbitPublishing(
        place.url, Topology(place.exchange, place.queue), "tests publishing", on_queue_lost=lambda: lost.append(1)
    )
    try:
        with capture_logs() as lines:
            await publishing.publish([Reference(1, 1, 1)])
        assert [(line["log_level"], line["event"]) for line in lines] == [("info", "queue declared")]
        assert lost == [1], "it may have stood before this process: the ledger is asked all the same"
        with capture_logs() as lines:
            await place.delete()
            publishing._sending.link.drop("a test")
            await eventually(lambda: lost == [1, 1], what="missed")
        assert ("warning", "queue was missing; its references are gone") in [
            (line["log_level"], line["event"]) for line in lines
        ]
    finally:
        await publishing.close()


async def test_a_queue_that_answers_and_confirms_nothing_has_its_mend_named_at_the_second_time(place, monkeypatch):
    """As a node of 3.10 leaves one that was killed within half a second of the declaration."""
    topology = Topology(place.exchange, place.queue)
    publishing = RabbitPublishing(place.url, topology, "tests publishing", confirm_seconds=1)
    try:
        await eventually(lambda: publishing.state == "open", what="open")

        async def never(*_):
            await asyncio.sleep(60)

        monkeypatch.setattr(ConfirmedSending, "_publish", never)
        first = await trouble_of(publishing.publish([Reference(n, 1, 1, probation=True) for n in range(3)]))
        await eventually(lambda: publishing.state == "open", what="open again")
        second = await trouble_of(publishing.publish([Reference(1, 1, 1)]))
        assert "confirmed nothing within 1 s" in first
        assert "delete" not in first
        assert f"(`rabbitmqctl -p / delete_queue {place.queue}`)" in second
        monkeypatch.undo()
        await eventually(lambda: publishing.state == "open", what="open again")
        await publishing.publish([Reference(1, 1, 1)])
        assert publishing._sending._silent == []
    finally:
        await publishing.close()
