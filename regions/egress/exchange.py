"""What goes out and what comes back, as plain values, and the seam behind which any HTTP client can stand.

Objects of a general client cost more than everything else that an attempt does. They are made only where such a client is used
(``over_httpx``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


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
    """Called in the very step that writes the first byte; False raises ``NotSent``."""


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
    connect_ms: float = 0.0
    first_byte_ms: float = 0.0
    total_ms: float = 0.0


class Exchange(Protocol):
    """A client: sends once, follows nothing, never retries."""

    async def exchange(self, outgoing: Outgoing) -> Answered:
        """Ends at ``outgoing.deadline`` at the latest. Raises only ``EgressError`` and, when cancelled, ``CancelledError``."""
        ...
