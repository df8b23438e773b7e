"""The queue without a broker: references are the queued rows of the ledger, and publishing is a wake-up.

Promotion, dispatch numbers, claims and sweeps are the same as with a broker; only the way from scheduler to consumer is shorter.
"""

import asyncio
from collections.abc import Sequence

from fanout.database.connection import SteadyConnection
from fanout.database.errors import describe, may_pass
from fanout.database.schema import Schema
from fanout.database.wakeups import Bell, Ear
from fanout.transports.transport import QueueUnavailable, Reference

KEEP_SECONDS = 5.0
"""A taken reference that no claim has used for so long is offered again: its consumer died between taking and claiming."""


def channel(schema: Schema) -> str:
    return f"{schema.name}_queued"


class LedgerMessage:
    """References from one take. There is nothing to acknowledge: the claim takes them out of the queue."""

    traceparent: str | None = None

    def __init__(self, references: Sequence[Reference]) -> None:
        self.references = references

    def done(self, count: int = 1) -> None:
        pass


class LedgerPublishing:
    """The scheduler's end: the rows are queued already, so it only rings."""

    condition = None

    def __init__(self, url: str, schema: Schema, application: str) -> None:
        self._bell = Bell(url, application, channel(schema))

    async def publish(self, references: Sequence[Reference], traceparent: str | None = None) -> None:  # noqa: ARG002 - rows carry none
        if references:
            self._bell.ring()

    async def ready(self) -> int | None:
        return None  # the queue is the rows: none of them can be lost

    async def close(self) -> None:
        await self._bell.close()


class LedgerConsuming:
    """A consumer's end: takes queued rows that nobody else has taken, oldest first."""

    condition = None
    malformed = 0

    def __init__(self, url: str, schema: Schema, application: str) -> None:
        self._schema = schema
        self._connection = SteadyConnection(url, application)
        self._ear = Ear(url, application, channel(schema))
        self._ear.start()

    async def take(self, most: int, at_most_seconds: float) -> Sequence[LedgerMessage]:
        ends_at = asyncio.get_running_loop().time() + at_most_seconds
        while True:
            references = await self._take_now(most)
            if references:
                return [LedgerMessage(references)]
            left = ends_at - asyncio.get_running_loop().time()
            if left <= 0 or not await self._ear.wait(left):
                return []

    async def _take_now(self, most: int) -> list[Reference]:
        sql = self._schema.sql("SELECT id, dispatch, destination_id FROM {schema}.take_queued($1, $2)")
        try:
            rows = await self._connection.fetch(sql, most, KEEP_SECONDS)
        except Exception as error:
            if may_pass(error):
                raise QueueUnavailable(describe(error)) from error
            raise
        return [Reference(*row) for row in rows]

    async def close(self) -> None:
        await self._ear.close()
        await self._connection.close()
