"""What a subscriber asks for: where, which versions, how fast, in which order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fanout.model.documents import Form, check_object, json_kind
from fanout.model.endpoint import Endpoint, Network, parse_endpoint
from fanout.model.labels import LABELS_MAX, check_label_text
from fanout.model.own_headers import MASK, check_headers
from fanout.model.patterns import check_pattern
from fanout.model.problems import Invalid, Problem
from fanout.model.signing_secret import Secret
from fanout.model.states import Ordering

CONCURRENCY_MAX = 100
"""A fifth of what one consumer sends at once by default: one subscriber that hangs leaves room for the others."""
RATE_PER_SECOND_MIN = 0.00001
"""About once a day. What is slower is better served by pausing, and its next slot would lie years ahead."""
RATE_PER_SECOND_MAX = 10_000
TIMEOUT_SECONDS_MAX = 300
EVENT_TYPES_MAX = 100
LABEL_VALUES_MAX = 256
SECRETS_MAX = 5
RETRY_STATUS_MIN, RETRY_STATUS_MAX = 400, 599

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class SubscriberRules:
    """What this deployment allows: its regions with the private networks each may reach, and the defaults of limits."""

    allow_networks: Mapping[str, tuple[Network, ...]]
    """By region; its keys are the regions there are."""
    concurrency: int = 4
    timeout_seconds: float = 15


@dataclass(frozen=True, slots=True)
class SubscriberSpec:
    """A subscriber as it was asked for, checked. ``repr`` shows no secret, no header value and no query value."""

    region: str
    endpoint: Endpoint
    event_types: tuple[str, ...]
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    concurrency: int = 4
    rate_per_second: float | None = None
    ordering: Ordering = Ordering.ANY
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[Secret, ...] | None = None
    """Newest first. ``None``: keep those that are there, or make one for a new subscriber."""
    timeout_seconds: float = 15
    retry_statuses: tuple[int, ...] | None = None
    """Statuses that are retried instead of the usual ones; ``None`` for the usual ones."""

    def listing(self) -> dict[str, object]:
        """The fields as JSON for anyone who may read: no secrets, and header values masked.

        The endpoint is whole, so that what was read can be written back. Logs take ``endpoint.redacted()``.
        """
        return self._document() | {"headers": dict.fromkeys(self.headers, MASK)}

    def _document(self) -> dict[str, object]:
        """The body that would be read back as this very spec, but for its secrets."""
        return {
            "region": self.region,
            "endpoint": self.endpoint.url,
            "event_types": list(self.event_types),
            "labels": {name: list(values) for name, values in self.labels.items()},
            "concurrency": self.concurrency,
            "rate_per_second": self.rate_per_second,
            "ordering": self.ordering.value,
            "headers": dict(self.headers),
            "timeout_seconds": self.timeout_seconds,
            "retry_statuses": None if self.retry_statuses is None else list(self.retry_statuses),
        }

    def patched(self, patch: Mapping[str, object], rules: SubscriberRules) -> "SubscriberSpec":
        """Apply an RFC 7396 merge patch and check the whole. ``null`` takes a field back to its default.

        Secrets that the patch does not name are kept. A changed region is left to the caller, for whom it is a conflict.
        """
        patched = parse_subscriber(check_object("body", merge_patch(self._document(), patch)), rules)
        return patched if patched.secrets is not None else replace(patched, secrets=self.secrets)


def parse_subscriber(document: Mapping[str, object], rules: SubscriberRules, *, at: str = "") -> SubscriberSpec:
    """Read the body of ``PUT /v1/subscribers/{id}``. Raises ``Invalid`` with every problem; ``at`` goes before each field."""
    form = Form(document, at=at)
    region = form.required("region", lambda name, value: _check_region(name, value, rules))
    # Where the region is wrong, the endpoint is only refused if it would be wrong in every region.
    everywhere = [network for networks in rules.allow_networks.values() for network in networks]
    networks = rules.allow_networks[region] if region else everywhere
    spec = SubscriberSpec(
        region=region,
        endpoint=form.required("endpoint", lambda name, value: parse_endpoint(name, value, networks)),
        event_types=form.required("event_types", _check_event_types),
        labels=form.optional("labels", _check_filter, dict[str, tuple[str, ...]]()),
        concurrency=form.optional("concurrency", _whole(1, CONCURRENCY_MAX), rules.concurrency),
        rate_per_second=form.optional("rate_per_second", _number(RATE_PER_SECOND_MIN, RATE_PER_SECOND_MAX), None),
        ordering=form.optional("ordering", _check_ordering, Ordering.ANY),
        headers=form.optional("headers", check_headers, dict[str, str]()),
        secrets=form.optional("secrets", _check_secrets, None),
        timeout_seconds=form.optional("timeout_seconds", _number(1, TIMEOUT_SECONDS_MAX), rules.timeout_seconds),
        retry_statuses=form.optional("retry_statuses", _check_statuses, None),
    )
    form.finish()
    return spec


def merge_patch(target: object, patch: object) -> object:
    """Apply an RFC 7396 merge patch; neither argument is changed."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _check_region(name: str, value: object, rules: SubscriberRules) -> str:
    if not isinstance(value, str) or value not in rules.allow_networks:
        why = f"there is no region {value[:40]!a}" if isinstance(value, str) else f"is {json_kind(value)}"
        raise Invalid.field(name, why, f"the regions are {', '.join(rules.allow_networks)}")
    return value


def _check_ordering(name: str, value: object) -> Ordering:
    if not isinstance(value, str) or value not in list(Ordering):
        raise Invalid.field(name, "is not an ordering", f"write one of {', '.join(Ordering)}")
    return Ordering(value)


def _check_event_types(name: str, value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_items(name, value, check_pattern, EVENT_TYPES_MAX)))


def _check_filter(name: str, value: object) -> dict[str, tuple[str, ...]]:
    given = check_object(name, value)
    if len(given) > LABELS_MAX:
        raise Invalid.field(name, f"there are {len(given)} labels", f"write at most {LABELS_MAX}")
    form = Form(given, at=f"{name}.")
    for label in given:
        form.attempt(lambda label=label: check_label_text(f"{name} (a name)", label))  # type: ignore[misc]  # a closure per round
    wanted = {label: form.required(label, _check_label_values) for label in given}
    form.finish()
    return wanted


def _check_label_values(name: str, value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_items(name, value, check_label_text, LABEL_VALUES_MAX)))


def _check_secrets(name: str, value: object) -> tuple[Secret, ...]:
    secrets = _items(name, value, Secret.parse, SECRETS_MAX)
    if len(set(secrets)) != len(secrets):
        raise Invalid.field(name, "one secret stands there twice", "write each once, the newest first")
    return tuple(secrets)


def _check_statuses(name: str, value: object) -> tuple[int, ...]:
    """An empty list is an answer: nothing is retried for its status."""
    count_max = RETRY_STATUS_MAX - RETRY_STATUS_MIN + 1
    return tuple(sorted(set(_items(name, value, _whole(RETRY_STATUS_MIN, RETRY_STATUS_MAX), count_max, count_min=0))))


def _items(
    name: str, value: object, check: Callable[[str, object], Item], count_max: int, *, count_min: int = 1
) -> list[Item]:
    if not isinstance(value, list | tuple):
        raise Invalid.field(name, f"is {json_kind(value)}", "write a list")
    if not count_min <= len(value) <= count_max:
        raise Invalid.field(name, f"there are {len(value)}", f"write {count_min} to {count_max}")
    items: list[Item] = []
    problems: list[Problem] = []
    for position, item in enumerate(value):
        try:
            items.append(check(f"{name}[{position}]", item))
        except Invalid as error:
            problems.extend(error.problems)
    if problems:
        raise Invalid(*problems)
    return items


def _whole(low: int, high: int) -> Callable[[str, object], int]:
    def check(name: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise Invalid.field(name, "is not a whole number in range", f"write a whole number from {low} to {high}")
        return value

    return check


def _number(low: float, high: float) -> Callable[[str, object], float]:
    def check(name: str, value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise Invalid.field(name, f"is {json_kind(value)}", f"write a number from {low} to {high}")
        if not low <= value <= high:
            raise Invalid.field(name, "is out of range", f"write a number from {low} to {high}")
        return value

    return check
