"""What every database operation of ours needs from a connection."""

from collections.abc import Sequence
from typing import Any, Protocol

import asyncpg


class Fetches(Protocol):
    """A connection, a pool, or a ``SteadyConnection``: anything that runs one statement and returns its rows."""

    async def fetch(self, sql: str, /, *arguments: Any) -> Sequence[asyncpg.Record]: ...
