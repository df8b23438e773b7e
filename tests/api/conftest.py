from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import asyncpg
import pytest
from served import Served, migrated, serving, settings_for
from services import Databases, run


@pytest.fixture(scope="session")
def migrated_url(databases: Databases) -> Iterator[str]:
    """A database with home and two regions, empty: the template of every test's own."""
    url = run(databases.create())
    run(migrated(settings_for(url)))
    yield url
    run(databases.drop(url))


@pytest.fixture
async def ready_url(databases: Databases, migrated_url: str) -> AsyncIterator[str]:
    """A fresh copy of it."""
    name = urlsplit(migrated_url).path.removeprefix("/") + "_copy"
    connection = await asyncpg.connect(databases.url)
    try:
        await connection.execute(f'drop database if exists "{name}" with (force)')
        await connection.execute(f'create database "{name}" template "{urlsplit(migrated_url).path[1:]}"')
    finally:
        await connection.close()
    url = urlsplit(databases.url)._replace(path=f"/{name}").geturl()
    yield url
    await databases.drop(url)


@pytest.fixture
async def api(ready_url: str) -> AsyncIterator[Served]:
    """The API over home and two regions, all up to date and empty."""
    async with serving(settings_for(ready_url)) as served:
        yield served
