"""How far one version has come: what home knows, and each region that can be asked."""

import asyncio
from collections.abc import Mapping

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema
from fanout.home.inspection import OutboxState, home_version
from fanout.ledger.inspection import VersionCounts, version_counts
from fanout.model.times import format_utc
from fanout.reconciliation import UnreadableError, read_region


async def version_progress(
    home: Fetches, home_schema: Schema, ledgers: Mapping[str, tuple[Fetches, Schema]], shipment_id: str, version: int
) -> dict[str, object] | None:
    """``GET /v1/shipments/{shipment_id}/versions/{version}``; None where it was never published. Regions are asked at once."""
    known = await home_version(home, home_schema, shipment_id, version)
    if known is None:
        return None

    async def ask(region: str, state: OutboxState) -> dict[str, object]:
        if region not in ledgers:
            return progress_document(state, None, reachable=False)
        try:
            counts = await read_region(version_counts(*ledgers[region], shipment_id, version))
        except UnreadableError:
            return progress_document(state, None, reachable=False)
        return progress_document(state, counts, reachable=True)

    answers = await asyncio.gather(*(ask(region, state) for region, state in known.regions.items()))
    return {
        "shipment_id": shipment_id,
        "version": version,
        "accepted_at": format_utc(known.accepted_at),
        "bytes": known.payload_bytes,
        "sha256": known.sha256,
        "regions": dict(zip(known.regions, answers, strict=True)),
    }


def progress_document(home: OutboxState, counts: VersionCounts | None, *, reachable: bool) -> dict[str, object]:
    """``expansion``: pending (deliveries may still come), done, none (nobody there wanted it), or unreachable (then the counts
    are null, but for what home was told).
    """
    if not reachable:
        return {"expansion": "unreachable", "accepted": home.created, **dict.fromkeys(_STATES)}
    none = home.done and home.created == 0 and counts is None
    expansion = "none" if none else "done" if home.done or (counts is not None and counts.expanded) else "pending"
    return {
        "expansion": expansion,
        "accepted": counts.created if counts else 0,
        **{state: getattr(counts, state) if counts else 0 for state in _STATES},
    }


_STATES = ("waiting", "queued", "leased", "delivered", "dead")
