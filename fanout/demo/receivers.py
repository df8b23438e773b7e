"""A subscriber endpoint of the demo: `fanout receiver` as a process of its own, so that it judges us from outside."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

import fanout
from fanout.embedded.postgres import TETHER

START_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 3.0
CONTROL_SECONDS_MAX = 10.0
WHERE_IT_LISTENS = "listening on "
_PACKAGES = Path(fanout.__file__).parents[1]


class ReceiverFailed(Exception):  # noqa: N818 - reads as what it says
    """A receiver did not start or did not answer. The text says what it said."""


class LocalReceiver:
    """A running receiver and its control calls."""

    def __init__(self, url: str, process: asyncio.subprocess.Process, control: httpx2.AsyncClient) -> None:
        self.url = url
        self._process = process
        self._control = control

    def insist_on_life(self) -> None:
        """Raises ReceiverFailed where the process has ended: everything sent to it would be tried again for days."""
        if self._process.returncode is not None:
            raise ReceiverFailed(f"the receiver at {self.url} ended with {self._process.returncode} in the middle")

    async def use(self, script: Sequence[Mapping[str, Any]]) -> None:
        """From now on it answers by this script, whose counts and clock start now."""
        await self._call("PUT", "script", list(script))

    async def verify_with(self, secrets: Mapping[str, Sequence[str]]) -> None:
        """From now on it refuses what is not signed with one of these ``whsec_…`` texts. They travel over loopback and
        are on no disk.
        """
        await self._call("PUT", "secrets", dict(secrets))

    async def seen(self) -> dict[str, Any]:
        """What it has counted so far, as ``fanout receiver --json`` shows it."""
        document: dict[str, Any] = await self._call("GET", "stats", None)
        return document

    async def _call(self, method: str, what: str, body: object) -> Any:
        try:
            response = await self._control.request(method, f"/-/{what}", json=body)
        except httpx2.HTTPError as error:
            raise ReceiverFailed(f"the receiver at {self.url} does not answer {method} /-/{what}: {error!r}") from error
        if response.is_error:
            raise ReceiverFailed(f"the receiver at {self.url} refused {method} /-/{what}: {response.text}")
        return response.json()


@asynccontextmanager
async def local_receivers(names: Iterable[str]) -> AsyncIterator[dict[str, LocalReceiver]]:
    """Starts one for each name on a free port, all at once, and ends them. On Linux they also die with us, however we go.

    Raises ReceiverFailed.
    """
    processes: dict[str, asyncio.subprocess.Process] = {}
    try:
        for name in names:
            processes[name] = await _spawn()
        async with AsyncExitStack() as stack:
            receivers = {}
            for name, process in processes.items():
                url = await _listening(process)
                control = httpx2.AsyncClient(base_url=url, trust_env=False, timeout=CONTROL_SECONDS_MAX)
                receivers[name] = LocalReceiver(url, process, await stack.enter_async_context(control))
            yield receivers
    finally:
        for process in processes.values():
            if process.returncode is None:
                process.terminate()
        for process in processes.values():
            await _end(process)


async def _spawn() -> asyncio.subprocess.Process:
    tether = (sys.executable, "-I", "-S", TETHER, os.getpid(), int(signal.SIGKILL), "-", "-", _PACKAGES)
    command = (*tether, sys.executable, "-m", "fanout.receiver")
    return await asyncio.create_subprocess_exec(
        *(str(part) for part in command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches us, and we decide when the receiver stops
    )


async def _listening(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = ""
    with suppress(TimeoutError):
        async with asyncio.timeout(START_SECONDS_MAX):
            while line := (await process.stderr.readline()).decode("utf-8", "replace"):
                if line.startswith(WHERE_IT_LISTENS):
                    return line.removeprefix(WHERE_IT_LISTENS).strip()
                said += line
    raise ReceiverFailed(
        f"a receiver did not start within {START_SECONDS_MAX:g} s; it said: {said.strip() or 'nothing'}"
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS_MAX)
    except TimeoutError:
        process.kill()
        await process.wait()
