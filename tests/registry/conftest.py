"""A migrated region and a migrated home, and subscribers to put into them."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

import asyncpg
import pytest

from fanout.database.connection import connect
from fanout.database.migrations import migrate
from fanout.database.schema import Schema
from fanout.model.subscriber import SubscriberRules, SubscriberSpec, parse_subscriber

RULES = SubscriberRules({"eu": (ip_network("127.0.0.0/8"),), "us": ()})


@dataclass
class Place:
    """A database with one of our schemas in it."""

    url: str
    connection: asyncpg.Connection
    schema: Schema

    async def one(self, sql: str, *arguments: Any) -> Any:
        return await self.connection.fetchrow(self.schema.sql(sql), *arguments)

    async def values(self, sql: str, *arguments: Any) -> list[Any]:
        return [row[0] for row in await self.connection.fetch(self.schema.sql(sql), *arguments)]

    async def run(self, sql: str, *arguments: Any) -> None:
        await self.connection.execute(self.schema.sql(sql), *arguments)

    async def gate(self, subscriber_id: str) -> Any:
        return await self.one(
            "SELECT d.*, now() AS now FROM {schema}.destination d JOIN {schema}.subscriber s USING (id) WHERE s.subscriber_id = $1",
            subscriber_id,
        )


async def _place(url: str, package: str, name: str) -> AsyncIterator[Place]:
    connection = await connect(url, "test")
    schema = Schema(name)
    await migrate(connection, package, schema)
    yield Place(url, connection, schema)
    await connection.close()


@pytest.fixture
async def eu(database_url: str) -> AsyncIterator[Place]:
    async for place in _place(database_url, "fanout.ledger", "fanout_eu"):
        yield place


@pytest.fixture
async def home(database_url: str) -> AsyncIterator[Place]:
    async for place in _place(database_url, "fanout.home", "fanout"):
        yield place


@pytest.fixture
def wish() -> Callable[..., SubscriberSpec]:
    """What a subscriber asks for: the smallest there is, with these fields changed."""

    def make(**fields: object) -> SubscriberSpec:
        smallest = {"region": "eu", "endpoint": "https://hooks.example.com/in", "event_types": ["shipment.*"]}
        return parse_subscriber(smallest | fields, RULES)

    return make
