"""Arguments and options that several commands have."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Region = Annotated[str, typer.Argument(metavar="REGION", help="As it is named in the settings.")]
OfRegion = Annotated[str | None, typer.Option("--region", metavar="REGION", help="Only this region.")]
SubscriberId = Annotated[str, typer.Argument(metavar="ID", help="The subscriber's id.")]
By = Annotated[str | None, typer.Option("--by", metavar="WHO", help="Who does it; else the login name.")]
