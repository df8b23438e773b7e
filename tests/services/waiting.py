"""Waiting for a condition, never for time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE_SECONDS_FIRST = 0.002
PAUSE_SECONDS_MAX = 0.05


async def eventually(condition: Callable[[], T | Awaitable[T]], deadline: float = 10, what: str = "") -> T:
    """Returns the first true value of ``condition`` (a plain or an async callable), asked again and again for
    ``deadline`` seconds. Then fails, naming the condition and its last value. A failed assert inside the condition
    counts as "not yet"; every other exception ends the waiting."""
    started = time.monotonic()
    pause = PAUSE_SECONDS_FIRST
    while True:
        try:
            value = condition()
            if inspect.isawaitable(value):
                value = await asyncio.wait_for(value, max(0.01, started + deadline - time.monotonic()))
            if value:
                return value
            last = f"its last value was {value!r}"
        except AssertionError as error:
            last = f"its last failure was: {error}"
        except TimeoutError:
            last = "the condition itself did not answer"
        if time.monotonic() - started > deadline:
            raise AssertionError(f"not true within {deadline:g} s: {what or _text_of(condition)}; {last}")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, PAUSE_SECONDS_MAX)


def _text_of(condition: Callable[..., object]) -> str:
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)
