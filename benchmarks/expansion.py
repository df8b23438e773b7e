"""How fast committed versions become waiting deliveries, by fan-out, and what memory that takes.

python -m benchmarks.expansion --quick
"""

import argparse
from typing import Any

from benchmarks.accounts import peak_bytes, resident_bytes
from benchmarks.ours import REGION, Ours, versions
from benchmarks.sampling import sample, span_of_growth
from benchmarks.scenario import Document, Scenario, Size, spread, tell
from benchmarks.servers import Servers, running_servers

CREATED = "SELECT coalesce(sum(created), 0)::bigint FROM fanout_eu.expansion"
HUNDRED = 100
MEBIBYTE = 1024 * 1024


def crowd(count: int) -> list[dict[str, Any]]:
    """So many subscribers to ``wide.*``; the first hundred also to ``hundred.*``, the very first also to ``one.*``."""
    entries = []
    for n in range(count):
        wanted = ["wide.*"] + (["hundred.*"] if n < HUNDRED else []) + (["one.*"] if n == 0 else [])
        entries.append(
            {
                "subscriber_id": f"s-{n}",
                "region": REGION,
                "endpoint": f"http://127.0.0.1:9/s-{n}",
                "event_types": wanted,
            }
        )
    return entries


async def expand(servers: Servers, ours: Ours, event_type: str, count: int, fan_out: int, turn: int) -> Document:
    """So many versions that each go to ``fan_out`` subscribers, published before the publisher starts."""
    await ours.publish(versions(count, event_type=event_type, name=f"{event_type}-{turn}"))
    await servers.settle_down(ours.url)
    private = [0]

    async def created() -> float:
        private.append(resident_bytes(servers.postgres.pid))
        return float(await ours.watch.fetchval(CREATED))

    publisher = ours.start("publisher")
    samples = await sample(servers.accounts(), created, count * fan_out, 120)
    peak = peak_bytes(publisher.pid)
    await ours.end(publisher)
    points = span_of_growth(samples.counter)
    seconds = points[-1][0] - points[0][0]
    return {
        "fan_out": fan_out,
        "versions": count,
        "turn": turn,
        "deliveries_per_second": count * fan_out / seconds,
        "versions_per_second": count / seconds,
        "publisher_peak_mib": peak / MEBIBYTE,
        "postgresql_private_mib": max(private) / MEBIBYTE,
    }


async def measure(chosen: argparse.Namespace) -> Document:
    runs = []
    ways = (
        ("one.x", chosen.ones, 1),
        ("hundred.x", chosen.hundreds, HUNDRED),
        ("wide.x", chosen.wides, chosen.subscribers),
    )
    async with running_servers(broker=False) as servers:
        ours = await Ours.build(servers, "expansion", "ledger", crowd(chosen.subscribers))
        for turn in range(chosen.repeats):
            for event_type, count, fan_out in ways:
                run = await expand(servers, ours, event_type, count, fan_out, turn)
                runs.append(run)
                tell(
                    f"fan-out {fan_out:,}: {run['deliveries_per_second']:,.0f} deliveries/s, {run['versions_per_second']:,.1f} versions/s, "
                    f"publisher {run['publisher_peak_mib']:.0f} MiB"
                )
        await ours.close()
    return {"runs": runs}


def table(document: Document) -> str:
    lines = [
        "| fan-out | deliveries per s | versions per s | publisher's memory at most, MiB | PostgreSQL's own (not shared), MiB | runs |",
        "|---|---|---|---|---|---|",
    ]
    for fan_out in dict.fromkeys(run["fan_out"] for run in document["runs"]):
        runs = [run for run in document["runs"] if run["fan_out"] == fan_out]
        columns = [
            spread([run["deliveries_per_second"] for run in runs]),
            spread([run["versions_per_second"] for run in runs], 1),
            spread([run["publisher_peak_mib"] for run in runs]),
            spread([run["postgresql_private_mib"] for run in runs]),
        ]
        lines.append(f"| {fan_out:,} | {' | '.join(columns)} | {len(runs)} of {runs[0]['versions']:,} versions |")
    return "\n".join(lines)


SCENARIO = Scenario(
    "expansion",
    "Expansion",
    "Versions are published first; then the publisher starts, and the time runs from the first delivery that waits to the last. No "
    "consumer runs. All subscribers are there in each row of the table; the event type decides how many want a version.",
    {
        "subscribers": Size(10_000, 100_000, "subscribers, which is also the widest fan-out"),
        "ones": Size(1_000, 10_000, "versions for one subscriber"),
        "hundreds": Size(100, 1_000, "versions for a hundred subscribers"),
        "wides": Size(2, 3, "versions for all subscribers"),
        "repeats": Size(1, 3, "turns"),
    },
    measure,
    table,
)

if __name__ == "__main__":
    SCENARIO.main()
