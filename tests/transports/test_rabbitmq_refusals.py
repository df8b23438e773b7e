"""Wrong user, virtual host or permission: one clear error, and no loop. A broker that is half up is waited for."""

import asyncio
import secrets

import pytest

from fanout.transports.rabbitmq import QueueRefused, RabbitConsuming, RabbitPublishing, Topology, link
from fanout.transports.transport import QueueUnavailable, Reference
from services.waiting import eventually

ONE = [Reference(1, 1, 1)]


@pytest.fixture
async def ends(own_place):
    """Opens ends with a URL and a topology; both are closed afterwards."""
    opened = []

    def open_end(kind, url, topology=None, **options):
        end = kind(url, topology or Topology(own_place.exchange, own_place.queue), "tests", **options)
        opened.append(end)
        return end

    yield open_end
    for end in opened:
        await end.close()


async def refused(end):
    with pytest.raises(QueueRefused) as error:
        await (end.publish(ONE) if isinstance(end, RabbitPublishing) else end.take(1, 5))
    await eventually(lambda: end.state == "refused", what="refused for good")
    return str(error.value)


@pytest.mark.parametrize("kind", [RabbitPublishing, RabbitConsuming])
async def test_a_wrong_password_is_fatal_and_is_not_shown(private_broker, ends, kind):
    text = await refused(ends(kind, private_broker.url_for(password="open-sesame")))
    assert f"the broker refuses user 'guest' at 127.0.0.1:{private_broker.port}" in text
    assert "put the right user and password into the AMQP URL" in text
    assert "open-sesame" not in text


@pytest.mark.parametrize("kind", [RabbitPublishing, RabbitConsuming])
async def test_a_virtual_host_that_does_not_exist_is_fatal(private_broker, ends, kind):
    text = await refused(ends(kind, private_broker.url_for(vhost="nowhere")))
    assert "does not let user 'guest'" in text
    assert "vhost nowhere not found" in text
    assert "rabbitmqctl add_vhost" in text


@pytest.fixture
async def limited_user(private_broker, own_place):
    """Makes users with only so much permission on the names of this test."""
    made = []

    async def make(configure, write, read):
        name = f"user_{secrets.token_hex(3)}"
        made.append(name)
        await private_broker.control("add_user", name, "secret")
        await private_broker.control("set_permissions", name, configure, write, read)
        return private_broker.url_for(name, "secret")

    yield make
    for name in made:
        await private_broker.control("delete_user", name)


async def test_a_user_who_may_not_enter_the_virtual_host_is_refused(private_broker, ends):
    await private_broker.control("add_user", "stranger", "secret")
    try:
        text = await refused(ends(RabbitConsuming, private_broker.url_for("stranger", "secret")))
        assert "refused for user 'stranger'" in text
    finally:
        await private_broker.control("delete_user", "stranger")


async def test_users_with_least_permission_work_where_we_do_not_declare(private_broker, own_place, ends, limited_user):
    topology = Topology(own_place.exchange, own_place.queue)
    await ends(RabbitPublishing, own_place.url, topology).publish([Reference(9, 1, 1)])
    name = own_place.exchange
    writer, reader = await limited_user("^$", f"^{name}$", "^$"), await limited_user("^$", "^$", f"^{own_place.queue}$")

    text = await refused(ends(RabbitPublishing, writer, topology))
    assert f"'{name}" in text
    assert "`declare = false`" in text

    locked = Topology(own_place.exchange, own_place.queue, declare=False)
    await ends(RabbitPublishing, writer, locked).publish(ONE)
    consuming = ends(RabbitConsuming, reader, locked, check_seconds=0.1)
    seen = set()
    async with asyncio.timeout(5):
        while seen != {1, 9}:
            for message in await consuming.take(10, 1):
                seen.add(message.references[0].delivery_id)
                message.done()
    # A reader may not publish to the dead-letter queue; the broker moves what it rejects.
    await own_place.put(b"not ours")
    dead = await eventually(lambda: own_place.get(f"{own_place.queue}.dead"), what="a dead letter")
    assert dead.body == b"not ours"
    await eventually(lambda: consuming.figures.acknowledged >= 1, what="acknowledged")
    assert consuming._link.reconnections == 0

    assert f"'{name}'" in await refused(ends(RabbitPublishing, reader, locked))
    assert f"'{own_place.queue}'" in await refused(ends(RabbitConsuming, writer, locked))


async def test_a_broker_that_let_us_in_and_refuses_us_now_is_waited_for_a_while(
    private_broker, own_place, ends, limited_user, monkeypatch
):
    monkeypatch.setattr(link, "REFUSED_SECONDS", 60.0)
    url = await limited_user(".*", ".*", ".*")
    publishing = ends(RabbitPublishing, url)
    await publishing.publish(ONE)
    user = url.split("//")[1].split(":")[0]
    await private_broker.control("clear_permissions", user)
    await private_broker.close_connections()
    await eventually(lambda: publishing.state == "away", what="away")
    with pytest.raises(QueueUnavailable, match="does not let user"):
        await publishing.publish(ONE)
    await private_broker.control("set_permissions", user, ".*", ".*", ".*")
    await eventually(lambda: publishing.state == "open", what="open again")
    await publishing.publish(ONE)
    monkeypatch.setattr(link, "REFUSED_SECONDS", 0.5)
    await private_broker.control("clear_permissions", user)
    await private_broker.close_connections()
    await eventually(lambda: publishing.state == "refused", 20, "refused for good")
