"""claim: from queued to leased, for what the gate lets through."""

from collections.abc import Sequence
from typing import NamedTuple

from fanout.database.fetching import Fetches
from fanout.database.schema import Schema
from fanout.transports.transport import Reference


class Lease(NamedTuple):
    """The right to send one delivery until the lease ends. Everything later that the worker writes carries ``token``."""

    delivery_id: int
    token: int
    destination_id: int
    version_no: int
    attempt: int
    """The number of this send, counted from 1."""
    budget_used: int
    """Attempts that count, before this one."""
    unauthorized_streak: int
    age_seconds: float
    """Since the later of acceptance, first eligibility, last redrive; on the ledger's clock."""
    config_version: int
    timeout_seconds: float
    wait_seconds: float
    """Where the subscriber has a rate: from the answer to the claim to the slot of this request."""
    lease_seconds: float
    """From before the claim was sent, on the worker's monotonic clock, to the latest moment at which the lease is surely alive."""
    permits_left: int
    """How many more deliveries of this destination could be leased after this claim."""


async def claim(
    connection: Fetches, schema: Schema, references: Sequence[Reference], worker: str, margin_seconds: float
) -> list[Lease]:
    """Leases for the references that are current and let through. For the others there is nothing to do: they were copies, or
    were put back to waiting. Each delivery may be named once. A lease lasts until its slot, where there is a rate, and then the
    subscriber's timeout plus ``margin_seconds``.
    """
    rows = await connection.fetch(
        schema.sql(
            "SELECT id, token, destination_id, version_no, attempt, budget_used, unauthorized_streak, age_seconds, config_version, "
            "timeout_seconds, wait_seconds, lease_seconds, permits_left FROM {schema}.claim($1, $2, $3, $4, $5)"
        ),
        *columns_of_references(references),
        worker,
        margin_seconds,
    )
    return [Lease._make(row) for row in rows]


def columns_of_references(references: Sequence[Reference]) -> list[list[int]]:
    """As ``claim`` takes them: deliveries, dispatch numbers, destinations."""
    return [
        [reference.delivery_id for reference in references],
        [reference.dispatch for reference in references],
        [reference.destination_id for reference in references],
    ]
