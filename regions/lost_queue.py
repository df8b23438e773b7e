"""A queue that was deleted under its users: what it held goes back to waiting at once, whoever notices (P4)."""

import asyncio

from fanout.database.connection import SteadyConnection
from fanout.database.schema import Schema
from fanout.ledger.sweeping import requeue_lost

ROWS = 500


class LostQueue:
    """Noticed by either end of the queue, and put right by whichever noticed: the other may be away, or have nothing to do."""

    def __init__(self, connection: SteadyConnection, schema: Schema) -> None:
        self.noticed = asyncio.Event()
        self._connection = connection
        self._schema = schema
        self._noticed_at = 0.0

    def notice(self) -> None:
        """The queue was gone until now. What is queued from now on stands in the new one."""
        self._noticed_at = asyncio.get_running_loop().time()
        self.noticed.set()

    async def put_back(self) -> int:
        """How many references went back to waiting; none unless something was noticed. To be called again where it fails."""
        moved = 0
        while self.noticed.is_set():
            noticed_at = self._noticed_at
            before = asyncio.get_running_loop().time() - noticed_at
            chunk = await requeue_lost(self._connection, self._schema, before, ROWS)
            moved += chunk
            if chunk < ROWS and noticed_at == self._noticed_at:
                self.noticed.clear()
        return moved
