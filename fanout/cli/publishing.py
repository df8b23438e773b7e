"""``fanout publish``: a file, all checked before anything is published, or standard input as it comes."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fanout.cli.databases import opened, translated
from fanout.cli.ending import DONE, FAILED, USAGE, Failed, complain, complain_of_input, new_runner
from fanout.cli.lines import Line, batches_of_pipe, lines_of_file
from fanout.cli.output import err, say, show_json
from fanout.database.connection import SteadyConnection
from fanout.home.publishing import Receipt, Verdict, publish_many
from fanout.ledger import channels
from fanout.model.problems import Invalid, Problem
from fanout.model.publish_line import parse_publish_line
from fanout.model.shipment import ShipmentVersion
from fanout.model.times import format_utc
from fanout.running.schemas import Place, home_place, insist
from fanout.settings import Settings

BATCH_LINES = 500
BATCH_BYTES = 8 * 1024 * 1024
"""Payload that one statement carries at most, beyond its first version."""

Residency = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Numbered:
    line: int
    version: ShipmentVersion


@dataclass(slots=True)
class Tally:
    """What became of the lines so far."""

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    conflicts: list[dict[str, object]] = field(default_factory=list)

    @property
    def stand(self) -> int:
        """Lines whose version is on disk as they have it."""
        return self.verdicts[Verdict.ACCEPTED] + self.verdicts[Verdict.DUPLICATE]

    def add(self, batch: Sequence[Numbered], receipts: Sequence[Receipt]) -> None:
        for each, receipt in zip(batch, receipts, strict=True):
            self.verdicts[receipt.verdict] += 1
            if receipt.verdict is Verdict.CONFLICT:
                conflict = {"line": each.line, "shipment_id": receipt.shipment_id, "version": receipt.version}
                self.conflicts.append(conflict)
                complain(
                    f"line {each.line}: conflict: version {receipt.version} of shipment {receipt.shipment_id} stands with other "
                    f"content since {format_utc(receipt.accepted_at)}; publish a higher version"
                )

    def show(self, *, json_output: bool) -> None:
        if json_output:
            counts = {verdict.value: self.verdicts[verdict] for verdict in Verdict}
            show_json(counts | {"conflicts": self.conflicts})
        else:
            say(", ".join(f"{self.verdicts[verdict]:,} {verdict.value}" for verdict in Verdict))


class Desk:
    """Publishes batches on one connection, each in a transaction of its own, and keeps the tally.

    It runs its event loop only while it works: between batches Ctrl-C finds a program that simply reads.
    """

    def __init__(self, runner: asyncio.Runner, place: Place) -> None:
        self.tally = Tally()
        self._runner = runner
        self._place = place
        self._connection = SteadyConnection(place.url, "fanout publish")
        self._bell_channel = channels.outbox(place.schema)

    def check(self) -> None:
        """Home answers, and knows every region. Raises ``Failed``."""
        self._runner.run(self._check())

    def take(self, batch: Sequence[Numbered]) -> None:
        """Raises ``Failed`` with how many lines stand."""
        try:
            self.tally.add(batch, self._runner.run(self._publish([each.version for each in batch])))
        except Failed as error:
            raise Failed(
                f"{error}\n{self.tally.stand:,} lines stand; run it again, it goes on where it stopped"
            ) from error

    def close(self) -> None:
        self._runner.run(self._connection.close())

    async def _check(self) -> None:
        async with opened(self._place, "publish") as connection:
            await insist(connection, self._place)

    async def _publish(self, versions: Sequence[ShipmentVersion]) -> list[Receipt]:
        with translated(self._place):
            receipts = await publish_many(self._connection, versions, schema=self._place.schema)
            await self._connection.fetch("SELECT pg_notify($1, '')", self._bell_channel)
        return receipts


@contextmanager
def _desk(settings: Settings) -> Iterator[Desk]:
    with new_runner() as runner:
        desk = Desk(runner, home_place(settings))
        desk.check()
        try:
            yield desk
        finally:
            desk.close()


def publish_file(path: Path, *, json_output: bool) -> int:
    """Raises ``Invalid`` with every problem of every line before anything is published."""
    settings = Settings.load()
    versions = _read_whole(path, settings.residency)
    with _desk(settings) as desk, _progress(len(versions)) as advance:
        for batch in _batches(versions):
            desk.take(batch)
            advance(len(batch))
    desk.tally.show(json_output=json_output)
    return FAILED if desk.tally.conflicts else DONE


def publish_stdin(*, json_output: bool) -> int:
    """Batches as they come. At the first wrong line it stops; those before it stand."""
    settings = Settings.load()
    with _desk(settings) as desk:
        for lines in batches_of_pipe(sys.stdin.fileno(), BATCH_LINES):
            good, wrong = _up_to_the_first_wrong(lines, settings.residency)
            for batch in _batches(good):
                desk.take(batch)
            if wrong is not None:
                complain_of_input(wrong.problems)
                complain(f"stopped there: {desk.tally.stand:,} lines before it stand")
                desk.tally.show(json_output=json_output)
                return USAGE
    desk.tally.show(json_output=json_output)
    return FAILED if desk.tally.conflicts else DONE


def _read_whole(path: Path, residency: Residency) -> list[Numbered]:
    versions: list[Numbered] = []
    problems: list[Problem] = []
    for line in lines_of_file(path):
        try:
            versions.append(_read(line, residency))
        except Invalid as error:
            problems.extend(error.problems)
    if problems:
        raise Invalid(*problems)
    return versions


def _up_to_the_first_wrong(lines: Iterable[Line], residency: Residency) -> tuple[list[Numbered], Invalid | None]:
    good: list[Numbered] = []
    for line in lines:
        try:
            good.append(_read(line, residency))
        except Invalid as error:
            return good, error
    return good, None


def _read(line: Line, residency: Residency) -> Numbered:
    version = parse_publish_line(line.text, line.number)
    if version.residency is not None and version.residency not in residency:
        why = f"there is no residency class '{version.residency}'"
        raise Invalid.field(
            f"line {line.number}, residency", why, f"the classes are {', '.join(residency) or '(none)'}"
        )
    return Numbered(line.number, version)


def _batches(versions: Sequence[Numbered]) -> Iterator[list[Numbered]]:
    batch: list[Numbered] = []
    size = 0
    for each in versions:
        if batch and (len(batch) == BATCH_LINES or size + len(each.version.payload) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += len(each.version.payload)
    if batch:
        yield batch


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, where somebody looks at it."""
    columns = (TextColumn("publishing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = err()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("publish", total=total)
        yield lambda count: progress.advance(task, count)
