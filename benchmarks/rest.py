"""What it costs when nothing happens.

python -m benchmarks.rest --quick
"""

import argparse
import asyncio
import time

from benchmarks.accounts import pss_bytes
from benchmarks.ours import Ours, subscribers
from benchmarks.scenario import Document, Scenario, Size, tell
from benchmarks.servers import Servers, running_servers

ROLES = (("api",), ("publisher",), ("scheduler", "eu"), ("consumer", "eu"))
COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
QUIET_SECONDS = 3.0
MEBIBYTE = 1024 * 1024


async def rest(servers: Servers, transport: str, count: int, seconds: float) -> Document:
    """Every role running, so many subscribers, and nothing to do."""
    ours = await Ours.build(servers, f"rest_{transport}", transport, subscribers(count, servers.receiver.url))
    try:
        accounts = servers.accounts(("postgresql", transport))
        roles = {role[0]: ours.start(*role) for role in ROLES}
        for name, role in roles.items():
            accounts.add(name, role.pid)
        await ours.warm()
        await asyncio.sleep(QUIET_SECONDS)
        before, commits, started = accounts.cpu(), await ours.watch.fetchval(COMMITS), time.monotonic()
        await asyncio.sleep(seconds)
        after, lasted = accounts.cpu(), time.monotonic() - started
        commits = await ours.watch.fetchval(COMMITS) - commits
        return {
            "transport": transport,
            "seconds": lasted,
            "core_share": {group: (after[group] - before[group]) / lasted for group in after},
            "commits_per_second": commits / lasted,
            "memory_mib": {name: pss_bytes(role.pid) / MEBIBYTE for name, role in roles.items()},
        }
    finally:
        await ours.close()


async def measure(chosen: argparse.Namespace) -> Document:
    runs = []
    async with running_servers() as servers:
        for transport in ("rabbitmq", "ledger") if servers.broker else ("ledger",):
            runs.append(await rest(servers, transport, chosen.subscribers, chosen.seconds))
            tell(f"{transport}: {sum(runs[-1]['core_share'].values()):.2%} of a core")
    return {"subscribers": chosen.subscribers, "runs": runs}


def table(document: Document) -> str:
    lines = []
    groups = ("api", "publisher", "scheduler", "consumer", "postgresql", "rabbitmq")
    lines.append(
        f"| {document['subscribers']:,} subscribers, nothing to do | {' | '.join(groups)} | all | transactions per s |"
    )
    lines.append("|---" * (len(groups) + 3) + "|")
    for run in document["runs"]:
        shares = [run["core_share"].get(group) for group in groups]
        cells = ["" if share is None else f"{share:.2%}" for share in shares]
        whole = sum(share for share in shares if share is not None)
        lines.append(
            f"| {run['transport']}: part of one core | {' | '.join(cells)} | {whole:.2%} | {run['commits_per_second']:.1f} |"
        )
        memory = [run["memory_mib"].get(group) for group in groups]
        cells = ["" if size is None else f"{size:.0f}" for size in memory]
        lines.append(
            f"| {run['transport']}: memory, MiB | {' | '.join(cells)} | {sum(run['memory_mib'].values()):.0f} | |"
        )
    return "\n".join(lines)


SCENARIO = Scenario(
    "rest",
    "At rest",
    "Every role a process, metrics scraped every five seconds, and nothing to do. Memory is the proportional share of each process (pages "
    "that several share are divided among them); transactions include those of the scrapes.",
    {"subscribers": Size(200, 200, "registered"), "seconds": Size(10.0, 60.0, "of rest")},
    measure,
    table,
)

if __name__ == "__main__":
    SCENARIO.main()
