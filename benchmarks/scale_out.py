"""What a second consumer process adds.

python -m benchmarks.scale_out --quick
"""

import argparse
import os
from dataclasses import asdict

from benchmarks.drain import OursDrain, drain, shown
from benchmarks.scenario import Document, Scenario, Size, spread, tell
from benchmarks.servers import running_servers


async def measure(chosen: argparse.Namespace) -> Document:
    counts = [int(each) for each in chosen.consumers.split(",")]
    runs = []
    async with running_servers(broker=chosen.transport == "rabbitmq") as servers:
        for _ in range(chosen.repeats):
            for consumers in counts:
                run = await drain(OursDrain(chosen.transport, consumers), servers, chosen.deliveries)
                runs.append({"consumers": consumers} | asdict(run))
                tell(f"{consumers} consumers, {shown(run)}")
    return {"transport": chosen.transport, "cores": os.cpu_count(), "runs": runs}


def table(document: Document) -> str:
    lines = [
        f"| consumers, on a machine of {document['cores']} cores | deliveries per s | CPU s per 1,000 | cores busy, all in all | runs |",
        "|---|---|---|---|---|",
    ]
    for consumers in dict.fromkeys(run["consumers"] for run in document["runs"]):
        runs = [run for run in document["runs"] if run["consumers"] == consumers]
        busy = [sum(run["cpu_ms"].values()) * run["rate"] / 1000 + run["others_share"] for run in runs]
        lines.append(
            f"| {consumers} | {spread([run['rate'] for run in runs])} | {spread([run['cpu_ms_in_all'] for run in runs], 2)} "
            f"| {spread(busy, 2)} | {len(runs)} of {runs[0]['deliveries']:,} |"
        )
    return "\n".join(lines)


SCENARIO = Scenario(
    "scale_out",
    "Scale-out",
    "The drain of above, by one consumer process and by two, with one scheduler. Everything is on one machine, receiver and measurement "
    "included: where its cores are busy already, a second process cannot add.",
    {
        "transport": Size("rabbitmq", "rabbitmq", "rabbitmq or ledger"),
        "consumers": Size("1,2", "1,2", "how many"),
        "deliveries": Size(10_000, 50_000, "in each turn"),
        "repeats": Size(1, 3, "turns"),
    },
    measure,
    table,
)

if __name__ == "__main__":
    SCENARIO.main()
