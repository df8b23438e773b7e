"""What can be typed: every command with its arguments. What they do stands in modules that are imported when they are called."""
# ruff: noqa: PLC0415 - imports stand inside the commands, so that `fanout --help` answers at once

from pathlib import Path
from typing import Annotated

import typer

from fanout.cli.app_deliveries import deliveries
from fanout.cli.app_subscribers import subscribers
from fanout.cli.options import Json, Region

app = typer.Typer(
    help="Fans shipment updates out to subscribers in several regions: durable, fenced, within exact limits, explained.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(subscribers, name="subscribers")
app.add_typer(deliveries, name="deliveries")


@app.command()
def demo(
    json: Json = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep everything running at the end, until Ctrl-C.")] = False,
    versions: Annotated[int | None, typer.Option(min=1, help="Only the first so many versions of the day.")] = None,
) -> int:
    """The main job on this machine alone: a real day, two regions, and the sum."""
    from fanout.cli.ending import run
    from fanout.demo.command import run_demo

    return run(run_demo(json_output=json, keep=keep, versions=versions))


@app.command()
def up(
    data: Annotated[
        Path | None, typer.Option(help="Folder of the PostgreSQL that is started where no database is known.")
    ] = None,
) -> int:
    """Everything in one process. Where no database is known it brings its own PostgreSQL."""
    from fanout.cli.ending import run
    from fanout.cli.roles import run_up

    return run(run_up(data))


@app.command()
def api() -> int:
    """The HTTP API."""
    from fanout.cli.ending import run
    from fanout.cli.roles import run_api

    return run(run_api())


@app.command()
def publisher() -> int:
    """Expands published versions into the regions."""
    from fanout.cli.ending import run
    from fanout.cli.roles import run_publisher

    return run(run_publisher())


@app.command()
def scheduler(region: Region) -> int:
    """Promotes what is due in one region."""
    from fanout.cli.ending import run
    from fanout.cli.roles import run_scheduler

    return run(run_scheduler(region))


@app.command()
def consumer(region: Region) -> int:
    """Sends to the subscribers of one region."""
    from fanout.cli.ending import run
    from fanout.cli.roles import run_consumer

    return run(run_consumer(region))


@app.command()
def migrate(json: Json = False) -> int:
    """Bring home's schema and every region's up to date. Repeatable."""
    from fanout.cli.ending import run
    from fanout.cli.migrating import migrate_everything

    return run(migrate_everything(json_output=json))


@app.command()
def doctor(
    settings: Annotated[
        bool, typer.Option("--settings", help="Show every value that was set, too, and where.")
    ] = False,
    json: Json = False,
) -> int:
    """Say what is wrong with settings, databases and brokers, and how to mend it."""
    from fanout.cli.doctor import examine_everything
    from fanout.cli.ending import run

    return run(examine_everything(json_output=json, with_settings=settings))


@app.command()
def publish(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON lines, also as .gz; - reads standard input.")],
    json: Json = False,
) -> int:
    """Publish shipment versions. Repeatable: what is there already counts as duplicate.

    A file is read whole first, and nothing is published if a line is wrong.
    """
    from fanout.cli.publishing import publish_file, publish_stdin

    return publish_stdin(json_output=json) if file == "-" else publish_file(Path(file), json_output=json)


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Look again every second, until Ctrl-C.")] = False,
    recount: Annotated[
        bool, typer.Option("--recount", help="Count every delivery too, and compare with the counters.")
    ] = False,
    json: Json = False,
) -> int:
    """How each region stands, and whether accepted = delivered + dead + open."""
    from fanout.cli.ending import run
    from fanout.cli.status import show_status

    return run(show_status(watch=watch, recount_rows=recount, json_output=json))


@app.command()
def receiver(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free one.")] = 0,
    script: Annotated[Path | None, typer.Option(help="Rules as JSON: what to answer.")] = None,
    secrets: Annotated[
        Path | None, typer.Option(help="Verify signatures; as `subscribers apply --secrets-out` writes it.")
    ] = None,
    json: Json = False,
) -> int:
    """A scriptable subscriber endpoint for trying things. Ctrl-C ends it and shows what it saw."""
    from fanout.cli.ending import run
    from fanout.cli.receiving import receive

    return run(receive(host, port, script, secrets, json_output=json))
