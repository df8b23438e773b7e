"""A RabbitMQ for tests: one that is there, or a private node that a test may stop, kill, freeze and alarm.

Other releases than the installed one, by the environment:

- ``FANOUT_TEST_RABBITMQ_HOME``: the folder of a release, with ``sbin/rabbitmq-server`` in it, run with this system's Erlang.
- ``FANOUT_TEST_RABBITMQ_ROOT``: the root of another system that has server and Erlang installed; private nodes run in it with
  ``chroot``, so only root can. One with RabbitMQ 4.0, made on Debian or Ubuntu (300 MB, two minutes):
  ``debootstrap --variant=minbase trixie ROOT``,
  ``printf '#!/bin/sh\nexit 101\n' > ROOT/usr/sbin/policy-rc.d && chmod +x ROOT/usr/sbin/policy-rc.d`` (nothing is started there),
  ``chroot ROOT sh -c 'apt-get update && apt-get install --yes --no-install-recommends rabbitmq-server'``,
  ``mount -t proc proc ROOT/proc`` (without it the node watches no memory, and has no alarm).
- ``FANOUT_TEST_AMQP_URL=private``: tests that only need a broker use the private node as well, not the one on the standard port;
  any other value is the URL of the broker that they use.

So all of it on 4.0: ``FANOUT_TEST_RABBITMQ_ROOT=ROOT FANOUT_TEST_AMQP_URL=private pytest tests/transports``.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aio_pika
from aiormq.exceptions import AMQPError

from services.waiting import eventually

STANDARD_URL = "amqp://guest:guest@127.0.0.1:5672/"
START_SECONDS = 120
CERTIFICATES = Path(__file__).parents[1] / "sender" / "certificates"
AUTHORITY = CERTIFICATES / "authority.pem"
"""Who signed the certificate of a private broker's TLS port."""
LEASH = """
exec 3<&0 </dev/null
{ read -r _ <&3; kill -KILL 0; } &
"$@" 3<&-
kill -KILL 0
"""
"""The node in a process group that ends when its standard input does: it does not outlive the tests, however they end."""
MISSING = (
    "no RabbitMQ: nothing answers at {url} as guest, and the server's programs are not installed (on Debian: "
    "`apt-get install rabbitmq-server`); or name one in FANOUT_TEST_AMQP_URL"
)


def root() -> Path:
    """Of the system that private nodes run in."""
    return Path(os.environ.get("FANOUT_TEST_RABBITMQ_ROOT") or "/")


def programs() -> Path | None:
    """The folder with the server's own scripts. Not those in /usr/sbin: they change the user and know one node only."""
    named = os.environ.get("FANOUT_TEST_RABBITMQ_HOME")
    homes = [Path(named)] if named else sorted((root() / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
    homes += [*sorted(Path("/opt").glob("rabbitmq*")), Path("/usr/local/opt/rabbitmq")]
    for home in homes:
        if (home / "sbin" / "rabbitmq-server").is_file():
            return home / "sbin"
    return None


async def answers(url: str) -> bool:
    try:
        connection = aio_pika.connection.Connection(aio_pika.connection.make_url(url))
        await asyncio.wait_for(connection.connect(), 5)
    except (OSError, AMQPError):
        return False
    await connection.close()
    return True


class OwnBroker:
    """A node of its own in a temporary folder, bound to 127.0.0.1, that does not outlive the tests.

    Starting takes about 6 seconds, a command of ``rabbitmqctl`` about half of one.
    """

    def __init__(self) -> None:
        found = programs()
        assert found is not None, "the programs of RabbitMQ are not installed: ask programs() first"
        self._programs = found
        self._root = root()
        apart = self._root != Path("/")
        self.folder = Path(tempfile.mkdtemp(prefix="fanout-broker-", dir=self._root / "tmp" if apart else None))
        self._within = ["chroot", str(self._root)] if apart else []
        for certificate in ("right.pem", AUTHORITY.name):
            shutil.copy(CERTIFICATES / certificate, self.folder)
        self.port, self.tls_port, self._dist_port = free_port(), free_port(), free_port()
        self.node = f"fanout_{secrets.token_hex(4)}@localhost"
        self._process: subprocess.Popen[bytes] | None = None
        (self.folder / "plugins").write_text("[].")
        self.configure()

    @property
    def url(self) -> str:
        return self.url_for()

    def url_for(self, user: str = "guest", password: str = "guest", vhost: str = "%2F") -> str:
        return f"amqp://{user}:{password}@127.0.0.1:{self.port}/{vhost}"

    def configure(self, *lines: str) -> None:
        """The node's configuration, read at the next start."""
        always = (
            f"listeners.tcp.1 = 127.0.0.1:{self.port}",
            f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}",
            f"ssl_options.certfile = {self.inside('right.pem')}",
            f"ssl_options.keyfile = {self.inside('right.pem')}",
            f"ssl_options.cacertfile = {self.inside(AUTHORITY.name)}",
            "ssl_options.verify = verify_none",
        )
        (self.folder / "rabbitmq.conf").write_text("\n".join([*always, *lines, ""]))

    def inside(self, name: str = "") -> str:
        """A path in its folder, as the node sees it."""
        return str("/" / (self.folder / name).relative_to(self._root))

    def _program(self, name: str) -> list[str]:
        return [*self._within, str("/" / (self._programs / name).relative_to(self._root))]

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")}
        return kept | {
            "HOME": self.inside(),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_MNESIA_BASE": self.inside("mnesia"),
            "RABBITMQ_LOG_BASE": self.inside("log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": self.inside("plugins"),
            "RABBITMQ_CONFIG_FILE": self.inside("rabbitmq"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            # Small: several nodes may share a machine with everything else.
            "RABBITMQ_SERVER_START_ARGS": "+S 1:1 +sbwt none",
        }

    async def start(self) -> None:
        """Until it answers."""
        if self._process is not None and self._process.poll() is None:
            await self.kill()
        with (self.folder / "out").open("ab") as out:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - returns at once, and outlives event loops
                ["/bin/sh", "-c", LEASH, "sh", *self._program("rabbitmq-server")],
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

        async def up() -> bool:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError(f"the broker ended while starting:\n{(self.folder / 'out').read_text()[-2000:]}")
            return await answers(self.url)

        await eventually(up, START_SECONDS, "the private broker answers")

    async def stop(self) -> None:
        """In order, as an operator would: it closes connections with a word."""
        assert self._process is not None
        self.thaw()
        os.kill(self._beam(), signal.SIGTERM)
        await self._ended()

    async def kill(self) -> None:
        """SIGKILL."""
        self._signal(signal.SIGKILL)
        await self._ended()

    def freeze(self) -> None:
        """SIGSTOP: its sockets stay open and say nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    async def alarm(self, on: bool) -> None:
        """The memory alarm: publishers are blocked while it is on."""
        await self.control("set_vm_memory_high_watermark", "0" if on else "0.6")

    async def control(self, *arguments: str) -> str:
        """``rabbitmqctl``: its output."""
        process = await asyncio.create_subprocess_exec(
            *self._program("rabbitmqctl"),
            "--quiet",
            "--node",
            self.node,
            *arguments,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output = (await process.communicate())[0].decode()
        assert process.returncode == 0, f"rabbitmqctl {' '.join(arguments)}: {output}"
        return output

    async def close_connections(self) -> None:
        """The broker closes every connection, as an operator can order it."""
        await self.control("close_all_connections", "closed by a test")

    async def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            await self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, number)

    def _beam(self) -> int:
        """The node itself: the scripts around it do not pass signals on."""
        assert self._process is not None
        family = [self._process.pid]
        for pid in family:  # grows while it is walked
            if Path(f"/proc/{pid}/comm").read_text().startswith("beam"):
                return pid
            family += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        raise RuntimeError("the broker does not run")

    async def _ended(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        await eventually(lambda: process.poll() is not None, 30, "the broker ends")
        if process.stdin is not None:
            process.stdin.close()


class Place:
    """Names of one test's own on a shared broker, and the broker as an outsider sees it. Nothing is left behind."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.exchange = f"fanout_test_{os.getpid()}_{secrets.token_hex(4)}"
        self.queue = f"{self.exchange}.eu"
        self._connection: Any = None
        self._channel: Any = None

    async def channel(self) -> Any:
        """A channel of the test's own; a new one where the last was closed by an error, or the broker was away."""
        if self._connection is None or self._connection.is_closed or not self._connection.connected.is_set():
            self._connection = await aio_pika.connect(self.url)
        if self._channel is None or self._channel.is_closed:
            self._channel = await self._connection.channel(on_return_raises=True)
        return self._channel

    async def counts(self, queue: str | None = None) -> tuple[int, int]:
        """Messages that are ready, and consumers."""
        answer = (await (await self.channel()).declare_queue(queue or self.queue, passive=True)).declaration_result
        return answer.message_count, answer.consumer_count

    async def put(self, body: bytes, **properties: Any) -> None:
        """A message into the work queue, from someone else."""
        exchange = await (await self.channel()).get_exchange(self.exchange, ensure=False)
        await exchange.publish(aio_pika.Message(body, **properties), self.queue)

    async def get(self, queue: str) -> Any:
        """The next message of a queue, acknowledged, or None."""
        found = await (await self.channel()).get_queue(queue, ensure=False)
        return await found.get(fail=False, no_ack=True)

    async def delete(self, queues: Sequence[str] = ()) -> None:
        channel = await self.channel()
        for queue in queues or (self.queue, f"{self.queue}.dead"):
            await channel.queue_delete(queue)

    async def close(self, *, leave: bool = False) -> None:
        """``leave``: the broker itself is thrown away, with everything on it."""
        with contextlib.suppress(OSError, AMQPError, RuntimeError):
            async with asyncio.timeout(5):
                if not leave:
                    await self.delete()
                    await (await self.channel()).exchange_delete(self.exchange)
        if self._connection is not None:
            await self._connection.close()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
