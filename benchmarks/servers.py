"""The servers that everything measured shares: PostgreSQL, RabbitMQ, Redis and the receiver, private ones on free ports."""

import asyncio
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from benchmarks.accounts import Accounts, family
from benchmarks.processes import Processes
from fanout.embedded import EmbeddedPostgres
from services.broker import OwnBroker, free_port, programs
from services.roles import Role
from services.waiting import eventually

NGINX = """
worker_processes 1;
daemon off;
master_process off;
error_log stderr crit;
pid {folder}/pid;
events {{ worker_connections 16384; }}
http {{
    {log}
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/a; fastcgi_temp_path {folder}/b; uwsgi_temp_path {folder}/c;
    scgi_temp_path {folder}/d;
    keepalive_requests 1000000000;
    keepalive_timeout 3600;
    default_type application/json;
    server {{
        listen 127.0.0.1:{port} backlog=8192;
        location = /-/status {{ access_log off; stub_status; }}
        location / {{ return 200 '{{"received":true}}'; }}
    }}
}}
"""
"""Answers 200 to everything and writes nothing: the receiver shall not be what is measured."""


class Nginx:
    """One nginx of one process that answers 200 and counts."""

    def __init__(self, role: Role, port: int, notes: Path) -> None:
        self._notes = notes
        self.role = role
        self._port = port
        self._asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        return self.role.pid

    async def requests(self) -> int:
        """How many it has answered, without ours."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"GET /-/status HTTP/1.0\r\n\r\n")
        answer = (await reader.read()).decode()
        writer.close()
        self._asked += 1
        return int(answer.splitlines()[-2].split()[2]) - self._asked

    def arrivals(self) -> dict[str, float]:
        """By key, when its first request was answered (which is at once), in seconds since 1970; to the millisecond."""
        first: dict[str, float] = {}
        for line in self._notes.read_text().splitlines():
            moment, _, key = line.split(" ", 2)
            first.setdefault(key, float(moment))
        return first

    async def answers(self) -> bool:
        try:
            await self.requests()
        except OSError:
            return False
        return True


async def start_nginx(processes: Processes, folder: Path, *, noting: bool = False) -> Nginx:
    """``noting``: it notes the time, the path and the key of each request, for ``arrivals``."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise SystemExit("no nginx: it is the receiver of every measurement (on Debian: apt-get install nginx-light)")
    port = free_port()
    home = Path(tempfile.mkdtemp(prefix="nginx-", dir=folder))
    log = (
        f"log_format a '$msec $uri $http_idempotency_key'; access_log {home}/arrivals a;"
        if noting
        else "access_log off;"
    )
    (home / "conf").write_text(NGINX.format(folder=home, port=port, log=log))
    nginx = Nginx(processes.start("nginx", [program, "-p", home, "-c", home / "conf"]), port, home / "arrivals")
    await eventually(nginx.answers, 10, "nginx answers")
    return nginx


@dataclass(slots=True)
class Servers:
    """What runs during one measurement. ``folder`` is thrown away with it."""

    folder: Path
    processes: Processes
    postgres: EmbeddedPostgres
    receiver: Nginx
    collector: Nginx
    """Takes the traces."""
    broker: OwnBroker | None = None
    broker_pid: int = 0
    redis: Role | None = None
    redis_port: int = 0

    @property
    def broker_url(self) -> str:
        assert self.broker is not None, "the broker was not asked for"
        return self.broker.url

    @property
    def redis_url(self) -> str:
        assert self.redis is not None, "Redis was not asked for"
        return f"redis://127.0.0.1:{self.redis_port}/0"

    async def database(self, name: str) -> str:
        """A new one, empty. Its URL over TCP: a driver in any language takes it."""
        await self.postgres.drop_database(name)
        await self.postgres.create_database(name)
        return self.postgres.database_url(name, over="tcp")

    async def settle_down(self, url: str) -> None:
        """What was prepared is on disk and known to the planner, so that none of it is paid for in the measured part."""
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("VACUUM (ANALYZE)")
            await connection.execute("CHECKPOINT")
        finally:
            await connection.close()

    def accounts(self, uses: Collection[str] | None = None) -> Accounts:
        """With the receiver entered, and of the servers those that take part; all of them where nothing is said."""
        running = {
            "postgresql": self.postgres.pid,
            "rabbitmq": self.broker_pid,
            "redis": self.redis.pid if self.redis else 0,
        }
        accounts = Accounts()
        accounts.add("receiver", self.receiver.pid)
        for name, pid in running.items():
            if pid and (uses is None or name in uses):
                accounts.add(name, pid)
        return accounts


@asynccontextmanager
async def running_servers(*, broker: bool = True, redis: bool = False) -> AsyncIterator[Servers]:
    """PostgreSQL with the settings that the product gives its own one (fsync on), and the rest as asked for."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fanout-bench-")))
        processes = Processes(folder)
        stack.push_async_callback(processes.close)
        postgres = await stack.enter_async_context(EmbeddedPostgres(tcp=True))
        receiver = await start_nginx(processes, folder)
        servers = Servers(folder, processes, postgres, receiver, await start_nginx(processes, folder))
        if broker and programs() is not None:
            logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # it tells of each try while the broker starts
            before = set(family(os.getpid()))
            servers.broker = OwnBroker()
            stack.push_async_callback(servers.broker.close)
            await servers.broker.start()
            servers.broker_pid = min(set(family(os.getpid())) - before)
        if redis and (program := shutil.which("redis-server")):
            await _start_redis(servers, program)
        yield servers


async def _start_redis(servers: Servers, program: str) -> None:
    """Every write goes to the append-only file, which is forced to disk once per second: at most one second is lost."""
    servers.redis_port = free_port()
    home = Path(tempfile.mkdtemp(prefix="redis-", dir=servers.folder))
    durable = ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction")
    where = ("--bind", "127.0.0.1", "--port", str(servers.redis_port), "--dir", str(home))
    servers.redis = servers.processes.start("redis", [program, *where, *durable])

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", servers.redis_port)) == 0

    await eventually(listens, 10, "Redis listens")
