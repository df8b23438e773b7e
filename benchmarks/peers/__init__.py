"""The others: what each is started with, and what it keeps its messages in."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.accounts import Accounts
from benchmarks.environments import node_environment, python_environment
from benchmarks.sampling import Point
from benchmarks.servers import Servers
from services.roles import Role

HERE = Path(__file__).resolve().parent
FILL_SECONDS_MAX = 1800


@dataclass(frozen=True, slots=True)
class Peer:
    """How the job is done with it. ``work`` and ``fill`` stand in ``on_NAME``."""

    name: str
    shown: str
    durability: str
    """Where its messages are, and what a crash of the machine can lose."""
    how: str
    """Its concurrency and HTTP client: what did best here."""
    needs_broker: bool = False
    needs_redis: bool = False
    fills: bool = True

    @property
    def uses(self) -> tuple[str, ...]:
        """The servers that take part."""
        uses = {"rabbitmq": self.needs_broker, "redis": self.needs_redis, "postgresql": self.name == "pgqueuer"}
        return tuple(name for name, needed in uses.items() if needed)

    async def command(self) -> list[str | Path] | None:
        """None where it cannot be installed."""
        if self.name == "bullmq":
            folder = await node_environment(self.name, HERE / "bullmq")
            node = shutil.which("node")
            return [node, HERE / "on_bullmq.mjs"] if folder and node else None
        python = await python_environment(self.name, HERE / f"{self.name}.txt")
        return [python, HERE / f"on_{self.name}.py"] if python else None


_RABBIT = "RabbitMQ, durable queue, persistent and confirmed; nothing"
_REDIS = "Redis, append-only file forced to disk each second; the last second"
PEERS = (
    Peer("bare", "bare aiohttp loop", "none: a list in memory", "100 in flight, uvloop, aiohttp", fills=False),
    Peer("celery", "Celery", _RABBIT, "gevent pool of 100, acks_late, urllib3", needs_broker=True),
    Peer("dramatiq", "Dramatiq", _RABBIT, "100 greenlets, urllib3", needs_broker=True),
    Peer("arq", "arq", _REDIS, "100 jobs at once, uvloop, aiohttp", needs_redis=True),
    Peer("taskiq", "taskiq", _RABBIT, "100 tasks at once, uvloop, aiohttp", needs_broker=True),
    Peer("faststream", "FastStream", _RABBIT, "prefetch 100, uvloop, aiohttp", needs_broker=True),
    Peer("pgqueuer", "pgqueuer", "PostgreSQL, fsync on; nothing", "batches of 100, uvloop, asyncpg, aiohttp"),
    Peer("bullmq", "BullMQ (Node)", _REDIS, "concurrency 200, undici with 100 connections", needs_redis=True),
)


class PeerDrain:
    """One run of a peer: its backlog, and one worker process."""

    def __init__(self, peer: Peer, command: Sequence[str | Path]) -> None:
        self.name = peer.name
        self.uses = peer.uses
        self._peer = peer
        self._command = command
        self._worker: Role | None = None

    async def prepare(self, servers: Servers, deliveries: int) -> int:
        self._servers = servers
        self._arguments = [str(deliveries), servers.receiver.url]
        self._environment = {
            "PYTHONPATH": str(HERE),
            "PEER_MODULES": str(HERE.parent / ".environments" / self.name),
            "PEER_DATABASE_URL": await servers.database(f"peer_{self.name}"),
        }
        if self._peer.needs_broker:
            self._environment["PEER_AMQP_URL"] = servers.broker_url
        if self._peer.needs_redis:
            self._environment["PEER_REDIS_URL"] = servers.redis_url
        if self._peer.fills:
            fill = [*self._command, "fill", *self._arguments]
            await servers.processes.run(f"{self.name} fill", fill, self._environment, FILL_SECONDS_MAX, cwd=HERE)
        await servers.settle_down(self._environment["PEER_DATABASE_URL"])
        return deliveries

    async def start(self, accounts: Accounts) -> None:
        work = [*self._command, "work", *self._arguments]
        self._worker = self._servers.processes.start(f"{self.name} work", work, self._environment, cwd=HERE)
        accounts.add("consumer", self._worker.pid)

    async def done(self) -> float:
        """What the receiver has answered: whether the peer has noted it down is not waited for."""
        requests = await self._servers.receiver.requests()
        if self._worker is not None and self._worker.process.poll() not in (None, 0):
            raise RuntimeError(f"{self.name} ended with {self._worker.process.returncode}:\n{self._worker.log[-4000:]}")
        return float(requests)

    async def series(self) -> Sequence[Point] | None:
        return None

    async def close(self) -> None:
        if self._worker is not None:
            await self._servers.processes.end(self._worker)
        await self._servers.postgres.drop_database(f"peer_{self.name}")
