"""The promises, on real processes that are stopped, killed and lied to."""

import os

import pytest
import pytest_asyncio

from fanout.embedded import EmbeddedPostgres
from fanout.receiver import serve
from services.broker import Place
from services.deployment import Deployment
from services.deployments import Deployments
from services.region import Region

EACH = int(os.environ.get("FANOUT_TEST_DAY_EACH", "1"))
"""Schedulers and consumers of a region, in a whole deployment."""


@pytest.fixture
async def deployment(database_url, roles):
    us = await Region.open(database_url, "us", watched=False)  # there, and asked, but nobody lives in it
    await us.connection.close()
    region = await Region.open(database_url)
    async with await serve([], record=True) as receiver:
        yield Deployment(region, roles, receiver)
        for role in reversed(roles.started):
            if role.running:
                role.kill()
        drift = await region.drift()
        assert not drift, f"counters disagree with rows: {drift}"
    await region.connection.close()


@pytest.fixture
async def place(private_broker):
    """Names of this test's own on a private broker."""
    place = Place(private_broker.url)
    yield place
    await place.close()


@pytest.fixture
async def over_rabbitmq(deployment, place):
    """The same deployment, its references by way of ``place``."""
    deployment.environment |= {"FANOUT__REGIONS__EU__AMQP_URL": place.url, "FANOUT__REGIONS__EU__QUEUE": place.queue}
    return deployment


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole_deployments(private_broker, tmp_path_factory):
    async with EmbeddedPostgres(fsync=False, tcp=True) as postgres:
        deployments = Deployments(tmp_path_factory.mktemp("deployments"), postgres, private_broker, EACH)
        yield deployments
        await deployments.close()


@pytest_asyncio.fixture(loop_scope="module")
async def deployments(whole_deployments):
    """Deployments of separate processes over a private PostgreSQL and a private RabbitMQ. One that a test has left unsound is not
    used again."""
    yield whole_deployments
    if not whole_deployments.sound:
        await whole_deployments.close()
