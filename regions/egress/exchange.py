"""What goes out and what comes back, as plain values, and the seam behind which any HTTP client can stand.

Objects of a general client cost more than everything else that an attempt does. They are made only where such a client is used
(``over_httpx``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from regions.egress.errors import EgressError


class Origin(NamedTuple):
    """What connections are kept apart by. ``host`` is an A-label name or an address, without brackets."""

    scheme: str
    host: str
    port: int


@dataclass(slots=True, repr=False)
class Outgoing:
    """One request, ready to be written. ``head`` is everything before the body, the blank line included."""

    url: str
    origin: Origin
    head: bytes
    body: bytes
    deadline: float
    """When everything must be over, in seconds of ``loop.time()``: resolving, connecting, TLS, writing and reading."""
    may_write: Callable[[], bool] | None = None
    """Called in the very step that writes the first byte; False ends it with ``NotSent``."""


@dataclass(slots=True, repr=False)
class Answered:
    """A response with a final status; the rest as far as it was read."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    """At most 16 KiB, as it came."""
    address: str | None = None
    """The address that was connected to, where the client tells."""
    reused: bool = False
    """Whether the connection had carried another request before."""


Ended = Callable[[Answered | EgressError], None]
"""What is told how an exchange ended, once. It must not raise."""


class Underway(Protocol):
    """An exchange that has begun."""

    def cancel(self) -> object:
        """Close its connection, whatever was written. ``ended`` may still be told of that."""
        ...


class Exchange(Protocol):
    """A client: sends once, follows nothing, never retries.

    It calls back instead of being awaited: a task for each request, and a future for its answer, would cost as much as the request.
    """

    def begin(self, outgoing: Outgoing, ended: Ended) -> Underway:
        """Returns at once, and raises nothing. ``ended`` is called later, at ``outgoing.deadline`` at the latest."""
        ...
