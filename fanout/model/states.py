"""The life of a delivery: its states, how an attempt can end, and why a delivery can die.

The same words stand as PostgreSQL enums in ``fanout/ledger/migrations``; a test holds the two together.
"""

from enum import StrEnum


class State(StrEnum):
    """Where a delivery is. ``TRANSITIONS`` lists every legal step."""

    WAITING = "waiting"
    """Due at ``eligible_at``, or behind an earlier version. Put here by expansion, retry, throttling, release, refusal,
    lost reference, lease expiry or redrive; the scheduler moves it on. Kept until it is due and the gate has room."""

    QUEUED = "queued"
    """A reference to it is in the region's queue. Put here by promotion; a claim moves it on, or a sweep puts it back."""

    LEASED = "leased"
    """One worker may send it until the lease ends. Put here by a claim; settlement or expiry moves it on."""

    DELIVERED = "delivered"
    """The subscriber answered 2xx. Terminal; kept for ``retention.delivery_days``."""

    DEAD = "dead"
    """Will not be tried again, and ``Reason`` says why. Terminal until an operator redrives it."""


OPEN = frozenset({State.WAITING, State.QUEUED, State.LEASED})
TERMINAL = frozenset({State.DELIVERED, State.DEAD})


class Outcome(StrEnum):
    """What came back from one attempt."""

    DELIVERED = "delivered"
    THROTTLED = "throttled"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"
    """Maybe delivered: the request was, or may have been, on the wire when we lost sight of it."""
    REDIRECTED = "redirected"
    GONE = "gone"
    UNAUTHORIZED = "unauthorized"
    REJECTED = "rejected"
    FORBIDDEN = "forbidden"


class Reason(StrEnum):
    """Why a delivery is dead."""

    REJECTED = "rejected"
    GONE = "gone"
    UNAUTHORIZED = "unauthorized"
    REDIRECTED = "redirected"
    FORBIDDEN_DESTINATION = "forbidden_destination"
    EXHAUSTED = "exhausted"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    DISABLED = "disabled"
    RESIDENCY = "residency"
    PAYLOAD_GONE = "payload_gone"


class Ordering(StrEnum):
    """In which order a subscriber gets the versions of one shipment."""

    ANY = "any"
    PER_SHIPMENT = "per_shipment"
    LATEST = "latest"


TRANSITIONS: dict[tuple[State | None, State], frozenset[str]] = {
    (None, State.WAITING): frozenset({"expand"}),
    (None, State.DEAD): frozenset({"expand"}),
    (State.WAITING, State.QUEUED): frozenset({"promote"}),
    (State.WAITING, State.DEAD): frozenset({"supersede", "cancel"}),
    (State.QUEUED, State.LEASED): frozenset({"claim"}),
    (State.QUEUED, State.WAITING): frozenset({"refuse", "lose", "yield"}),
    (State.QUEUED, State.DEAD): frozenset({"supersede", "cancel"}),
    (State.LEASED, State.DELIVERED): frozenset({"complete"}),
    (State.LEASED, State.WAITING): frozenset({"retry", "throttle", "release", "expire"}),
    (State.LEASED, State.DEAD): frozenset({"fail"}),
    (State.DEAD, State.WAITING): frozenset({"redrive"}),
}
"""Every step a delivery can take (``None`` is "not there yet") and the verbs that take it. Nothing else may happen."""
