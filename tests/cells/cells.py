"""A deployment of real processes over three servers, each process told only of what it needs; and what the databases hold."""

import asyncio
import base64
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx2

from fanout.embedded import EmbeddedPostgres
from fanout.receiver import ReceiverServer, serve
from fanout.running.schemas import all_places, migrate_place
from fanout.settings import Settings
from services import Role, Roles, eventually

NAMES = ("home", "eu", "us")
REGIONS = ("eu", "us")
QUICK = {
    "FANOUT_HTTP_PORT": "0",
    "FANOUT_ALLOW_NETWORKS": "127.0.0.0/8",
    "FANOUT__DELIVERY__BACKOFF_FIRST_SECONDS": "0.2",
    "FANOUT__DELIVERY__BACKOFF_CAP_SECONDS": "1",
}
OPEN_PAYLOAD = b'{"everyone": "may read this payload"}'
EU_PAYLOAD = b'{"europe": "alone may read this payload"}'
EU_LABEL = "a-label-that-stays-in-europe"
EU_TRACE = "e0" * 16


def setting_of(name: str) -> str:
    return "FANOUT__HOME__DATABASE_URL" if name == "home" else f"FANOUT__REGIONS__{name.upper()}__DATABASE_URL"


class Cells:
    def __init__(self, servers: dict[str, EmbeddedPostgres], roles: Roles, receiver: ReceiverServer) -> None:
        self.servers = servers
        self.receiver = receiver
        self.urls = {name: server.database_url("cell", over="tcp") for name, server in servers.items()}
        self.url = ""
        """Of the API, once it listens."""
        self._roles = roles

    @classmethod
    async def made(cls, servers: dict[str, EmbeddedPostgres], roles: Roles, receiver: ReceiverServer) -> "Cells":
        """With their schemas."""
        for server in servers.values():
            await server.create_database("cell")
        cells = cls(servers, roles, receiver)
        for place in all_places(Settings.load(cells.environment(*NAMES), Path("/nowhere"))):
            await migrate_place(place)
        return cells

    def environment(self, *names: str, **other: str) -> dict[str, str]:
        """The settings of a process that is told of these databases and of no other. ``other``: URLs that it is told instead."""
        return QUICK | {setting_of(name): (self.urls | other)[name] for name in names}

    def start(self, *command: str, **other: str) -> Role:
        """api and publisher are told of all three databases, a region's role of its own."""
        return self._roles.start(*command, env=self.environment(*(command[1:] or NAMES), **other))

    async def start_home(self, **other: str) -> tuple[Role, Role]:
        api, publisher = self.start("api", **other), self.start("publisher", **other)
        self.url = json.loads(await api.says('"started"'))["listening"]
        return api, publisher

    def start_region(self, region: str) -> list[Role]:
        return [self.start("scheduler", region), self.start("consumer", region)]

    async def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        async with httpx2.AsyncClient(base_url=self.url, timeout=20, trust_env=False) as client:
            return await client.request(method, path, **options)

    async def subscribe(self, subscriber_id: str, region: str, **fields: object) -> dict[str, Any]:
        document = {
            "region": region,
            "endpoint": self.receiver.endpoint(subscriber_id),
            "event_types": ["shipment.*"],
        }
        answer = await self.ask("PUT", f"/v1/subscribers/{subscriber_id}", json=document | fields)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    async def publish(self, shipment_id: str, payload: bytes = OPEN_PAYLOAD, **headers: str) -> httpx2.Response:
        given = {"Fanout-Event-Type": "shipment.booked"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        return await self.ask("PUT", f"/v1/shipments/{shipment_id}/versions/1", content=payload, headers=given)

    async def figures(self, region: str) -> dict[str, Any]:
        return dict((await self.ask("GET", "/v1/regions")).json()["regions"][region])

    async def has(self, region: str, deadline: float = 40, **figures: int) -> None:
        """Until the region's figures are these."""

        async def so() -> bool:
            now = await self.figures(region)
            assert {name: now[name] for name in figures} == figures
            return True

        await eventually(so, deadline, f"{region} has {figures}")


@dataclass
class Aftermath:
    contents: dict[str, str]
    """By database, every row of every table in it, as text."""
    secrets: dict[str, str]
    """By region, the secret of its subscriber."""
    rows: dict[str, list[dict[str, Any]]]
    """Of us: deliveries, and the copy of the version that may not come there."""
    shown: dict[str, Any]
    """The forbidden delivery, as the API shows it."""
    reached: list[tuple[str, bytes]]
    """Each request that arrived: key and body."""

    def hold(self, needle: str | bytes) -> set[str]:
        """The databases that hold it, as text, as bytes in hexadecimal or in base64."""
        text = needle if isinstance(needle, str) else needle.decode()
        raw = text.encode()
        forms = (text, text.replace('"', '""'), raw.hex(), base64.b64encode(raw).decode())
        return {name for name, content in self.contents.items() if any(form in content for form in forms)}


async def everything_in(server: EmbeddedPostgres) -> str:
    connection = await asyncpg.connect(server.database_url("cell"))
    try:
        tables = await connection.fetch(
            "SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind IN ('r', 'p', 'm') AND n.nspname !~ '^(pg_|information_schema)'"
        )
        assert len(tables) >= 5
        rows = [
            row[0] for table in tables for row in await connection.fetch(f"SELECT t::text FROM {table['name']} AS t")
        ]
        return "\n".join(rows)
    finally:
        await connection.close()


async def after_a_day(folder: Path) -> Aftermath:
    async with AsyncExitStack() as stack:
        servers = {name: await stack.enter_async_context(EmbeddedPostgres(fsync=False, tcp=True)) for name in NAMES}
        receiver = await stack.enter_async_context(await serve(record=True))
        roles = Roles(folder)
        stack.push_async_callback(roles.close)
        cells = await Cells.made(servers, roles, receiver)
        await cells.start_home()
        for region in REGIONS:
            cells.start_region(region)
        secrets = {}
        for region in REGIONS:
            created = await cells.subscribe(
                f"at-{region}",
                region,
                endpoint=f"{receiver.endpoint(f'at-{region}')}?key=endpoint-key-of-{region}",
                headers={"Authorization": f"Bearer header-of-{region}"},
            )
            [secrets[region]] = created["secrets"]
        await cells.publish("everywhere")
        await cells.publish(
            "europe-only",
            EU_PAYLOAD,
            Fanout_Residency="eu_only",
            Fanout_Labels=f"note={EU_LABEL}",
            Content_Type="application/x-of-europe",
            traceparent=f"00-{EU_TRACE}-{'c0' * 8}-01",
        )
        await cells.has("eu", delivered=2, open=0, outbox_pending=0)
        await cells.has("us", delivered=1, dead=1, open=0, outbox_pending=0)
        shown = (await cells.ask("GET", "/v1/deliveries/shipment:europe-only:subscriber:at-us:version:1")).json()
        connection = await asyncpg.connect(servers["us"].database_url("cell"))
        rows = {
            "version": await connection.fetch("SELECT * FROM fanout_us.version WHERE shipment_id = 'europe-only'"),
            "delivery": await connection.fetch("SELECT * FROM fanout_us.delivery WHERE state = 'dead'"),
        }
        await connection.close()
        contents = dict(
            zip(NAMES, await asyncio.gather(*(everything_in(servers[name]) for name in NAMES)), strict=True)
        )
        return Aftermath(
            contents,
            secrets,
            {name: [dict(row) for row in found] for name, found in rows.items()},
            shown,
            [(request.header("Idempotency-Key") or "", request.body) for request in receiver.received],
        )
