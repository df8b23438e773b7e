"""Does the drain rate hold while the ledger grows?

python -m benchmarks.growth --quick
"""

import argparse
import asyncio
from dataclasses import dataclass

from benchmarks.ours import Ours, subscribers, versions
from benchmarks.sampling import Samples, sample
from benchmarks.scenario import Document, Scenario, Size, spread, tell
from benchmarks.servers import Servers, running_servers

SUBSCRIBERS = 200
WARM_SHARE = 0.2
"""Of what is drained, the part that passes before the clock starts."""
CHUNK = 500_000
FINISHED = """
WITH made AS (
    INSERT INTO fanout_eu.delivery (version_no, shipment_no, version, destination_id, state, eligible_at, aged_from, leased_at,
                                    finished_at, dispatch, attempts, budget_used)
    SELECT 1000000000 + n / $3, 1000000000 + n / $3, 1, 1 + n % $3, 'delivered', now() - interval '1 day', now() - interval '1 day',
           now() - interval '1 day', now() - interval '1 day', 1, 1, 1
    FROM generate_series($1::bigint, $2::bigint - 1) AS n RETURNING id
)
INSERT INTO fanout_eu.attempt (delivery_id, n, token, outcome, status, started_at, duration_ms, config_version, worker, address)
SELECT id, 1, 1, 'delivered', 200, now() - interval '1 day', 12, 1, 'consumer-eu-host-1-abcd', '127.0.0.1:9000' FROM made
"""
COUNTED = "UPDATE fanout_eu.destination SET delivered = delivered + $1"


@dataclass(slots=True)
class Ledger:
    """One of the sizes that are compared, in a database of its own."""

    name: str
    waiting: int
    ours: Ours
    published: int = 0

    async def fill_up(self) -> None:
        """So many wait again."""
        missing = self.waiting - int(await self.ours.open())
        count = -(-missing // SUBSCRIBERS)
        if count > 0:
            await self.ours.backlog(versions(count, name=f"G{self.published}"))
            self.published += count


async def finish(servers: Servers, ours: Ours, rows: int) -> None:
    """So many deliveries that ended yesterday, each with its attempt."""
    await ours.watch.execute("SET synchronous_commit = off")
    for first in range(0, rows, CHUNK):
        last = min(rows, first + CHUNK)
        await ours.watch.execute(FINISHED, first, last, SUBSCRIBERS, timeout=600)
        tell(f"{last:,} finished rows")
    await ours.watch.execute(COUNTED, rows // SUBSCRIBERS)
    await servers.settle_down(ours.url)


def steady_rate(samples: Samples, count: int) -> float:
    """Without the first part of ``count``."""
    start = samples.counter[0][1]
    first = next(point for point in samples.counter if point[1] - start >= count * WARM_SHARE)
    last = samples.counter[-1]
    return (last[1] - first[1]) / (last[0] - first[0])


async def drain_some(servers: Servers, ledger: Ledger, count: int) -> float:
    """The rate at which the first ``count`` of what waits are delivered."""
    await ledger.fill_up()
    ours = ledger.ours
    watching = asyncio.create_task(sample(servers.accounts(), ours.settled, count))
    roles = [ours.start("scheduler", "eu"), ours.start("consumer", "eu")]
    samples = await watching
    for role in roles:
        await ours.end(role)
    return steady_rate(samples, count)


async def measure(chosen: argparse.Namespace) -> Document:
    sizes = [int(each) for each in chosen.waiting.split(",")]
    runs = []
    async with running_servers(broker=chosen.transport == "rabbitmq") as servers:

        async def make(name: str, waiting: int) -> Ledger:
            entries = subscribers(SUBSCRIBERS, servers.receiver.url)
            ours = await Ours.build(servers, f"growth_{name}", chosen.transport, entries)
            return Ledger(name, waiting, ours)

        ledgers = [await make(f"w{size}", size) for size in sizes]
        aged = await make("aged", sizes[0])
        await finish(servers, aged.ours, chosen.finished)
        aged_says = f"{sizes[0]:,} waiting, {chosen.finished:,} finished"
        for turn in range(chosen.repeats):
            for ledger in [*ledgers, aged]:
                rate = await drain_some(servers, ledger, min(chosen.drained, ledger.waiting))
                says = aged_says if ledger is aged else f"{ledger.waiting:,} waiting"
                runs.append({"ledger": says, "turn": turn, "rate": rate})
                tell(f"{says}: {rate:,.0f}/s")
        for ledger in [*ledgers, aged]:
            await ledger.ours.close()
    return {"transport": chosen.transport, "drained": chosen.drained, "runs": runs}


def table(document: Document) -> str:
    by_ledger: dict[str, list[float]] = {}
    for run in document["runs"]:
        by_ledger.setdefault(run["ledger"], []).append(run["rate"])
    smallest = next(iter(by_ledger.values()))
    lines = ["| ledger | deliveries per s | of the first, turn by turn | runs |", "|---|---|---|---|"]
    for name, rates in by_ledger.items():
        parts = [rate / base for rate, base in zip(rates, smallest, strict=True)]
        lines.append(f"| {name} | {spread(rates)} | {spread(parts, 2)} | {len(rates)} |")
    return "\n".join(lines)


SCENARIO = Scenario(
    "growth",
    "Growth",
    "The drain rate of one consumer from ledgers of different sizes, side by side in one PostgreSQL, taking turns. Each turn fills up "
    "what the last took, drains the same number and leaves out the first fifth. Finished rows were written by SQL: a delivery and an "
    "attempt each.",
    {
        "transport": Size("rabbitmq", "rabbitmq", "rabbitmq or ledger"),
        "waiting": Size("5000,20000", "10000,100000,1000000", "how many wait"),
        "finished": Size(200_000, 10_000_000, "finished deliveries in the last ledger"),
        "drained": Size(5_000, 20_000, "deliveries in each turn"),
        "repeats": Size(1, 5, "turns"),
    },
    measure,
    table,
)

if __name__ == "__main__":
    SCENARIO.main()
