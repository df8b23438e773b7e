"""The publisher: from committed versions at home to waiting deliveries in each region, every region on its own.

Every step can be repeated, so a crash anywhere costs only the step. Home's transaction is closed while a region works.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from fanout.database.connection import SteadyConnection
from fanout.database.errors import describe, may_pass
from fanout.database.schema import Schema
from fanout.database.wakeups import Bell, Ear
from fanout.home import outbox
from fanout.home.outbox import OutboxRow
from fanout.ledger import channels
from fanout.ledger.expansion import Copy, copy_versions, expand, wanted
from fanout.ledger.sweeping import tell_operator
from fanout.loops import run_steps
from fanout.model.trace_context import TraceParent
from fanout.settings import RegionSettings, Settings
from fanout.telemetry.tracing import in_use

BATCH_VERSIONS = 100
BATCH_BYTES = 8 * 1024 * 1024
"""Payload that one region transaction copies at most, beyond its first version."""
EXPAND_ROWS = 2_000
"""Deliveries that one expansion step creates at most: its destinations are locked for as long as that takes."""
KEEP_SECONDS = 5.0
"""So long others leave alone what a publisher has taken: what one that was killed costs its last batch. Renewed while it works; a
batch that two work on is done twice, and comes to the same."""
SET_ASIDE_SECONDS = 30.0
"""Until a version that a region refuses is tried again."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Expanded:
    """What one step did."""

    versions: int
    deliveries: int


class RegionPublisher:
    """Expands home's outbox into one region."""

    def __init__(self, settings: Settings, region: RegionSettings) -> None:
        self._region = region.name
        self._home_schema = Schema(settings.home.schema)
        self._schema = Schema(region.schema)
        self._forbidden = frozenset(name for name, regions in settings.residency.items() if region.name not in regions)
        self._poll_seconds = settings.home.poll_seconds
        self._told: set[int] = set()
        self._owed: list[int] = []
        """Taken, and neither done nor given back: others wait for them."""
        application = f"fanout publisher {region.name}"
        self._home = SteadyConnection(settings.home.url, application)
        self._ledger = SteadyConnection(region.url, application)
        self._ear = Ear(settings.home.url, application, channels.outbox(self._home_schema))
        self._bell = Bell(region.url, application, channels.due(self._schema))

    async def run(self, stopping: asyncio.Event) -> None:
        """Until ``stopping``; an unreachable region or home is waited for."""
        self._ear.start()
        try:
            await run_steps("publisher", self._step, stopping, region=self._region)
        finally:
            await self._ear.close()
            await self._bell.close()
            await self._home.close()
            await self._ledger.close()

    async def _step(self) -> None:
        expanded = await self.run_once()
        if expanded.versions == 0:
            await self._ear.wait(self._poll_seconds)

    async def run_once(self) -> Expanded:
        """Take what is pending, expand it, close the books. Zero versions: nothing is pending, or others work on it."""
        await self._give_back_owed()
        rows = await outbox.take(self._home, self._home_schema, self._region, BATCH_VERSIONS, KEEP_SECONDS)
        if not rows:
            return Expanded(0, 0)
        self._owed = [row.announcement.version_no for row in rows]
        try:
            created = await self._expand_or_set_aside(rows)
            await outbox.finish(self._home, self._home_schema, self._region, created)
        except (asyncio.CancelledError, Exception):
            await self._give_back_soon()
            raise
        self._owed = []
        return Expanded(len(rows), sum(created.values()))

    async def _expand_or_set_aside(self, rows: Sequence[OutboxRow]) -> dict[int, int]:
        """A batch that the region refuses is halved until the one version that spoils it stands alone: that one is set aside for
        half a minute, an operator is told, and the others go through.
        """
        try:
            return await self._expand(rows)
        except (asyncio.CancelledError, Exception) as error:
            if isinstance(error, asyncio.CancelledError) or may_pass(error):
                raise
            if len(rows) == 1:
                await self._set_aside(rows[0], error)
                return {}
        middle = len(rows) // 2
        first = await self._expand_or_set_aside(rows[:middle])
        return first | await self._expand_or_set_aside(rows[middle:])

    async def _set_aside(self, row: OutboxRow, error: BaseException) -> None:
        note = row.announcement
        detail = f"version {note.version} of shipment {note.shipment_id} cannot be expanded: {describe(error)}"
        _log.error("version set aside", region=self._region, detail=detail)
        await outbox.keep(self._home, self._home_schema, self._region, [note.version_no], SET_ASIDE_SECONDS)
        if note.version_no not in self._told:
            self._told.add(note.version_no)
            await tell_operator(self._ledger, self._schema, "version_set_aside", detail)

    async def _give_back_soon(self) -> None:
        """Now, or where home is away with the region, before anything else is taken."""
        try:
            await self._give_back_owed()
        except Exception:  # noqa: BLE001 - the first error is the one to tell
            _log.debug("outbox rows not given back yet", region=self._region)

    async def _give_back_owed(self) -> None:
        if self._owed:
            await outbox.give_back(self._home, self._home_schema, self._region, self._owed)
            self._owed = []

    async def _expand(self, rows: Sequence[OutboxRow]) -> dict[int, int]:
        """How many deliveries each version has created here, once all have been expanded."""
        announcements = [row.announcement for row in rows]
        taken_at = asyncio.get_running_loop().time()
        answers = await wanted(self._ledger, self._schema, announcements)
        created = {row.announcement.version_no: 0 for row in rows}
        here = [row for row, answer in zip(rows, answers, strict=True) if answer]
        for batch in _batches(here):
            began_ns = time.time_ns()
            published = await self._copy(batch)
            open_ = [row.announcement for row in batch]
            while open_:
                pages = await expand(self._ledger, self._schema, open_, EXPAND_ROWS)
                self._bell.ring()
                created.update((page.version_no, page.created) for page in pages)
                done = {page.version_no for page in pages if page.done}
                open_ = [note for note in open_ if note.version_no not in done]
                taken_at = await self._keep(rows, taken_at)
            self._trace(began_ns, published, created)
        return created

    async def _keep(self, rows: Sequence[OutboxRow], taken_at: float) -> float:
        """Renew the take of a batch that is large, or slow. When it was last renewed."""
        now = asyncio.get_running_loop().time()
        if now - taken_at < KEEP_SECONDS / 2:
            return taken_at
        numbers = [row.announcement.version_no for row in rows]
        await outbox.keep(self._home, self._home_schema, self._region, numbers, KEEP_SECONDS)
        return now

    def _trace(self, began_ns: int, published: Mapping[int, str], created: Mapping[int, int]) -> None:
        if (tracing := in_use()) is not None:
            places = ((TraceParent.parse(text), created[number]) for number, text in published.items())
            known = [(place, count) for place, count in places if place is not None]
            tracing.expanded(f"{self._home_schema.name}.outbox", self._region, began_ns, known)

    async def _copy(self, rows: Sequence[OutboxRow]) -> dict[int, str]:
        """The payload goes only where it may: a forbidden version sends its key, and nothing else (P10). Returns the trace
        contexts of the others, by version number.
        """
        allowed = [row.announcement.version_no for row in rows if row.residency not in self._forbidden]
        contents = await outbox.contents(self._home, self._home_schema, allowed)
        copies = []
        for row in rows:
            content = contents.get(row.announcement.version_no)
            if content is None:
                copies.append(Copy(row.announcement, forbidden=True))
            else:
                copies.append(
                    Copy(
                        row.announcement,
                        forbidden=False,
                        content_type=content.content_type,
                        payload=content.payload,
                        traceparent=content.traceparent,
                        tracestate=content.tracestate,
                        occurred_at=content.occurred_at,
                    )
                )
        await copy_versions(self._ledger, self._schema, copies)
        return {number: content.traceparent for number, content in contents.items()}


def _batches(rows: Sequence[OutboxRow]) -> list[list[OutboxRow]]:
    """So many rows as fit a region transaction's bytes; a large version stands alone."""
    batches: list[list[OutboxRow]] = []
    room = 0
    for row in rows:
        if not batches or row.payload_bytes > room:
            batches.append([])
            room = BATCH_BYTES
        batches[-1].append(row)
        room -= row.payload_bytes
    return batches


async def run_publisher(settings: Settings, stopping: asyncio.Event) -> None:
    """Every region at once: one that is away delays only itself."""
    async with asyncio.TaskGroup() as group:
        for region in settings.regions.values():
            group.create_task(RegionPublisher(settings, region).run(stopping), name=f"publisher {region.name}")
