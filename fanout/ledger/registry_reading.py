"""The registry of a region, read: for people without anything confidential, and for the two readers who need secrets."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import asyncpg

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema
from fanout.ledger.registry import UnknownSubscriber
from fanout.model.endpoint import parse_url
from fanout.model.signing_secret import Secret
from fanout.model.states import Ordering, Reason
from fanout.model.subscriber import SubscriberSpec
from fanout.model.times import format_utc


@dataclass(frozen=True, slots=True)
class Gate:
    """How many requests a destination may have in flight now, and why not more. Durations are relative to the ledger's now."""

    window: int
    concurrency: int
    probation: bool
    held_for_seconds: float | None
    """None: not held."""
    hold_why: str | None
    held_until: datetime | None
    fail_streak: int
    failing_since: datetime | None
    last_success_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    paused_why: str | None
    disabled_at: datetime | None
    disabled_why: Reason | None
    disabled_by: str | None


@dataclass(frozen=True, slots=True)
class Counters:
    """Deliveries by state, and attempts that an operator should know of."""

    waiting: int
    queued: int
    leased: int
    delivered: int
    dead: int
    unknown_attempts: int
    late_results: int


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A subscriber for anyone who may read: no secret, and of its own headers only the names."""

    subscriber_id: str
    settings: dict[str, object] = field(repr=False)
    """As ``SubscriberSpec.listing`` shows them."""
    config_version: int
    created_at: datetime
    updated_at: datetime
    gate: Gate
    counters: Counters

    @property
    def status(self) -> str:
        """One word: active, held, paused or disabled; the strongest that applies."""
        if self.gate.disabled_at is not None:
            return "disabled"
        if self.gate.paused_at is not None:
            return "paused"
        return "active" if self.gate.held_for_seconds is None else "held"

    def document(self) -> dict[str, object]:
        """As JSON: the settings as they are written, and beside them where the destination stands."""
        return {
            "subscriber_id": self.subscriber_id,
            **self.settings,
            "config_version": self.config_version,
            "created_at": format_utc(self.created_at),
            "updated_at": format_utc(self.updated_at),
            "status": self.status,
            "gate": _jsonable(self.gate),
            "deliveries": _jsonable(self.counters),
        }


@dataclass(frozen=True, slots=True)
class ConfigChange:
    config_version: int
    changed_at: datetime
    changed_by: str
    change: dict[str, Any]
    """``action``, and for a change ``fields`` with what each was and is; header values and secrets never stand there."""


_READ = """
    SELECT s.subscriber_id, s.endpoint, s.event_types, s.labels::text AS labels, s.headers::text AS headers, s.retry_statuses,
           s.created_at, s.updated_at, d.ordering::text AS ordering, d.concurrency, d.config_version,
           -- a real by way of its shortest text: 0.1 stays 0.1
           s.timeout_seconds::text::float8 AS timeout_seconds, d.rate_per_second::text::float8 AS rate_per_second,
           d.send_window, d.probation, d.fail_streak, d.failing_since, d.last_success_at, d.hold_until, d.hold_why,
           extract(epoch FROM d.hold_until - now())::float8 AS hold_seconds,
           d.paused_at, d.paused_by, d.paused_why, d.disabled_at, d.disabled_why::text AS disabled_why, d.disabled_by,
           d.waiting, d.queued, d.in_flight, d.delivered, d.dead, d.unknown_attempts, d.late_results
    FROM {schema}.subscriber s JOIN {schema}.destination d USING (id)
    WHERE s.deleted_at IS NULL AND s.subscriber_id > $1 AND ($2::text IS NULL OR s.subscriber_id = $2)
    ORDER BY s.subscriber_id LIMIT $3
"""


async def list_subscribers(
    connection: Fetches, schema: Schema, region: str, *, after: str = "", limit: int = 50
) -> list[Subscriber]:
    """Those that are not deleted, by id. ``after``: the last id of the page before."""
    rows = await connection.fetch(schema.sql(_READ), after, None, limit)
    return [_subscriber(region, row) for row in rows]


async def show(connection: Fetches, schema: Schema, region: str, subscriber_id: str) -> Subscriber:
    """Raises UnknownSubscriber."""
    return _subscriber(region, await _read(connection, schema, subscriber_id))


async def spec_of(connection: Fetches, schema: Schema, region: str, subscriber_id: str) -> tuple[SubscriberSpec, int]:
    """The settings to merge a patch into, header values included, secrets not; and their config version. Raises UnknownSubscriber."""
    row = await _read(connection, schema, subscriber_id)
    return _spec(region, row), row["config_version"]


async def _read(connection: Fetches, schema: Schema, subscriber_id: str) -> asyncpg.Record:
    rows = await connection.fetch(schema.sql(_READ), "", subscriber_id, 1)
    if not rows:
        raise UnknownSubscriber(subscriber_id)
    return rows[0]


async def secrets_of(connection: Fetches, schema: Schema, subscriber_ids: Sequence[str]) -> dict[str, list[Secret]]:
    """Every secret that signs now, newest first, of those subscribers that are there."""
    rows = await connection.fetch(
        schema.sql("""
            SELECT s.subscriber_id, k.secret FROM {schema}.subscriber s JOIN {schema}.secret k ON k.subscriber = s.id
            WHERE s.subscriber_id = ANY ($1::text[]) AND (k.retires_at IS NULL OR k.retires_at > now())
            ORDER BY s.subscriber_id, k.place
        """),
        list(subscriber_ids),
    )
    secrets: dict[str, list[Secret]] = {}
    for subscriber_id, secret in rows:
        secrets.setdefault(subscriber_id, []).append(Secret.parse("secrets", secret))
    return secrets


async def changes_of(connection: Fetches, schema: Schema, subscriber_id: str, *, limit: int = 50) -> list[ConfigChange]:
    """Who changed what and when, newest first; of a deleted subscriber too. What closed a destination by itself (410, five days
    of failures) stands among them.
    """
    rows = await connection.fetch(
        schema.sql("""
            WITH whose AS (SELECT id FROM {schema}.subscriber WHERE subscriber_id = $1)
            SELECT c.config_version, c.changed_at, c.changed_by, c.change::text
            FROM {schema}.config_change c WHERE c.subscriber = (SELECT id FROM whose)
            UNION ALL
            SELECT d.config_version, e.happened_at, 'itself', jsonb_build_object('action', 'disable', 'why', e.detail)::text
            FROM {schema}.operator_event e JOIN {schema}.destination d ON d.id = e.subscriber
            WHERE e.subscriber = (SELECT id FROM whose) AND e.kind = 'destination_disabled'
            ORDER BY 2 DESC, 1 DESC LIMIT $2
        """),
        subscriber_id,
        limit,
    )
    return [ConfigChange(row[0], row[1], row[2], json.loads(row[3])) for row in rows]


def _subscriber(region: str, row: asyncpg.Record) -> Subscriber:
    held = row["hold_seconds"] if row["hold_seconds"] and row["hold_seconds"] > 0 else None
    return Subscriber(
        subscriber_id=row["subscriber_id"],
        settings=_spec(region, row).listing(),
        config_version=row["config_version"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        gate=Gate(
            window=row["send_window"],
            concurrency=row["concurrency"],
            probation=row["probation"],
            held_for_seconds=held,
            hold_why=row["hold_why"] if held else None,
            held_until=row["hold_until"] if held else None,
            fail_streak=row["fail_streak"],
            failing_since=row["failing_since"],
            last_success_at=row["last_success_at"],
            paused_at=row["paused_at"],
            paused_by=row["paused_by"],
            paused_why=row["paused_why"],
            disabled_at=row["disabled_at"],
            disabled_why=None if row["disabled_why"] is None else Reason(row["disabled_why"]),
            disabled_by=row["disabled_by"],
        ),
        counters=Counters(
            row["waiting"],
            row["queued"],
            row["in_flight"],
            row["delivered"],
            row["dead"],
            row["unknown_attempts"],
            row["late_results"],
        ),
    )


def _spec(region: str, row: asyncpg.Record) -> SubscriberSpec:
    """The endpoint is read but not judged again: what may be reached can change in the settings, and must still be seen."""
    return SubscriberSpec(
        region=region,
        endpoint=parse_url("endpoint", row["endpoint"]),
        event_types=tuple(row["event_types"]),
        labels={name: tuple(values) for name, values in json.loads(row["labels"]).items()},
        concurrency=row["concurrency"],
        rate_per_second=row["rate_per_second"],
        ordering=Ordering(row["ordering"]),
        headers=json.loads(row["headers"]),
        timeout_seconds=row["timeout_seconds"],
        retry_statuses=None if row["retry_statuses"] is None else tuple(row["retry_statuses"]),
    )


def _jsonable(part: Gate | Counters) -> dict[str, object]:
    values = {name: getattr(part, name) for name in part.__slots__}
    return {name: format_utc(value) if isinstance(value, datetime) else value for name, value in values.items()}
