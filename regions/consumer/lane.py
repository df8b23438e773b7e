"""Group commit: what arrives while a commit is under way goes into the next one. So the number of round trips follows from time, not
from the number of deliveries, and a single delivery waits for nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import structlog

from fanout.database.errors import describe, may_pass
from fanout.loops import Patience

ENOUGH = 32
"""So many that wait are a batch: more come while it is committed. Fewer wait a moment for more where the batch before was as large:
then they come fast, and a larger batch costs less for each. Else nothing waits: a lone answer is a permit that somebody waits for.
"""

Item = TypeVar("Item")

_log = structlog.get_logger()


class Lane(Generic[Item]):
    """Commits items in batches, in order of arrival, one batch at a time, and never two items with one key in a batch.

    While the ledger is away the batch is repeated until it is back: ``commit`` must be repeatable. A batch that the ledger refuses
    is halved until the one item that spoils it stands alone; that one is handed to ``give_up``, and the others go through.
    """

    def __init__(
        self,
        name: str,
        commit: Callable[[list[Item]], Awaitable[None]],
        give_up: Callable[[Item], None],
        key: Callable[[Item], Hashable],
        *,
        most: int,
        linger_seconds: float,
    ) -> None:
        self._name = name
        self._commit = commit
        self._give_up = give_up
        self._key = key
        self._most = most
        self._linger_seconds = linger_seconds
        self._items: list[Item] = []
        self._arrived = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._between = asyncio.Event()
        self._between.set()
        self.task = asyncio.create_task(self._run(), name=f"lane {name}")
        """Runs until ``close``. Should it end before, it is broken."""

    def put(self, item: Item) -> None:
        self._items.append(item)
        self._empty.clear()
        self._arrived.set()

    async def drained(self) -> None:
        """Until everything that was put has been committed or given up."""
        await self._empty.wait()

    async def forget(self, unwanted: Callable[[Item], bool]) -> None:
        """Drop these where no commit has begun with them, and let the one under way end: what it commits is not unseen."""
        self._items = [item for item in self._items if not unwanted(item)]
        if not self._items and self._between.is_set():
            self._empty.set()
        await self._between.wait()

    async def close(self) -> None:
        """Stop at once. What is not committed stays as it is: leases end by themselves."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def _run(self) -> None:
        batch: list[Item] = []
        while True:
            await self._arrived.wait()
            # Zero: what else this step of the event loop brings goes along.
            await asyncio.sleep(self._linger_seconds if len(self._items) < ENOUGH <= len(batch) else 0)
            if batch := self._next_batch():
                self._between.clear()
                await self._commit_patiently(batch)
                self._between.set()
            if not self._items:
                self._arrived.clear()
                self._empty.set()

    def _next_batch(self) -> list[Item]:
        batch: dict[Hashable, Item] = {}
        rest: list[Item] = []
        for place, item in enumerate(self._items):
            if len(batch) == self._most:
                rest.extend(self._items[place:])
                break
            if batch.setdefault(self._key(item), item) is not item:
                rest.append(item)
        self._items = rest
        return list(batch.values())

    async def _commit_patiently(self, batch: list[Item]) -> None:
        patience = Patience()
        while True:
            try:
                await self._commit(batch)
            except Exception as error:  # noqa: BLE001 - a batch must not end the lane
                if may_pass(error):
                    _log.warning("ledger away, batch waits", lane=self._name, size=len(batch), error=describe(error))
                    await patience.wait()
                    continue
                if len(batch) == 1:
                    _log.exception("given up: the ledger refuses it", lane=self._name, item=self._key(batch[0]))
                    self._give_up(batch[0])
                    return
                middle = len(batch) // 2
                await self._commit_patiently(batch[:middle])
                await self._commit_patiently(batch[middle:])
            return
