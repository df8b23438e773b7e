"""Deployments that share a database and a broker see nothing of each other; regions need share no virtual host."""

import contextlib
import re
import secrets

import httpx2
import pytest

from fanout.running.schemas import all_places, migrate_place
from fanout.settings import Settings
from fanout.transports.rabbitmq import Topology, remove
from fanout.transports.transport import QueueUnavailable
from services.deployment import QUICK
from services.waiting import eventually

COUNT = 20
ALL = {"event_types": ["*"], "concurrency": 4}


class Deployed:
    """`fanout up` with an environment of its own, used over its API."""

    def __init__(self, roles, client, environment):
        self._roles, self._client = roles, client
        self.environment = QUICK | environment
        self._base = ""

    async def start(self):
        for place in all_places(Settings.load(self.environment)):
            await migrate_place(place)
        role = self._roles.start("up", env=self.environment)
        self._base = re.search(r"http://[\d.]+:\d+", await role.says("listening", 40))[0]

    async def _put(self, path, **content):
        answer = await self._client.put(self._base + path, **content)
        assert answer.status_code in (201, 202), answer.text

    async def subscribe(self, name, region, endpoint):
        await self._put(f"/v1/subscribers/{name}", json={"region": region, "endpoint": endpoint, **ALL})

    async def publish(self, start, payload):
        for n in range(start, start + COUNT):
            headers = {"Fanout-Event-Type": "shipment.booked"}
            await self._put(f"/v1/shipments/s-{n}/versions/1", content=payload, headers=headers)

    async def regions(self):
        return (await self._client.get(self._base + "/v1/regions")).json()

    async def delivered(self, **counts):
        """Until each region has delivered so many, and nothing is open."""

        async def so_many():
            regions = (await self.regions())["regions"]
            return all(
                (regions[region]["delivered"], regions[region]["open"]) == (count, 0)
                for region, count in counts.items()
            )

        await eventually(so_many, 90, f"delivered {counts}")


@pytest.fixture
async def deploy(roles, private_broker):
    opened = []
    async with httpx2.AsyncClient(timeout=20, trust_env=False) as client:

        async def start(**environment):
            deployed = Deployed(roles, client, environment)
            opened.append(deployed)
            await deployed.start()
            return deployed

        yield start
    for role in roles.started:
        role.kill()
        await role.ended()
    for settings in (Settings.load(each.environment) for each in opened):
        for region in settings.regions.values():
            with contextlib.suppress(QueueUnavailable):  # a virtual host that is gone
                await remove(region.broker_url, [Topology(settings.exchange, region.queue)])


async def test_two_namespaces_on_one_database_and_one_virtual_host_never_see_each_others_work(
    deploy, private_broker, database_url, receiver
):
    """The same subscriber, and the same shipments with other bytes: were anything shared it would be a conflict or a stray."""
    names = [f"{name}_{secrets.token_hex(3)}" for name in ("north", "south")]
    shared = {"FANOUT_DATABASE_URL": database_url, "FANOUT_AMQP_URL": private_broker.url}
    north, south = [await deploy(**shared, FANOUT_NAMESPACE=name) for name in names]
    for name, deployed in zip(names, (north, south), strict=True):
        await deployed.subscribe("acme", "eu", receiver.endpoint(name))
    await north.publish(0, b"north")
    await north.delivered(eu=COUNT, us=0)
    assert (await south.regions())["regions"]["eu"]["accepted"] == 0
    await south.publish(0, b"south")
    await south.delivered(eu=COUNT, us=0)
    for name, deployed in zip(names, (north, south), strict=True):
        mine = [each for each in receiver.received if each.subscriber == name]
        assert [each.body for each in mine] == [name.partition("_")[0].encode()] * COUNT
        assert (await deployed.regions())["balanced"] is True
    queues = (await private_broker.control("list_queues", "name", "messages", "--no-table-headers")).splitlines()
    for name in names:
        assert {f"{name}.eu\t0", f"{name}.us\t0"} <= set(queues)


async def test_a_virtual_host_for_each_region_and_one_that_is_gone_stops_no_other(
    deploy, private_broker, database_url, receiver
):
    async def make(vhost):
        await private_broker.control("add_vhost", vhost)
        await private_broker.control("set_permissions", "-p", vhost, "guest", ".*", ".*", ".*")

    for region in ("eu", "us"):
        await make(f"cell_{region}")
    try:
        deployed = await deploy(
            FANOUT_DATABASE_URL=database_url,
            FANOUT__REGIONS__EU__AMQP_URL=private_broker.url_for(vhost="cell_eu"),
            FANOUT__REGIONS__US__AMQP_URL=private_broker.url_for(vhost="cell_us"),
        )
        for region in ("eu", "us"):
            await deployed.subscribe(f"acme-{region}", region, receiver.endpoint(region))
        await deployed.publish(0, b"{}")
        await deployed.delivered(eu=COUNT, us=COUNT)
        for region in ("eu", "us"):
            names = await private_broker.control("list_queues", "-p", f"cell_{region}", "name", "--no-table-headers")
            assert sorted(names.split()) == [f"fanout.{region}", f"fanout.{region}.dead"]
        await private_broker.control("delete_vhost", "cell_us")
        await deployed.publish(COUNT, b"{}")
        await deployed.delivered(eu=2 * COUNT)
        assert (await deployed.regions())["regions"]["us"]["delivered"] == COUNT
        await make("cell_us")
        await deployed.delivered(eu=2 * COUNT, us=2 * COUNT)
        assert (await deployed.regions())["balanced"] is True
    finally:
        for region in ("eu", "us"):
            await private_broker.control("delete_vhost", f"cell_{region}")
