"""Fixtures that every test may use: a PostgreSQL, a fresh database, a server to break, our roles as processes."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog

from fanout.embedded import EmbeddedPostgres
from fanout.receiver import ReceiverServer, serve
from services import Databases, Roles, run
from services.broker import MISSING, STANDARD_URL, OwnBroker, programs


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is marked ``long``: storms of which a shorter run has a like, and measurements."""
    if os.environ.get("FANOUT_TEST_LONG") == "1":
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.fixture(autouse=True)
def logs_start_anew() -> Iterator[None]:
    """A test that runs a command in this process sends its logs to a stream that is gone afterwards."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A running PostgreSQL, one per test process: the one in FANOUT_TEST_DATABASE_URL, else an embedded one. Shared: a
    test works in its own ``database_url``."""
    if url := os.environ.get("FANOUT_TEST_DATABASE_URL"):
        yield url
        return
    server = EmbeddedPostgres(fsync=False)
    run(server.start())
    try:
        yield server.dsn
    finally:
        run(server.close())


@pytest.fixture(scope="session")
def databases(postgres_url: str) -> Databases:
    """Makes further databases, for a test that needs more than one (one per region)."""
    return Databases(postgres_url)


@pytest.fixture
async def database_url(databases: Databases) -> AsyncIterator[str]:
    """A fresh empty database, dropped afterwards."""
    url = await databases.create()
    yield url
    await databases.drop(url)


@pytest.fixture
async def own_postgres() -> AsyncIterator[EmbeddedPostgres]:
    """A private server, listening on its socket and on 127.0.0.1, that the test may stop, kill and restart."""
    async with EmbeddedPostgres(fsync=False, tcp=True) as server:
        yield server


@pytest.fixture(scope="session")
def private_broker() -> Iterator[OwnBroker]:
    """A node that tests may stop, kill and alarm, if they leave it running and quiet. One per test process."""
    if programs() is None:
        pytest.skip(MISSING.format(url=STANDARD_URL))
    broker = OwnBroker()
    try:
        run(broker.start())
        yield broker
    finally:
        run(broker.close())


@pytest.fixture
async def roles(tmp_path: Path) -> AsyncIterator[Roles]:
    """Starts our own commands as real processes; whatever still runs at the end is killed."""
    started = Roles(tmp_path)
    yield started
    await started.close()


@pytest.fixture
async def receiver() -> AsyncIterator[ReceiverServer]:
    """A subscriber's endpoint in this process on a free port: 200 to everything until ``use`` says otherwise; every
    request is kept in ``received``."""
    async with await serve(record=True) as server:
        yield server
