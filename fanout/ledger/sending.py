"""What a consumer needs to send: the region's copy of a version, and the configuration of a destination."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version as it is sent. ``payload`` is None where it is gone."""

    version_no: int
    shipment_id: str
    version: int
    event_type: str
    content_type: str
    payload: bytes | None
    traceparent: str | None
    tracestate: str | None


@dataclass(frozen=True, slots=True)
class DestinationConfig:
    """How to reach one subscriber, as it stands now. Holds secrets: never logged, and its repr shows none."""

    destination_id: int
    subscriber_id: str
    config_version: int
    endpoint: str
    timeout_seconds: float
    rate_per_second: float | None
    retry_statuses: frozenset[int] | None
    headers: dict[str, str]
    secrets: tuple[str, ...]
    """Newest first."""

    def __repr__(self) -> str:
        return f"DestinationConfig({self.subscriber_id!r}, config_version={self.config_version})"


async def stored_versions(connection: Fetches, schema: Schema, numbers: Sequence[int]) -> list[StoredVersion]:
    rows = await connection.fetch(
        schema.sql(
            "SELECT version_no, shipment_id, version, coalesce(event_type, ''), coalesce(content_type, ''), payload, traceparent, tracestate "
            "FROM {schema}.version WHERE version_no = ANY ($1)"
        ),
        numbers,
    )
    return [StoredVersion(*row) for row in rows]


async def destination_configs(
    connection: Fetches, schema: Schema, destinations: Sequence[int]
) -> list[DestinationConfig]:
    """The current configuration of each, secrets included: the newest first, replaced ones as long as they still sign, at most five."""
    rows = await connection.fetch(
        schema.sql("""
            SELECT s.id, s.subscriber_id, d.config_version, s.endpoint, s.timeout_seconds,
                   d.rate_per_second, s.retry_statuses, s.headers::text,
                   ARRAY(SELECT k.secret FROM {schema}.secret k
                         WHERE k.subscriber = s.id AND (k.retires_at IS NULL OR k.retires_at > now())
                         ORDER BY k.place LIMIT 5)
            FROM {schema}.subscriber s JOIN {schema}.destination d USING (id) WHERE s.id = ANY ($1)
        """),
        destinations,
    )
    return [
        DestinationConfig(
            destination_id=row[0],
            subscriber_id=row[1],
            config_version=row[2],
            endpoint=row[3],
            timeout_seconds=row[4],
            rate_per_second=row[5],
            retry_statuses=None if row[6] is None else frozenset(row[6]),
            headers=json.loads(row[7]),
            secrets=tuple(row[8]),
        )
        for row in rows
    ]
