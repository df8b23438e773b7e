"""What the receiver saw: counted per subscriber, judged as an outsider would."""

from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

EXAMPLES_MAX = 20
SUCCESS = range(200, 300)


ON_THE_WIRE_SECONDS = 0.25
"""A sender with several requests open has sent some of them before it can have read our answer to the first."""


@dataclass(slots=True)
class Spread:
    """Count, least, mean and greatest of a series, in seconds."""

    count: int = 0
    least: float = 0.0
    greatest: float = 0.0
    total: float = 0.0

    def add(self, value: float) -> None:
        self.least = value if self.count == 0 else min(self.least, value)
        self.greatest = value if self.count == 0 else max(self.greatest, value)
        self.count += 1
        self.total += value

    def snapshot(self) -> dict[str, float | None]:
        if not self.count:
            return {"min": None, "mean": None, "max": None}
        numbers = {"min": self.least, "mean": self.total / self.count, "max": self.greatest}
        return {name: round(value, 6) for name, value in numbers.items()}


@dataclass(slots=True, eq=False)
class SubscriberStats:
    """The requests of one subscriber. Times are monotonic seconds unless a name says wall."""

    requests: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    cut: int = 0
    """Closed before an answer: by the client, or because the script says so."""
    bytes: int = 0
    bad_signatures: int = 0
    without_key: int = 0
    duplicates: int = 0
    """Answers 2xx to a key that had one before."""
    duplicate_keys: list[str] = field(default_factory=list)
    in_flight: int = 0
    peak_in_flight: int = 0
    out_of_order: int = 0
    """Versions answered 2xx although a higher version of the shipment arrived, and was accepted, before them."""
    out_of_order_keys: list[str] = field(default_factory=list)
    early: int = 0
    """Requests that began after a 429 or 503 was written, and the sender could know, and before its Retry-After was over."""
    early_seconds_max: float = 0.0
    peak_per_second: int = 0
    spacing_seconds_min: float | None = None
    first_arrival: float | None = None
    last_arrival: float | None = None
    latency: Spread = field(default_factory=Spread)
    """From ``webhook-timestamp``, which has whole seconds, to the arrival."""
    asked_at: float = 0.0
    not_before: float = 0.0
    """Until then the sender was asked, at ``asked_at``, to stay away."""

    _accepted: dict[int, int] = field(default_factory=dict)
    """Hash of the key to answers 2xx: 64 bits instead of a hundred characters; two of a million keys collide with a
    chance of one in thirty million."""
    _versions: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Of each shipment, the accepted (arrival, version)."""
    _last_second: deque[float] = field(default_factory=deque)

    @property
    def distinct_keys(self) -> int:
        return len(self._accepted)

    @property
    def delivered_keys(self) -> int:
        """Keys that were answered 2xx at least once."""
        return sum(1 for count in self._accepted.values() if count)

    @property
    def delivered(self) -> int:
        return sum(count for status, count in self.answers.items() if status in SUCCESS)

    def began(self, arrival: float) -> None:
        """A request's first byte came at ``arrival``."""
        self.requests += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        if self.asked_at + ON_THE_WIRE_SECONDS <= arrival < self.not_before:
            self.early += 1
            self.early_seconds_max = max(self.early_seconds_max, self.not_before - arrival)
        if self.last_arrival is None:
            self.first_arrival = arrival
        else:
            spacing = arrival - self.last_arrival
            least = self.spacing_seconds_min
            self.spacing_seconds_min = spacing if least is None or spacing < least else least
        self.last_arrival = arrival
        recent = self._last_second
        recent.append(arrival)
        while recent[0] <= arrival - 1.0:
            recent.popleft()
        self.peak_per_second = max(self.peak_per_second, len(recent))

    def asked_to_wait(self, now: float, seconds: float) -> None:
        """A 429 or 503 with this Retry-After was written. Requests that are open or on the wire by then are not early."""
        if now >= self.not_before:
            self.asked_at = now
        self.not_before = max(self.not_before, now + seconds)

    def saw_key(self, key: str) -> None:
        if key:
            self._accepted.setdefault(hash(key), 0)
        else:
            self.without_key += 1

    def answered(self, status: int, key: str) -> None:
        self.in_flight -= 1
        self.answers[status] += 1
        if key and status in SUCCESS:
            before = self._accepted.get(hash(key), 0)
            self._accepted[hash(key)] = before + 1
            if before:
                self.duplicates += 1
                _note(self.duplicate_keys, key)

    def accepted_version(self, shipment: str, version: int, arrival: int, key: str) -> None:
        """``arrival`` is the running number of the request. A version accepted again judges nothing: it is a duplicate."""
        accepted = self._versions.setdefault(shipment, [])
        if any(known == version for _, known in accepted):
            return
        if any((then < arrival) != (known < version) for then, known in accepted):
            self.out_of_order += 1
            _note(self.out_of_order_keys, key)
        accepted.append((arrival, version))

    def was_cut(self) -> None:
        self.in_flight -= 1
        self.cut += 1

    def snapshot(self, wall_offset: float) -> dict[str, Any]:
        """For people and other programs. ``wall_offset`` turns a monotonic time into seconds since 1970."""
        return {
            "requests": self.requests,
            "distinct_keys": self.distinct_keys,
            "delivered_keys": self.delivered_keys,
            "duplicates": self.duplicates,
            "duplicate_keys": self.duplicate_keys,
            "answers": {str(status): count for status, count in sorted(self.answers.items())},
            "cut": self.cut,
            "bytes": self.bytes,
            "bad_signatures": self.bad_signatures,
            "without_key": self.without_key,
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            "out_of_order": self.out_of_order,
            "out_of_order_keys": self.out_of_order_keys,
            "early": self.early,
            "early_seconds_max": round(self.early_seconds_max, 6),
            "peak_per_second": self.peak_per_second,
            "spacing_seconds_min": self.spacing_seconds_min,
            "first_arrival": _wall(self.first_arrival, wall_offset),
            "last_arrival": _wall(self.last_arrival, wall_offset),
            "latency_seconds": self.latency.snapshot(),
        }


SUMMED = (
    "requests",
    "distinct_keys",
    "delivered_keys",
    "duplicates",
    "cut",
    "bytes",
    "bad_signatures",
    "without_key",
    "in_flight",
    "out_of_order",
    "early",
)


class ReceiverStats:
    """Everything since the start or the last reset. ``subscribers`` has an entry for each that ever sent a request."""

    def __init__(self) -> None:
        self.subscribers: dict[str, SubscriberStats] = {}
        self.in_flight = 0
        self.reset()

    def reset(self) -> None:
        """Counts from zero, but what is open stays open and what was asked for stays asked."""
        self.subscribers = {
            name: SubscriberStats(
                in_flight=each.in_flight,
                peak_in_flight=each.in_flight,
                asked_at=each.asked_at,
                not_before=each.not_before,
            )
            for name, each in self.subscribers.items()
            if each.in_flight or each.not_before
        }
        self.connections = 0
        self.malformed = 0
        """Connections that were closed because they did not speak HTTP/1.1."""
        self.other_requests = 0
        """Not a POST to a subscriber's path: answered 404 or 405."""
        self.peak_in_flight = self.in_flight

    def of(self, subscriber: str) -> SubscriberStats:
        """An entry that stays, also for one that has not sent anything yet."""
        found = self.subscribers.get(subscriber)
        if found is None:
            found = self.subscribers[subscriber] = SubscriberStats()
        return found

    def began(self, subscriber: str, arrival: float) -> None:
        self.of(subscriber).began(arrival)
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)

    def ended(self, subscriber: str, key: str, status: int | None) -> None:
        """The response was written; without a status, the connection closed instead."""
        self.in_flight -= 1
        if status is None:
            self.of(subscriber).was_cut()
        else:
            self.of(subscriber).answered(status, key)

    def total(self, name: str) -> int:
        """One counter summed over all subscribers."""
        return sum(int(getattr(each, name)) for each in self.subscribers.values())

    @property
    def answers(self) -> Counter[int]:
        return sum((each.answers for each in self.subscribers.values()), Counter())

    def snapshot(self, wall_offset: float) -> dict[str, Any]:
        total: dict[str, Any] = {name: self.total(name) for name in SUMMED}
        total["answers"] = {str(status): count for status, count in sorted(self.answers.items())}
        total["peak_in_flight"] = self.peak_in_flight
        total["connections"] = self.connections
        total["malformed"] = self.malformed
        total["other_requests"] = self.other_requests
        each = {name: self.subscribers[name].snapshot(wall_offset) for name in sorted(self.subscribers)}
        return {"total": total, "subscribers": each}


def _note(examples: list[str], key: str) -> None:
    if len(examples) < EXAMPLES_MAX:
        examples.append(key)


def _wall(moment: float | None, offset: float) -> str | None:
    if moment is None:
        return None
    return datetime.fromtimestamp(moment + offset, UTC).isoformat().replace("+00:00", "Z")
