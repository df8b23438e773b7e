"""Connections to PostgreSQL: a pool for occasional callers, and a steady connection for a loop that never stops."""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from fanout.database.errors import CONNECTION_LOST, breaks_connection

CONNECT_SECONDS = 10
STATEMENT_SECONDS = 60
STEADY_STATEMENT_SECONDS = 10
"""For the short statements of a loop. Shorter than any lease: a connection that a firewall has forgotten must not cost one."""
IDLE_IN_TRANSACTION_SECONDS = 30
POOLED_CONNECTION_SECONDS = 300
"""A pooled connection that has idled so long is closed: after a failover nothing clings to the old server for ever."""


def session_settings(application: str) -> dict[str, str]:
    """What every session of ours asks the server for."""
    return {
        "application_name": application,
        "timezone": "UTC",
        "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_SECONDS}s",
    }


async def connect(
    url: str, application: str, *, statement_seconds: float = STATEMENT_SECONDS, durable: bool = True
) -> asyncpg.Connection:
    """A connection of the caller's own. Raises what ``is_transient`` knows while the server is away."""
    return await asyncpg.connect(
        url,
        server_settings=session_settings(application) | ({} if durable else {"synchronous_commit": "off"}),
        timeout=CONNECT_SECONDS,
        command_timeout=statement_seconds,
        target_session_attrs=SessionAttribute.read_write,
    )


async def open_pool(url: str, application: str, *, most: int) -> asyncpg.Pool:
    """A pool that connects when it is used: a role starts while its database is still away."""
    return await asyncpg.create_pool(
        url,
        min_size=0,
        max_size=most,
        max_inactive_connection_lifetime=POOLED_CONNECTION_SECONDS,
        server_settings=session_settings(application),
        timeout=CONNECT_SECONDS,
        command_timeout=STATEMENT_SECONDS,
        target_session_attrs=SessionAttribute.read_write,
    )


class SteadyConnection:
    """One connection that a loop keeps for life, opened again after it breaks. Calls are made one at a time.

    A loop that returns its connection to a pool pays for a reset each time; a loop that keeps one does not.
    """

    def __init__(
        self, url: str, application: str, sisters: "list[SteadyConnection] | None" = None, *, durable: bool = True
    ) -> None:
        """``sisters``: connections of the same loop to the same server. Where one hears nothing any more, none is trusted.

        Not ``durable``: a commit does not wait for the disk. Only for steps that a crash of the server may undo without harm.
        """
        self._durable = durable
        self._url = url
        self._application = application
        self._connection: asyncpg.Connection | None = None
        self._turn = asyncio.Lock()
        self._sisters = sisters if sisters is not None else []
        self._sisters.append(self)

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[asyncpg.Record]:
        """Run one statement. Errors pass through; after one that breaks the connection the next call opens a new one."""
        async with self._turn:
            if self._connection is None or self._connection.is_closed():
                self._connection = await connect(
                    self._url, self._application, statement_seconds=STEADY_STATEMENT_SECONDS, durable=self._durable
                )
            try:
                return await self._connection.fetch(sql, *arguments)
            except (asyncio.CancelledError, Exception) as error:
                if isinstance(error, asyncio.CancelledError) or breaks_connection(error):
                    self.drop()
                if isinstance(error, TimeoutError):
                    for sister in self._sisters:
                        sister.drop()
                raise

    def drop(self) -> None:
        """Forget the connection, whoever uses it just now: its call fails as after a lost connection, and the next opens a new one."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            try:
                await connection.close(timeout=2)
            except (asyncpg.PostgresError, *CONNECTION_LOST):
                connection.terminate()
