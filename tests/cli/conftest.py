"""The command line, called in-process, on a database of its own."""

import asyncio
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fanout.cli import main

AWAY = "postgresql://operator:geheim@127.0.0.1:1/nothing"
"""Nobody listens there."""


@dataclass(frozen=True)
class Said:
    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    def row(self, first: str) -> list[str]:
        """The words of the line of a table that begins so."""
        return next(line.split() for line in self.out.splitlines() if line.split()[:1] == [first])


class CommandLine:
    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def setting(self, **variables: str) -> None:
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)

    async def __call__(self, *arguments: object, stdin: bytes = b"") -> Said:
        """In a thread, because a command runs an event loop of its own."""
        with io.TextIOWrapper(io.FileIO(_file_with(stdin))) as given:
            self._monkeypatch.setattr("sys.stdin", given)
            status = await asyncio.to_thread(main, [str(each) for each in arguments])
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        assert "geheim" not in captured.out + captured.err, "no password is shown"
        return Said(status, captured.out, captured.err)


def _file_with(content: bytes) -> int:
    descriptor = os.memfd_create("stdin")
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


@pytest.fixture
def bare(capsys, monkeypatch, tmp_path) -> CommandLine:
    """The command line in an empty folder, with no setting at all."""
    for name in [name for name in os.environ if name.startswith("FANOUT_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys, monkeypatch)


@pytest.fixture
async def empty(bare, database_url) -> CommandLine:
    """With a database, not migrated."""
    bare.setting(FANOUT_DATABASE_URL=database_url, FANOUT_ALLOW_NETWORKS="127.0.0.0/8")
    return bare


@pytest.fixture
async def cli(empty) -> CommandLine:
    """With a migrated database: home, eu and us."""
    assert (await empty("migrate")).status == 0
    return empty


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that an unprivileged PostgreSQL may enter, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="t-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


FANOUT = [sys.executable, "-m", "fanout"]


def process(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """The command as a process, with pipes unless told otherwise."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([*FANOUT, *arguments], **(pipes | options))


def subscriber(subscriber_id: str, region: str = "eu", **fields: object) -> dict[str, object]:
    endpoint = f"http://127.0.0.1:9/{subscriber_id}"
    return {"subscriber_id": subscriber_id, "region": region, "endpoint": endpoint, "event_types": ["*"], **fields}


def subscribers_json(*subscribers: dict[str, object]) -> bytes:
    return json.dumps({"subscribers": subscribers}).encode()


def version_line(shipment_id: str = "S1", version: object = 1, **fields: object) -> dict[str, object]:
    return {"shipment_id": shipment_id, "version": version, "event_type": "shipment.moved", "payload": {}, **fields}


def json_lines(lines: Iterable[object]) -> bytes:
    return b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
