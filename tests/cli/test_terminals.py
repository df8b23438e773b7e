"""What is shown fits the terminal it is shown on, without a broken word; a file or a pipe gets lines as long as they are."""

import asyncio
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import termios

import pytest
from rich.console import Console

from fanout.cli.output import table
from fanout.demo.progress import Glance, State

from .conftest import FANOUT, json_lines, subscriber, version_line
from .test_looking import expanded

COLUMNS = 80
LONG = "held until noon because the subscriber asked for a pause with Retry-After and has done so four times today"


def widths(text: str) -> list[int]:
    return [len(line) for line in text.splitlines()]


def test_what_has_room_is_one_line_a_row():
    columns, rows = {"name": "left", "count": "right"}, [["a", "1"], ["bb", "22"]]
    assert table(columns, rows, width=COLUMNS).plain == "name  count\na         1\nbb       22"
    assert table(columns, rows).plain == table(columns, rows, width=COLUMNS).plain


def test_a_long_last_column_goes_on_below_itself():
    shown = table({"name": "left", "why": "left"}, [["first", LONG], ["second", "short"]], width=COLUMNS).plain
    assert max(widths(shown)) <= COLUMNS
    lines = shown.splitlines()
    assert lines[0] == "name    why"
    assert [line[:8] for line in lines[1:]] == ["first   ", "        ", "second  "]
    assert " ".join(shown.split()) == f"name why first {LONG} second short"


def test_many_columns_become_words_below_each_row():
    columns = {"key": "left"} | {f"column{n}": "right" for n in range(12)} | {"why": "left"}
    row = ["shipment:S1:subscriber:A:version:1", *(str(1000 + n) for n in range(12)), LONG]
    shown = table(columns, [row, row], width=COLUMNS).plain
    assert max(widths(shown)) <= COLUMNS
    assert shown.startswith("shipment:S1:subscriber:A:version:1  column0 1000  column1 1001")
    assert " ".join(shown.split()).count(f"column11 1011 why {LONG}") == 2


def test_a_word_that_is_longer_than_the_line_keeps_its_length():
    key = f"shipment:{'S' * 128}:subscriber:A:version:1"
    assert key in table({"key": "left", "why": "left"}, [[key, LONG]], width=COLUMNS).plain.split()


def test_a_pipe_gets_whole_lines():
    shown = table({"name": "left", "why": "left"}, [["first", LONG * 5]]).plain
    assert widths(shown)[1] > 500


def test_the_progress_of_the_demo_fits():
    state = State(versions=340)
    state.begin("delivering what is left")
    glance = Glance(**dict.fromkeys(Glance.__dataclass_fields__, 123456))
    state.looked({"eu": glance, "us": glance})
    console = Console(width=COLUMNS, file=io.StringIO(), record=True)
    console.print(state)
    shown = console.export_text()
    assert max(widths(shown)) <= COLUMNS
    rows = [line.split() for line in shown.splitlines() if line.startswith(("eu", "us"))]
    assert [len(row) for row in rows] == [8, 8], "each number in one piece"


def on_a_terminal(*arguments: str) -> str:
    """What a person sees of the command on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [*FANOUT, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=environment | {"TERM": "xterm", "NO_COLOR": "1"},
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    process.communicate()
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode()).replace("\r\n", "\n")


@pytest.mark.parametrize(
    "command",
    [
        ["deliveries", "list"],
        ["deliveries", "show", "shipment:ACD-0000123:subscriber:carrier-with-a-name:version:1"],
        ["subscribers", "list"],
        ["subscribers", "show", "carrier-with-a-name"],
        ["status"],
        ["doctor", "--settings"],
    ],
    ids=" ".join,
)
async def test_what_people_look_at_fits_a_terminal_and_a_pipe_gets_it_whole(cli, command):
    await expanded(cli, subscriber("carrier-with-a-name"), lines=[version_line("ACD-0000123")])
    await cli("subscribers", "pause", "carrier-with-a-name", "--why", f"{LONG}, {LONG}")
    assert (await cli("publish", "-", stdin=json_lines([version_line("ACD-0000124")]))).status == 0
    shown = await asyncio.to_thread(on_a_terminal, *command)
    unbroken = [line for line in shown.splitlines() if len(line) > COLUMNS]
    assert all(len(line.split()) == 1 for line in unbroken), unbroken
    piped = await cli(*command)
    whole = set(re.sub(r"\d+", "", piped.out).split()) | {"ahead", "behind"}  # of a clock, now this and now that
    assert set(re.sub(r"\d+", "", shown).split()) <= whole, "no word is broken"
    if command[0] == "deliveries":
        assert any(LONG in line for line in piped.out.splitlines())
