"""The end of the demo for people: the reconciliation as a table, the checks, and one delivery's story."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fanout.demo.checks import Check
from fanout.demo.progress import Phase
from fanout.ledger.inspection import Delivery

Document = Mapping[str, Any]
PIPED_WIDTH = 120
"""A file has no width, and folded figures are hard to read."""


def stdout() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPED_WIDTH)


def _count(name: str) -> Callable[[Document], str]:
    return lambda region: "?" if region[name] is None else f"{region[name]:,}"


def _spread(name: str) -> Callable[[Document], str]:
    return lambda region: " / ".join(_milliseconds(region[name][part]) for part in ("p50", "p99"))


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f} ms" if value < 1000 else f"{value / 1000:,.1f} s"  # noqa: PLR2004 - milliseconds in a second


_SUMMED: Sequence[Sequence[tuple[str, str]]] = (
    (("accepted", "accepted"), ("delivered", "delivered"), ("dead", "dead")),
    (("open", "open"),),
    (
        ("attempts", "attempts"),
        ("retries", "retries"),
        ("429s met", "answered_429"),
        ("503s met, with Retry-After", "answered_503"),
        ("unknown attempts (maybe delivered)", "unknown_attempts"),
        ("late results", "late_results"),
    ),
    (
        ("requests that the receivers saw", "receiver_requests"),
        ("keys that they accepted", "receiver_keys_accepted"),
        ("  and accepted again: duplicates", "receiver_duplicates"),
        ("wrong signatures", "receiver_bad_signatures"),
        ("before a Retry-After was over", "receiver_too_early"),
        ("subscribers at their limit", "subscribers_at_their_limit"),
        ("subscribers over their limit", "subscribers_over_their_limit"),
        ("subscribers with a rate", "subscribers_with_a_rate"),
        ("  over it", "subscribers_over_their_rate"),
        ("subscribers with an order", "subscribers_with_an_order"),
        ("  out of it", "subscribers_out_of_order"),
    ),
)
_EACH: Sequence[tuple[str, Callable[[Document], str]]] = (
    ("requests in flight at once, at most", _count("peak_in_flight")),
    ("delivered per second", _count("delivered_per_second")),
    ("accepted to first attempt, p50 / p99", _spread("to_first_attempt_ms")),
    ("attempt, p50 / p99", _spread("attempt_ms")),
)


def reconciliation(document: Document) -> Table:
    """A column for each region, and one for their sum where a sum means something."""
    regions: Mapping[str, Document] = document["regions"]
    table = Table(box=SIMPLE_HEAD, title="Reconciliation", title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("")
    for name in (*regions, "together"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in _SUMMED:
        for title, name in group:
            values = [region[name] for region in regions.values()]
            total = "?" if None in values else f"{sum(values):,}"
            table.add_row(title, *(_count(name)(region) for region in regions.values()), total)
            if name == "dead":
                _add_reasons(table, regions)
        if group is not _SUMMED[0]:
            table.add_section()
    for title, shown in _EACH:
        table.add_row(title, *(shown(region) for region in regions.values()), "")
    return table


def _add_reasons(table: Table, regions: Mapping[str, Document]) -> None:
    reasons = sorted({reason for region in regions.values() for reason in region["dead_by_reason"]})
    for reason in reasons:
        counts = [region["dead_by_reason"].get(reason, 0) for region in regions.values()]
        table.add_row(f"  {reason}", *(f"{count:,}" for count in counts), f"{sum(counts):,}", style="dim")


def answers(checks: Sequence[Check]) -> Text:
    """A line for each check."""
    text = Text()
    for check in checks:
        text.append("yes  " if check.ok else "NO   ", "green" if check.ok else "bold red")
        text.append(check.question + (f": {check.detail}" if check.detail else "") + "\n")
    return text


def phases_line(phases: Sequence[Phase], seconds: float) -> str:
    each = ", ".join(f"{phase.name} {phase.seconds(0):.1f} s" for phase in phases if phase.ended is not None)
    return f"{seconds:.1f} s in all: {each}."


def story(delivery: Delivery) -> Text:
    """One delivery from acceptance to its end, an attempt a line."""
    end = f"{delivery.state}" + (f" ({delivery.reason})" if delivery.reason else "")
    text = Text(f"{delivery.key}\n", "bold")
    text.append(f"  {_clock(delivery.accepted_at)}  accepted\n", "not bold")
    for attempt in delivery.attempt_list or ():
        status = f" {attempt.status}" if attempt.status is not None else ""
        asked = f", asked for {attempt.retry_after_seconds:g} s" if attempt.retry_after_seconds else ""
        error = f": {attempt.error}" if attempt.error else ""
        text.append(
            f"  {_clock(attempt.started_at)}  attempt {attempt.n}: {attempt.outcome}{status} after "
            f"{_milliseconds(attempt.duration_ms)}{asked}{error}\n",
            "not bold",
        )
    if delivery.finished_at is not None:
        text.append(f"  {_clock(delivery.finished_at)}  {end}\n", "not bold")
    return text


def _clock(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%H:%M:%S.%f")[:-3]
