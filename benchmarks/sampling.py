"""What happened over time: a counter and the CPU of everyone, looked at five times a second, and the figures of a span of it."""

import asyncio
import bisect
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.accounts import Accounts, machine_busy_seconds

EVERY_SECONDS = 0.2
Point = tuple[float, float]
"""Seconds since 1970, and a value that never falls."""


def at(points: Sequence[Point], moment: float) -> float:
    """The value at a moment, on the straight line between two points."""
    index = bisect.bisect_left(points, moment, key=lambda point: point[0])
    if index == 0:
        return points[0][1]
    if index == len(points):
        return points[-1][1]
    (before, low), (after, high) = points[index - 1], points[index]
    return low + (high - low) * (moment - before) / (after - before) if after > before else high


def per_second(points: Sequence[Point]) -> list[float]:
    """How much the value grew in each whole second of its span."""
    first, last = points[0][0], points[-1][0]
    edges = [at(points, first + second) for second in range(int(last - first) + 1)]
    return [after - before for before, after in itertools.pairwise(edges)]


def middle_rate(points: Sequence[Point]) -> float:
    """The median second of the middle 80 %: without the start and the last stragglers."""
    seconds = per_second(points)
    cut = len(seconds) // 10
    return statistics.median(seconds[cut : len(seconds) - cut]) if seconds else 0.0


def span_of_growth(points: Sequence[Point]) -> Sequence[Point]:
    """Without what lies before the first and after the last change."""
    first = next((n for n, point in enumerate(points) if point[1] > points[0][1]), 1)
    last = next(n for n, point in enumerate(points) if point[1] == points[-1][1])
    return points[max(0, first - 1) : last + 1]


@dataclass(slots=True)
class Samples:
    """A counter and the CPU of each group, in seconds, over time."""

    counter: list[Point] = field(default_factory=list)
    cpu: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    machine: list[Point] = field(default_factory=list)

    def cpu_between(self, first: float, last: float) -> dict[str, float]:
        """Seconds of CPU that each group spent."""
        spent = {}
        for group in self.cpu[-1][1]:
            points = [(moment, groups[group]) for moment, groups in self.cpu if group in groups]
            spent[group] = at(points, last) - at(points, first)
        return spent

    def machine_between(self, first: float, last: float) -> float:
        return at(self.machine, last) - at(self.machine, first)


async def sample(
    accounts: Accounts, count: Callable[[], Awaitable[float]], enough: float, patience_seconds: float = 60
) -> Samples:
    """Until the counter has grown by ``enough``. Raises where it has not grown at all for so many seconds."""
    samples = Samples()
    grown_at = time.monotonic()
    while True:
        now = time.time()
        value = await count()
        samples.cpu.append((now, accounts.cpu()))
        samples.machine.append((now, machine_busy_seconds()))
        if not samples.counter or value > samples.counter[-1][1]:
            grown_at = time.monotonic()
        samples.counter.append((now, value))
        if value - samples.counter[0][1] >= enough:
            return samples
        if time.monotonic() - grown_at > patience_seconds:
            raise RuntimeError(f"stands still at {value - samples.counter[0][1]:.0f} of {enough:.0f}")
        await asyncio.sleep(EVERY_SECONDS)
