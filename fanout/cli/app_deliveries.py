"""What can be typed after ``fanout deliveries``."""
# ruff: noqa: PLC0415 - imports stand inside the commands, so that `fanout --help` answers at once

from typing import Annotated

import typer

from fanout.cli.options import Json, OfRegion

deliveries = typer.Typer(help="What became of deliveries, and why one still waits.", no_args_is_help=True)


@deliveries.command(name="list")
def list_(
    region: OfRegion = None,
    subscriber: Annotated[str | None, typer.Option(metavar="ID", help="Only to this subscriber.")] = None,
    shipment: Annotated[str | None, typer.Option(metavar="ID", help="Only of this shipment.")] = None,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help="waiting, queued, leased, delivered or dead.")
    ] = None,
    reason: Annotated[str | None, typer.Option(metavar="REASON", help="Only dead ones with this reason.")] = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Only older ones: 90s, 15m, 6h, 2d; a bare number is seconds.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many.")] = 50,
    cursor: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on where a list before this one ended.")
    ] = None,
    json: Json = False,
) -> int:
    """Deliveries that pass every filter given, newest first."""
    from fanout.cli.deliveries import Asked, list_all
    from fanout.cli.ending import run

    asked = Asked(region, subscriber, shipment, state, reason, older_than, limit, cursor)
    return run(list_all(asked, json_output=json))


@deliveries.command()
def show(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="shipment:SHIPMENT_ID:subscriber:SUBSCRIBER_ID:version:VERSION")
    ],
    json: Json = False,
) -> int:
    """One delivery: its timeline with all attempts, its trace, and why it waits now."""
    from fanout.cli.delivery_shown import show_one
    from fanout.cli.ending import run

    return run(show_one(key, json_output=json))
