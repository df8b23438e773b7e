"""The roles as commands: settings in, logs on stderr, an exit status out."""

import sys
from collections.abc import Callable
from pathlib import Path

from starlette.types import ASGIApp

from fanout.cli.databases import explain, is_databases
from fanout.cli.ending import Failed
from fanout.cli.operators import known_region
from fanout.cli.output import say
from fanout.embedded import EmbeddedPostgresError
from fanout.running.http import bind
from fanout.running.roles import Process, run_process
from fanout.running.schemas import Unusable
from fanout.running.stopping import Stop
from fanout.running.up import up
from fanout.settings import Settings
from fanout.telemetry.logs import configure_logs

Fill = Callable[[Process, Settings], ASGIApp | None]
"""Puts the parts of a role into a process; returns its HTTP application where it has one beyond the probes."""


async def run_api() -> int:
    return await _run("api", Settings.load(), lambda process, settings: process.add_api(settings))


async def run_publisher() -> int:
    return await _run("publisher", Settings.load(), lambda process, settings: process.add_publisher(settings))


async def run_scheduler(region: str) -> int:
    settings = Settings.load()
    known = known_region(settings, region)
    return await _run("scheduler", settings, lambda process, _: process.add_scheduler(settings, known))


async def run_consumer(region: str) -> int:
    settings = Settings.load()
    known = known_region(settings, region)
    return await _run("consumer", settings, lambda process, _: process.add_consumer(settings, known))


async def run_up(data: Path | None) -> int:
    """Everything. Says on stdout where the API listens, and which database was started."""
    settings = Settings.load()
    configure_logs(settings.log.level, sys.stderr)
    try:
        return await up(settings, data, say)
    except EmbeddedPostgresError as error:
        raise Failed(str(error)) from error
    except Unusable as error:
        raise _told(error) from error


async def _run(name: str, settings: Settings, fill: Fill) -> int:
    """Raises ``Failed`` where a schema cannot be used; one whose database is merely away is waited for."""
    configure_logs(settings.log.level, sys.stderr)
    process = Process(name)
    app = fill(process, settings) or process.probes()
    listener = bind(settings.http)
    stop = Stop()
    try:
        with stop.on_signals():
            return await run_process(process, app, listener, stop)
    except Unusable as error:
        raise _told(error) from error
    finally:
        listener.close()


def _told(error: Unusable) -> Exception:
    return Failed(explain(error.place, error.why)) if is_databases(error.why) else error.why
