"""settle: what became of leased deliveries. Complete, retry, throttle, fail, release and expire are one operation."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema
from fanout.model.states import Outcome, Reason, State


class Settlement(NamedTuple):
    """One result, with what it does to the delivery already decided. Its fields stand in the order of the arguments of ``settle``: from
    ``sent`` on those that a plain delivery leaves as they are.
    """

    delivery_id: int
    token: int
    destination_id: int
    attempt: int
    outcome: Outcome | None
    state: State
    """``delivered``, ``dead`` (then ``reason``), or ``waiting`` (then ``delay_seconds``, or None to keep its place)."""
    status: int | None = None
    started_ms: int | None = None
    """From the claim to the start of the send."""
    duration_ms: int | None = None
    config_version: int | None = None
    address: str | None = None
    trace_id: str | None = None
    response_excerpt: bytes | None = None
    sent: bool = True
    """False: nothing was sent (released, or nothing to send), so no attempt is recorded or counted."""
    reason: Reason | None = None
    delay_seconds: float | None = None
    counts: bool = True
    """Does it use up budget?"""
    hold_seconds: float | None = None
    """How long a throttled result asked to stop the destination, jitter included; None where it did not say."""
    expired: bool = False
    """Found by the sweep: the worker was not heard of."""
    retry_after_seconds: float | None = None
    error: str | None = None


_COMMON = Settlement._fields.index("sent")
_PLAIN = tuple(Settlement._field_defaults[field] for field in Settlement._fields[_COMMON:])


class Leased(Protocol):
    """What a lease is known by, to whoever settles it."""

    @property
    def delivery_id(self) -> int: ...
    @property
    def token(self) -> int: ...
    @property
    def destination_id(self) -> int: ...
    @property
    def attempt(self) -> int: ...


def unsent(lease: Leased, state: State = State.WAITING, reason: Reason | None = None) -> Settlement:
    """Nothing was sent, so there was no attempt: released, to keep its place; or dead, because there is nothing to send."""
    return Settlement(
        delivery_id=lease.delivery_id,
        token=lease.token,
        destination_id=lease.destination_id,
        attempt=lease.attempt,
        sent=False,
        outcome=None,
        state=state,
        reason=reason,
        counts=False,
    )


class Settled(NamedTuple):
    """What the ledger made of one result."""

    delivery_id: int
    settled: bool
    """False: the token was no longer current. The result is kept as late, and changed nothing."""
    destination_id: int
    permits_left: int | None
    """Afterwards; None where nothing of this destination was settled."""
    more_waits: bool
    """More of this destination waits: the scheduler should look at it."""


async def settle(
    connection: Fetches, schema: Schema, settlements: Sequence[Settlement], worker: str, jitter: float
) -> list[Settled]:
    """Write a batch in one transaction. Each delivery may be named once. Repeating a batch is harmless.

    ``jitter`` in [0, 1) spreads the pauses of failing destinations; it only adds.
    """
    rows = await connection.fetch(
        schema.sql(
            "SELECT id, settled, destination_id, permits_left, more_waits FROM {schema}.settle("
            "$1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20,$21,$22,$23,$24)"
        ),
        *columns_of_settlements(settlements),
        worker,
        jitter,
    )
    return [Settled._make(row) for row in rows]


def columns_of_settlements(settlements: Sequence[Settlement]) -> list[list[Any]]:
    """As ``settle`` takes them: a list for each field that all have; then, for those that are not plain, their ids and the other fields."""
    if not settlements:
        return [[] for _ in range(len(Settlement._fields) + 1)]
    odd = [each for each in settlements if each[_COMMON:] != _PLAIN]
    return [
        *(list(column) for column in itertools.islice(zip(*settlements, strict=True), _COMMON)),
        [each.delivery_id for each in odd],
        *([each[place] for each in odd] for place in range(_COMMON, len(Settlement._fields))),
    ]
