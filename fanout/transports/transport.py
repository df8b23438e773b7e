"""What stands between a region's scheduler and its consumers: a queue of references. A hint that work is due; the ledger decides.

Losing every reference loses no delivery: one that nobody claims goes back to waiting and is promoted again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Reference(NamedTuple):
    """A delivery that is due, and the dispatch number that its claim must show."""

    delivery_id: int
    dispatch: int
    destination_id: int
    probation: bool = False
    """Its destination is on probation: such references travel apart, so that one that hangs delays no other's acknowledgement."""


class Message(Protocol):
    """Some references that arrived together."""

    @property
    def references(self) -> Sequence[Reference]: ...

    @property
    def traceparent(self) -> str | None:
        """Where they were queued, as ``publish`` was told; as it came, so it may be anything. None where the transport carries none."""

    def done(self, count: int = 1) -> None:
        """So many of its references have their outcome in the ledger, or nothing to do. At the last one it is acknowledged."""


@dataclass(frozen=True, slots=True)
class Condition:
    """How an end stands with the broker at this moment, for probes and figures."""

    is_up: bool
    is_blocked: bool
    """Up, but its memory or disk alarm is on: it takes nothing and gives out what it has."""
    reconnections: int
    trouble: str
    """What keeps it from being used now; empty where nothing does."""


class Publishing(Protocol):
    """The scheduler's end."""

    @property
    def condition(self) -> Condition | None:
        """None where there is no broker."""

    async def publish(self, references: Sequence[Reference], traceparent: str | None = None) -> None:
        """Returns when the queue has taken responsibility. Raises ``QueueUnavailable`` where it may not have.

        ``traceparent``: the span that queues them, for whoever takes them; None where nobody traces.
        """

    async def ready(self) -> int | None:
        """How many messages no consumer has been given yet; None where that cannot be asked. Raises ``QueueUnavailable``."""

    async def close(self) -> None: ...


class Consuming(Protocol):
    """A consumer's end."""

    @property
    def condition(self) -> Condition | None:
        """None where there is no broker."""

    @property
    def malformed(self) -> int:
        """How many messages were none of ours, and went to the dead-letter queue."""

    async def take(self, most: int, at_most_seconds: float) -> Sequence[Message]:
        """Messages with about ``most`` references, as soon as there are any; none after so many seconds.

        Raises ``QueueUnavailable`` while the queue cannot be reached; the caller tries again.
        """

    async def close(self) -> None: ...


class QueueUnavailable(Exception):  # noqa: N818 - a state of the world that passes
    """The queue cannot be reached now. Nothing is lost: the ledger promotes again what no claim has used.

    From ``publish``: ``references`` are those that it may not have taken. They go back to waiting; a copy that arrives all the same
    does nothing.
    """

    def __init__(self, why: str, references: Sequence[Reference] = ()) -> None:
        super().__init__(why)
        self.references = references


class QueueRefused(Exception):  # noqa: N818 - as QueueUnavailable: a state of the world, but one that does not pass
    """The broker will not serve us as it and we are set up: wrong user, virtual host or permission, or a queue of another kind.

    Trying again helps nobody. The text names what was refused and how to mend it.
    """
