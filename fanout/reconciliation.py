"""The two books of P1, compared: nothing accepted is lost, and here is the proof.

A region's own book is balanced when, in one snapshot, what its expansions created equals delivered + dead + open. The two books
agree when every outbox row that home has finished says what the region's expansion says. Home is read first: by then the region has
written its side of everything that home has finished.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import asyncpg

from fanout.database.errors import CONNECTION_LOST, describe
from fanout.database.fetching import Fetches
from fanout.database.schema import Schema
from fanout.home.inspection import OutboxFigures, finished_pages, names_of, outbox_figures
from fanout.ledger.books import RegionFigures, UnconfirmedPage, region_figures, unconfirmed

DISAGREEMENTS_MAX = 100
"""So many are named for a person; any number of them is too many."""
LATE_NUMBERS = 1_000
"""A publishing transaction may commit after one with a higher number. Watching goes back so far with each look."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A version of which home and region tell different numbers."""

    shipment_id: str
    version: int
    page: UnconfirmedPage

    def __str__(self) -> str:
        region = "has no record of it" if self.page.region_created is None else f"says {self.page.region_created}"
        unfinished = " and is not done" if self.page.region_done is False else ""
        home = f"home says {self.page.home_created} deliveries"
        return f"shipment {self.shipment_id} version {self.version}: {home}, the region {region}{unfinished}"


@dataclass(frozen=True, slots=True)
class RegionBook:
    """Both books of one region, compared."""

    region: str
    outbox: OutboxFigures
    figures: RegionFigures | None
    """None: the region could not be read, and ``error`` says how."""
    error: str | None = None
    disagreements: list[Disagreement] = field(default_factory=list)
    """The first ``DISAGREEMENTS_MAX``."""
    compared: int = 0
    """Outbox rows of home that were compared."""
    watch_from: int = 0
    """For the next look while watching: hand it in as ``since``."""

    @property
    def balanced(self) -> bool | None:
        """None: nobody can say."""
        if self.figures is None:
            return None
        return self.figures.adds_up and not self.disagreements

    def document(self) -> dict[str, object]:
        """As JSON: the figures of ``fanout status``. All but the outbox are null where the region could not be read."""
        figures = self.figures
        return {
            "accepted": figures and figures.accepted,
            "delivered": figures and figures.delivered,
            "dead": figures and figures.dead,
            "open": figures and figures.open,
            "waiting": figures and figures.waiting,
            "queued": figures and figures.queued,
            "leased": figures and figures.leased,
            "oldest_due_age_seconds": figures and figures.oldest_due_age_seconds,
            "held_destinations": figures and figures.held_destinations,
            "outbox_pending": self.outbox.pending,
            "unknown_attempts": figures and figures.unknown_attempts,
            "late_results": figures and figures.late_results,
        }


def balanced(books: Sequence[RegionBook]) -> bool | None:
    """Over all regions; None as soon as one of them could not be read."""
    verdicts = [book.balanced for book in books]
    return None if None in verdicts else all(verdicts)


def status_document(books: Sequence[RegionBook]) -> dict[str, object]:
    """``fanout status --json`` and ``GET /v1/regions``."""
    return {"balanced": balanced(books), "regions": {book.region: book.document() for book in books}}


async def compare(
    home: Fetches, home_schema: Schema, region: str, ledger: Fetches, ledger_schema: Schema, *, since: int = 0
) -> RegionBook:
    """Read home, then the region: row by row, and then its figures.

    ``since``: compare only versions from this number on (``watch_from`` of the look before); what agreed once stays so.
    A region that cannot be read is reported in the book. Home's errors are raised: without home there is no book.
    """
    outbox = await outbox_figures(home, home_schema, region)
    wrong: list[Disagreement] = []
    compared, highest = 0, since
    try:
        async for created in finished_pages(home, home_schema, region, since=since):
            compared, highest = compared + len(created), max(created)
            pages = await read_region(unconfirmed(ledger, ledger_schema, created, DISAGREEMENTS_MAX - len(wrong)))
            names = await names_of(home, home_schema, [page.version_no for page in pages]) if pages else {}
            wrong += [Disagreement(*names[page.version_no], page) for page in pages]
        figures = await read_region(region_figures(ledger, ledger_schema))
    except UnreadableError as error:
        return RegionBook(region, outbox, None, str(error))
    done_up_to = highest if outbox.lowest_pending is None else min(highest, outbox.lowest_pending)
    return RegionBook(region, outbox, figures, None, wrong, compared, max(0, done_up_to - LATE_NUMBERS))


class UnreadableError(Exception):
    """The region did not answer, or not with its book."""


async def read_region(answer: Awaitable[Answer]) -> Answer:
    """Keeps the region's errors apart from home's."""
    try:
        return await answer
    except (asyncpg.UndefinedFunctionError, asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError) as error:
        raise UnreadableError(f"its schema is not up to date, run `fanout migrate` ({describe(error)})") from error
    except (asyncpg.PostgresError, *CONNECTION_LOST) as error:
        raise UnreadableError(describe(error)) from error
