"""A real day over a whole deployment: every role a process of its own in two regions, and versions published over HTTP."""

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import asyncpg
import httpx2

from fanout.model.identity import delivery_key
from fanout.model.labels import format_labels_header
from fanout.model.patterns import labels_match, pattern_matches
from fanout.model.publish_line import parse_publish_line
from fanout.model.shipment import ShipmentVersion
from fanout.running.schemas import all_places, migrate_place
from fanout.settings import Settings
from services.broker import free_port
from services.deployment import QUICK
from services.judging import Verdict, Witness, judge
from services.region import Region
from services.roles import Role, Roles
from services.waiting import eventually

DATA = files("fanout.demo") / "data"
CALLERS = 16
AGAIN_SECONDS = 0.1


def versions_of_the_day(count: int) -> list[ShipmentVersion]:
    lines = gzip.decompress((DATA / "air-cargo-day.jsonl.gz").read_bytes()).splitlines()
    return [parse_publish_line(line, number) for number, line in enumerate(lines[:count], 1)]


def subscribers_of_the_day(endpoint: Callable[[str], str]) -> dict[str, dict[str, Any]]:
    """By id, as the API takes them: all of them, without order and rate."""
    subscribers = {}
    for each in json.loads((DATA / "subscribers.json").read_text())["subscribers"]:
        name = each.pop("subscriber_id")
        subscribers[name] = each | {"endpoint": endpoint(name), "rate_per_second": None, "ordering": "any"}
    return subscribers


@dataclass(frozen=True)
class Stand:
    """Where home or a region stands: its database as the test and as the roles reach it, and its broker as the roles do."""

    url: str
    roles_url: str
    roles_amqp_url: str | None = None
    queue: str | None = None


class Day:
    """Roles by name, each restarted only when a test says so."""

    def __init__(self, roles: Roles, witness: Witness, home: Stand, regions: Mapping[str, Stand]) -> None:
        self.witness = witness
        self.home = home
        self.stands = regions
        self.expected: set[str] = set()
        self.accepted_at: dict[tuple[str, int], float] = {}
        self.running: dict[str, Role] = {}
        self.subscribers = subscribers_of_the_day(witness.receiver.endpoint)
        self.limits = {name: each["concurrency"] for name, each in self.subscribers.items()}
        self._roles = roles
        self._arguments: dict[str, tuple[str, ...]] = {}
        self._port = free_port()
        self._client = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{self._port}",
            timeout=30,
            trust_env=False,
            limits=httpx2.Limits(max_connections=CALLERS, max_keepalive_connections=CALLERS),
        )
        self._environment = QUICK | {
            "FANOUT_DATABASE_URL": home.roles_url,
            "FANOUT__DELIVERY__TIMEOUT_SECONDS": "3",
            "FANOUT__DELIVERY__BACKOFF_CAP_SECONDS": "5",
        }
        for name, stand in regions.items():
            of_region = f"FANOUT__REGIONS__{name.upper()}__"
            self._environment[f"{of_region}DATABASE_URL"] = stand.roles_url
            if stand.roles_amqp_url:
                self._environment[f"{of_region}AMQP_URL"] = stand.roles_amqp_url
            if stand.queue:
                self._environment[f"{of_region}QUEUE"] = stand.queue

    # ------------------------------------------------------------------ roles

    async def begin(self, each: int) -> None:
        """Migrate, start an api, a publisher, and so many schedulers and consumers in each region; register everyone."""
        settings = Settings.load(self._environment | self._direct())
        for place in all_places(settings):
            await migrate_place(place)
        self.start("api")
        self.start("publisher")
        for region in self.stands:
            for number in range(1, each + 1):
                self.start("scheduler", region, number)
                self.start("consumer", region, number)
        await eventually(self._answers, 60, "the api answers")
        await asyncio.gather(*(self._put_subscriber(name) for name in self.subscribers))

    def _direct(self) -> dict[str, str]:
        """Migrations are an operator's: they do not take the roles' way."""
        own = {f"FANOUT__REGIONS__{name.upper()}__DATABASE_URL": stand.url for name, stand in self.stands.items()}
        return own | {"FANOUT_DATABASE_URL": self.home.url}

    def start(self, kind: str, region: str = "", number: int = 1) -> Role:
        name = f"{kind} {region} {number}" if region else kind
        self._arguments[name] = (kind, region) if region else (kind,)
        return self._launch(name)

    def _launch(self, name: str) -> Role:
        port = {"FANOUT_HTTP_PORT": str(self._port)} if name == "api" else {}
        role = self._roles.start(*self._arguments[name], env=self._environment | port)
        self.running[name] = role
        return role

    def names(self, kind: str) -> list[str]:
        return [name for name in self.running if name.startswith(kind)]

    async def kill(self, name: str) -> None:
        """SIGKILL, and started again at once, as a supervisor would."""
        self.running[name].kill()
        await self.running[name].ended()
        self._launch(name)

    async def stop(self, *names: str) -> None:
        """SIGTERM, until they have ended in order."""
        for name in names:
            self.running[name].terminate()
        for name in names:
            assert await self.running[name].ended(60) == 0, self.running[name].log

    async def replace(self, name: str) -> None:
        """As a rolling deploy does: the new one runs before the old one is asked to stop, which ends in order."""
        old, new = self.running[name], self._launch(name)
        await new.says('"started"')
        old.terminate()
        assert await old.ended(60) == 0, old.log

    def restart(self, *names: str) -> None:
        for name in names:
            self._launch(name)

    def fallen(self) -> list[str]:
        """Roles that ended though nobody ended them."""
        return [f"{name}: {role.log[-1500:]}" for name, role in self.running.items() if not role.running]

    async def end(self) -> None:
        await self._client.aclose()
        await self._roles.close()

    # ------------------------------------------------------------------ over HTTP

    async def _answers(self) -> bool:
        try:
            return (await self._client.get("/readyz")).status_code == 200
        except httpx2.TransportError:
            return False

    async def _put_subscriber(self, name: str) -> None:
        answer = await self._client.put(f"/v1/subscribers/{name}", json=self.subscribers[name])
        assert answer.status_code in (200, 201), answer.text

    async def publish(self, versions: Sequence[ShipmentVersion], over_seconds: float = 0) -> None:
        """Each by a PUT of its own, on kept connections, evenly over so many seconds or as fast as it goes. A caller who gets no
        answer, or 5xx, asks again: a call may be repeated."""
        self.expected |= self.keys(versions)
        began, pause = time.monotonic(), over_seconds / len(versions)
        line: Iterator[tuple[int, ShipmentVersion]] = iter(enumerate(versions))

        async def caller() -> None:
            for number, version in line:
                await asyncio.sleep(began + number * pause - time.monotonic())
                await self._put_version(version)

        async with asyncio.TaskGroup() as callers:
            for _ in range(CALLERS):
                callers.create_task(caller())

    async def _put_version(self, version: ShipmentVersion) -> None:
        path = f"/v1/shipments/{version.shipment_id}/versions/{version.version}"
        headers = {
            "Content-Type": version.content_type,
            "Fanout-Event-Type": version.event_type,
            "Fanout-Labels": format_labels_header(version.labels),
        }
        while True:
            try:
                answer = await self._client.put(path, content=version.payload, headers=headers)
            except httpx2.TransportError:
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            if answer.status_code in (200, 202):
                self.accepted_at[version.shipment_id, version.version] = time.monotonic()
                return
            assert answer.status_code in (429, 500, 502, 503, 504), answer.text
            assert answer.status_code != 500, answer.text
            await asyncio.sleep(AGAIN_SECONDS)

    async def books(self) -> Mapping[str, Mapping[str, int]]:
        async def document() -> dict[str, Any] | None:
            answer = await self._client.get("/v1/regions")
            return answer.json() if answer.status_code == 200 and answer.json()["balanced"] is not None else None

        found = await eventually(document, 30, "both regions tell their figures")
        assert found["balanced"] is True, found
        return found["regions"]

    # ------------------------------------------------------------------ what it comes to

    def keys(self, versions: Iterable[ShipmentVersion], region: str | None = None) -> set[str]:
        """What these ought to come to, by the reference matcher over subscribers and versions: not by the ledger."""
        return {
            delivery_key(version.shipment_id, name, version.version)
            for version in versions
            for name, each in self.subscribers.items()
            if region in (None, each["region"])
            and labels_match(each["labels"], version.labels)
            and any(pattern_matches(pattern, version.event_type) for pattern in each["event_types"])
        }

    @asynccontextmanager
    async def region(self, name: str):
        """A look behind, past every link."""
        connection = await asyncpg.connect(self.stands[name].url)
        try:
            yield Region(self.stands[name].url, connection, name)
        finally:
            await connection.close()

    async def queued(self, region: str) -> int:
        async with self.region(region) as ledger:
            return int(await ledger.value("SELECT count(*) FROM {schema}.delivery WHERE state = 'queued'"))

    async def over(self, deadline: float) -> None:
        """Until nothing is open anywhere. Looks only once the witness has seen everything."""
        await eventually(
            lambda: len(self.witness.first_at) >= len(self.expected), deadline, "a request for every delivery"
        )
        home = await asyncpg.connect(self.home.url)
        try:
            await eventually(
                lambda: home.fetchval("SELECT count(*) = 0 FROM fanout.outbox WHERE NOT done"), deadline, "outbox empty"
            )
        finally:
            await home.close()
        for name in self.stands:
            async with self.region(name) as ledger:
                nothing = "SELECT sum(waiting + queued + in_flight) = 0 FROM {schema}.destination"
                await eventually(lambda: ledger.value(nothing), deadline, f"nothing open in {name}")  # noqa: B023 - awaited here

    async def judge(self) -> Verdict:
        """By everything since the beginning."""
        books = await self.books()
        async with AsyncExitStack() as stack:
            ledgers = [await stack.enter_async_context(self.region(name)) for name in self.stands]
            return await judge(self.witness, self.expected, self.limits, ledgers, books)


def renamed(versions: Iterable[ShipmentVersion], suffix: str) -> list[ShipmentVersion]:
    """The same day again, of other shipments."""
    return [replace(each, shipment_id=f"{each.shipment_id}.{suffix}") for each in versions]
