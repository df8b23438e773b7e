"""`fanout demo`: the main job on this machine alone, from a published version to a signed POST, and then the sum."""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
from rich.console import Console
from rich.text import Text

from fanout.database.connection import connect
from fanout.database.errors import describe, is_transient
from fanout.database.schema import Schema
from fanout.demo.checks import Check, RegionSum, checks
from fanout.demo.day import read_day
from fanout.demo.figures import glance, most_eventful, read_ledger
from fanout.demo.interruption import Interruption
from fanout.demo.progress import Progress, shown_progress
from fanout.demo.receivers import ReceiverFailed
from fanout.demo.report import answers, phases_line, reconciliation, stdout, story
from fanout.demo.stage import BY, NAMESPACE, Stage, built_stage, publish_day, running_roles
from fanout.embedded import EmbeddedPostgresError
from fanout.ledger.inspection import Delivery, show_delivery
from fanout.reconciliation import balanced, compare
from fanout.settings.sources import AMQP_URL
from fanout.telemetry.logs import configure_logs
from fanout.transports.transport import QueueRefused, QueueUnavailable

OVERALL_SECONDS_MAX = 300.0
LOOK_EVERY_SECONDS = 0.4
DONE, FAILED = 0, 1


@dataclass(frozen=True, slots=True)
class _Sum:
    """What the end of the demo has to say."""

    document: dict[str, Any]
    checks: list[Check]
    delivery: tuple[str, Delivery] | None
    """An eventful one, with its region."""

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)


async def run_demo(
    *,
    json_output: bool = False,
    keep: bool = False,
    versions: int | None = None,
    overall_seconds: float = OVERALL_SECONDS_MAX,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """The exit status: 0 where everything has ended and the sum is right, else 1; 128 + signal after an interruption.

    Brings its own PostgreSQL, receivers and settings, and leaves no process and no file, however it ends. A broker in
    ``FANOUT_AMQP_URL`` is used, under a name of its own; what was made on it is deleted, unless this is ended by SIGKILL. ``keep``: all of it
    stays until the next signal. ``versions``: only the first so many of the day. After ``overall_seconds`` it says what is
    open, and fails.
    """
    interruption = Interruption()
    with interruption.on_signals():
        try:
            amqp_url = environ.get(AMQP_URL, "").strip() or None
            return await _demo(interruption, amqp_url, json_output, keep, versions, overall_seconds)
        except asyncio.CancelledError:
            if interruption.by is None:
                raise
            _complain(
                f"interrupted by {signal.Signals(interruption.by).name}: everything was taken down, nothing is left"
            )
            return 128 + interruption.by
        except Exception as error:
            if (foreseen := _foreseen(error)) is None:
                raise
            _complain(f"the demo failed: {foreseen}")
            return FAILED


async def _demo(
    interruption: Interruption,
    amqp_url: str | None,
    json_output: bool,
    keep: bool,
    versions: int | None,
    overall_seconds: float,
) -> int:
    ends_at = asyncio.get_running_loop().time() + overall_seconds
    async with AsyncExitStack() as stack:
        with shown_progress() as progress:
            configure_logs("error", sys.stderr)  # that receivers fail is part of the play: the table counts it
            async with asyncio.timeout_at(ends_at):
                stage = await stack.enter_async_context(built_stage(progress.begin, amqp_url))
                await stack.enter_async_context(running_roles(stage.settings))
            ended = await _deliver(stage, versions, progress, ends_at)
            progress.begin("reconciliation")
            total = await _add_up(stage)
        seconds = {phase.name: round(phase.seconds(0), 3) for phase in progress.state.phases}
        total.document.update(seconds=round(progress.state.seconds, 3), phases=seconds)
        if json_output:
            stdout().print_json(data=total.document)
        else:
            _print(total, progress, keep=keep)
        if not ended:
            _complain(f"not over after {overall_seconds:g} s; what is open stands above")
        if keep:
            _explain_keeping(stage, total, Console(stderr=True, highlight=False) if json_output else stdout())
            await interruption.kept()
    return DONE if total.ok and ended else FAILED


async def _deliver(stage: Stage, versions: int | None, progress: Progress, ends_at: float) -> bool:
    """Publishes the day and watches until all of it has ended; False where the time was over before."""
    progress.begin("publishing and delivering")
    day = await asyncio.to_thread(read_day, versions)
    progress.state.versions = len(day)
    try:
        async with asyncio.timeout_at(ends_at), asyncio.TaskGroup() as group:
            publishing = group.create_task(publish_day(stage, day, progress.published))
            await _watch(stage, publishing, progress)
    except TimeoutError:
        return False
    return True


async def _watch(stage: Stage, publishing: "asyncio.Task[None]", progress: Progress) -> None:
    schemas = {name: Schema(region.schema) for name, region in stage.settings.regions.items()}
    connection = await connect(stage.url, BY)
    try:
        while True:
            for receiver in stage.receivers.values():
                receiver.insist_on_life()
            published = publishing.done()
            glances = {name: await glance(connection, stage.home, name, schema) for name, schema in schemas.items()}
            progress.looked(glances)
            if published and all(each.finished for each in glances.values()):
                return
            await asyncio.sleep(LOOK_EVERY_SECONDS)
    finally:
        connection.terminate()


async def _add_up(stage: Stage) -> _Sum:
    """Receivers first: what they have counted by now, the ledgers know or will know."""
    seen = {region: await receiver.seen() for region, receiver in stage.receivers.items()}
    connection = await connect(stage.url, BY)
    try:
        sums = [await _region_sum(connection, stage, region, seen[region]) for region in stage.settings.regions]
        delivery = await _eventful(connection, stage)
    finally:
        await connection.close()
    asked = checks(sums)
    document: dict[str, Any] = {
        "ok": all(check.ok for check in asked),
        "balanced": balanced([each.book for each in sums]),
        "transport": " and ".join(sorted({region.transport for region in stage.settings.regions.values()})),
        "regions": {each.region: each.document() for each in sums},
        "checks": [{"question": check.question, "ok": check.ok, "detail": check.detail} for check in asked],
        "delivery": delivery and delivery[1].document(delivery[0]),
    }
    return _Sum(document, asked, delivery)


async def _region_sum(connection: asyncpg.Connection, stage: Stage, region: str, seen: Mapping[str, Any]) -> RegionSum:
    schema = Schema(stage.settings.regions[region].schema)
    return RegionSum(
        region=region,
        book=await compare(connection, stage.home, region, connection, schema),
        ledger=await read_ledger(connection, schema),
        seen=seen,
        limits=stage.casts[region].limits,
        rates=stage.casts[region].rates,
        ordered=stage.casts[region].ordered,
    )


async def _eventful(connection: asyncpg.Connection, stage: Stage) -> tuple[str, Delivery] | None:
    schemas = {name: Schema(region.schema) for name, region in stage.settings.regions.items()}
    found = {name: await most_eventful(connection, schema) for name, schema in schemas.items()}
    most = max(((each, name) for name, each in found.items() if each is not None), default=None)
    if most is None:
        return None
    each, name = most
    delivery = await show_delivery(connection, schemas[name], each.shipment_id, each.subscriber_id, each.version)
    return (name, delivery) if delivery is not None else None


# ---------------------------------------------------------------------------------------------------- saying it


def _print(total: _Sum, progress: Progress, *, keep: bool) -> None:
    out = stdout()
    out.print(reconciliation(total.document))
    out.print(answers(total.checks), end="")
    out.print(
        f"Transport: {total.document['transport']}. {phases_line(progress.state.phases, progress.state.seconds)}\n",
        soft_wrap=True,
    )
    if total.delivery is not None:
        out.print("One delivery, from the ledger alone:\n")
        out.print(story(total.delivery[1]), soft_wrap=True)
    if not keep:
        out.print(f"To look around before the database is removed: {_command()} demo --keep", soft_wrap=True)


def _explain_keeping(stage: Stage, total: _Sum, out: Console) -> None:
    command = _command()
    lines = [f"export FANOUT_DATABASE_URL={shlex.quote(stage.url)}"]
    if stage.settings.namespace.startswith(NAMESPACE):
        lines.append(f"export FANOUT_NAMESPACE={stage.settings.namespace}")
    if total.delivery is not None:
        lines.append(f"{command} deliveries show {total.delivery[1].key}")
    lines += [f"{command} deliveries list --state dead --limit 10", f"{command} status"]
    out.print("\nEverything keeps running until Ctrl-C. In another terminal:\n")
    out.print(Text("\n".join(f"  {line}" for line in lines) + "\n"), soft_wrap=True)
    out.file.flush()


def _command() -> str:
    """As the user can type it where they stand."""
    program = Path(sys.argv[0])
    if program.name != "fanout":
        return f"{shlex.quote(sys.executable)} -m fanout"
    here = os.path.relpath(program.absolute())
    return shlex.quote(here if len(here) < len(str(program.absolute())) else str(program.absolute()))


def _foreseen(error: BaseException) -> str | None:
    """What to say of an error that has a sentence of its own; None: it is one of ours, and deserves its traceback."""
    if isinstance(error, BaseExceptionGroup):
        said = [_foreseen(each) for each in error.exceptions]
        return None if None in said else said[0]
    if isinstance(error, EmbeddedPostgresError | ReceiverFailed):
        return str(error)
    if isinstance(error, QueueUnavailable | QueueRefused):
        return f"{error}. {AMQP_URL} names this broker; without it the demo needs none"
    if isinstance(error, TimeoutError):
        return "PostgreSQL, schemas and receivers were not ready in time: is this machine very busy?"
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):  # a full disk, say
        return describe(error)
    if is_transient(error):
        return f"PostgreSQL went away in the middle: {describe(error)}"
    return None


def _complain(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
