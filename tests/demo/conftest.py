"""The demo as a process in a terminal's place, with a temporary folder of its own that has to be empty afterwards."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fanout.embedded.postgres import TETHER
from services import eventually
from services.roles import ROOT


class Demo:
    """A running `fanout demo`; ``out`` is what it wrote to stdout, ``err`` to stderr."""

    def __init__(self, folder: Path, command: tuple[str, ...]) -> None:
        self.temporary = folder / "t"
        self.temporary.mkdir(mode=0o755)
        self._out, self._err = folder / "out", folder / "err"
        tether = (sys.executable, "-I", "-S", TETHER, os.getpid(), int(signal.SIGKILL), "-", "-", ROOT)
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [str(part) for part in (*tether, sys.executable, *command)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=os.environ | {"TMPDIR": str(self.temporary), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    async def says(self, text: str, deadline: float = 60) -> None:
        def said() -> bool:
            if self.process.poll() is not None and text not in self.out + self.err:
                raise RuntimeError(
                    f"ended with {self.process.returncode} before it said {text!r}:\n{self.out}{self.err}"
                )
            return text in self.out + self.err

        await eventually(said, deadline, f"the demo says {text!r}")

    async def ended(self, deadline: float = 60) -> int:
        await eventually(lambda: self.process.poll() is not None, deadline, "the demo ends")
        return self.process.returncode

    def press_ctrl_c(self) -> None:
        """A terminal sends SIGINT to every process of the group in the foreground."""
        os.killpg(self.process.pid, signal.SIGINT)

    def descendants(self) -> dict[int, str]:
        """Processes that it has started, and theirs, with their command lines."""
        parents = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
        found = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return {pid: command for pid in found - {self.process.pid} if (command := command_of(pid))}

    async def left_nothing(self, known: dict[int, str]) -> None:
        """Of the processes that were known, and on the disk."""

        def gone() -> bool:
            assert [command for pid, command in known.items() if command_of(pid) == command] == []
            assert list(self.temporary.iterdir()) == []
            return True

        await eventually(gone, 5)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.fixture
def start_demo() -> Iterator[Callable[..., Demo]]:
    """Starts it with these arguments; or with ``command`` in place of it, the arguments of Python."""
    started: list[tuple[Demo, Path]] = []

    def start(*arguments: str, command: tuple[str, ...] = ("-m", "fanout", "demo")) -> Demo:
        folder = Path(tempfile.mkdtemp(prefix="d-"))  # short, for the socket, and open to the server's user
        folder.chmod(0o755)
        started.append((demo := Demo(folder, (*command, *arguments)), folder))
        return demo

    yield start
    for demo, folder in started:
        if demo.process.poll() is None:
            demo.process.kill()
        demo.process.wait()
        sys.stdout.write(f"---- the demo ended with {demo.process.returncode}\n{demo.out}{demo.err}\n")
        shutil.rmtree(folder, ignore_errors=True)  # its janitor may be at it as well
