"""Accepted to first byte, at parts of capacity.

python -m benchmarks.latency --quick
"""

import argparse
from dataclasses import asdict

from benchmarks.load import latencies, publish_steadily
from benchmarks.ours import Ours, subscribers, versions
from benchmarks.sampling import middle_rate, sample, span_of_growth
from benchmarks.scenario import Document, Scenario, Size, spread, tell
from benchmarks.servers import Servers, running_servers, start_nginx

SUBSCRIBERS = 20
LOADS = (0.1, 0.5, 0.9)
DRAINED_SECONDS_MAX = 120


async def whole(servers: Servers, name: str, url: str, transport: str) -> Ours:
    """Publisher, scheduler and one consumer, each a process, running."""
    ours = await Ours.build(servers, name, transport, subscribers(SUBSCRIBERS, url, concurrency=16))
    for role in (("publisher",), ("scheduler", "eu"), ("consumer", "eu")):
        ours.start(*role)
    await ours.warm()
    return ours


async def capacity(servers: Servers, transport: str, deliveries: int) -> float:
    """Deliveries per second from publishing to the end, everything at once: all that is published at once, with the roles running."""
    ours = await whole(servers, "capacity", servers.receiver.url, transport)
    try:
        before = await ours.settled()
        count = SUBSCRIBERS * await ours.publish(versions(deliveries // SUBSCRIBERS))
        await sample(servers.accounts(), ours.settled, count - (await ours.settled() - before))
        return middle_rate(span_of_growth([point for point in await ours.series() if point[1] > before]))
    finally:
        await ours.close()


async def at_load(servers: Servers, transport: str, per_second: float, seconds: float) -> Document:
    """So many deliveries per second for so long; nothing else runs."""
    receiver = await start_nginx(servers.processes, servers.folder, noting=True)
    ours = await whole(servers, "latency", receiver.url, transport)
    try:
        news = versions(10**9, name="L")
        before = await ours.settled()
        published = await publish_steadily(ours, news, per_second / SUBSCRIBERS, seconds)
        count = published * SUBSCRIBERS
        await sample(servers.accounts(), ours.settled, before + count - await ours.settled(), DRAINED_SECONDS_MAX)
        found = await latencies(ours, receiver, lambda shipment, _: shipment.startswith("L-"))
        return {"per_second": count / seconds} | asdict(found)
    finally:
        await ours.close()
        await servers.processes.end(receiver.role)


async def measure(chosen: argparse.Namespace) -> Document:
    runs = []
    async with running_servers(broker=chosen.transport == "rabbitmq") as servers:
        most = await capacity(servers, chosen.transport, chosen.deliveries)
        tell(f"capacity of the whole way with one consumer: {most:,.0f} deliveries per second")
        for turn in range(chosen.repeats):
            for load in LOADS:
                run = await at_load(servers, chosen.transport, most * load, chosen.seconds)
                runs.append({"turn": turn, "load": load} | run)
                tell(
                    f"{load:.0%}: {run['per_second']:,.0f}/s, p50 {run['p50']:.0f} ms, p99 {run['p99']:.0f} ms, worst {run['worst']:.0f} ms"
                )
    return {"transport": chosen.transport, "capacity": most, "seconds": chosen.seconds, "runs": runs}


def table(document: Document) -> str:
    lines = [
        f"Capacity of the whole way, publisher to consumer, over {document['transport']}: {document['capacity']:,.0f} deliveries per second.",
        "",
        "| load | deliveries per s | p50 ms | p99 ms | worst ms | runs |",
        "|---|---|---|---|---|---|",
    ]
    for load in LOADS:
        runs = [run for run in document["runs"] if run["load"] == load]
        columns = [spread([run[name] for run in runs]) for name in ("per_second", "p50", "p99", "worst")]
        lines.append(f"| {load:.0%} | {' | '.join(columns)} | {len(runs)} of {document['seconds']:g} s |")
    return "\n".join(lines)


SCENARIO = Scenario(
    "latency",
    "Accepted to first byte",
    "Versions are published at random moments to 20 subscribers each, with publisher, scheduler and one consumer running; the time "
    "runs from the acceptance of a version (home's clock) to its first byte at the receiver. 100 % is what the whole way, publishing "
    "included, could do of a burst just before.",
    {
        "transport": Size("rabbitmq", "rabbitmq", "rabbitmq or ledger"),
        "deliveries": Size(10_000, 40_000, "of the burst that tells the capacity"),
        "seconds": Size(8.0, 30.0, "of each load"),
        "repeats": Size(1, 3, "turns"),
    },
    measure,
    table,
)

if __name__ == "__main__":
    SCENARIO.main()
