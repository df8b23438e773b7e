"""The registry of a region, changed: create, replace, tune, pause, delete, rotate.

Every change raises ``config_version`` of the destination and is written down (who, when, what) in the transaction that makes it.
What changes nothing raises nothing, so that every call may be repeated. After a change that may let something go (resume, enable,
more concurrency, a new endpoint) the caller rings the scheduler, which would otherwise look within a second.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Literal

import asyncpg

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema
from fanout.model.signing_secret import Secret
from fanout.model.subscriber import SubscriberSpec

NAMED_MAX = 20


def _named(subscriber_ids: Sequence[str]) -> str:
    return ", ".join(subscriber_ids[:NAMED_MAX]) + (" and more" if len(subscriber_ids) > NAMED_MAX else "")


class UnknownSubscriber(LookupError):  # noqa: N818 - says what is the matter
    """There is no such subscriber in this region, or it is deleted. HTTP 404."""

    def __init__(self, subscriber_id: str) -> None:
        super().__init__(f"there is no subscriber {subscriber_id} in this region")
        self.subscriber_id = subscriber_id


class StillClosing(Exception):  # noqa: N818 - says what is the matter
    """Deleted subscribers come back only once everything from before has ended. Nothing was changed. HTTP 409."""

    def __init__(self, subscriber_ids: Sequence[str]) -> None:
        super().__init__(
            f"{_named(subscriber_ids)}: deleted a moment ago, and deliveries from before are still being cancelled; try again in a few seconds "
            "(the scheduler of the region cancels them: is it running?)"
        )
        self.subscriber_ids = tuple(subscriber_ids)


class TooManyOpen(Exception):  # noqa: N818 - says what is the matter
    """An ordering changes only while few deliveries are open, since each of them is put in its place. Nothing was changed. HTTP 409."""

    def __init__(self, subscriber_ids: Sequence[str]) -> None:
        super().__init__(
            f"{_named(subscriber_ids)}: the ordering cannot change while more than 10,000 deliveries are open; let them drain first, or disable the "
            "subscriber, change it, enable it and redrive"
        )
        self.subscriber_ids = tuple(subscriber_ids)


class ChangedMeanwhile(Exception):  # noqa: N818 - says what happened
    """Somebody else changed the subscriber after it was read: read it again, and merge again. Nothing was changed."""


class Change(StrEnum):
    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Saved:
    change: Change
    config_version: int
    secret: Secret | None = None
    """The secret that was made because the subscriber is new and brought none. It is never told again."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What ``apply_all`` did, each list in the order of ids."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    secrets: dict[str, Secret] = field(default_factory=dict)
    """Made for new subscribers that brought none."""


class Keep(Enum):
    """Leave a setting as it is, where ``None`` already means something."""

    KEEP = "keep"


KEEP: Literal[Keep.KEEP] = Keep.KEEP


async def save(connection: Fetches, schema: Schema, subscriber_id: str, spec: SubscriberSpec, *, by: str) -> Saved:
    """Create or replace (PUT): everything but the secrets, which stay where ``spec`` names none. Raises StillClosing, TooManyOpen."""
    fresh = Secret.new()
    rows = await _save(connection, schema, {subscriber_id: spec}, {subscriber_id: fresh}, prune=False, by=by)
    return _saved(rows, fresh)


async def replace(
    connection: Fetches, schema: Schema, subscriber_id: str, spec: SubscriberSpec, *, seen: int, by: str
) -> Saved:
    """Replace (PATCH, with the merged spec) what was read at config version ``seen``. Raises ChangedMeanwhile, UnknownSubscriber,
    TooManyOpen.
    """
    fresh = Secret.new()
    rows = await connection.fetch(
        schema.sql(
            "SELECT subscriber_id, verdict, config_version, generated FROM {schema}.replace_subscriber($1::text::jsonb, $2, $3)"
        ),
        json.dumps(_document(subscriber_id, spec, fresh)),
        seen,
        by,
    )
    return _saved(rows, fresh)


async def apply_all(
    connection: Fetches, schema: Schema, specs: Mapping[str, SubscriberSpec], *, prune: bool, by: str
) -> Applied:
    """Create and update all of them, or none: one statement for a whole region. ``prune`` deletes who is not named.

    Repeatable, and cheap to repeat: what is equal is compared and not locked. Raises StillClosing, TooManyOpen.
    """
    fresh = {subscriber_id: Secret.new() for subscriber_id in specs}
    rows = await _save(connection, schema, specs, fresh, prune=prune, by=by)
    applied = Applied()
    for row in rows:
        getattr(applied, row["verdict"]).append(row["subscriber_id"])
        if row["generated"]:
            applied.secrets[row["subscriber_id"]] = fresh[row["subscriber_id"]]
    return applied


async def tune(
    connection: Fetches,
    schema: Schema,
    subscriber_id: str,
    *,
    concurrency: int | None = None,
    rate_per_second: float | Literal[Keep.KEEP] | None = KEEP,
    by: str,
) -> Saved:
    """Change limits only. Lowering the concurrency cuts nothing that is on its way; it stops new requests. Raises
    UnknownSubscriber.
    """
    settings: dict[str, object] = {}
    if concurrency is not None:
        settings["concurrency"] = concurrency
    if rate_per_second is not KEEP:
        settings["rate_per_second"] = rate_per_second
    rows = await connection.fetch(
        schema.sql("SELECT verdict, config_version FROM {schema}.change_settings($1, $2::text::jsonb, $3)"),
        subscriber_id,
        json.dumps(settings),
        by,
    )
    if not rows:
        raise UnknownSubscriber(subscriber_id)
    return Saved(Change(rows[0]["verdict"]), rows[0]["config_version"])


async def pause(connection: Fetches, schema: Schema, subscriber_id: str, *, by: str, why: str) -> bool:
    """Start nothing more until ``resume``; everything keeps waiting. False: it was paused so already. Raises
    UnknownSubscriber, as the next three do.
    """
    return await _operate(connection, schema, subscriber_id, "pause", by, why)


async def resume(connection: Fetches, schema: Schema, subscriber_id: str, *, by: str, why: str | None = None) -> bool:
    return await _operate(connection, schema, subscriber_id, "resume", by, why)


async def disable(connection: Fetches, schema: Schema, subscriber_id: str, *, by: str, why: str | None = None) -> bool:
    """End what is open as dead ``disabled`` (the scheduler does, in chunks), and so whatever expansion adds."""
    return await _operate(connection, schema, subscriber_id, "disable", by, why)


async def enable(connection: Fetches, schema: Schema, subscriber_id: str, *, by: str, why: str | None = None) -> bool:
    """Open the gate again, whoever closed it. What was missed comes back by a redrive."""
    return await _operate(connection, schema, subscriber_id, "enable", by, why)


async def delete(connection: Fetches, schema: Schema, subscriber_ids: Sequence[str], *, by: str) -> list[str]:
    """Delete those of them that are there, and say which. Endpoint, headers and secrets are wiped at once; open deliveries
    end as dead ``cancelled`` (the scheduler ends them, in chunks); what is leased finishes.
    """
    rows = await connection.fetch(
        schema.sql("SELECT subscriber_id FROM {schema}.delete_subscribers($1, $2) AS d(subscriber_id)"),
        list(subscriber_ids),
        by,
    )
    return [row["subscriber_id"] for row in rows]


async def rotate_secret(connection: Fetches, schema: Schema, subscriber_id: str, *, by: str) -> Saved:
    """A new secret, told here and never again. The one before signs beside it for 24 hours; at most five sign at once."""
    secret = Secret.new()
    rows = await connection.fetch(
        schema.sql("SELECT config_version FROM {schema}.rotate_secret($1, $2, $3) AS r(config_version)"),
        subscriber_id,
        secret.reveal(),
        by,
    )
    if not rows:
        raise UnknownSubscriber(subscriber_id)
    return Saved(Change.UPDATED, rows[0]["config_version"], secret)


def _saved(rows: Sequence[asyncpg.Record], fresh: Secret) -> Saved:
    [row] = _agreed(rows)
    return Saved(Change(row["verdict"]), row["config_version"], fresh if row["generated"] else None)


async def _save(
    connection: Fetches,
    schema: Schema,
    specs: Mapping[str, SubscriberSpec],
    fresh: Mapping[str, Secret],
    *,
    prune: bool,
    by: str,
) -> Sequence[asyncpg.Record]:
    documents = [_document(subscriber_id, spec, fresh[subscriber_id]) for subscriber_id, spec in specs.items()]
    rows = await connection.fetch(
        schema.sql(
            "SELECT subscriber_id, verdict, config_version, generated FROM {schema}.save_subscribers($1::text::jsonb, $2, $3, $4)"
        ),
        json.dumps(documents),
        True,  # creates who is missing
        prune,
        by,
    )
    return _agreed(rows)


def _agreed(rows: Sequence[asyncpg.Record]) -> Sequence[asyncpg.Record]:
    """What was saved; a verdict that refused the whole is raised."""
    verdict = rows[0]["verdict"] if rows else ""
    if verdict == "closing":
        raise StillClosing([row["subscriber_id"] for row in rows])
    if verdict == "crowded":
        raise TooManyOpen([row["subscriber_id"] for row in rows])
    if verdict == "unknown":
        raise UnknownSubscriber(rows[0]["subscriber_id"])
    if verdict == "stale":
        raise ChangedMeanwhile(rows[0]["subscriber_id"])
    return rows


def _document(subscriber_id: str, spec: SubscriberSpec, fresh: Secret) -> dict[str, object]:
    return {
        "subscriber_id": subscriber_id,
        "endpoint": spec.endpoint.url,
        "event_types": spec.event_types,
        "labels": spec.labels,
        "headers": spec.headers,
        "timeout_seconds": spec.timeout_seconds,
        "retry_statuses": spec.retry_statuses,
        "concurrency": spec.concurrency,
        "rate_per_second": spec.rate_per_second,
        "ordering": spec.ordering.value,
        "secrets": None if spec.secrets is None else [secret.reveal() for secret in spec.secrets],
        "fresh_secret": fresh.reveal(),
    }


async def _operate(
    connection: Fetches, schema: Schema, subscriber_id: str, verb: str, by: str, why: str | None
) -> bool:
    rows = await connection.fetch(
        schema.sql("SELECT changed FROM {schema}.operate($1, $2, $3, $4)"), subscriber_id, verb, by, why
    )
    if not rows:
        raise UnknownSubscriber(subscriber_id)
    return bool(rows[0]["changed"])
