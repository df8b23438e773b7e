"""Whole deployments of real processes over servers of their own, kept from test to test while they are sound."""

import secrets
from contextlib import AsyncExitStack
from pathlib import Path

from fanout.embedded import EmbeddedPostgres
from fanout.receiver import serve
from services.broker import OwnBroker
from services.day import Day, Stand
from services.judging import Witness
from services.proxy import Proxy, Watch
from services.roles import Roles

REGIONS = ("eu", "us")


class Deployments:
    """One at a time. Roles reach both servers by way of ``database`` and ``broker_link`` where a test wants to harm these links."""

    def __init__(self, folder: Path, postgres: EmbeddedPostgres, broker: OwnBroker, each: int) -> None:
        self.postgres = postgres
        self.broker = broker
        self.database_link: Proxy | None = None
        self.broker_link: Proxy | None = None
        self.sound = False
        """Set by a test that found everything in order: then the next one may go on with this deployment."""
        self._folder = folder
        self._each = each
        self._kind: tuple[bool, bool] | None = None
        self._day: Day | None = None
        self._stack = AsyncExitStack()
        self._watch: Watch | None = None

    def watch_broker(self, watch: Watch) -> None:
        """Of the next deployment with links: what passes between its roles and the broker."""
        self._watch = watch

    async def get(self, *, rabbitmq: bool = True, links: bool = False) -> Day:
        """The one that stands, if it is of this kind and sound, else a new one."""
        if self._day is None or not self.sound or self._kind != (rabbitmq, links):
            await self.close()
            self._day = await self._open(rabbitmq=rabbitmq, links=links)
            self._kind = (rabbitmq, links)
        self.sound = False
        return self._day

    async def _open(self, *, rabbitmq: bool, links: bool) -> Day:
        name = f"day_{secrets.token_hex(4)}"
        url = await self.postgres.create_database(name)
        roles_url, amqp_url = self.postgres.database_url(name, over="tcp"), self.broker.url
        if links:
            self.database_link = await self._stack.enter_async_context(Proxy.before(roles_url))
            self.broker_link = await self._stack.enter_async_context(Proxy.before(amqp_url))
            self.broker_link.watch = self._watch
            roles_url, amqp_url = self.database_link.url(roles_url), self.broker_link.url(amqp_url)
        receiver = await self._stack.enter_async_context(await serve([{"answer": 200, "delay_seconds": 0.02}]))
        folder = self._folder / name
        folder.mkdir()
        stand = Stand(url, roles_url, amqp_url if rabbitmq else None)
        regions = {
            region: Stand(url, roles_url, stand.roles_amqp_url, f"{name}.{region}" if rabbitmq else None)
            for region in REGIONS
        }
        day = Day(Roles(folder), Witness(receiver), stand, regions)
        self._stack.push_async_callback(day.end)
        await day.begin(self._each)
        return day

    async def close(self) -> None:
        await self._stack.aclose()
        self._day = self._kind = None
        self.database_link = self.broker_link = None
        self.sound = False
