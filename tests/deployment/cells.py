"""config/postgres/cells.sh on a server of the test's own, as the image runs it."""

import asyncio
import os
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fanout.embedded import EmbeddedPostgres
from fanout.embedded.binaries import find_binaries

from .compose import ROOT, environment_of, services

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
