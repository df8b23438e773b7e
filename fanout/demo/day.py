"""What the demo publishes and to whom: a real day of air cargo, and 200 subscribers (see ``data/README.md``)."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice

from fanout.model.publish_line import parse_publish_line
from fanout.model.shipment import ShipmentVersion
from fanout.model.states import Ordering
from fanout.model.subscriber import SubscriberRules, SubscriberSpec
from fanout.model.subscribers_file import parse_subscribers_file

_DATA = files("fanout.demo") / "data"


@dataclass(frozen=True, slots=True)
class Cast:
    """The subscribers of one region."""

    specs: dict[str, SubscriberSpec]

    @property
    def limits(self) -> dict[str, int]:
        return {name: spec.concurrency for name, spec in self.specs.items()}

    @property
    def rates(self) -> dict[str, float]:
        """Of those that have one, per second."""
        return {name: spec.rate_per_second for name, spec in self.specs.items() if spec.rate_per_second is not None}

    @property
    def ordered(self) -> frozenset[str]:
        return frozenset(name for name, spec in self.specs.items() if spec.ordering is not Ordering.ANY)


def read_day(versions: int | None = None) -> list[ShipmentVersion]:
    """All versions of the day in the order of publishing, or the first so many of them."""
    with (_DATA / "air-cargo-day.jsonl.gz").open("rb") as packed, gzip.open(packed) as lines:
        return [parse_publish_line(line, number) for number, line in enumerate(islice(lines, versions), 1)]


def read_subscribers(
    rules: SubscriberRules, receivers: Mapping[str, str], timeouts: Mapping[str, float]
) -> dict[str, Cast]:
    """By region, the subscribers of the shipped file with their endpoints at the region's receiver (``receivers``: its URL).

    ``timeouts`` in seconds are for those subscribers that shall be waited for less than usual.
    """
    document = json.loads((_DATA / "subscribers.json").read_bytes())
    for entry in document["subscribers"]:
        name = entry["subscriber_id"]
        entry["endpoint"] = f"{receivers[entry['region']]}/{name}"
        if name in timeouts:
            entry["timeout_seconds"] = timeouts[name]
    casts = {region: Cast({}) for region in receivers}
    for name, spec in parse_subscribers_file(json.dumps(document).encode(), rules):
        casts[spec.region].specs[name] = spec
    return casts
