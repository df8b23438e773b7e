"""publish: a shipment version and its outbox rows, written inside the caller's own transaction.

Costs the same whatever the fan-out: subscribers are looked up later, in their regions.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema
from fanout.model.shipment import ShipmentVersion
from fanout.telemetry.tracing import in_use, place_of_publish

DEFAULT_SCHEMA = Schema("fanout")


class Verdict(StrEnum):
    ACCEPTED = "accepted"
    """It is new, and on disk once the caller's transaction commits."""
    DUPLICATE = "duplicate"
    """It was there already, with equal content. Nothing was written."""
    CONFLICT = "conflict"
    """This version of this shipment is there with other content. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Receipt:
    shipment_id: str
    version: int
    verdict: Verdict
    accepted_at: datetime
    """When the version that stands was accepted."""


async def publish(connection: Fetches, version: ShipmentVersion, *, schema: Schema = DEFAULT_SCHEMA) -> Receipt:
    """Publish one version on ``connection``, within whatever transaction is open on it.

    Raises nothing for a duplicate or a conflict: the receipt tells. The caller decides whether a conflict rolls back.
    """
    return (await publish_many(connection, [version], schema=schema))[0]


async def publish_many(
    connection: Fetches, versions: Sequence[ShipmentVersion], *, schema: Schema = DEFAULT_SCHEMA
) -> list[Receipt]:
    """Publish a batch in one round trip, with one receipt for each in the same order. Others in the batch are not affected by a conflict."""
    if not versions:
        return []
    began_ns = time.time_ns()
    places = [place_of_publish(version.traceparent) for version in versions]
    rows = await connection.fetch(
        schema.sql(
            "SELECT verdict, accepted_at FROM {schema}.publish($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12) ORDER BY place"
        ),
        [version.shipment_id for version in versions],
        [version.version for version in versions],
        [version.event_type for version in versions],
        [version.content_type for version in versions],
        [json.dumps(version.labels) for version in versions],
        [version.residency for version in versions],
        [version.payload for version in versions],
        [hashlib.sha256(version.payload).digest() for version in versions],
        [version.occurred_at for version in versions],
        [version.eligible_at for version in versions],
        [str(at) for _, at in places],
        [version.tracestate for version in versions],
    )
    receipts = [
        Receipt(version.shipment_id, version.version, Verdict(row["verdict"]), row["accepted_at"])
        for version, row in zip(versions, rows, strict=True)
    ]
    if (tracing := in_use()) is not None:
        for version, (parent, at), receipt in zip(versions, places, receipts, strict=True):
            tracing.published(
                f"{schema.name}.outbox",
                began_ns,
                at,
                parent,
                version.shipment_id,
                version.version,
                receipt.verdict,
                len(version.payload),
            )
    return receipts
