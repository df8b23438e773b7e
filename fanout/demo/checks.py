"""The sum at the end: the ledger's book, home's book and what the receivers saw, held against each other. Pure.

The receivers stand outside and count by themselves. They agree with the ledger when, for each subscriber,

- keys answered 2xx = delivered, plus at most those deliveries that ended otherwise after an attempt of unknown outcome;
- keys answered 2xx a second time are at most as many as attempts of unknown outcome;
- each status was answered as often as the ledger has it, plus at most the attempts of unknown outcome (an answer on its way when
  we gave up);
- requests = attempts, less at most those of unknown outcome and those that were never sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fanout.demo.figures import RegionLedger, SubscriberLedger
from fanout.reconciliation import RegionBook, balanced

NAMED_MAX = 5
LAG_SECONDS = 0.2
"""Requests were this far apart when they were sent; on a busy machine the way and the receiver squeeze them together."""


@dataclass(frozen=True, slots=True)
class RegionSum:
    """Everything about one region at the end."""

    region: str
    book: RegionBook
    ledger: RegionLedger
    seen: Mapping[str, Any]
    """Of the region's receiver, as it counted."""
    limits: Mapping[str, int]
    rates: Mapping[str, float]
    """Of those subscribers that have one, per second."""
    ordered: frozenset[str]
    """Subscribers that asked for an order."""

    @property
    def open(self) -> int:
        return self.book.figures.open if self.book.figures else 0

    def peaks(self) -> dict[str, int]:
        """Requests of a subscriber that were open at once, at most."""
        each = self.seen["subscribers"]
        return {name: each[name]["peak_in_flight"] if name in each else 0 for name in self.limits}

    def over_limit(self) -> list[str]:
        return [
            f"{name} saw {peak} at once, its limit is {self.limits[name]}"
            for name, peak in self.peaks().items()
            if peak > self.limits[name]
        ]

    def over_rate(self) -> list[str]:
        """More requests within any second than the rate gives, where each may have been ``LAG_SECONDS`` late on its way."""
        each = self.seen["subscribers"]
        return [
            f"{name} saw {each[name]['peak_per_second']} in a second, its rate is {rate:g}"
            for name, rate in self.rates.items()
            if name in each and each[name]["peak_per_second"] > 1 + rate * (1 + LAG_SECONDS)
        ]

    def out_of_order(self) -> list[str]:
        each = self.seen["subscribers"]
        return [
            f"{name} accepted {each[name]['out_of_order']} versions after a higher one, {', '.join(each[name]['out_of_order_keys'])}"
            for name in sorted(self.ordered)
            if name in each and each[name]["out_of_order"]
        ]

    def document(self) -> dict[str, Any]:
        """As JSON, and what the table shows."""
        total, peaks, ledger = self.seen["total"], self.peaks(), self.ledger
        seconds = ledger.active_seconds
        figures = self.book.document()
        return figures | {
            "dead_by_reason": ledger.dead_by_reason,
            "attempts": ledger.attempts,
            "retries": ledger.retries,
            "outcomes": ledger.outcomes,
            "answered_429": ledger.answered(429),
            "answered_503": ledger.answered(503),
            "late_results": ledger.late_results,
            "receiver_requests": total["requests"],
            "receiver_keys_accepted": total["delivered_keys"],
            "receiver_duplicates": total["duplicates"],
            "receiver_bad_signatures": total["bad_signatures"],
            "receiver_too_early": total["early"],
            "peak_in_flight": total["peak_in_flight"],
            "subscribers": len(self.limits),
            "subscribers_at_their_limit": sum(peak == self.limits[name] for name, peak in peaks.items()),
            "subscribers_over_their_limit": len(self.over_limit()),
            "subscribers_with_a_rate": len(self.rates),
            "subscribers_over_their_rate": len(self.over_rate()),
            "subscribers_with_an_order": len(self.ordered),
            "subscribers_out_of_order": len(self.out_of_order()),
            "active_seconds": round(seconds, 3),
            "delivered_per_second": round(total["delivered_keys"] / seconds, 1) if seconds else None,
            "to_first_attempt_ms": {"p50": ledger.to_first_attempt.p50, "p99": ledger.to_first_attempt.p99},
            "attempt_ms": {"p50": ledger.attempt.p50, "p99": ledger.attempt.p99},
        }


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer; ``detail`` says what is wrong."""

    question: str
    ok: bool
    detail: str = ""


def checks(sums: Sequence[RegionSum]) -> list[Check]:
    """All of them have to be true. While something is open the receivers are ahead of the ledgers, and not compared."""
    over = [line for each in sums for line in each.over_limit()]
    fast = [line for each in sums for line in each.over_rate()]
    unordered = [line for each in sums for line in each.out_of_order()]
    unsigned = sum(each.seen["total"]["bad_signatures"] for each in sums)
    ended = _ended(sums)
    asked = [
        Check("balanced: accepted = delivered + dead + open, and home's book says the same", *_balance(sums)),
        Check("everything has ended: nothing is open", *ended),
        Check("no subscriber ever saw more requests at once than its limit", not over, _some(over)),
        Check("no subscriber ever saw more requests in a second than its rate", not fast, _some(fast)),
        Check("who asked for an order got no version after a higher one", not unordered, _some(unordered)),
        Check("every signature was right", unsigned == 0, f"{unsigned} were not" if unsigned else ""),
    ]
    if ended[0]:
        differences = [f"{each.region}: {line}" for each in sums for line in disagreements(each)]
        asked.append(Check("the receivers counted what the ledgers say", not differences, _some(differences)))
    return asked


def disagreements(each: RegionSum) -> list[str]:
    """Where the region's receiver and its ledger contradict each other."""
    found = [
        f"{name} is unknown to the ledger" for name in each.seen["subscribers"] if name not in each.ledger.subscribers
    ]
    for name, ledger in each.ledger.subscribers.items():
        seen = each.seen["subscribers"].get(name)
        found += [f"{name}: {line}" for line in (_contradictions(ledger, seen) if seen else _silence(ledger))]
    for what in ("without_key", "in_flight"):
        if count := each.seen["total"][what]:
            found.append(f"the receiver has {count} requests {what.replace('_', ' ')}")
    if count := each.seen["total"]["malformed"] + each.seen["total"]["other_requests"]:
        found.append(f"the receiver got {count} requests that were no delivery")
    return found


def _silence(ledger: SubscriberLedger) -> list[str]:
    sent = ledger.attempts - ledger.unknown - ledger.unsent
    return [f"{sent} attempts, but the receiver never heard of it"] if sent else []


def _contradictions(ledger: SubscriberLedger, seen: Mapping[str, Any]) -> list[str]:
    answers = {int(status): count for status, count in seen["answers"].items()}
    pairs = [
        ("keys answered 2xx", ledger.delivered, seen["delivered_keys"], ledger.maybe),
        ("keys answered 2xx again", 0, seen["duplicates"], ledger.unknown),
        (
            "requests",
            ledger.attempts - ledger.unknown - ledger.unsent,
            seen["requests"],
            ledger.unknown + ledger.unsent,
        ),
        *(
            (f"answers {status}", ledger.statuses.get(status, 0), answers.get(status, 0), ledger.unknown)
            for status in sorted(answers.keys() | ledger.statuses.keys())
        ),
    ]
    found = []
    for what, least, count, room in pairs:
        if not least <= count <= least + room:
            expected = f"{least}" if room == 0 else f"{least} to {least + room}"
            found.append(f"{what}: the receiver saw {count}, by the ledger {expected}")
    return found


def _balance(sums: Sequence[RegionSum]) -> tuple[bool, str]:
    wrong = []
    for each in sums:
        if each.book.error is not None:
            wrong.append(f"{each.region} could not be read: {each.book.error}")
        elif each.book.balanced is False:
            wrong += [f"{each.region}: {line}" for line in each.book.disagreements] or [
                f"{each.region} does not add up"
            ]
    return balanced([each.book for each in sums]) is True, _some(wrong)


def _ended(sums: Sequence[RegionSum]) -> tuple[bool, str]:
    left = [f"{each.region} has {each.open:,} open" for each in sums if each.open]
    left += [
        f"{each.region} has {each.book.outbox.pending:,} not expanded" for each in sums if each.book.outbox.pending
    ]
    return not left, _some(left)


def _some(lines: Sequence[str]) -> str:
    more = f"; and {len(lines) - NAMED_MAX} more" if len(lines) > NAMED_MAX else ""
    return "; ".join(lines[:NAMED_MAX]) + more
