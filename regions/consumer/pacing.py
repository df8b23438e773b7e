"""The pace of destinations with a rate: no request before its slot, and within this process none too close behind another.

The ledger gives no two leases the same slot, over all consumers. A process that is late for several slots at once would still send
them in one breath: here each waits its interval behind the one that was really sent.
"""


class Pacing:
    """Of one consumer. Remembers one moment per destination that has a rate."""

    def __init__(self) -> None:
        self._written: dict[int, float] = {}

    def turn(self, destination: int, slot_at: float, interval_seconds: float, now: float) -> float | None:
        """None: it goes now. Its slot (``loop.time()``) has begun, and the one before it went an interval ago. Else when to ask again."""
        earliest = max(slot_at, self._written.get(destination, 0.0) + interval_seconds)
        if now < earliest:
            return earliest
        self._written[destination] = now
        return None

    def written(self, destination: int, now: float) -> None:
        """The request is being written only now: connecting took its time."""
        if destination in self._written:
            self._written[destination] = now
