"""What can be typed after ``fanout subscribers``."""
# ruff: noqa: PLC0415 - imports stand inside the commands, so that `fanout --help` answers at once

from pathlib import Path
from typing import Annotated

import typer

from fanout.cli.options import By, Json, OfRegion, SubscriberId

subscribers = typer.Typer(help="The registry: who wants updates, where, how fast.", no_args_is_help=True)


@subscribers.command()
def apply(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON; - reads standard input.")],
    prune: Annotated[bool, typer.Option("--prune", help="Delete the subscribers that are not in the file.")] = False,
    secrets_out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the secrets of all subscribers of the file, readable by you alone."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --prune: an empty file is meant.")] = False,
    by: By = None,
    json: Json = False,
) -> int:
    """Create and update subscribers: all of a region or none. Repeatable. Those not in the file stay."""
    from fanout.cli.ending import run
    from fanout.cli.subscribers import apply_file

    return run(apply_file(file, prune=prune, secrets_out=secrets_out, by=by, json_output=json, sure=yes))


@subscribers.command(name="list")
def list_(region: OfRegion = None, json: Json = False) -> int:
    """The subscribers of one region or of all, with where they stand."""
    from fanout.cli.ending import run
    from fanout.cli.subscribers_shown import list_all

    return run(list_all(region, json_output=json))


@subscribers.command()
def show(subscriber_id: SubscriberId, json: Json = False) -> int:
    """One subscriber: settings, limits, gate, deliveries, who changed what. No secrets."""
    from fanout.cli.ending import run
    from fanout.cli.subscribers_shown import show_one

    return run(show_one(subscriber_id, json_output=json))


@subscribers.command()
def tune(
    subscriber_id: SubscriberId,
    concurrency: Annotated[int | None, typer.Option(metavar="N", help="Requests at once.")] = None,
    rate: Annotated[str | None, typer.Option(metavar="R", help="Requests per second, or none for no limit.")] = None,
    by: By = None,
    json: Json = False,
) -> int:
    """Change the limits of a subscriber. Lowering one cuts nothing that is on its way."""
    from fanout.cli.ending import run
    from fanout.cli.operating import tune_one

    return run(tune_one(subscriber_id, concurrency, rate, by, json_output=json))


@subscribers.command()
def pause(
    subscriber_id: SubscriberId,
    why: Annotated[str, typer.Option(metavar="TEXT", help="For whoever wonders later.")],
    by: By = None,
    json: Json = False,
) -> int:
    """Send nothing more to a subscriber until it is resumed. Everything keeps waiting."""
    from fanout.cli.ending import run
    from fanout.cli.operating import operate

    return run(operate("pause", subscriber_id, by, why, json_output=json))


@subscribers.command()
def disable(
    subscriber_id: SubscriberId,
    why: Annotated[str, typer.Option(metavar="TEXT", help="For whoever wonders later.")],
    by: By = None,
    json: Json = False,
) -> int:
    """Close a destination: what is open and what comes ends as dead, until it is enabled."""
    from fanout.cli.ending import run
    from fanout.cli.operating import operate

    return run(operate("disable", subscriber_id, by, why, json_output=json))


@subscribers.command()
def enable(subscriber_id: SubscriberId, by: By = None, json: Json = False) -> int:
    """Open a disabled destination again, whatever closed it. What ended meanwhile stays dead until it is redriven."""
    from fanout.cli.ending import run
    from fanout.cli.operating import operate

    return run(operate("enable", subscriber_id, by, json_output=json))


@subscribers.command()
def resume(subscriber_id: SubscriberId, by: By = None, json: Json = False) -> int:
    """Send to a paused subscriber again."""
    from fanout.cli.ending import run
    from fanout.cli.operating import operate

    return run(operate("resume", subscriber_id, by, json_output=json))
