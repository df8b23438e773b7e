"""`fanout receiver` as a command: listens until it is told to stop, then says what it saw."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fanout.receiver.reading import read_script, read_secrets
from fanout.receiver.script import Script
from fanout.receiver.server import ReceiverServer

ROWS_MAX = 40
PIPED_WIDTH = 180  # a file has no width, and cut numbers tell nothing
COLUMNS = {
    "requests": "requests",
    "distinct_keys": "keys",
    "delivered_keys": "accepted",
    "duplicates": "duplicates",
    "peak_in_flight": "peak in flight",
    "early": "too early",
    "out_of_order": "out of order",
    "bad_signatures": "bad signatures",
    "cut": "cut",
}


async def run_receiver(
    host: str = "127.0.0.1",
    port: int = 0,
    script_path: Path | None = None,
    secrets_path: Path | None = None,
    json_output: bool = False,
) -> None:
    """Listens until SIGINT or SIGTERM, then prints the summary (a table, or one JSON document) to stdout.

    Says where it listens in the first line on stderr. Raises ``Invalid`` for a wrong file, OSError where it cannot
    listen.
    """
    server = ReceiverServer(
        read_script(script_path) if script_path else Script(),
        read_secrets(secrets_path) if secrets_path else None,
        record=False,
    )
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await server.listen(host, port)
    async with server:
        sys.stderr.write(f"listening on {server.url}\n")
        sys.stderr.flush()
        await stopped.wait()
        seen = server.snapshot()
    if json_output:
        sys.stdout.write(json.dumps(seen, indent=1) + "\n")
    else:
        Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(summary(seen))


def summary(seen: dict[str, Any]) -> Table:
    """A row per subscriber (those with the most requests first), and the total."""
    table = Table(title="What the receiver saw", show_footer=True, footer_style="bold")
    total = seen["total"]
    each = sorted(seen["subscribers"].items(), key=lambda item: -item[1]["requests"])
    table.add_column("subscriber", footer=f"all {len(each)}")
    for name, title in COLUMNS.items():
        table.add_column(title, footer=f"{total[name]:,}", justify="right")
    table.add_column("answers", footer=_answers(total["answers"]))
    for subscriber, counts in each[:ROWS_MAX]:
        table.add_row(subscriber, *(f"{counts[name]:,}" for name in COLUMNS), _answers(counts["answers"]))
    if len(each) > ROWS_MAX:
        table.caption = f"{len(each) - ROWS_MAX} more subscribers: see --json"
    return table


def _answers(counts: dict[str, int]) -> str:
    return " ".join(f"{status}:{count:,}" for status, count in counts.items())
