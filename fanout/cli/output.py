"""Writing for people and for programs: tables, progress, one JSON document."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Table

from fanout.model.times import format_utc

PIPED_COLUMNS = 240
"""Wide enough that no line of a table is cut for a program or a file that reads it."""


def out() -> Console:
    """Standard output. Looked up each time: tests and pipes exchange it. ``:A:`` in a key is no emoji."""
    return Console(
        file=sys.stdout,
        width=None if sys.stdout.isatty() else PIPED_COLUMNS,
        highlight=False,
        markup=False,
        emoji=False,
    )


def err() -> Console:
    """Standard error, for progress."""
    return Console(file=sys.stderr, highlight=False, markup=False, emoji=False)


def show_json(document: object) -> None:
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def table(columns: Mapping[str, str], rows: Sequence[Sequence[str]], *, heads: bool = True) -> Table:
    """``columns``: by heading, ``left`` or ``right``. Nothing is cut: what does not fit goes on in the next line."""
    made = Table(box=None, pad_edge=False, header_style="bold", show_header=heads)
    for heading, side in columns.items():
        made.add_column(heading, justify="right" if side == "right" else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def span(seconds: float | None) -> str:
    """How long, for people: ``0.4 s``, ``42 s``, ``3 min``, ``5 h``, ``2 d``."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{max(0.0, seconds):.1f} s"
    for size, unit, most in ((1, "s", 120), (60, "min", 7_200), (3_600, "h", 172_800)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def printable(text: str) -> str:
    """Text from elsewhere on one line of a terminal: control characters are shown, not obeyed."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def moment(when: datetime | None) -> str:
    """A point in time to the second, in UTC."""
    return "-" if when is None else format_utc(when.replace(microsecond=0))
