from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
from served import Served, migrated, serving, settings_for

from services import Databases, run

_HOME = ("outbox", "version", "shipment", "subscriber")
_REGION = (
    "attempt", "late_result", "delivery", "expansion", "version", "operator_event", "config_change", "secret", "subscription",
    "destination", "subscriber",
)  # fmt: skip
_EMPTY = "; ".join(
    [f"DELETE FROM fanout.{table}" for table in _HOME]
    + [f"DELETE FROM fanout_{region}.{table}" for region in ("eu", "us") for table in _REGION]
)


@pytest.fixture(scope="session")
def migrated_url(databases: Databases) -> Iterator[str]:
    """A database with home and two regions."""
    url = run(databases.create())
    run(migrated(settings_for(url)))
    yield url
    run(databases.drop(url))


@pytest.fixture
async def ready_url(migrated_url: str) -> str:
    """The same, empty: a database of its own for each of a hundred small tests would take minutes."""
    connection = await asyncpg.connect(migrated_url)
    await connection.execute(_EMPTY)
    await connection.close()
    return migrated_url


@pytest.fixture
async def api(ready_url: str) -> AsyncIterator[Served]:
    """The API over home and two regions, all up to date and empty."""
    async with serving(settings_for(ready_url)) as served:
        yield served
