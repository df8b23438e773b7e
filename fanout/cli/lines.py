"""Lines of a file or a pipe, numbered from 1. Blank ones are counted and left out; one that is too long is cut, to be refused."""

import gzip
import os
import select
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fanout.model.problems import Invalid
from fanout.model.publish_line import LINE_BYTES_MAX

CHUNK_BYTES = 1024 * 1024
PAUSE_SECONDS = 0.05
"""When a pipe brings nothing for so long, what came is handed on: whoever types or tails need not wait for a full batch."""
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    text: bytes


class Splitter:
    """Cuts chunks into lines. Holds no more than one line and one chunk."""

    def __init__(self) -> None:
        self._rest = b""
        self._number = 0
        self._cut = False
        """The line under way was too long and has been handed out: skip to its end."""

    def feed(self, chunk: bytes) -> list[Line]:
        """The lines that this chunk ends."""
        *ended, self._rest = (self._rest + chunk).split(b"\n")
        lines = []
        for text in ended:
            lines += self._line(text)
            self._cut = False
        if len(self._rest) > LINE_BYTES_MAX:
            lines += self._line(self._rest, ended=False)
            self._rest, self._cut = b"", True
        return lines

    def end(self) -> list[Line]:
        """The last line, where it has no line end."""
        return self._line(self._rest) if self._rest else []

    def _line(self, text: bytes, *, ended: bool = True) -> list[Line]:
        """One line or none; its number counts at its end."""
        number = self._number + 1
        self._number += ended
        if self._cut or not text.strip():
            return []
        return [Line(number, text[: LINE_BYTES_MAX + 1])]


def lines_of_file(path: Path) -> Iterator[Line]:
    """All lines, through gzip where the file begins like that. Raises ``Invalid`` where it cannot be read to its end."""
    splitter = Splitter()
    try:
        with path.open("rb") as file:
            zipped = file.peek(len(_GZIP)).startswith(_GZIP)
            with gzip.open(file) if zipped else file as plain:
                while chunk := plain.read(CHUNK_BYTES):
                    yield from splitter.feed(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Invalid.field(str(path), f"is not a whole gzip file: {error}", "fetch it again") from None
    except OSError as error:
        raise Invalid.field(str(path), f"cannot be read: {error.strerror}", "name a readable file") from None
    yield from splitter.end()


def batches_of_pipe(descriptor: int, most: int) -> Iterator[list[Line]]:
    """Lines as they come, at most so many at once. Blocks while none comes; Ctrl-C ends that."""
    splitter = Splitter()
    gathered: list[Line] = []
    while chunk := _read(descriptor):
        gathered += splitter.feed(chunk)
        while len(gathered) >= most or (gathered and not _more_is_there(descriptor)):
            yield gathered[:most]
            gathered = gathered[most:]
    gathered += splitter.end()
    while gathered:
        yield gathered[:most]
        gathered = gathered[most:]


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except OSError as error:
        raise Invalid.field("-", f"standard input cannot be read: {error.strerror}", "pipe a file into it") from None


def _more_is_there(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], PAUSE_SECONDS)[0])
