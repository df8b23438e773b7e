"""Fresh databases on a running PostgreSQL."""

import asyncio
import itertools
import os
from collections.abc import Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncpg

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine outside of any test, without touching the event loop that pytest-asyncio keeps for the tests."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


class Databases:
    """Makes and drops databases on the server behind ``url`` (whose user may create databases)."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._names = (f"fanout_test_{os.getpid()}_{n}" for n in itertools.count(1))

    async def create(self) -> str:
        """The URL of a new, empty database. About 30 ms."""
        name = next(self._names)
        await self._execute(f'create database "{name}" template template0')
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    async def drop(self, url: str) -> None:
        """Also while someone is connected."""
        name = urlsplit(url).path.removeprefix("/")
        await self._execute(f'drop database if exists "{name}" with (force)')

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
