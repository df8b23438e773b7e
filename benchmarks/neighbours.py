"""Do others notice a subscriber that hangs, has a long backlog, or says 429?

python -m benchmarks.neighbours --quick
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.load import latencies, publish_steadily
from benchmarks.ours import Ours, subscribers, versions
from benchmarks.scenario import Document, Scenario, Size, spread, tell
from benchmarks.servers import Servers, running_servers, start_nginx
from fanout.demo.receivers import LocalReceiver, local_receivers

HEALTHY, OTHERS = 140, 60
ALONE, HANG, LONG, STORM = "alone", "beside 60 that hang", "beside one with a long backlog", "beside 60 that answer 429"
WAYS = (ALONE, HANG, LONG, STORM)
SCRIPTS: dict[str, list[dict[str, Any]]] = {
    HANG: [{"hang_seconds": 60}],
    STORM: [{"answer": 429, "retry_after": 2}],
    LONG: [{"delay_seconds": 0.05}],
}
BACKLOG_TYPE = "backlog.row"


def cast(way: str, healthy_url: str, other_url: str) -> list[dict[str, Any]]:
    """The healthy ones, and beside them the ones that are not."""
    entries = subscribers(HEALTHY, healthy_url)
    if way in (HANG, STORM):
        others = subscribers(OTHERS, other_url)
        entries += [
            each | {"subscriber_id": f"bad-{n}", "endpoint": f"{other_url}/bad-{n}"} for n, each in enumerate(others)
        ]
    if way == LONG:
        one = {"subscriber_id": "bad-0", "endpoint": f"{other_url}/bad-0", "event_types": [BACKLOG_TYPE]}
        entries.append(subscribers(1, other_url)[0] | one)
    return entries


async def beside(servers: Servers, way: str, other: LocalReceiver, chosen: argparse.Namespace) -> Document:
    """Latencies of the healthy ones, over the whole time."""
    await other.use(SCRIPTS.get(way, []))
    receiver = await start_nginx(servers.processes, servers.folder, noting=True)
    ours = await Ours.build(servers, "neighbours", chosen.transport, cast(way, receiver.url, other.url))
    try:
        if way == LONG:
            await ours.backlog(versions(chosen.backlog, event_type=BACKLOG_TYPE, name="backlog"))
        for role in (("publisher",), ("scheduler", "eu"), ("consumer", "eu")):
            ours.start(*role)
        await ours.first_delivered()
        news = versions(10**9, name="N", event_type="shipment.moved")
        await publish_steadily(ours, news, chosen.per_second / HEALTHY, chosen.seconds)
        await ours.settled_of("s-%")
        return asdict(
            await latencies(ours, receiver, lambda shipment, who: shipment.startswith("N-") and who.startswith("s-"))
        )
    finally:
        await ours.close()
        await servers.processes.end(receiver.role)


async def measure(chosen: argparse.Namespace) -> Document:
    runs = []
    async with (
        running_servers(broker=chosen.transport == "rabbitmq") as servers,
        local_receivers(["other"]) as receivers,
    ):
        for turn in range(chosen.repeats):
            for way in WAYS:
                run = await beside(servers, way, receivers["other"], chosen)
                runs.append({"way": way, "turn": turn} | run)
                tell(
                    f"{way}: p50 {run['p50']:.0f} ms, p99 {run['p99']:.0f} ms, worst {run['worst']:.0f} ms of {run['count']:,}"
                )
    sizes = {name: getattr(chosen, name) for name in ("transport", "per_second", "seconds", "backlog")}
    return sizes | {"runs": runs}


def table(document: Document) -> str:
    lines = ["| 140 healthy destinations | p50 ms | p99 ms | worst ms | runs |", "|---|---|---|---|---|"]
    for way in WAYS:
        runs: Sequence[Document] = [run for run in document["runs"] if run["way"] == way]
        says = f"{way} ({document['backlog']:,})" if way == LONG else way
        columns = [spread([run[name] for run in runs]) for name in ("p50", "p99", "worst")]
        lines.append(f"| {says} | {' | '.join(columns)} | {len(runs)} of {document['seconds']:g} s |")
    return "\n".join(lines)


SCENARIO = Scenario(
    "neighbours",
    "Neighbours",
    "140 healthy destinations get an even load; the time runs from the acceptance of a version to its first byte at each of them. Beside "
    "them: nobody; 60 that get the same versions and hang until the timeout of 15 s; one that has a backlog of its own and answers "
    "after 50 ms, four at a time; 60 that get the same versions and answer 429 with Retry-After: 2. One consumer process.",
    {
        "transport": Size("rabbitmq", "rabbitmq", "rabbitmq or ledger"),
        "per_second": Size(200.0, 200.0, "deliveries per second to the healthy ones"),
        "seconds": Size(10.0, 30.0, "of load"),
        "backlog": Size(5_000, 100_000, "deliveries that wait for the one"),
        "repeats": Size(1, 3, "turns"),
    },
    measure,
    table,
)

if __name__ == "__main__":
    SCENARIO.main()
