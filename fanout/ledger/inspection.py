"""Looking at deliveries: lists, one with its timeline, and how far a version has come. Reading only."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema
from fanout.ledger.why_waiting import DeliveryFacts, DestinationFacts, WaitsFor, why_waiting
from fanout.model.identity import delivery_key
from fanout.model.states import OPEN, Outcome, Reason, State
from fanout.model.times import format_utc
from fanout.signing import webhook_id

LIMIT_DEFAULT = 50


@dataclass(frozen=True, slots=True)
class Attempt:
    """One send of a delivery. ``late``: its result came when its lease was no longer current, and changed nothing."""

    n: int
    outcome: Outcome
    status: int | None
    started_at: datetime
    """Of a late one: when its result was recorded, minus how long it took."""
    duration_ms: int
    config_version: int | None
    error: str | None
    retry_after_seconds: float | None
    late: bool
    response_excerpt: bytes | None
    expired: bool
    """Written by the sweep: the worker was not heard of."""
    worker: str | None
    address: str | None
    trace_id: str | None

    def document(self) -> dict[str, object]:
        excerpt = self.response_excerpt
        return {
            "n": self.n,
            "outcome": self.outcome.value,
            "status": self.status,
            "started_at": format_utc(self.started_at),
            "duration_ms": self.duration_ms,
            "config_version": self.config_version,
            "error": self.error,
            "retry_after_seconds": self.retry_after_seconds,
            "late": self.late,
            "response_excerpt": None if excerpt is None else excerpt.decode("utf-8", "replace"),
        }


@dataclass(frozen=True, slots=True)
class Delivery:
    """One version to one subscriber, as people see it."""

    delivery_id: int
    """Of this ledger only: the cursor of lists. Its name for everyone else is ``key``."""
    subscriber_id: str
    shipment_id: str
    version: int
    event_type: str | None
    """None where the version may not be known here (residency)."""
    state: State
    reason: Reason | None
    attempts: int
    budget_used: int
    eligible_at: datetime
    accepted_at: datetime
    finished_at: datetime | None
    why: WaitsFor
    """Why it is where it is; also of one that has ended."""
    trace_id: str | None
    """Of the trace that began when the version was published."""
    attempt_list: tuple[Attempt, ...] | None = None
    """In the order of attempts, late results after the attempt that they belong to. None in lists."""

    @property
    def key(self) -> str:
        return delivery_key(self.shipment_id, self.subscriber_id, self.version)

    @property
    def webhook_id(self) -> str:
        return webhook_id(self.key)

    @property
    def waits_for(self) -> WaitsFor | None:
        return self.why if self.state in OPEN else None

    def document(self, region: str) -> dict[str, object]:
        """As JSON."""
        waits_for = self.waits_for
        document: dict[str, object] = {
            "key": self.key,
            "region": region,
            "subscriber_id": self.subscriber_id,
            "shipment_id": self.shipment_id,
            "version": self.version,
            "event_type": self.event_type,
            "state": self.state.value,
            "reason": self.reason and self.reason.value,
            "attempts": self.attempts,
            "budget_used": self.budget_used,
            "eligible_at": format_utc(self.eligible_at),
            "accepted_at": format_utc(self.accepted_at),
            "finished_at": self.finished_at and format_utc(self.finished_at),
            "waits_for": waits_for and {"code": waits_for.code.value, "sentence": waits_for.sentence},
            "trace_id": self.trace_id,
            "webhook_id": self.webhook_id,
        }
        if self.attempt_list is not None:
            document["attempt_list"] = [attempt.document() for attempt in self.attempt_list]
        return document


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    items: list[Delivery]
    next_cursor: int | None
    """Hand it in as ``cursor`` for the page after this one; None: this was the last."""


@dataclass(frozen=True, slots=True)
class VersionCounts:
    """How far one version has come in a region."""

    expanded: bool
    """False: more deliveries may come."""
    created: int
    waiting: int
    queued: int
    leased: int
    delivered: int
    dead: int


_LIST = """
    SELECT f.* FROM {schema}.delivery_facts(ARRAY(SELECT {schema}.find_deliveries($1, $2, $3, $4, $5, $6, $7))) AS f
    ORDER BY f.id DESC
"""

_SHOW = """
    SELECT f.*, t.* FROM {schema}.delivery_facts(ARRAY(
        SELECT y.id FROM {schema}.version v JOIN {schema}.delivery y USING (version_no) JOIN {schema}.subscriber s ON s.id = y.destination_id
        WHERE v.shipment_id = $1 AND v.version = $3 AND s.subscriber_id = $2)) AS f
    LEFT JOIN LATERAL {schema}.delivery_attempts(f.id) AS t ON true
    ORDER BY t.n, t.late, t.token
"""


async def list_deliveries(
    connection: Fetches,
    schema: Schema,
    *,
    subscriber_id: str | None = None,
    shipment_id: str | None = None,
    state: State | None = None,
    reason: Reason | None = None,
    older_than_seconds: float | None = None,
    cursor: int | None = None,
    limit: int = LIMIT_DEFAULT,
) -> DeliveryPage:
    """The newest deliveries that pass every filter given. Ids that are not known here match nothing.

    ``older_than_seconds`` counts as the maximum age does: from the later of acceptance, first eligibility, last redrive.
    """
    rows = await connection.fetch(
        schema.sql(_LIST), subscriber_id, shipment_id, state, reason, older_than_seconds, cursor, limit + 1
    )
    items = [_delivery(row) for row in rows[:limit]]
    return DeliveryPage(items, items[-1].delivery_id if len(rows) > limit else None)


async def show_delivery(
    connection: Fetches, schema: Schema, shipment_id: str, subscriber_id: str, version: int
) -> Delivery | None:
    """One delivery with its attempts; None where there is no such delivery in this region."""
    rows = await connection.fetch(schema.sql(_SHOW), shipment_id, subscriber_id, version)
    return _delivery(rows[0], _attempts(rows)) if rows else None


async def version_counts(connection: Fetches, schema: Schema, shipment_id: str, version: int) -> VersionCounts | None:
    """None where the region has no copy of the version: nobody here wanted it, or it has not come yet. Home knows which."""
    rows = await connection.fetch(
        schema.sql(
            "SELECT expanded, created, waiting, queued, leased, delivered, dead FROM {schema}.version_counts($1, $2)"
        ),
        shipment_id,
        version,
    )
    return VersionCounts(*rows[0]) if rows else None


def _delivery(row: asyncpg.Record, attempts: tuple[Attempt, ...] | None = None) -> Delivery:
    state = State(row["state"])
    reason = _optional(Reason, row["reason"])
    delivery = DeliveryFacts(
        state=state,
        reason=reason,
        due_in_seconds=row["due_in_seconds"],
        blocked=row["blocked"],
        behind_version=row["behind_version"],
        queued_for_seconds=row["queued_for_seconds"],
        worker=row["worker"],
        lease_ends_in_seconds=row["lease_ends_in_seconds"],
        finished_for_seconds=row["finished_for_seconds"],
        attempts=row["attempts"],
        last_outcome=_optional(Outcome, row["last_outcome"]),
        last_status=row["last_status"],
        last_error=row["last_error"],
    )
    return Delivery(
        delivery_id=row["id"],
        subscriber_id=row["subscriber_id"],
        shipment_id=row["shipment_id"],
        version=row["version"],
        event_type=row["event_type"],
        state=state,
        reason=reason,
        attempts=row["attempts"],
        budget_used=row["budget_used"],
        eligible_at=row["eligible_at"],
        accepted_at=row["accepted_at"],
        finished_at=row["finished_at"],
        why=why_waiting(delivery, _destination(row), row["now"]),
        trace_id=row["traceparent"] and row["traceparent"].split("-")[1],
        attempt_list=attempts,
    )


def _destination(row: asyncpg.Record) -> DestinationFacts:
    return DestinationFacts(
        concurrency=row["concurrency"],
        window=row["send_window"],
        in_flight=row["in_flight"],
        queued=row["queued"],
        waiting=row["waiting"],
        probation=row["probation"],
        hold_in_seconds=row["hold_in_seconds"],
        hold_why=row["hold_why"],
        rate_per_second=row["rate_per_second"],
        rate_in_seconds=row["rate_in_seconds"],
        wake_in_seconds=row["wake_in_seconds"],
        window_room=row["window_room"],
        room=row["room"],
        permits=row["permits"],
        paused_by=row["paused_by"],
        paused_why=row["paused_why"],
        disabled_why=_optional(Reason, row["disabled_why"]),
        disabled_by=row["disabled_by"],
    )


def _attempts(rows: Sequence[asyncpg.Record]) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(
            n=row["n"],
            outcome=Outcome(row["outcome"]),
            status=row["status"],
            started_at=row["started_at"],
            duration_ms=row["duration_ms"],
            config_version=row["config_version"],
            error=row["error"],
            retry_after_seconds=row["retry_after_seconds"],
            late=row["late"],
            response_excerpt=row["response_excerpt"],
            expired=row["expired"],
            worker=row["attempted_by"],
            address=row["address"],
            trace_id=row["trace_id"],
        )
        for row in rows
        if row["n"] is not None
    )


def _optional(kind: Any, value: str | None) -> Any:
    return None if value is None else kind(value)
