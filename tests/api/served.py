"""The API behind a real socket, in the test's own process, and what a test asks of it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import httpx2

from fanout.api.app import create_app
from fanout.database.schema import Schema
from fanout.publisher.publisher import RegionPublisher
from fanout.running.http import bind, serve
from fanout.running.schemas import all_places, migrate_place
from fanout.settings import Settings
from fanout.telemetry.metrics import Figures

ENDPOINT = "https://hooks.example.com/in?key=very-private"
SUBSCRIBER = {"region": "eu", "endpoint": ENDPOINT, "event_types": ["shipment.*"]}
STOP_SECONDS = 10


def settings_for(url: str, **more: str) -> Settings:
    return Settings.load({"FANOUT_DATABASE_URL": url, "FANOUT_HTTP_PORT": "0", **more})


async def migrated(settings: Settings) -> Settings:
    for place in all_places(settings):
        await migrate_place(place)
    return settings


@dataclass
class Served:
    """A running API."""

    settings: Settings
    port: int
    client: httpx2.AsyncClient
    figures: Figures = field(default_factory=Figures)

    async def put(
        self, shipment_id: str = "s-1", version: object = 1, body: object = b"{}", **headers: str
    ) -> httpx2.Response:
        """Publish; ``event_type`` and the like become headers."""
        given = {"Fanout-Event-Type": "shipment.booked"} | {
            name.replace("_", "-"): value.encode("latin-1") for name, value in headers.items()
        }
        path = f"/v1/shipments/{shipment_id}/versions/{version}"
        return await self.client.put(path, content=body, headers=given)

    async def subscribe(self, subscriber_id: str = "acme", **fields: object) -> httpx2.Response:
        return await self.client.put(f"/v1/subscribers/{subscriber_id}", json=SUBSCRIBER | fields)

    async def get(self, path: str, **params: object) -> httpx2.Response:
        return await self.client.get(path, params=params or None)

    async def raw(self, *pieces: bytes) -> tuple[int, dict[str, str], bytes]:
        """Exactly these bytes on the wire: no client of ours tidies them up. The response in its parts."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)

        async def write() -> None:
            with contextlib.suppress(
                ConnectionError
            ):  # the answer may come, and the connection end, before all is sent
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()

        writing = asyncio.create_task(write())
        try:
            async with asyncio.timeout(10):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                lines = head.split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:-2])}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                return int(lines[0].split()[1]), headers, body
        finally:
            writing.cancel()
            await asyncio.wait({writing})
            writer.close()

    async def ask(self, target: str, method: str = "GET", *headers: str) -> tuple[int, dict[str, str], Any]:
        """One request without a body, its target untouched."""
        text = "".join(f"{line}\r\n" for line in ("Host: x", "Connection: close", *headers))
        status, answered, body = await self.raw(f"{method} {target} HTTP/1.1\r\n{text}\r\n".encode())
        return status, answered, json.loads(body) if body else None

    async def expand(self) -> None:
        """What the publisher role does: everything that is pending, in every region."""
        for region in self.settings.regions.values():
            publisher = RegionPublisher(self.settings, region)
            while (await publisher.run_once()).versions:
                pass
            await publisher._home.close()
            await publisher._ledger.close()
            await publisher._bell.close()

    async def rows(self, sql: str, *arguments: Any, region: str | None = None) -> list[asyncpg.Record]:
        """Look behind the API: in home, or in a region."""
        place = self.settings.regions[region] if region else self.settings.home
        connection = await asyncpg.connect(place.url)
        try:
            return await connection.fetch(Schema(place.schema).sql(sql), *arguments)
        finally:
            await connection.close()

    async def value(self, sql: str, *arguments: Any, region: str | None = None) -> Any:
        return (await self.rows(sql, *arguments, region=region))[0][0]


@contextlib.asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Served]:
    figures = Figures()
    listener = bind(settings.http)
    port = listener.getsockname()[1]
    stopping = asyncio.Event()
    task = asyncio.create_task(serve(create_app(settings, figures), listener, stopping))
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20, trust_env=False) as client:
            yield Served(settings, port, client, figures)
    finally:
        stopping.set()
        async with asyncio.timeout(STOP_SECONDS):
            await task
        listener.close()


def problem_of(response: httpx2.Response, status: int) -> dict[str, Any]:
    """The problem document of an answer that has to have this status."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    return document


def fields_of(response: httpx2.Response, status: int) -> set[str]:
    return {each["field"] for each in problem_of(response, status)["errors"]}


async def pieces(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    """A body of unannounced length."""
    for chunk in chunks:
        yield chunk
