"""Who holds requests of ours and answers none.

A destination that has had requests for two seconds and has not answered is silent: it gets no more from this consumer until it does, or
until they have ended, and what it holds takes no place from others. So those that hang, however many begin to at once, take a
consumer's places for no longer than that (P8): their gates close only with the first timeouts.
"""

from collections.abc import Callable

SILENT_SECONDS = 2.0


class Silence:
    """``clock`` counts seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._out: dict[int, int] = {}
        self._heard: dict[int, float] = {}  # of the same: when it last answered, or got the first of them

    def begun(self, destination: int) -> None:
        """It gets a request."""
        out = self._out.get(destination, 0)
        if not out:
            self._heard[destination] = self._clock()
        self._out[destination] = out + 1

    def ended(self, destination: int, *, answered: bool) -> None:
        """One that had begun is over; ``answered``: with a status, whatever it said."""
        out = self._out[destination] - 1
        if not out:
            del self._out[destination], self._heard[destination]
            return
        self._out[destination] = out
        if answered:
            self._heard[destination] = self._clock()

    def of(self, destination: int) -> bool:
        heard = self._heard.get(destination)
        return heard is not None and self._clock() - heard > SILENT_SECONDS

    def held(self) -> int:
        """How many requests the silent ones have."""
        now = self._clock()
        return sum(self._out[destination] for destination, at in self._heard.items() if now - at > SILENT_SECONDS)
