"""One database under examination: what is found, what is wrong, how to mend it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import asyncpg

from fanout.cli.databases import explain, is_databases
from fanout.database.connection import CONNECT_SECONDS, session_settings
from fanout.database.migrations import MigrationError
from fanout.running.schemas import Place, missing_in
from fanout.settings import redact_url

VERSION_MIN = 150_000
"""As ``server_version_num``. Older servers are not tested."""
SKEW_SECONDS_MAX = 1.0
_POOLED = (
    "a pooler that gives out sessions by the transaction stands in front of it: LISTEN, prepared statements and settings of a "
    "session are lost there"
)
_UNPOOLED = "let {} name the server itself (what a pooler would save, our few lasting sessions save already)"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report. ``mend`` is empty where all is well."""

    what: str
    found: str
    mend: str = ""

    @property
    def ok(self) -> bool:
        return not self.mend

    def document(self) -> dict[str, object]:
        return {"check": self.what, "ok": self.ok, "found": self.found, "mend": self.mend or None}


@dataclass(frozen=True, slots=True)
class Server:
    """What a database said of its server, with which the others are compared."""

    identity: str
    """The same for every database of one server."""
    ahead_seconds: float
    """Its clock, compared with this machine's."""
    connections_max: int
    """For users like ours."""
    connections_others: int
    """Open now, not by us."""


@dataclass(frozen=True, slots=True)
class Examined:
    place: Place
    checks: list[Check]
    server: Server | None
    """None: it could not be asked."""


_ASK = """
    SELECT current_setting('server_version_num')::int AS version_number, current_setting('server_version') AS version,
           pg_is_in_recovery() AS standby, current_setting('default_transaction_read_only')::bool AS read_only,
           current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS connections_max,
           (SELECT count(*)::int FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND application_name NOT LIKE 'fanout %') AS connections_others,
           extract(epoch FROM pg_postmaster_start_time())::text AS started, current_setting('port') AS port,
           CASE WHEN pg_has_role('pg_read_all_settings', 'USAGE') THEN current_setting('data_directory', true) END AS folder, current_setting('fsync')::bool AS fsync,
           current_setting('server_encoding') AS encoding
"""


async def examine(place: Place) -> Examined:
    """Never raises for what a database does."""
    try:
        connection = await _connect(place)
    except Exception as error:
        if "unsupported startup parameter" in str(error):
            return Examined(place, [_pooler(place, f"a pooler refuses our session: {error}")], None)
        if not (is_databases(error) or isinstance(error, ValueError)):
            raise
        return Examined(place, [_cannot(place, "reachable", error)], None)
    checks = [Check(f"{place.name}: reachable", redact_url(place.url))]
    try:
        if await _is_pooled(place, connection):
            return Examined(place, [*checks, _pooler(place, _POOLED)], None)
        checks.append(Check(f"{place.name}: pooler", "none that gets in the way"))
        row = await connection.fetchrow(_ASK)
        assert row is not None
        ahead_seconds = await _ahead_seconds(connection)
        checks += _of_server(place, row)
        checks.append(await _schema(place, connection))
    except Exception as error:
        if not is_databases(error):
            raise
        return Examined(place, [*checks, _cannot(place, "answers", error)], None)
    finally:
        await connection.close()
    # Server start and folder name a server well enough: only a superuser may read its system identifier.
    identity = f"{row['started']} {row['port']} {row['folder']}"
    return Examined(place, checks, Server(identity, ahead_seconds, row["connections_max"], row["connections_others"]))


async def _connect(place: Place) -> asyncpg.Connection:
    """As the roles do; but a server that takes no writes is let pass, to be told of."""
    return await asyncpg.connect(
        place.url,
        timeout=CONNECT_SECONDS,
        server_settings=session_settings("fanout doctor"),
        command_timeout=CONNECT_SECONDS,
    )


async def _is_pooled(place: Place, first: asyncpg.Connection) -> bool:
    """Two sessions are two backends, and each stays with its own. Under a pooler one idle backend serves whoever asks next."""
    try:
        second = await _connect(place)
        try:
            backends: dict[asyncpg.Connection, set[int]] = {first: set(), second: set()}
            for session in (first, second, first, first, second):
                backends[session].add(await session.fetchval("SELECT pg_backend_pid()"))
        finally:
            await second.close()
    except (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError):
        return True  # the statement was prepared on another backend
    return any(len(seen) > 1 for seen in backends.values()) or backends[first] == backends[second]


def _pooler(place: Place, found: str) -> Check:
    return Check(f"{place.name}: pooler", found, _UNPOOLED.format(place.setting))


def _cannot(place: Place, what: str, error: Exception) -> Check:
    sentence, _, mend = explain(place, error).rpartition("; ")
    return Check(f"{place.name}: {what}", sentence.removeprefix(f"{place.name}: "), mend)


async def _ahead_seconds(connection: asyncpg.Connection) -> float:
    """By the middle of the quickest of a few questions."""
    best: tuple[float, float] | None = None
    for _ in range(3):
        asked = time.time()
        theirs = float(await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8"))
        answered = time.time()
        if best is None or answered - asked < best[0]:
            best = answered - asked, theirs - (asked + answered) / 2
    assert best is not None
    return best[1]


def _of_server(place: Place, row: asyncpg.Record) -> Iterator[Check]:
    version = Check(f"{place.name}: version", f"PostgreSQL {row['version']}")
    old = row["version_number"] < VERSION_MIN
    yield replace(version, mend=f"use PostgreSQL {VERSION_MIN // 10_000} or newer") if old else version
    what = f"{place.name}: writable"
    if row["standby"]:
        yield Check(what, "a standby, which takes no writes", f"let {place.setting} name the primary")
    elif row["read_only"]:
        yield Check(what, "default_transaction_read_only is on", "switch it off for this database and user")
    elif row["encoding"] != "UTF8":
        yield Check(what, f"its encoding is {row['encoding']}", "make a database with ENCODING 'UTF8'")
    else:
        yield Check(what, "yes")
    lost = "fsync is off: what was accepted may be lost when the machine fails"
    durable = Check(f"{place.name}: durable", "yes" if row["fsync"] else lost)
    yield durable if row["fsync"] else replace(durable, mend="switch fsync on")


async def _schema(place: Place, connection: asyncpg.Connection) -> Check:
    what = f"{place.name}: schema {place.schema.name}"
    try:
        missing = await missing_in(connection, place)
    except MigrationError as error:
        sentence, _, mend = str(error).rpartition(": ")
        return Check(what, sentence, mend)
    return (
        Check(what, f"to apply: {', '.join(missing)}", "run: fanout migrate") if missing else Check(what, "up to date")
    )
