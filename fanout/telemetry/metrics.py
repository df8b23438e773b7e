"""Figures for Prometheus: one table of all there are, counted where the work is done and read when somebody asks.

No figure has a subscriber, a key or a URL as a label: their number has no bound.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Figure:
    """What a figure counts. A counter's name ends in ``_total`` when it is written."""

    kind: Literal["counter", "gauge"]
    labels: tuple[str, ...]
    says: str


FIGURES: dict[str, Figure] = {
    # Asked of the databases, by the api.
    "fanout_up": Figure("gauge", ("service",), "1 where the database answered in time, else 0."),
    "fanout_oldest_due_age_seconds": Figure(
        "gauge",
        ("region",),
        "How long the longest-due delivery has waited; held and paused destinations count.",
    ),
    "fanout_oldest_ready_age_seconds": Figure(
        "gauge",
        ("region",),
        "How long something has been due that could go and does not; held, paused and full destinations do not count. "
        "Page on it, and on the outbox age.",
    ),
    "fanout_deliveries": Figure(
        "gauge", ("region", "state"), "Deliveries by state; a redrive makes dead ones waiting."
    ),
    "fanout_deliveries_accepted": Figure("counter", ("region",), "Deliveries that expansion created."),
    "fanout_held_destinations": Figure("gauge", ("region",), "Destinations to which nothing is sent for a while."),
    "fanout_unknown_attempts": Figure("counter", ("region",), "Attempts that were maybe delivered."),
    "fanout_late_results": Figure("counter", ("region",), "Results that came after their lease and changed nothing."),
    "fanout_outbox_pending": Figure(
        "gauge", ("region",), "Versions that home has accepted and the region has not expanded."
    ),
    "fanout_outbox_oldest_age_seconds": Figure("gauge", ("region",), "How long the oldest of those has been there."),
    "fanout_queue_age_seconds": Figure("gauge", ("region",), "How long the oldest reference has been in the queue."),
    # Counted by consumers.
    "fanout_attempts": Figure("counter", ("region", "outcome"), "Attempts of this process by outcome."),
    "fanout_claims": Figure("counter", ("region",), "Leases that this process was given."),
    "fanout_settlements": Figure("counter", ("region",), "Attempts that this process settled."),
    "fanout_settled_late": Figure("counter", ("region",), "Settlements of this process that came after their lease."),
    "fanout_released": Figure("counter", ("region",), "Leases that this process gave back unsent."),
    "fanout_in_flight_peak": Figure("gauge", ("region",), "The most requests that this process had open at once."),
    # Counted by schedulers.
    "fanout_promotions": Figure("counter", ("region",), "Deliveries that this process queued."),
    "fanout_leases_expired": Figure("counter", ("region",), "Leases that this process found expired."),
    "fanout_references_lost": Figure(
        "counter", ("region",), "Queued deliveries that nobody claimed, put back to waiting."
    ),
    "fanout_closed_out": Figure("counter", ("region",), "Deliveries ended because their destination is closed."),
    "fanout_wakeups_missed": Figure(
        "counter", ("region",), "Destinations with work and no wake-up. Never more than 0."
    ),
    "fanout_counters_drifted": Figure("counter", ("region",), "Counters that disagreed with rows. Never more than 0."),
    # Of a role's connection to its broker, where there is one; a ``service`` is a scheduler or a consumer.
    "fanout_broker_up": Figure("gauge", ("region", "service"), "1 while the role is connected to its queue, else 0."),
    "fanout_broker_blocked": Figure(
        "gauge", ("region", "service"), "1 while the broker takes nothing: its memory or disk alarm is on."
    ),
    "fanout_broker_reconnections": Figure("counter", ("region", "service"), "How often the connection was lost."),
    "fanout_malformed_messages": Figure(
        "counter", ("region",), "Messages that were none of ours, put into the dead-letter queue with the reason."
    ),
    # Counted by every role that traces.
    "fanout_spans_exported": Figure("counter", (), "Spans that the collector took."),
    "fanout_spans_dropped": Figure(
        "counter", (), "Spans that the collector did not take, or that had no room to wait for it."
    ),
    # Counted by the api.
    "fanout_http_responses": Figure("counter", ("status",), "Answers of the API by status."),
    "fanout_published": Figure("counter", ("verdict",), "Versions that were put: accepted, duplicate or conflict."),
}

Value = float | Mapping[str, float]
"""One number, or several by the value of the figure's last label."""
Read = Callable[[], Value | None]
Counted = TypeVar("Counted")


class Sent(Protocol):
    """What a consumer counts."""

    @property
    def outcomes(self) -> Mapping[str, int]: ...
    @property
    def claims(self) -> int: ...
    @property
    def settlements(self) -> int: ...
    @property
    def late(self) -> int: ...
    @property
    def released(self) -> int: ...
    @property
    def in_flight_peak(self) -> int: ...


class Promoted(Protocol):
    """What a scheduler counts."""

    @property
    def promoted(self) -> int: ...
    @property
    def expired(self) -> int: ...
    @property
    def lost(self) -> int: ...
    @property
    def closed_out(self) -> int: ...
    @property
    def missed(self) -> int: ...
    @property
    def drifted(self) -> int: ...


class Connected(Protocol):
    """How a role stands with its broker."""

    @property
    def is_up(self) -> bool: ...
    @property
    def is_blocked(self) -> bool: ...
    @property
    def reconnections(self) -> int: ...


class Exported(Protocol):
    """What the export of spans counts."""

    @property
    def exported(self) -> int: ...
    @property
    def dropped(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """A figure at this moment, for these values of its first labels."""

    name: str
    value: Value
    labels: tuple[str, ...] = ()


class Figures:
    """The figures of one process: roles say once where each is read, and every scrape reads."""

    def __init__(self) -> None:
        self._sources: list[tuple[str, tuple[str, ...], Read]] = []

    def add(self, name: str, read: Read, *labels: str) -> None:
        """``read`` is called at each scrape and gives None while there is nothing yet. ``labels``: the first ones, by place."""
        assert name in FIGURES, f"{name} is not in the table of figures"
        self._sources.append((name, labels, read))

    def add_consumer(self, region: str, read: Callable[[], Sent | None]) -> None:
        figures: dict[str, Callable[[Sent], Value]] = {
            "fanout_attempts": lambda sent: dict(sent.outcomes),
            "fanout_claims": lambda sent: sent.claims,
            "fanout_settlements": lambda sent: sent.settlements,
            "fanout_settled_late": lambda sent: sent.late,
            "fanout_released": lambda sent: sent.released,
            "fanout_in_flight_peak": lambda sent: sent.in_flight_peak,
        }
        for name, part in figures.items():
            self.add(name, _part_of(read, part), region)

    def add_scheduler(self, region: str, read: Callable[[], Promoted | None]) -> None:
        figures: dict[str, Callable[[Promoted], Value]] = {
            "fanout_promotions": lambda done: done.promoted,
            "fanout_leases_expired": lambda done: done.expired,
            "fanout_references_lost": lambda done: done.lost,
            "fanout_closed_out": lambda done: done.closed_out,
            "fanout_wakeups_missed": lambda done: done.missed,
            "fanout_counters_drifted": lambda done: done.drifted,
        }
        for name, part in figures.items():
            self.add(name, _part_of(read, part), region)

    def add_queue(self, region: str, service: str, read: Callable[[], Connected | None]) -> None:
        figures: dict[str, Callable[[Connected], Value]] = {
            "fanout_broker_up": lambda now: now.is_up,
            "fanout_broker_blocked": lambda now: now.is_blocked,
            "fanout_broker_reconnections": lambda now: now.reconnections,
        }
        for name, part in figures.items():
            self.add(name, _part_of(read, part), region, service)

    def add_exporting(self, spans: Exported) -> None:
        self.add("fanout_spans_exported", lambda: spans.exported)
        self.add("fanout_spans_dropped", lambda: spans.dropped)

    def read(self) -> list[Reading]:
        readings = ((name, labels, read()) for name, labels, read in self._sources)
        return [Reading(name, value, labels) for name, labels, value in readings if value is not None]


def _part_of(read: Callable[[], Counted | None], part: Callable[[Counted], Value]) -> Read:
    def read_part() -> Value | None:
        whole = read()
        return None if whole is None else part(whole)

    return read_part


def exposition(readings: Iterable[Reading]) -> bytes:
    """The text that Prometheus reads, with what the operating system says of this process (memory, descriptors, time)."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Readings(readings))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Readings(Collector):
    def __init__(self, readings: Iterable[Reading]) -> None:
        self._readings = list(readings)

    def collect(self) -> Iterable[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for reading in self._readings:
            if (family := families.get(reading.name)) is None:
                family = families[reading.name] = _family(reading.name)
            if isinstance(reading.value, Mapping):
                for last, value in sorted(reading.value.items()):
                    family.add_metric([*reading.labels, last], value)
            else:
                family.add_metric(reading.labels, reading.value)
        return families.values()


def _family(name: str) -> CounterMetricFamily | GaugeMetricFamily:
    figure = FIGURES[name]
    kind = CounterMetricFamily if figure.kind == "counter" else GaugeMetricFamily
    return kind(name, figure.says, labels=figure.labels)
