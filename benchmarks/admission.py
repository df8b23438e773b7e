"""How many versions are accepted per second: over HTTP, and from Python in a transaction.

python -m benchmarks.admission --quick
"""

import argparse
import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from benchmarks.accounts import cpu_seconds
from benchmarks.ours import Ours, subscribers, versions
from benchmarks.scenario import Document, Scenario, Size, spread, tell
from benchmarks.servers import Servers, running_servers
from fanout.home.publishing import publish_many
from fanout.model.shipment import ShipmentVersion
from services.waiting import eventually

SUBSCRIBERS = 200
ACCEPTED = b"HTTP/1.1 202"
Publish = Callable[[list[ShipmentVersion]], Awaitable[None]]


class Caller:
    """One kept connection to the API."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def publish(self, batch: list[ShipmentVersion]) -> None:
        """One PUT, whose answer has to be 202."""
        (version,) = batch
        labels = ", ".join(f"{name}={value}" for name, value in version.labels.items())
        head = (
            f"PUT /v1/shipments/{version.shipment_id}/versions/{version.version} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Type: {version.content_type}\r\nContent-Length: {len(version.payload)}\r\n"
            f"Fanout-Event-Type: {version.event_type}\r\nFanout-Labels: {labels}\r\ntraceparent: {version.traceparent}\r\n\r\n"
        )
        self._writer.write(head.encode() + version.payload)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.partition(b":")[2]) for line in answer.splitlines() if line.lower().startswith(b"content-length")
        )
        body = await self._reader.readexactly(length)
        if not answer.startswith(ACCEPTED):
            raise RuntimeError(f"not accepted: {answer.decode()}{body.decode()}")

    async def close(self) -> None:
        self._writer.close()


async def pressed(publishers: list[Publish], batch: int, seconds: float, name: str) -> tuple[int, float, list[float]]:
    """All of them as fast as they are answered, for so long: versions, seconds, and how long each call took in ms."""
    news = versions(10**9, name=name)
    took: list[float] = []
    started = time.perf_counter()

    async def one(publish: Publish) -> int:
        count = 0
        while time.perf_counter() - started < seconds:
            what = list(itertools.islice(news, batch))
            began = time.perf_counter()
            await publish(what)
            took.append((time.perf_counter() - began) * 1000)
            count += batch
        return count

    counts = await asyncio.gather(*map(one, publishers))
    return sum(counts), time.perf_counter() - started, sorted(took)


async def measure(chosen: argparse.Namespace) -> Document:
    runs: list[Document] = []
    async with running_servers(broker=False) as servers:
        ours = await Ours.build(servers, "admission", "ledger", subscribers(SUBSCRIBERS, servers.receiver.url))
        api = ours.start("api")
        port = ours.ports[api.pid]
        await eventually(lambda: _answers(port), 30, "the api answers")
        for turn in range(chosen.repeats):
            for connections in (1, 32):
                callers = [Caller(port) for _ in range(connections)]
                for caller in callers:
                    await caller.connect()
                way = f"HTTP PUT, {connections} connection{'s' * (connections > 1)}"
                runs.append(
                    await _run(servers, way, [each.publish for each in callers], 1, chosen.seconds, turn, api.pid)
                )
                for caller in callers:
                    await caller.close()
            for connections, batch in ((1, 1), (8, 1), (1, 500)):
                pool = [await asyncpg.connect(ours.url) for _ in range(connections)]
                way = f"Python, {connections} connection{'s' * (connections > 1)}, {batch} version{'s' * (batch > 1)} in a transaction"
                runs.append(
                    await _run(servers, way, [_publisher(each) for each in pool], batch, chosen.seconds, turn, None)
                )
                for connection in pool:
                    await connection.close()
        await ours.close()
    return {"seconds": chosen.seconds, "runs": runs}


def _publisher(connection: Any) -> Publish:
    async def publish(batch: list[ShipmentVersion]) -> None:
        await publish_many(connection, batch)

    return publish


async def _run(
    servers: Servers, way: str, publishers: list[Publish], batch: int, seconds: float, turn: int, api: int | None
) -> Document:
    pids = [servers.postgres.pid, *([api] if api else [os.getpid()])]
    before = sum(map(_own_cpu, pids))
    count, lasted, took = await pressed(publishers, batch, seconds, f"A{turn}-{way.replace(' ', '-').replace(',', '')}")
    run = {
        "way": way,
        "turn": turn,
        "rate": count / lasted,
        "cpu_ms": (sum(map(_own_cpu, pids)) - before) / count * 1000,
        "p50": took[len(took) // 2],
        "p99": took[len(took) * 99 // 100],
    }
    tell(f"{way}: {run['rate']:,.0f}/s, p50 {run['p50']:.1f} ms, p99 {run['p99']:.1f} ms")
    return run


def _own_cpu(pid: int) -> float:
    """Of a family; of this very process without its children, which are counted by themselves."""
    if pid != os.getpid():
        return cpu_seconds(pid)
    times = os.times()
    return times.user + times.system


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def table(document: Document) -> str:
    lines = ["| | versions per s | CPU s per 1,000 | p50 ms | p99 ms | runs |", "|---|---|---|---|---|---|"]
    for way in dict.fromkeys(run["way"] for run in document["runs"]):
        runs = [run for run in document["runs"] if run["way"] == way]
        columns = [spread([run["rate"] for run in runs])]
        columns += [
            spread([run[name] for run in runs], 2 if name == "cpu_ms" else 1) for name in ("cpu_ms", "p50", "p99")
        ]
        lines.append(f"| {way} | {' | '.join(columns)} | {len(runs)} of {document['seconds']:g} s |")
    return "\n".join(lines)


SCENARIO = Scenario(
    "admission",
    "Admission",
    "Each caller publishes the next version as soon as the last was accepted, which means that it is on disk; nothing else runs. p50 and "
    "p99 are of one call. CPU: PostgreSQL and the api, or PostgreSQL and the publishing process. The callers run beside it on the same machine.",
    {"seconds": Size(3.0, 10.0, "of each way"), "repeats": Size(1, 3, "turns")},
    measure,
    table,
)

if __name__ == "__main__":
    SCENARIO.main()
