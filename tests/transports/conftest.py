"""The broker of these tests: the one in FANOUT_TEST_AMQP_URL, else the one on the standard port, else a private one."""

import os
from collections.abc import AsyncIterator

import pytest

from services.broker import STANDARD_URL, OwnBroker, Place, answers
from services.databases import run


@pytest.fixture(scope="session")
def amqp_url(request: pytest.FixtureRequest) -> str:
    named = os.environ.get("FANOUT_TEST_AMQP_URL") or (STANDARD_URL if run(answers(STANDARD_URL)) else "private")
    return request.getfixturevalue("private_broker").url if named == "private" else named


@pytest.fixture
async def place(amqp_url: str) -> AsyncIterator[Place]:
    """Names of this test's own on the shared broker."""
    place = Place(amqp_url)
    yield place
    await place.close()


@pytest.fixture
async def own_place(private_broker: OwnBroker) -> AsyncIterator[Place]:
    """The same on the private broker."""
    place = Place(private_broker.url)
    yield place
    await place.close(leave=True)
