"""Writing for people and for programs: tables, progress, one JSON document."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from fanout.model.times import format_utc


def out() -> Console:
    """Standard output. Looked up each time: tests and pipes exchange it. ``:A:`` in a key is no emoji."""
    return Console(
        file=sys.stdout,
        highlight=False,
        markup=False,
        emoji=False,
    )


def err() -> Console:
    """Standard error, for progress."""
    return Console(file=sys.stderr, highlight=False, markup=False, emoji=False)


def show_json(document: object) -> None:
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def table(columns: Mapping[str, str], rows: Sequence[Sequence[str]], *, heads: bool = True) -> Text:
    """``columns``: by heading, ``left`` or ``right``. Nothing is cut or folded into its column: a key is to be copied, a line to be
    found by grep, and a terminal wraps what is too long.
    """
    lines = [list(columns), *rows] if heads else list(rows)
    widths = [max((cell_len(cell) for cell in column), default=0) for column in zip(*lines, strict=True)]
    sides = list(columns.values())
    text = Text("\n").join(
        Text("  ".join(map(_cell, line, widths, sides)).rstrip(), style="bold" if heads and line is lines[0] else "")
        for line in lines
    )
    text.no_wrap = True
    return text


def _cell(text: str, width: int, side: str) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if side == "right" else text + blanks


def say(content: str | Text) -> None:
    """Print on standard output at once, lines as long as they are."""
    out().print(content, soft_wrap=True)
    sys.stdout.flush()


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
