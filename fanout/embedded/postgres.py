"""One PostgreSQL server of our own, in one folder of its own, that is gone when we are gone.

Who may connect: on the unix socket whoever may enter its folder (mode 0700, so the owner and root); on TCP, which is
only opened on request and only on 127.0.0.1, whoever knows a random password (scram-sha-256). Other users of the machine
can do neither.
"""

import asyncio
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote, urlencode

import asyncpg

from fanout.embedded.binaries import Binaries, find_binaries
from fanout.embedded.failures import EmbeddedPostgresError, log_since
from fanout.embedded.remains import Remains

StopMode = Literal["smart", "fast", "immediate"]

SUPERUSER = "fanout"
UNPRIVILEGED = "nobody"
SOCKET_PORT = 5432  # without TCP only part of the socket's file name, so it collides with nothing
PORT_MAX = 65535
SOCKET_PATH_BYTES_MAX = 103  # sun_path holds 108 bytes on Linux and 104 on macOS, one of them the final NUL
START_SECONDS_MAX = 60
TETHER = Path(__file__).with_name("tether.py")
STOP_SIGNALS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
HBA = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
SETTINGS = {
    "shared_buffers": "256MB",
    "max_connections": "200",
    "max_wal_size": "2GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%d ",
    "lc_messages": "C",
}
WITHOUT_FSYNC = {"fsync": "off", "full_page_writes": "off"}
PORT_TAKEN = "could not create any TCP/IP sockets"
LOCKED = re.compile(r"Is another postmaster \(PID (\d+)\) running")
STILL_DYING = "pre-existing shared memory block"


class EmbeddedPostgres:
    """A server in ``folder`` (absent, empty, or one made here before: then its data is used again), or, without one, in
    a fresh temporary folder that is removed at the end.

    ``fsync=False`` gives up safety against a crash of the machine (not of the server) for speed: for tests.
    ``tcp=True`` opens a free port on 127.0.0.1 beside the socket. ``settings`` are further server settings.
    Started by root, the server runs as ``nobody``. On Linux it stops when the thread that called ``start`` ends, even by
    SIGKILL: start it in a thread that lives as long as the server shall. Costs about a second for a new folder.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        fsync: bool = True,
        tcp: bool = False,
        settings: Mapping[str, str] | None = None,
        binaries: Binaries | None = None,
    ) -> None:
        self._given_folder = folder
        self._fsync = fsync
        self._tcp = tcp
        self._settings = SETTINGS | ({} if fsync else WITHOUT_FSYNC) | dict(settings or {})
        self._binaries = binaries
        self._folder: Path | None = None
        self._socket_folder: Path | None = None
        self._port: int | None = None
        self._password = ""
        self._user = pwd.getpwnam(UNPRIVILEGED) if os.geteuid() == 0 else None
        self._remains = Remains()
        weakref.finalize(self, self._remains.clear)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # ------------------------------------------------------------------ where it is

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise EmbeddedPostgresError("the embedded PostgreSQL has not been started yet")
        return self._folder

    @property
    def log_file(self) -> Path:
        return self.folder / "server.log"

    @property
    def running(self) -> bool:
        return self._remains.process is not None and self._remains.process.poll() is None

    @property
    def pid(self) -> int:
        """Of the postmaster."""
        if self._remains.process is None:
            raise EmbeddedPostgresError("the embedded PostgreSQL is not running")
        return self._remains.process.pid

    @property
    def socket_folder(self) -> Path:
        if self._socket_folder is None:
            raise EmbeddedPostgresError("the embedded PostgreSQL has not been started yet")
        return self._socket_folder

    @property
    def tcp_port(self) -> int:
        if self._port is None:
            raise EmbeddedPostgresError("the embedded PostgreSQL listens on its socket only: start it with tcp=True")
        return self._port

    @property
    def dsn(self) -> str:
        """The database ``postgres`` over the unix socket: no password in it, so it may be shown."""
        return self.database_url("postgres")

    def database_url(self, name: str, *, over: Literal["socket", "tcp"] = "socket") -> str:
        """A URL for asyncpg and psql. The one over TCP holds the password: do not show it."""
        if over == "tcp":
            return (
                f"postgresql://{SUPERUSER}:{self._password}@127.0.0.1:{self.tcp_port}/{quote(name, '')}?sslmode=disable"
            )
        where = urlencode({"host": str(self.socket_folder), "port": self._port or SOCKET_PORT}, safe="/")
        return f"postgresql://{SUPERUSER}@/{quote(name, '')}?{where}"

    async def create_database(self, name: str) -> str:
        """Makes an empty database and returns its URL."""
        await self._execute(f"create database {quoted(name)}")
        return self.database_url(name)

    async def drop_database(self, name: str) -> None:
        """Removes a database, cutting whoever is connected to it."""
        await self._execute(f"drop database if exists {quoted(name)} with (force)")

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    # ------------------------------------------------------------------ its life

    async def start(self) -> None:
        """Prepares the folder if needed and returns when the server takes connections. Does nothing if it runs."""
        if self.running:
            return
        binaries = self._prepare_folder()
        self._remains.hire_janitor()
        if not self._data.exists():
            await self._initialise(binaries)
        self._password = (self.folder / "password").read_text()
        started = time.monotonic()
        while True:
            if self._tcp and self._port is None:
                self._port = _free_port()
            log_start = self.log_file.stat().st_size
            try:
                await self._launch(binaries)
            except EmbeddedPostgresError:
                said = log_since(self.log_file, log_start)
                if time.monotonic() - started > START_SECONDS_MAX / 4:
                    raise
                if PORT_TAKEN in said:
                    self._port = None  # someone took the port between our look and the server's bind
                elif STILL_DYING not in said:  # after kill(): the last backends are still on their way out
                    raise
                await asyncio.sleep(0.05)
            else:
                return

    async def stop(self, mode: StopMode = "fast", *, patience_seconds: float = 30) -> None:
        """``smart`` waits for clients to leave, ``fast`` cuts them, ``immediate`` leaves recovery to the next start.

        A server that is not gone after ``patience_seconds`` is stopped by the next harsher way.
        """
        process = self._remains.process
        if process is None:
            return
        harsher = list(STOP_SIGNALS.values())
        for number in (*harsher[list(STOP_SIGNALS).index(mode) :], signal.SIGKILL):
            if process.poll() is None:
                process.send_signal(number)
            if await _ended(process, patience_seconds):
                break
        self._remains.process = None

    async def kill(self) -> None:
        """SIGKILL to the postmaster, as a crash would end it. Its backends notice within milliseconds."""
        process = self._remains.process
        if process is not None:
            process.kill()
            await _ended(process, START_SECONDS_MAX)
            self._remains.process = None

    async def restart(self, mode: StopMode = "fast") -> None:
        await self.stop(mode)
        await self.start()

    async def close(self) -> None:
        """Stops the server and removes what was temporary. May be called twice."""
        try:
            await self.stop("fast" if self._given_folder else "immediate")
        finally:
            self._remains.clear()
            self._folder = self._socket_folder = self._port = None

    # ------------------------------------------------------------------ how it is made

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _prepare_folder(self) -> Binaries:
        folder = self._folder or self._claim_folder()
        self._folder = folder
        found = self._binaries or find_binaries()
        if self._socket_folder is None:
            self._socket_folder = folder / "socket"
            if len(os.fsencode(self._socket_folder / f".s.PGSQL.{PORT_MAX}")) > SOCKET_PATH_BYTES_MAX:
                self._socket_folder = Path(
                    tempfile.mkdtemp(prefix="fanout-", dir="/tmp")
                )  # TMPDIR may be the long part
                self._remains.folders.append(self._socket_folder)
            self._socket_folder.mkdir(mode=0o700, exist_ok=True)
            self._give(self._socket_folder)
        self.log_file.touch(mode=0o600)
        if self._user and found.from_wheel and not found.open_to_all:
            copies = folder / "binaries"
            copies.mkdir(mode=0o755, exist_ok=True)
            return found.copy_into(copies)
        return found

    def _claim_folder(self) -> Path:
        if self._given_folder is None:
            folder = Path(tempfile.mkdtemp(prefix="fanout-postgres-"))
            self._remains.folders.append(folder)
        else:
            folder = self._given_folder.absolute()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(folder.iterdir()) and not (folder / "server.log").exists():
                raise EmbeddedPostgresError(
                    f"{folder} holds other files: give the embedded PostgreSQL a new or empty folder of its own"
                )
            folder.chmod(0o700)
        self._give(folder)
        return folder

    def _give(self, path: Path) -> None:
        if self._user:
            os.chown(path, self._user.pw_uid, self._user.pw_gid)

    async def _initialise(self, binaries: Binaries) -> None:
        """Into a folder that gets its name only when it is complete, so a crash in between leaves no half."""
        unfinished = self.folder / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        password = self.folder / "password"
        password.touch(mode=0o600)
        password.write_text(secrets.token_hex(24))
        self._give(password)
        lasting = self._fsync and self._given_folder is not None
        log_start = self.log_file.stat().st_size
        process = self._spawn(
            signal.SIGTERM,
            binaries.folder / "initdb",
            f"--pgdata={unfinished}",
            f"--username={SUPERUSER}",
            f"--pwfile={password}",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            *(() if lasting else ("--no-sync",)),
        )
        try:
            if not await _ended(process, START_SECONDS_MAX) or process.returncode != 0:
                raise EmbeddedPostgresError.with_log(
                    f"cannot make a database cluster in {self.folder} (initdb ended with {process.returncode})",
                    self.log_file,
                    log_start,
                )
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        (unfinished / "pg_hba.conf").write_text(HBA)
        unfinished.rename(self._data)

    async def _launch(self, binaries: Binaries) -> None:
        log_start = self.log_file.stat().st_size
        settings = self._settings | {
            "listen_addresses": "127.0.0.1" if self._tcp else "",
            "port": str(self._port or SOCKET_PORT),
            "unix_socket_directories": str(self.socket_folder),
        }
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        process = self._spawn(signal.SIGINT, binaries.folder / "postgres", "-D", str(self._data), *arguments)
        self._remains.process = process
        deadline = time.monotonic() + START_SECONDS_MAX
        ready = False
        try:
            while not (ready := self._takes_connections(process.pid)):
                if process.poll() is not None or time.monotonic() > deadline:
                    break
                await asyncio.sleep(0.01)
        finally:
            if not ready:
                process.kill()
                process.wait()
                self._remains.process = None
        if not ready:
            if owner := LOCKED.search(log_since(self.log_file, log_start)):
                raise EmbeddedPostgresError(
                    f"{self.folder} is in use: a PostgreSQL runs in it already (process {owner[1]}); use that one, stop it, "
                    "or name another folder (`fanout up --data FOLDER`)"
                )
            raise EmbeddedPostgresError.with_log(
                f"PostgreSQL in {self.folder} did not start (ended with {process.returncode})", self.log_file, log_start
            )

    def _takes_connections(self, pid: int) -> bool:
        """As pg_ctl does: line 1 of postmaster.pid is the process, line 8 its status."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > 7 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"  # noqa: PLR2004 - line 8

    def _spawn(self, on_parent_death: signal.Signals, program: Path, *arguments: str) -> subprocess.Popen[bytes]:
        who = (self._user.pw_uid, self._user.pw_gid) if self._user else ("-", "-")
        tether = (sys.executable, "-I", "-S", TETHER, os.getpid(), int(on_parent_death), *who, self.folder)
        inherited = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # no secret of ours, no PGHOST of someone else's
        with self.log_file.open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own script, arguments from this module
                [str(part) for part in (*tether, program, *arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={name: os.environ[name] for name in inherited if name in os.environ} | {"LC_ALL": "C"},
                start_new_session=True,  # Ctrl-C reaches us, and we decide when the server stops
            )


def quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _ended(process: subprocess.Popen[bytes], patience_seconds: float) -> bool:
    deadline = time.monotonic() + patience_seconds
    while process.poll() is None:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True
