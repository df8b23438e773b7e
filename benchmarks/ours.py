"""This software as a user runs it: its own commands, each role a process, signatures, attempts, metrics and traces on."""

import asyncio
import gzip
import itertools
import json
import random
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import asyncpg

from benchmarks import ROOT
from benchmarks.sampling import Point
from benchmarks.servers import Servers
from fanout.home.publishing import publish_many
from fanout.model.shipment import ShipmentVersion
from services.broker import free_port
from services.roles import Role
from services.waiting import eventually

REGION = "eu"
SAMPLED = 0.01
"""The part of all versions that is traced."""
SCRAPE_SECONDS = 5
PUBLISH_BATCH = 500
APPLY_SLICE = 5_000
SETTLED = "SELECT coalesce(sum(delivered), 0)::bigint FROM fanout_eu.destination"
WAITING = "SELECT coalesce(sum(waiting), 0)::bigint FROM fanout_eu.destination"
OPEN = "SELECT coalesce(sum(waiting + queued + in_flight), 0)::bigint FROM fanout_eu.destination"
DONE_OF = """
SELECT bool_and(d.waiting + d.queued + d.in_flight = 0 AND d.delivered > 0)
FROM fanout_eu.destination d JOIN fanout_eu.subscriber s USING (id) WHERE s.subscriber_id LIKE $1
"""
OUTBOX = "SELECT count(*) FROM fanout.outbox WHERE NOT done"
SERIES = """
SELECT extract(epoch FROM finished_at)::float8 AS at, count(*) AS n FROM fanout_eu.delivery
WHERE finished_at >= to_timestamp($1) GROUP BY finished_at ORDER BY finished_at
"""
_DAY = ROOT / "fanout" / "demo" / "data" / "air-cargo-day.jsonl.gz"


def day() -> list[dict[str, Any]]:
    """The versions of a real day of air cargo, as the demo publishes them."""
    with gzip.open(_DAY) as lines:
        return [json.loads(line) for line in lines]


def versions(count: int, *, event_type: str | None = None, name: str = "B") -> Iterator[ShipmentVersion]:
    """So many, each of a shipment of its own with a payload of the day. One in a hundred is to be traced."""
    chance = random.Random(7)
    for number, line in zip(range(count), itertools.cycle(day()), strict=False):
        sampled = chance.random() < SAMPLED
        trace = f"00-{chance.getrandbits(128):032x}-{chance.getrandbits(64):016x}-{'01' if sampled else '00'}"
        yield ShipmentVersion(
            f"{name}-{number}",
            1,
            event_type or line["event_type"],
            json.dumps(line["payload"], separators=(",", ":")).encode(),
            content_type="application/json",
            labels=line["labels"],
            traceparent=trace,
        )


def subscribers(count: int, url: str, **fields: Any) -> list[dict[str, Any]]:
    """So many that want everything, each with a path of its own."""
    return [
        {"subscriber_id": f"s-{n}", "region": REGION, "endpoint": f"{url}/s-{n}", "event_types": ["shipment.*"]}
        | fields
        for n in range(count)
    ]


class Ours:
    """One deployment in a database of its own, with one region. Nothing runs until it is started."""

    def __init__(self, servers: Servers, url: str, transport: str, settings: Mapping[str, str]) -> None:
        self.servers = servers
        self.url = url
        self.roles: list[Role] = []
        self.ports: dict[int, int] = {}
        """Where each role serves HTTP, by its process."""
        self._watch: asyncpg.Connection | None = None
        self._scrapes: list[asyncio.Task[None]] = []
        config = servers.folder / "fanout.toml"
        config.write_text('[regions.eu]\nallow_networks = ["127.0.0.0/8"]\n')
        self._environment = {
            "FANOUT_CONFIG": str(config),
            "FANOUT_DATABASE_URL": url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": servers.collector.url,
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": str(SAMPLED),
            **settings,
        }
        if transport == "rabbitmq":
            self._environment["FANOUT_AMQP_URL"] = servers.broker_url
            self._environment["FANOUT__REGIONS__EU__QUEUE"] = f"bench.{url.rpartition('/')[2].partition('?')[0]}"

    @classmethod
    async def build(
        cls, servers: Servers, name: str, transport: str, entries: Sequence[Mapping[str, Any]], **settings: str
    ) -> "Ours":
        """Schemas and subscribers, by the command line."""
        ours = cls(servers, await servers.database(name), transport, settings)
        await ours.command("migrate")
        await ours.apply(entries)
        ours._watch = await asyncpg.connect(ours.url)
        return ours

    async def command(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "fanout", *arguments]
        return await self.servers.processes.run(f"fanout {arguments[0]}", command, self._environment)

    async def apply(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Slice by slice: a file is applied in one transaction, with the time limit of one."""
        file = self.servers.folder / "subscribers.json"
        for start in range(0, len(entries), APPLY_SLICE):
            file.write_text(json.dumps({"subscribers": list(entries[start : start + APPLY_SLICE])}))
            await self.command("subscribers", "apply", str(file), "--json")

    @property
    def watch(self) -> asyncpg.Connection:
        assert self._watch is not None
        return self._watch

    def start(self, *arguments: str) -> Role:
        """A role, whose metrics are scraped as Prometheus would."""
        port = free_port()
        environment = self._environment | {"FANOUT_HTTP_PORT": str(port)}
        role = self.servers.processes.start(
            f"fanout {' '.join(arguments)}", [sys.executable, "-m", "fanout", *arguments], environment
        )
        self.roles.append(role)
        self.ports[role.pid] = port
        self._scrapes.append(asyncio.create_task(_scrape(f"http://127.0.0.1:{port}/metrics"), name="scrape"))
        return role

    async def publish(self, news: Iterator[ShipmentVersion]) -> int:
        """Batch by batch; how many."""
        published = 0
        while batch := list(itertools.islice(news, PUBLISH_BATCH)):
            await publish_many(self.watch, batch)
            published += len(batch)
        return published

    async def backlog(self, news: Iterator[ShipmentVersion], seconds: float = 1200) -> int:
        """Publish, expand, and wait until everything waits; how many deliveries. The publisher is gone afterwards."""
        publisher = self.start("publisher")
        await self.publish(news)

        async def expanded() -> bool:
            if not publisher.running:
                raise RuntimeError(f"the publisher ended:\n{publisher.log[-4000:]}")
            return int(await self.watch.fetchval(OUTBOX)) == 0

        await eventually(expanded, seconds, "every version is expanded")
        await self.end(publisher)
        await self.servers.settle_down(self.url)
        return int(await self.watch.fetchval(WAITING))

    async def warm(self) -> None:
        """Until one version has gone all the way, with the roles that are running."""
        before = await self.settled()
        await self.publish(versions(1, name="warm"))

        async def gone() -> bool:
            return await self.settled() > before and await self.open() == 0

        await eventually(gone, 60, "a first version goes all the way")

    async def first_delivered(self) -> None:
        """As ``warm``, where some never answer."""
        await self.publish(versions(1, name="warm"))
        await self.settled_of("s-%")

    async def settled_of(self, pattern: str) -> None:
        """Until nothing is open for subscribers with such names, and something was delivered to each."""

        async def gone() -> bool:
            if int(await self.watch.fetchval(OUTBOX)):
                return False
            return bool(await self.watch.fetchval(DONE_OF, pattern))

        await eventually(gone, 120, f"nothing is open for {pattern}")

    async def open(self) -> int:
        """How many deliveries are not over."""
        return int(await self.watch.fetchval(OPEN))

    async def settled(self) -> float:
        """How many deliveries are delivered, by the ledger's own counters."""
        for role in self.roles:
            if role.process.poll() not in (None, 0):
                raise RuntimeError(f"{role.name} ended with {role.process.returncode}:\n{role.log[-4000:]}")
        return float(await self.watch.fetchval(SETTLED))

    async def series(self, since: float = 0.0) -> list[Point]:
        """Deliveries settled over time, from the rows."""
        rows = await self.watch.fetch(SERIES, since)
        return list(zip([row["at"] for row in rows], itertools.accumulate(row["n"] for row in rows), strict=True))

    async def status(self) -> dict[str, Any]:
        return json.loads(await self.command("status", "--json"))

    async def end(self, role: Role) -> None:
        """In order; one that was killed is only forgotten."""
        self.roles.remove(role)
        await self.servers.processes.end(role)

    async def close(self) -> None:
        for scrape in self._scrapes:
            scrape.cancel()
        for role in list(self.roles):
            await self.end(role)
        if self._watch is not None:
            await self._watch.close()
        await self.servers.postgres.drop_database(self.url.rpartition("/")[2].partition("?")[0])


async def _scrape(url: str) -> None:
    while True:
        await asyncio.sleep(SCRAPE_SECONDS)
        try:
            await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=5).read())
        except OSError:
            continue
