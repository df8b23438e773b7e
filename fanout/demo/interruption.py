"""What Ctrl-C and a polite kill do to the demo."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """The first signal ends what is under way, by cancelling it; everything is then taken down in order."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._looking_around = asyncio.Event()
        self.by: int | None = None
        self.keeping = False

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        # nohup leaves SIGHUP ignored, and that has to stay so; a shell ignores SIGINT for what it starts in the background, and a
        # signal that is sent there on purpose counts
        heard = [
            number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
        ]
        for number in heard:
            loop.add_signal_handler(number, self._received, number)
        try:
            yield
        finally:
            for number in heard:
                loop.remove_signal_handler(number)

    async def kept(self) -> None:
        """Until the next signal, which is no interruption: that was agreed."""
        self.keeping = True
        await self._looking_around.wait()

    def over(self) -> None:
        """The cancellation has done its work."""
        self._task.uncancel()

    def _received(self, number: int) -> None:
        if self.keeping:
            self._looking_around.set()
        elif self.by is None:
            self.by = number
            self._task.cancel()
