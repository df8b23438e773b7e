"""What config/postgres/cells.sh makes of a new server: a database for each cell, and logins that see only their own."""

import asyncio
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from fanout.database.connection import connect
from fanout.embedded import EmbeddedPostgres
from fanout.embedded.binaries import find_binaries
from fanout.running.schemas import all_places, migrate_place
from fanout.settings import Settings

from .compose import ROOT, environment_of, services

CELLS = ("fanout_home", "fanout_eu", "fanout_us")
SCRIPT = ROOT / "config" / "postgres" / "cells.sh"


def psql() -> Path:
    program = find_binaries().folder / "psql"
    if not program.is_file():
        pytest.skip(f"no psql beside the PostgreSQL in {program.parent}")
    return program


async def make_cells(server: EmbeddedPostgres, **environment: str) -> subprocess.CompletedProcess[str]:
    """As the image runs it: with psql at hand, as the superuser, and the container's environment."""
    told = environment_of(services()["postgres"]) | environment
    superuser = urlsplit(server.database_url("postgres", over="tcp"))
    where = {
        "PATH": f"{psql().parent}:{os.environ['PATH']}",
        "PGHOST": "127.0.0.1",
        "PGPORT": str(server.tcp_port),
        "PGPASSWORD": superuser.password or "",
        "POSTGRES_USER": superuser.username or "",
    }
    command = ["/bin/sh", str(SCRIPT)]
    return await asyncio.to_thread(
        subprocess.run, command, env=told | where, capture_output=True, text=True, check=False
    )


def url_here(url: str, server: EmbeddedPostgres, database: str | None = None) -> str:
    """The same login, and the same database or another one, on this server."""
    parts = urlsplit(url)
    return f"postgresql://{parts.username}:{parts.password}@127.0.0.1:{server.tcp_port}/{database or parts.path[1:]}"


async def test_each_login_brings_its_own_schema_up_to_date_and_enters_no_other_database(
    own_postgres: EmbeddedPostgres, tmp_path: Path
):
    done = await make_cells(own_postgres)
    assert (done.returncode, done.stderr) == (0, "")
    places = all_places(Settings.load(environment_of(services()["migrate"]), tmp_path))
    assert [urlsplit(place.url).path[1:] for place in places] == list(CELLS)
    for place in places:
        assert await migrate_place(replace(place, url=url_here(place.url, own_postgres)))
        for other in CELLS:
            if other != urlsplit(place.url).path[1:]:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connect(url_here(place.url, own_postgres, other), "test")


async def test_passwords_are_kept_as_hashes_and_stand_in_no_log(own_postgres: EmbeddedPostgres):
    strange = "it's-$HOME-\\n"
    assert (await make_cells(own_postgres, EU_DATABASE_PASSWORD=strange)).returncode == 0
    again = await make_cells(own_postgres, HOME_DATABASE_PASSWORD="not-to-be-seen")
    assert again.returncode != 0, "what is there already is not passed over in silence"
    assert "already exists" in again.stderr
    connection = await connect(own_postgres.dsn, "test")
    try:
        rows = await connection.fetch("SELECT rolname, rolpassword, rolsuper FROM pg_authid WHERE rolcanlogin")
    finally:
        await connection.close()
    made = {row["rolname"]: row for row in rows if row["rolname"] in CELLS}
    assert made.keys() == set(CELLS)
    for row in made.values():
        assert re.match(r"SCRAM-SHA-256\$", row["rolpassword"])
        assert not row["rolsuper"]
    log = own_postgres.log_file.read_text()
    assert "not-to-be-seen" not in log + again.stderr
    assert strange not in log
