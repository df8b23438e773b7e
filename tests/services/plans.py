"""What PostgreSQL did inside a function: the plans of its statements, as auto_explain reports them."""

import json
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg


@dataclass
class Watched:
    """The plans of the statements that ran while we watched, the nested ones too."""

    plans: list[dict[str, Any]] = field(default_factory=list)

    def nodes(self) -> Iterator[dict[str, Any]]:
        pending = [plan["Plan"] for plan in self.plans]
        while pending:
            node = pending.pop()
            yield node
            pending += node.get("Plans", [])

    def scanned_whole(self) -> set[str]:
        """Tables of ours that were read from end to end."""
        return {node["Relation Name"] for node in self.nodes() if node["Node Type"] == "Seq Scan"}

    @property
    def buffers(self) -> int:
        """Pages touched by the statements: work that does not depend on how busy the machine is."""
        return sum(
            plan["Plan"].get("Shared Hit Blocks", 0) + plan["Plan"].get("Shared Read Blocks", 0) for plan in self.plans
        )


@asynccontextmanager
async def watching(connection: asyncpg.Connection):
    """Yields a ``Watched`` that fills as statements run on ``connection``."""
    watched = Watched()

    def listen(_: asyncpg.Connection, message: Any) -> None:
        _, _, plan = message.message.partition("plan:\n")
        if plan:
            watched.plans.append(json.loads(plan))

    await connection.execute("LOAD 'auto_explain'")
    for setting, value in {
        "client_min_messages": "log",
        "auto_explain.log_min_duration": "0",
        "auto_explain.log_nested_statements": "on",
        "auto_explain.log_analyze": "on",
        "auto_explain.log_buffers": "on",
        "auto_explain.log_format": "json",
    }.items():
        await connection.execute(f"SET {setting} = {value}")
    connection.add_log_listener(listen)
    try:
        yield watched
    finally:
        connection.remove_log_listener(listen)
        await connection.execute("SET auto_explain.log_min_duration = -1")
