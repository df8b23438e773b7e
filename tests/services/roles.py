"""Our own roles as real processes, that a test may kill, stop and freeze, and that never outlive it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from fanout.embedded.postgres import TETHER
from services.waiting import eventually

ROOT = Path(__file__).parents[2]
LINES_SHOWN = 60


class Role:
    """One started process. ``log`` is everything it wrote to stdout and stderr so far."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log_file: Path) -> None:
        self.name = name
        self.process = process
        self.log_file = log_file

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def terminate(self) -> None:
        """SIGTERM: please finish."""
        self.process.terminate()

    def interrupt(self) -> None:
        """SIGINT, as Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def freeze(self) -> None:
        """SIGSTOP: alive, holding all it has, doing nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def ended(self, deadline: float = 30) -> int:
        """The exit status (minus the signal that ended it)."""
        await eventually(lambda: self.process.poll() is not None, deadline, f"{self.name} (pid {self.pid}) ends")
        return int(self.process.returncode)

    async def says(self, text: str, deadline: float = 20) -> str:
        """Waits until the log contains ``text``; returns the first line with it. Fails at once if the process ends."""

        def line() -> str | None:
            over = not self.running
            for candidate in self.log.splitlines():
                if text in candidate:
                    return candidate
            if over:
                raise RuntimeError(
                    f"{self.name} ended with {self.process.returncode} before it said {text!r}:\n{self.log[-4000:]}"
                )
            return None

        found = await eventually(line, deadline, f"{self.name} says {text!r}; it said:\n{self.log[-4000:]}\n")
        assert found is not None
        return found


def _own_environment() -> dict[str, str]:
    """The test's environment without the switches of the run itself, which are no settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FANOUT_TEST_")} | {
        "PYTHONUNBUFFERED": "1"
    }


class Roles:
    """Starts ``python -m fanout …`` and remembers what to end. ``environment`` is given to every role."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.environment = dict(environment or {})
        self.started: list[Role] = []
        self._folder = folder

    def start(
        self, *arguments: str | Path, module: str = "fanout", env: Mapping[str, str] | None = None, name: str = ""
    ) -> Role:
        """Returns at once. On Linux the role also dies if the test run itself is killed."""
        name = name or " ".join(map(str, arguments[:2])) or module
        log_file = self._folder / f"{len(self.started) + 1}-{name.replace(' ', '-').replace('/', '_')}.log"
        tether = (sys.executable, "-I", "-S", TETHER, os.getpid(), int(signal.SIGKILL), "-", "-", ROOT)
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [str(part) for part in (*tether, sys.executable, "-m", module, *arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_own_environment() | self.environment | dict(env or {}),
                start_new_session=True,
            )
        role = Role(name, process, log_file)
        self.started.append(role)
        return role

    async def close(self) -> None:
        """Kills what still runs and prints the logs, which pytest shows if the test failed."""
        for role in self.started:
            if role.running:
                role.kill()
        for role in self.started:
            await asyncio.to_thread(role.process.wait)
            tail = "\n".join(role.log.splitlines()[-LINES_SHOWN:])
            sys.stdout.write(f"---- {role.name} (pid {role.pid}, ended with {role.process.returncode})\n{tail}\n")
