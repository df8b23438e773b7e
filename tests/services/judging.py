"""Who judges a day: a witness beside the receiver that remembers every key, and the sum against what ought to have come."""

import time
from collections import Counter
from collections.abc import Collection, Mapping
from itertools import pairwise

from fanout.model.identity import delivery_key
from fanout.receiver import ReceiverServer
from fanout.receiver.server import Received
from services.region import Region

_MORE_THAN_DELIVERED = """
SELECT v.shipment_id, v.version, s.subscriber_id, a.outcome, a.expired, count(*) AS attempts
FROM {schema}.attempt a JOIN {schema}.delivery y ON y.id = a.delivery_id
JOIN {schema}.version v ON v.version_no = y.version_no JOIN {schema}.subscriber s ON s.id = y.destination_id
WHERE a.outcome <> 'delivered' GROUP BY 1, 2, 3, 4, 5
"""


class Witness:
    """Stands in for the receiver's own record: of each complete request the key and the moment, and nothing else."""

    def __init__(self, receiver: ReceiverServer) -> None:
        self.seen: Counter[str] = Counter()
        self.first_at: dict[str, float] = {}
        self.moments: list[float] = []
        self.receiver = receiver
        receiver.received = self  # type: ignore[assignment]  # append and clear is all that it calls
        receiver.record = True

    def append(self, received: Received) -> None:
        key = received.header("Idempotency-Key") or ""
        now = time.monotonic()
        self.seen[key] += 1
        self.first_at.setdefault(key, now)
        self.moments.append(now)

    def clear(self) -> None:
        self.seen.clear()
        self.first_at.clear()
        self.moments.clear()

    @property
    def twice(self) -> int:
        """Requests beyond the first of their key."""
        return self.seen.total() - len(self.seen)

    def after(self, moment: float) -> float | None:
        """Seconds from then to the next request."""
        return next((each - moment for each in self.moments if each > moment), None)

    def longest_silence(self, since: float, until: float) -> float:
        """Seconds without any request between two moments."""
        edges = [since, *(each for each in self.moments if since < each < until), until]
        return max(b - a for a, b in pairwise(edges))


class Verdict:
    """What the judge found."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.twice = 0
        self.unknown = 0

    def __str__(self) -> str:
        others = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items())) or "none"
        return f"{self.twice} requests with a key seen before; attempts other than delivered: {others}"


async def judge(
    witness: Witness,
    expected: Collection[str],
    limits: Mapping[str, int],
    regions: Collection[Region],
    books: Mapping[str, Mapping[str, int]],
) -> Verdict:
    """Nothing was lost, nothing came that nobody wanted, each second request is explained by an ``unknown`` attempt of that very
    key, no limit was exceeded, and the books agree. ``books``: of each region, as ``GET /v1/regions`` has them."""
    wanted = set(expected)
    assert set(witness.seen) - wanted == set(), "requests that nobody ought to have got"
    missing = wanted - set(witness.seen)
    assert not missing, f"{len(missing)} of {len(wanted)} never came, as {sorted(missing)[:3]}"
    for figure, sum_wanted in (("accepted", len(wanted)), ("delivered", len(wanted)), ("open", 0), ("dead", 0)):
        assert sum(book[figure] for book in books.values()) == sum_wanted, f"{figure}: {books}"

    verdict, unknown = Verdict(), Counter[str]()
    for region in regions:
        for row in await region.rows(_MORE_THAN_DELIVERED):
            how = f"{row['outcome']} (lease ended)" if row["expired"] else row["outcome"]
            verdict.outcomes[how] += row["attempts"]
            if row["outcome"] == "unknown":
                unknown[delivery_key(row["shipment_id"], row["subscriber_id"], row["version"])] += row["attempts"]
        assert await region.drift() == []
    verdict.unknown = unknown.total()
    verdict.twice = witness.twice
    again = {key: count - 1 for key, count in witness.seen.items() if count > 1}
    unexplained = {key: (count, unknown[key]) for key, count in again.items() if count > unknown[key]}
    assert not unexplained, f"seen again (times, unknown attempts): {dict(list(unexplained.items())[:5])}"

    stats = witness.receiver.stats
    assert stats.total("without_key") == stats.malformed == stats.in_flight == 0
    over = {
        name: (each.peak_in_flight, limits[name], sum(n for key, n in unknown.items() if f":subscriber:{name}:" in key))
        for name, each in stats.subscribers.items()
        if each.peak_in_flight > limits[name]
    }
    assert over == {}, f"more at once than the limit (peak, limit, unknown attempts): {over}"
    return verdict
