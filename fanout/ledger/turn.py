"""settle_and_claim: both in one transaction, as a consumer does them at each turn."""

from collections.abc import Sequence

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema
from fanout.ledger.claiming import Lease, columns_of_references
from fanout.ledger.settlement import Settled, Settlement, columns_of_settlements
from fanout.transports.transport import Reference


async def settle_and_claim(
    connection: Fetches,
    schema: Schema,
    settlements: Sequence[Settlement],
    references: Sequence[Reference],
    worker: str,
    jitter: float,
    margin_seconds: float,
) -> tuple[list[Settled], list[Lease]]:
    """``settle``, then ``claim``: a permit that a result frees is there for the references of the same turn. Either may be empty.

    Each delivery may be named once in each. Repeating a turn is harmless; leases that nobody heard of end by themselves.
    """
    rows = await connection.fetch(
        schema.sql(
            "SELECT id, destination_id, permits_left, settled, more_waits, token, version_no, attempt, budget_used, unauthorized_streak, "
            "age_seconds, config_version, timeout_seconds, wait_seconds, lease_seconds FROM {schema}.settle_and_claim("
            "$1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20,$21,$22,$23,$24,$25,$26,$27,$28)"
        ),
        *columns_of_settlements(settlements),
        *columns_of_references(references),
        worker,
        jitter,
        margin_seconds,
    )
    settled, leases = [], []
    for row in rows:
        delivery_id, destination_id, permits_left, was_settled, more_waits, token, *rest = row
        if token is None:
            settled.append(Settled(delivery_id, was_settled, destination_id, permits_left, more_waits))
        else:
            leases.append(Lease._make((delivery_id, token, destination_id, *rest, permits_left)))
    return settled, leases
