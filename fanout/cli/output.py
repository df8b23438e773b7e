"""Writing for people and for programs: tables, progress, one JSON document."""

import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from fanout.model.times import format_utc

GAP = 2
"""Blanks between columns."""
LAST_WIDTH_MIN = 24
"""So much has to be left for a last column that goes on below."""


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


def line_width() -> int | None:
    """Columns of the terminal that standard output is. None where it is a file or a pipe: there lines are as long as they are."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    columns: Mapping[str, str], rows: Sequence[Sequence[str]], *, heads: bool = True, width: int | None = None
) -> Text:
    """``columns``: by heading, ``left`` or ``right``. Nothing is cut, and no word is broken: a key is to be copied, a line to be found
    by grep. What is wider than ``width`` (else than the terminal) goes on below in its last column; where that is not enough, each
    row becomes a few lines of headings and values.
    """
    width = width or line_width()
    lines = [list(columns), *rows] if heads else list(rows)
    widths = [max((cell_len(cell) for cell in column), default=0) for column in zip(*lines, strict=True)]
    sides = list(columns.values())
    before_last = sum(widths[:-1]) + GAP * (len(widths) - 1)
    if width is None or before_last + widths[-1] <= width:
        shown = [_joined(line, widths, sides) for line in lines]
    elif sides[-1] == "left" and before_last + LAST_WIDTH_MIN <= width:
        shown = [_hung(_joined([*line[:-1], ""], widths, sides), line[-1], before_last, width) for line in lines]
    else:
        lines, heads = list(rows), False
        shown = [_stacked(list(columns), row, width) for row in rows]
    text = Text("\n").join(Text(line, style="bold" if heads and place == 0 else "") for place, line in enumerate(shown))
    text.no_wrap = True
    return text


def _joined(line: Sequence[str], widths: Sequence[int], sides: Sequence[str]) -> str:
    return (" " * GAP).join(map(_cell, line, widths, sides)).rstrip()


def _hung(begun: str, last: str, indent: int, width: int) -> str:
    first, *others = wrapped(last, width - indent) or [""]
    lines = [begun + " " * (indent - cell_len(begun)) + first, *(" " * indent + each for each in others)]
    return "\n".join(line.rstrip() for line in lines)


def _stacked(heads: Sequence[str], row: Sequence[str], width: int) -> str:
    """One row as words: its first cell, then each heading with its value, a new line where one does not fit."""
    named = [f"{head} {cell}".strip() for head, cell in zip(heads[1:], row[1:], strict=True) if cell not in ("", "-")]
    lines = [row[0]]
    for each in named:
        if cell_len(lines[-1]) + GAP + cell_len(each) <= width:
            lines[-1] += " " * GAP + each
        else:
            first, *others = wrapped(each, width - 2 * GAP) or [""]
            lines += [" " * GAP + first, *(" " * 2 * GAP + other for other in others)]
    return "\n".join(lines)


def wrapped(text: str, width: int) -> list[str]:
    """Lines of whole words: one that is longer than the line keeps its length."""
    return textwrap.wrap(text, max(1, width), break_long_words=False, break_on_hyphens=False)


def _cell(text: str, width: int, side: str) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if side == "right" else text + blanks


def say(content: str | Text) -> None:
    """Print on standard output at once: a table as it is, a sentence in lines that the terminal has room for."""
    width = line_width()
    if isinstance(content, str) and width is not None:
        content = "\n".join("\n".join(_paragraph(line, width)) for line in content.split("\n"))
    out().print(content, soft_wrap=True)
    sys.stdout.flush()


def _paragraph(line: str, width: int) -> list[str]:
    """Goes on below where it began."""
    indent = len(line) - len(line.lstrip())
    return [" " * indent + each for each in wrapped(line, width - indent)] or [line]


def printable(text: str) -> str:
    """Text from elsewhere on one line of a terminal: control characters are shown, not obeyed."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def moment(when: datetime | None) -> str:
    """A point in time to the second, in UTC."""
    return "-" if when is None else format_utc(when.replace(microsecond=0))
