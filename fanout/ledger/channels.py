"""The names of the wake-up channels. A channel belongs to a schema, so deployments that share a server do not wake each other."""

from fanout.database.schema import Schema


def outbox(home: Schema) -> str:
    """Rung when versions were published."""
    return f"{home.name}_outbox"


def due(ledger: Schema) -> str:
    """Rung when a destination of the region should be looked at: expanded, settled, resumed."""
    return f"{ledger.name}_due"
