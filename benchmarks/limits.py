"""Are limits kept while consumers are killed, and is what a limit allows used?

python -m benchmarks.limits --quick
"""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from benchmarks.ours import Ours, subscribers, versions
from benchmarks.sampling import sample
from benchmarks.scenario import Document, Scenario, Size, spread, tell
from benchmarks.servers import Servers, running_servers
from fanout.demo.receivers import LocalReceiver, local_receivers

DESTINATIONS = 20
LIMIT_MAX = 8
CONSUMERS, KILLED = 4, 2
DELAY_SECONDS = 0.02
PATIENCE_SECONDS = 120
"""Longer than the lease of a killed consumer."""
BUSY_LIMIT = 8


@asynccontextmanager
async def fresh_receiver() -> AsyncIterator[LocalReceiver]:
    """One that has counted nothing yet."""
    async with local_receivers(["one"]) as receivers:
        yield receivers["one"]


def limited(url: str) -> list[dict[str, Any]]:
    return [each | {"concurrency": 1 + n % LIMIT_MAX} for n, each in enumerate(subscribers(DESTINATIONS, url))]


async def kept(servers: Servers, receiver: LocalReceiver, transport: str, deliveries: int) -> Document:
    """Four consumers, two of which are killed and replaced when a third is done."""
    await receiver.use([{"delay_seconds": DELAY_SECONDS}])
    entries = limited(receiver.url)
    ours = await Ours.build(servers, "limits", transport, entries)
    try:
        count = await ours.backlog(versions(deliveries // DESTINATIONS))
        ours.start("scheduler", "eu")
        consumers = [ours.start("consumer", "eu") for _ in range(CONSUMERS)]
        await sample(servers.accounts(), ours.settled, count / 3, PATIENCE_SECONDS)
        for consumer in consumers[:KILLED]:
            consumer.kill()
            await ours.end(consumer)
            ours.start("consumer", "eu")
        await sample(servers.accounts(), ours.settled, count - await ours.settled(), PATIENCE_SECONDS)
        seen = (await receiver.seen())["subscribers"]
        status = await ours.status()
        return {
            "deliveries": count,
            "limits": [entry["concurrency"] for entry in entries],
            "peaks": [seen[entry["subscriber_id"]]["peak_in_flight"] for entry in entries],
            "duplicates": sum(each["duplicates"] for each in seen.values()),
            "delivered_keys": sum(each["delivered_keys"] for each in seen.values()),
            "balanced": status["balanced"],
        }
    finally:
        await ours.close()


async def busy(servers: Servers, receiver: LocalReceiver, transport: str, delay: float, seconds: float) -> Document:
    """One destination with more waiting than it may get: the part of its places that is in use, by the receiver's clock."""
    await receiver.use([{"delay_seconds": delay}])
    ours = await Ours.build(servers, "busy", transport, subscribers(1, receiver.url, concurrency=BUSY_LIMIT))
    try:
        count = await ours.backlog(versions(round(seconds * BUSY_LIMIT / delay)))
        ours.start("scheduler", "eu")
        ours.start("consumer", "eu")
        await sample(servers.accounts(), ours.settled, count)
        (seen,) = (await receiver.seen())["subscribers"].values()
        first, last = (datetime.fromisoformat(seen[name]) for name in ("first_arrival", "last_arrival"))
        lasted = (last - first).total_seconds() + delay
        return {"delay": delay, "count": count, "busy": seen["requests"] * delay / (BUSY_LIMIT * lasted)}
    finally:
        await ours.close()


async def measure(chosen: argparse.Namespace) -> Document:
    runs, shares = [], []
    async with running_servers(broker=chosen.transport == "rabbitmq") as servers:
        for _ in range(chosen.repeats):
            for delay in chosen.delays.split(","):
                async with fresh_receiver() as receiver:
                    shares.append(await busy(servers, receiver, chosen.transport, float(delay), chosen.seconds))
                tell(f"answers after {delay} s: {shares[-1]['busy']:.0%} busy")
            async with fresh_receiver() as receiver:
                runs.append(await kept(servers, receiver, chosen.transport, chosen.deliveries))
            tell(f"limits {runs[-1]['limits']}, peaks {runs[-1]['peaks']}, duplicates {runs[-1]['duplicates']}")
    return {"transport": chosen.transport, "runs": runs, "busy": shares}


def table(document: Document) -> str:
    over = sum(
        peak > limit for run in document["runs"] for peak, limit in zip(run["peaks"], run["limits"], strict=True)
    )
    full = sum(
        peak == limit for run in document["runs"] for peak, limit in zip(run["peaks"], run["limits"], strict=True)
    )
    watched = sum(len(run["limits"]) for run in document["runs"])
    lines = [
        f"| limits of {watched} destinations, by the receiver's count | |",
        "|---|---|",
        f"| exceeded | {over} |",
        f"| reached | {full} |",
        f"| deliveries in all, each delivered at least once | {sum(run['deliveries'] for run in document['runs']):,} |",
        f"| delivered a second time (answered, and not yet settled, when their consumer was killed) | {sum(run['duplicates'] for run in document['runs'])} |",
        f"| books balanced | {'yes' if all(run['balanced'] for run in document['runs']) else '**no**'} |",
    ]
    for delay in dict.fromkeys(each["delay"] for each in document["busy"]):
        shares = [each["busy"] * 100 for each in document["busy"] if each["delay"] == delay]
        lines.append(
            f"| a destination of limit 8 that answers after {delay * 1000:g} ms: its places in use | {spread(shares)} % |"
        )
    return "\n".join(lines)


SCENARIO = Scenario(
    "limits",
    "Limits",
    "20 destinations with limits from 1 to 8 and four consumers; when a third is done two consumers are killed (SIGKILL) and two new ones "
    "started. The receiver counts what is open at once. Then one destination that has more waiting than it may get: how much of "
    "its limit is in use, by the receiver's clock.",
    {
        "transport": Size("rabbitmq", "rabbitmq", "rabbitmq or ledger"),
        "deliveries": Size(2_000, 20_000, "in each turn"),
        "delays": Size("0.05", "0.02,0.05,0.2", "seconds after which the busy destination answers"),
        "seconds": Size(5.0, 15.0, "of work for the busy destination"),
        "repeats": Size(1, 3, "turns"),
    },
    measure,
    table,
)

if __name__ == "__main__":
    SCENARIO.main()
