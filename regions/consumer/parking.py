"""Which references may go to a claim now, as far as this consumer knows.

A reference whose destination is full is not claimed: the claim would only put it back to waiting. It is parked here until one of
our own requests to that destination ends, and claimed in that moment. Only what we ourselves have in flight can free a permit
that we hear of, so nothing is parked for a destination to which we have nothing in flight, and nothing for long.
"""

from collections import deque
from dataclasses import dataclass

from fanout.transports.transport import Message, Reference

PARK_SECONDS_MAX = 1.0
"""A hanging destination must not pin its references, and with them the acknowledgement of others: they go back to the ledger."""


@dataclass(slots=True)
class Ticket:
    """A reference in this consumer's hands, from its message to its outcome."""

    reference: Reference
    message: Message
    parked_at: float = 0.0


class Parking:
    """Counts what this consumer has in flight per destination, and remembers what the ledger last said about its permits.

    Of a destination that the ledger has never spoken of it assumes that a permit is free: the claim will tell.
    """

    def __init__(self) -> None:
        self._in_flight: dict[int, int] = {}  # on the way to a claim, or leased
        self._asked: dict[int, int] = {}  # of these, on the way to a claim
        self._permits: dict[int, int] = {}  # left, as far as we know, for destinations with something in flight
        self._capacity: dict[int, int] = {}  # what we could have had in flight when the ledger last spoke of it
        self._parked: dict[int, deque[Ticket]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._parked.values()))

    def admit(self, ticket: Ticket, now: float) -> bool:
        """True: claim it; it counts as in flight from now on. False: it is parked."""
        destination = ticket.reference.destination_id
        if self._in_flight.get(destination, 0) > 0 and self._permits.get(destination, 1) <= 0:
            ticket.parked_at = now
            self._parked.setdefault(destination, deque()).append(ticket)
            return False
        self._enter(destination)
        return True

    def answered(self, destination: int) -> None:
        """The ledger has answered the claim of one reference, whatever it said."""
        count = self._asked.get(destination, 0) - 1
        if count > 0:
            self._asked[destination] = count
        else:
            self._asked.pop(destination, None)

    def learn(self, destination: int, permits_left: int) -> None:
        """What the ledger said of its permits. It has not seen yet what is on the way to a claim."""
        asked = self._asked.get(destination, 0)
        self._permits[destination] = permits_left - asked
        self._capacity[destination] = permits_left + self._in_flight.get(destination, 0) - asked

    def left(self, destination: int, count: int = 1, permits_left: int | None = None) -> list[Ticket]:
        """So many of ours are no longer in flight, and what the ledger said then; the parked ones that may be claimed now."""
        remaining = self._in_flight.get(destination, 0) - count
        if remaining > 0:
            self._in_flight[destination] = remaining
        else:
            self._in_flight.pop(destination, None)
        if permits_left is not None:
            self.learn(destination, permits_left)
        tickets = self._unpark(destination)
        if destination not in self._in_flight:
            self._permits.pop(destination, None)
        return tickets

    def overdue(self, now: float) -> list[Ticket]:
        """Parked for too long: to be claimed now, which gives them back where the destination is still full."""
        tickets: list[Ticket] = []
        for destination in list(self._parked):
            queue = self._parked[destination]
            while queue and now - queue[0].parked_at >= PARK_SECONDS_MAX:
                tickets.append(queue.popleft())
                self._enter(destination)
            if not queue:
                del self._parked[destination]
        return tickets

    def _unpark(self, destination: int) -> list[Ticket]:
        tickets: list[Ticket] = []
        queue = self._parked.get(destination)
        while queue and (destination not in self._in_flight or self._permits.get(destination, 1) > 0):
            tickets.append(queue.popleft())
            self._enter(destination)
        if queue is not None and not queue:
            del self._parked[destination]
        return tickets

    def _enter(self, destination: int) -> None:
        if destination not in self._in_flight and destination not in self._permits and destination in self._capacity:
            self._permits[destination] = self._capacity[destination]
        self._in_flight[destination] = self._in_flight.get(destination, 0) + 1
        self._asked[destination] = self._asked.get(destination, 0) + 1
        if destination in self._permits:
            self._permits[destination] -= 1
