"""``fanout status``: the figures of each region, and whether the books of P1 agree."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from fanout.cli.databases import opened, translated
from fanout.cli.ending import DONE, FAILED, Failed, complain
from fanout.cli.output import out, show_json, table
from fanout.database.connection import SteadyConnection
from fanout.ledger.books import recount
from fanout.model.problems import Invalid
from fanout.model.times import span
from fanout.reconciliation import RegionBook, balanced, compare, status_document
from fanout.running.schemas import Place, home_place, insist, region_place
from fanout.settings import Settings

REFRESH_SECONDS = 1.0
DISAGREEMENTS_SHOWN = 20
FIGURES = {
    "accepted": "accepted",
    "delivered": "delivered",
    "dead": "dead",
    "open": "open",
    "  waiting": "waiting",
    "  queued": "queued",
    "  leased": "leased",
    "held destinations": "held_destinations",
    "paused destinations": "paused_destinations",
    "closed destinations": "closed_destinations",
    "unknown attempts": "unknown_attempts",
    "late results": "late_results",
}
"""For people, and as the ledger names them."""
RATES = ("accepted / s", "delivered / s")


@dataclass(frozen=True, slots=True)
class Look:
    """All books at about one moment, on this machine's monotonic clock."""

    at: float
    books: list[RegionBook]


class Watcher:
    """Looks at every region at once, on connections that it keeps."""

    def __init__(self, settings: Settings) -> None:
        self._home = home_place(settings)
        self._places = [region_place(region) for region in settings.regions.values()]
        self._homes = {place.name: _steady(self._home) for place in self._places}
        self._ledgers = {place.name: _steady(place) for place in self._places}
        self._since: dict[str, int] = {}

    async def look(self) -> Look:
        """Compares in full at first, and later only what may have changed. Raises ``Failed`` while home is away."""
        with translated(self._home):
            books = await asyncio.gather(*(self._compare(place) for place in self._places))
        return Look(time.monotonic(), list(books))

    async def _compare(self, place: Place) -> RegionBook:
        home, ledger = self._homes[place.name], self._ledgers[place.name]
        since = self._since.get(place.name, 0)
        book = await compare(home, self._home.schema, place.name, ledger, place.schema, since=since)
        if book.balanced:  # what disagreed has to be seen again at the next look
            self._since[place.name] = book.watch_from
        return book

    async def close(self) -> None:
        for connection in (*self._homes.values(), *self._ledgers.values()):
            await connection.close()


def _steady(place: Place) -> SteadyConnection:
    return SteadyConnection(place.url, "fanout status")


async def show_status(*, watch: bool, recount_rows: bool, json_output: bool) -> int:
    """``FAILED`` where the books do not agree, or nobody can say."""
    if watch and json_output:
        raise Invalid.field("--watch, --json", "do not go together", "--json is one document: ask again for another")
    settings = Settings.load()
    watcher = Watcher(settings)
    try:
        if watch:
            return await _watch(watcher)
        drifted = await _recount(settings) if recount_rows else False
        look = await watcher.look()
    finally:
        await watcher.close()
    if json_output:
        show_json(status_document(look.books))
    else:
        out().print(_screen(look, None), soft_wrap=True)
    for book in look.books:
        if book.error is not None:
            complain(f"{book.region}: cannot be read: {book.error}; `fanout doctor` says more")
    return DONE if balanced(look.books) and not drifted else FAILED


async def _watch(watcher: Watcher) -> int:
    """Until Ctrl-C. Trouble is shown and waited for."""
    before: Look | None = None
    with Live(console=out(), auto_refresh=False) as live:
        while True:
            try:
                now = await watcher.look()
            except Failed as error:
                live.update(Text(str(error)), refresh=True)
            else:
                live.update(_screen(now, before), refresh=True)
                before = now
            await asyncio.sleep(REFRESH_SECONDS)


def _screen(look: Look, before: Look | None) -> RenderableType:
    """A column for each region: the figures of many would not fit beside each other on a terminal."""
    columns = [_figures(book) for book in look.books]
    if before is not None:
        seconds = look.at - before.at
        earlier = {book.region: book for book in before.books}
        columns = [
            figures | _rates(book, earlier[book.region], seconds)
            for figures, book in zip(columns, look.books, strict=True)
        ]
    rows = [[name, *(column.get(name, "?") for column in columns)] for name in columns[0]]
    heads = {"": "left"} | {book.region: "right" for book in look.books}
    return Group(table(heads, rows), *map(Text, _verdict(look.books)))


def _figures(book: RegionBook) -> dict[str, str]:
    """``?`` for all that a region did not tell."""
    figures = book.figures
    counts = {name: "?" if figures is None else f"{getattr(figures, field):,}" for name, field in FIGURES.items()}
    due = "?" if figures is None else span(figures.oldest_due_age_seconds) if figures.open else "-"
    late = "?" if figures is None else span(figures.oldest_ready_age_seconds) if figures.open else "-"
    pending = span(book.outbox.oldest_pending_age_seconds) if book.outbox.pending else "-"
    return {
        "outbox pending": f"{book.outbox.pending:,}",
        "oldest pending": pending,
        "oldest due": due,
        "  and could go": late,
    } | counts


def _rates(book: RegionBook, before: RegionBook, seconds: float) -> dict[str, str]:
    if before.figures is None or book.figures is None:
        return dict.fromkeys(RATES, "?")
    gained = (book.figures.accepted - before.figures.accepted, book.figures.delivered - before.figures.delivered)
    return {name: f"{count / seconds:,.0f}" for name, count in zip(RATES, gained, strict=True)}


def _verdict(books: Sequence[RegionBook]) -> list[str]:
    """Whether the books agree, and what does not."""
    verdict = balanced(books)
    lines = [f"balanced: {'unknown' if verdict is None else 'yes' if verdict else 'no'}"]
    for book in books:
        figures = book.figures
        if figures is not None and not figures.adds_up:
            lines.append(
                f"{book.region}: accepted {figures.accepted:,} is not delivered {figures.delivered:,} + dead {figures.dead:,} "
                f"+ open {figures.open:,}; count the rows with `fanout status --recount`"
            )
        lines += [f"{book.region}: {each}" for each in book.disagreements[:DISAGREEMENTS_SHOWN]]
        if len(book.disagreements) > DISAGREEMENTS_SHOWN:
            lines.append(f"{book.region}: … and at least {len(book.disagreements) - DISAGREEMENTS_SHOWN} more")
    return lines


async def _recount(settings: Settings) -> bool:
    """Count every delivery; whether any counter was wrong. What was found goes to stderr, beside the one document of stdout."""
    drifted = False
    for region in settings.regions.values():
        place = region_place(region)
        try:
            async with opened(place, "status") as connection:
                await insist(connection, place)
                steps = [step async for step in recount(connection, place.schema)]
        except Failed as error:
            complain(str(error))
            drifted = True
            continue
        last = steps[-1]
        complain(f"{place.name}: counted {last.deliveries:,} deliveries of {last.destinations:,} destinations")
        for drift in last.drifts:
            complain(
                f"{place.name}: destination {drift.destination_id}: {drift.state} says {drift.counter:,}, rows are {drift.rows:,}"
            )
            drifted = True
    return drifted
