"""How a process of ours ends: the first SIGTERM or SIGINT stops it in order, the second in a hurry, SIGKILL loses nothing."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

STOPPED_IN_ORDER = 0


class Stop:
    """``stopping``: take nothing new, finish what is under way. ``hurry``: release what can be released within a second."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.hurry = asyncio.Event()
        self._hurried_by: int | None = None

    @property
    def exit_status(self) -> int:
        """0 after an orderly stop; 128 + signal (130, 143) after a hurried one."""
        return STOPPED_IN_ORDER if self._hurried_by is None else 128 + self._hurried_by

    def received(self, number: int) -> None:
        if self.stopping.is_set():
            self._hurried_by = number
            self.hurry.set()
        self.stopping.set()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.received, number)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
