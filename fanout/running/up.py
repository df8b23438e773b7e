"""Everything in one process, with a PostgreSQL of its own where no database is known."""

import asyncio
import contextlib
import os
import shlex
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from fanout.api.app import check_binding
from fanout.embedded import EmbeddedPostgres, EmbeddedPostgresError
from fanout.running.http import bind, url_of
from fanout.running.roles import Part, Process, run_process
from fanout.running.schemas import all_places, migrate_place
from fanout.running.stopping import Stop
from fanout.settings import Settings, SettingsError
from fanout.settings.sources import DATABASE_URL

DATA_FOLDER = Path(".fanout/postgres")
WATCH_SECONDS = 1.0

Say = Callable[[str], None]


async def up(settings: Settings, data: Path | None, say: Say, environ: Mapping[str, str] = os.environ) -> int:
    """Until a signal; the exit status. The port is taken before anything else is started."""
    if data is not None and settings.home.database_url is not None:
        why = "a database is known already, so none is started"
        raise SettingsError.field("--data", why, f"leave it out, or unset {DATABASE_URL} and home.database_url")
    check_binding(settings)
    listener = bind(settings.http)
    stop = Stop()
    try:
        with stop.on_signals():
            async with _with_database(settings, data, say, environ) as (complete, server):
                process = everything(complete)
                if server is not None:
                    process.parts.append(Part("PostgreSQL", (), partial(_insist_on, server)))
                app = process.add_api(complete)
                say(f"the API listens on {url_of(listener)}")
                return await run_process(process, app, listener, stop)
    finally:
        listener.close()


def everything(settings: Settings) -> Process:
    """All roles of all regions but the API."""
    process = Process("up")
    process.add_publisher(settings)
    for region in settings.regions.values():
        process.add_scheduler(settings, region)
        process.add_consumer(settings, region)
    return process


@asynccontextmanager
async def _with_database(
    settings: Settings, data: Path | None, say: Say, environ: Mapping[str, str]
) -> AsyncIterator[tuple[Settings, EmbeddedPostgres | None]]:
    """The settings with every database known, and the server if we started one. One of our own is migrated by us; anyone else's is theirs to migrate."""
    if settings.home.database_url is not None:
        yield settings, None
        return
    async with EmbeddedPostgres(data or DATA_FOLDER) as server:
        complete = Settings.load({**environ, DATABASE_URL: server.dsn})
        for place in all_places(complete):
            await migrate_place(place)
        say(
            f"PostgreSQL runs in {server.folder}; look into it, or use other commands, with {DATABASE_URL}={shlex.quote(server.dsn)}"
        )
        yield complete, server


async def _insist_on(server: EmbeddedPostgres, stop: Stop) -> None:
    """Roles wait for a database that is away; one that is ours and has ended will not come back by waiting."""
    while not stop.stopping.is_set():
        if not server.running:
            raise EmbeddedPostgresError(
                f"the PostgreSQL of this process has ended (see {server.log_file}): start `fanout up` again"
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WATCH_SECONDS):
                await stop.stopping.wait()
