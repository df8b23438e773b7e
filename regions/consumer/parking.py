"""Which references may go to a claim now, as far as this consumer knows.

A reference whose destination is full is not claimed: the claim would only put it back to waiting. It is parked here until one of
our own requests to that destination ends, and claimed in the very turn that settles it. Only what we ourselves have in flight can free a permit
that we hear of, so nothing is parked for a destination to which we have nothing in flight, and nothing for long. Nor is anything claimed for a destination that is silent.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from fanout.transports.transport import Message, Reference

PARK_SECONDS_MAX = 3.0
"""A hanging destination must not pin its references, and with them the acknowledgement of others: they go back to the ledger. Not too
soon either: what goes back is promoted and brought here again.
"""


@dataclass(slots=True)
class Ticket:
    """A reference in this consumer's hands, from its message to its outcome."""

    reference: Reference
    message: Message
    parked_at: float = 0.0


class Released(NamedTuple):
    """What need not stay parked: to be claimed; or, of silent destinations, to go back to the ledger."""

    claims: list[Ticket]
    returns: list[Ticket]


class Parking:
    """Counts what this consumer has in flight per destination, and remembers what the ledger last said about its permits.

    Of a destination that the ledger has never spoken of it assumes that a permit is free: the claim will tell. ``clock`` counts
    seconds; ``silent`` says of a destination whether it is.
    """

    def __init__(self, clock: Callable[[], float], silent: Callable[[int], bool]) -> None:
        self._clock = clock
        self._silent = silent
        self._in_flight: dict[int, int] = {}  # on the way to a claim, or leased
        self._asked: dict[int, int] = {}  # of these, on the way to a claim
        self._permits: dict[int, int] = {}  # left, as far as we know, for destinations with something in flight
        self._capacity: dict[int, int] = {}  # what we could have had in flight when the ledger last spoke of it
        self._parked: dict[int, deque[Ticket]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def admit(self, ticket: Ticket) -> bool:
        """True: claim it; it counts as in flight from now on. False: it is parked."""
        destination = ticket.reference.destination_id
        if self._in_flight.get(destination, 0) > 0 and not self._open(destination):
            ticket.parked_at = self._clock()
            self._parked.setdefault(destination, deque()).append(ticket)
            self._count += 1
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

    def follow(self, destination: int) -> Ticket | None:
        """One of ours was delivered, and is on the way to be settled: the parked one that may be claimed in the same turn."""
        if destination not in self._parked:
            return None
        self._enter(destination)
        return self._pop(destination)

    def shed(self, most: int) -> Released:
        """What is parked beyond so many, of those destinations first that have had something parked for longest: as ``overdue``."""
        released = Released([], [])
        for _ in range(self._count - most):
            self._release(next(iter(self._parked)), released)
        return released

    def overdue(self) -> Released:
        """Parked for too long. A claim gives them back where the destination is still full; where it is silent there is no need to ask."""
        released = Released([], [])
        before = self._clock() - PARK_SECONDS_MAX
        for destination in list(self._parked):
            while destination in self._parked and self._parked[destination][0].parked_at <= before:
                self._release(destination, released)
        return released

    def _release(self, destination: int, released: Released) -> None:
        if self._silent(destination):
            released.returns.append(self._pop(destination))
        else:
            self._enter(destination)
            released.claims.append(self._pop(destination))

    def _open(self, destination: int) -> bool:
        """Of one with something in flight: may more be claimed?"""
        return self._permits.get(destination, 1) > 0 and not self._silent(destination)

    def _unpark(self, destination: int) -> list[Ticket]:
        tickets: list[Ticket] = []
        while destination in self._parked and (destination not in self._in_flight or self._open(destination)):
            self._enter(destination)
            tickets.append(self._pop(destination))
        return tickets

    def _pop(self, destination: int) -> Ticket:
        queue = self._parked[destination]
        ticket = queue.popleft()
        self._count -= 1
        if not queue:
            del self._parked[destination]
        return ticket

    def _enter(self, destination: int) -> None:
        if destination not in self._in_flight and destination not in self._permits and destination in self._capacity:
            self._permits[destination] = self._capacity[destination]
        self._in_flight[destination] = self._in_flight.get(destination, 0) + 1
        self._asked[destination] = self._asked.get(destination, 0) + 1
        if destination in self._permits:
            self._permits[destination] -= 1
