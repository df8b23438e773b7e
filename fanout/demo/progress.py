"""The demo while it runs, on stderr: a live display in a terminal, a plain line every few seconds elsewhere."""

import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fanout.demo.figures import Glance

LINE_EVERY_SECONDS = 3.0
FRAMES_PER_SECOND = 8
RATE_OVER_SECONDS = 2.0


@dataclass(slots=True)
class Phase:
    name: str
    started: float
    ended: float | None = None

    def seconds(self, now: float) -> float:
        return (self.ended or now) - self.started


@dataclass(slots=True)
class State:
    """What there is to show. Times are monotonic seconds."""

    started: float = field(default_factory=time.monotonic)
    phases: list[Phase] = field(default_factory=list)
    published: int = 0
    versions: int = 0
    glances: dict[str, Glance] = field(default_factory=dict)
    _delivered: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)

    def begin(self, name: str) -> None:
        self.end()
        self.phases.append(Phase(name, time.monotonic()))

    def end(self) -> None:
        """Of the phase under way."""
        if self.phases and self.phases[-1].ended is None:
            self.phases[-1].ended = time.monotonic()

    def looked(self, glances: Mapping[str, Glance]) -> None:
        now = time.monotonic()
        self.glances.update(glances)
        for region, glance in glances.items():
            series = self._delivered.setdefault(region, deque())
            series.append((now, glance.delivered))
            while series[0][0] < now - RATE_OVER_SECONDS:
                series.popleft()

    def rate(self, region: str) -> float:
        """Deliveries per second over the last seconds."""
        series = self._delivered.get(region)
        if not series or series[-1][0] == series[0][0]:
            return 0.0
        (since, before), (now, count) = series[0], series[-1]
        return (count - before) / (now - since)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def __rich__(self) -> Group:
        """The frame of the live display."""
        now = time.monotonic()
        steps = Table.grid(padding=(0, 2))
        steps.add_column(width=34)
        steps.add_column(justify="right", width=8)
        for phase in self.phases:
            mark, style = ("✓", "green") if phase.ended else ("●", "yellow")
            steps.add_row(Text.assemble((f"{mark} ", style), phase.name), f"{phase.seconds(now):.1f} s")
        if not self.glances:
            return Group(steps)
        return Group(steps, Text(f"\n{self.published:,} of {self.versions:,} versions published"), self._regions())

    def _regions(self) -> Table:
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
        table.add_column("region")
        for title in ("accepted", "delivered", "dead", "open", "in flight", "held", "per second"):
            table.add_column(title, justify="right", min_width=7, no_wrap=True)
        for region, glance in self.glances.items():
            numbers = (glance.accepted, glance.delivered, glance.dead, glance.open, glance.in_flight, glance.held)
            table.add_row(region, *(f"{number:,}" for number in numbers), f"{self.rate(region):,.0f}")
        return table

    def line(self) -> str:
        regions = [
            f"{region}: {glance.accepted:,} accepted, {glance.delivered:,} delivered, {glance.dead:,} dead, {glance.open:,} open "
            f"({glance.in_flight} in flight, {glance.held} held, {self.rate(region):,.0f}/s)"
            for region, glance in self.glances.items()
        ]
        return f"{self.seconds:5.1f} s  " + "; ".join(regions)


class Progress:
    """``begin`` a phase, report ``looked``, and it is shown."""

    def __init__(self, live: Live | None) -> None:
        self.state = State()
        self._live = live
        self._next_line = 0.0
        if live is not None:
            live.update(self.state)

    def begin(self, name: str) -> None:
        self.state.begin(name)
        if self._live is None:
            _write(f"{self.state.seconds:5.1f} s  {name}")

    def published(self, count: int) -> None:
        self.state.published = count

    def looked(self, glances: Mapping[str, Glance]) -> None:
        self.state.looked(glances)
        if self._live is None and self.state.seconds >= self._next_line:
            self._next_line = self.state.seconds + LINE_EVERY_SECONDS
            _write(self.state.line())


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Whatever is written to ``sys.stderr`` meanwhile stands above the live display."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Progress(None)
        return
    with Live(console=console, refresh_per_second=FRAMES_PER_SECOND, redirect_stdout=False) as live:
        progress = Progress(live)
        try:
            yield progress
        finally:
            progress.state.end()


def _write(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
