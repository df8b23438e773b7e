"""The one way a loop of ours runs: a step at a time, stopped between steps, patient with what is away, loud about what is broken."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from fanout.database.errors import describe, may_pass

PAUSE_SECONDS_FIRST = 0.1
PAUSE_SECONDS_MAX = 2.0

_log = structlog.get_logger()


class Patience:
    """How long to wait after the n-th trouble in a row: 0.1 s, doubling, at most 2 s. Recovery is noticed within that."""

    def __init__(self) -> None:
        self._pause = PAUSE_SECONDS_FIRST

    def calm(self) -> None:
        self._pause = PAUSE_SECONDS_FIRST

    async def wait(self) -> None:
        await asyncio.sleep(self._pause)
        self._pause = min(PAUSE_SECONDS_MAX, self._pause * 2)


async def run_steps(
    name: str,
    step: Callable[[], Awaitable[None]],
    stopping: asyncio.Event,
    *,
    final: tuple[type[Exception], ...] = (),
    **context: object,
) -> None:
    """Call ``step`` until ``stopping`` is set. A step that fails is repeated after a pause: an unreachable service is one line
    when it goes and one when it is back; anything else is an error of ours, logged with its traceback, and the loop goes on. ``final`` errors end it: waiting mends none.
    """
    patience = Patience()
    away = False
    while not stopping.is_set():
        try:
            await step()
        except final:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of a loop that must not die
            if not may_pass(error):
                _log.exception("step failed", loop=name, **context)
            elif not away:
                _log.warning("service away", loop=name, error=describe(error), **context)
            away = may_pass(error)
            await patience.wait()
        else:
            if away:
                _log.info("service back", loop=name, **context)
            away = False
            patience.calm()
