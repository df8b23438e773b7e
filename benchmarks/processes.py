"""Processes that a measurement starts: they never outlive it, and what they wrote is shown where one fails."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import ROOT
from fanout.embedded.postgres import TETHER
from services.roles import Role

_NOT_PASSED_ON = ("FANOUT_", "OTEL_", "PYTHON")


def plain_environment() -> dict[str, str]:
    """Ours without anything that would change what is measured."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED_ON)}


class Processes:
    """Starts programs, each with its log in ``folder``, and ends them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Role] = []

    def start(
        self, name: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: Path = ROOT
    ) -> Role:
        """Returns at once. The program is killed if the measurement itself is."""
        log_file = self._folder / f"{len(self._started) + 1}-{name.replace(' ', '-')}.log"
        tether = (sys.executable, "-I", "-S", TETHER, os.getpid(), int(signal.SIGKILL), "-", "-", cwd)
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [str(part) for part in (*tether, *command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=plain_environment() | dict(env or {}),
                start_new_session=True,
            )
        role = Role(name, process, log_file)
        self._started.append(role)
        return role

    async def run(
        self,
        name: str,
        command: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        seconds: float = 600,
        cwd: Path = ROOT,
    ) -> str:
        """Until it has ended well; its output. Raises with its last lines where it has not."""
        role = self.start(name, command, env, cwd)
        status = await role.ended(seconds)
        if status != 0:
            raise RuntimeError(f"{name} ended with {status}:\n{role.log[-4000:]}")
        return role.log

    async def end(self, role: Role, seconds: float = 15) -> None:
        """SIGTERM, and SIGKILL to its group for what is not gone in time."""
        if role.running:
            role.terminate()
            try:
                await role.ended(seconds)
            except AssertionError:
                os.killpg(role.pid, signal.SIGKILL)
                await role.ended()

    async def close(self) -> None:
        for role in self._started:
            if role.running:
                os.killpg(role.pid, signal.SIGKILL)
        for role in self._started:
            await role.ended()
