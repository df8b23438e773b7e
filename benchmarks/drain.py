"""Drain rate of one consumer process, and the CPU of the whole system per 1,000 deliveries.

    python -m benchmarks.drain --only ours-rabbitmq,ours-ledger --deliveries 20000 [--repeats 3] [--json]

The backlog is complete and on disk before the clock starts. Then the consumer starts (ours: scheduler and consumer), and
the time runs from the first delivery that is done to the last. Contestants take turns, so that a busy minute of the
machine meets all of them.
"""

import argparse
import asyncio
import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from benchmarks import command
from benchmarks.accounts import Accounts
from benchmarks.ours import Ours, subscribers, versions
from benchmarks.peers import PEERS, PeerDrain
from benchmarks.sampling import Point, middle_rate, per_second, sample, span_of_growth
from benchmarks.servers import Servers, running_servers
from services.roles import Role

SUBSCRIBERS = 200
RECEIVER = "receiver"


@dataclass(frozen=True, slots=True)
class Drain:
    """One run of one contestant."""

    contestant: str
    deliveries: int
    seconds: float
    """From the first that was done to the last."""
    rate: float
    middle_rate: float
    """The median second of the middle 80 %."""
    per_second: list[int]
    cpu_ms: dict[str, float]
    """Milliseconds of CPU per delivery, that is seconds per 1,000, of each group; the receiver apart."""
    cpu_ms_in_all: float
    """Without the receiver."""
    others_share: float
    """CPU that went to processes which have no part in this, in cores: how much the machine was disturbed."""


class Contestant(Protocol):
    """Something that can do the job. One object per run."""

    name: str

    async def prepare(self, servers: Servers, deliveries: int) -> int:
        """A backlog of so many, complete and durable; how many it became."""

    async def start(self, accounts: Accounts) -> None:
        """Its consumer and whatever else it needs, entered into the accounts."""

    async def done(self) -> float: ...

    async def series(self) -> Sequence[Point] | None:
        """What was done over time, where it keeps a record that is finer than looking."""

    async def close(self) -> None: ...


class OursDrain:
    """A scheduler and a consumer of ours, over either transport."""

    def __init__(self, transport: str) -> None:
        self.name = f"ours-{transport}"
        self._transport = transport
        self.consumer: Role | None = None

    async def prepare(self, servers: Servers, deliveries: int) -> int:
        entries = subscribers(SUBSCRIBERS, servers.receiver.url)
        self._ours = await Ours.build(servers, f"drain_{self._transport}", self._transport, entries)
        return await self._ours.backlog(versions(deliveries // SUBSCRIBERS))

    async def start(self, accounts: Accounts) -> None:
        accounts.add("scheduler", self._ours.start("scheduler", "eu").pid)
        self.consumer = self._ours.start("consumer", "eu")
        accounts.add("consumer", self.consumer.pid)

    async def done(self) -> float:
        return await self._ours.settled()

    async def series(self) -> Sequence[Point] | None:
        return await self._ours.series()

    async def close(self) -> None:
        await self._ours.close()


async def drain(contestant: Contestant, servers: Servers, deliveries: int) -> Drain:
    """One run: prepare, start, watch until everything is done."""
    try:
        count = await contestant.prepare(servers, deliveries)
        accounts = servers.accounts()
        watching = asyncio.create_task(sample(accounts, contestant.done, count))
        await contestant.start(accounts)
        samples = await watching
        points = span_of_growth(await contestant.series() or samples.counter)
    finally:
        await contestant.close()
    first, last = points[0][0], points[-1][0]
    spent = samples.cpu_between(first, last)
    seconds = last - first
    return Drain(
        contestant=contestant.name,
        deliveries=count,
        seconds=seconds,
        rate=count / seconds,
        middle_rate=middle_rate(points),
        per_second=[round(each) for each in per_second(points)],
        cpu_ms={group: used / count * 1000 for group, used in spent.items()},
        cpu_ms_in_all=sum(used for group, used in spent.items() if group != RECEIVER) / count * 1000,
        others_share=(samples.machine_between(first, last) - sum(spent.values())) / seconds,
    )


OURS = ("ours-rabbitmq", "ours-ledger")
CONTESTANTS = (*OURS, *(peer.name for peer in PEERS))


async def contestants(names: Sequence[str], servers: Servers) -> dict[str, Callable[[], Contestant]]:
    """Those that can run here; of the others a word is said."""
    able: dict[str, Callable[[], Contestant]] = {}
    for name in OURS:
        if name in names and (name != "ours-rabbitmq" or servers.broker):
            able[name] = functools.partial(OursDrain, name.removeprefix("ours-"))
    for peer in PEERS:
        if peer.name not in names or (program := await peer.command()) is None:
            continue
        if (peer.needs_broker and not servers.broker) or (peer.needs_redis and not servers.redis):
            command.tell(f"{peer.name} is skipped: its server is not installed")
            continue
        able[peer.name] = functools.partial(PeerDrain, peer, program)
    return able


async def measure(names: Sequence[str], deliveries: int, peer_deliveries: int, repeats: int) -> list[Drain]:
    drains = []
    async with running_servers(redis=any(peer.needs_redis for peer in PEERS if peer.name in names)) as servers:
        able = await contestants(names, servers)
        for _ in range(repeats):
            for name, make in able.items():
                drains.append(await drain(make(), servers, deliveries if name in OURS else peer_deliveries))
                command.tell(shown(drains[-1]))
    return drains


def shown(one: Drain) -> str:
    parts = ", ".join(f"{group} {used:.2f}" for group, used in sorted(one.cpu_ms.items()))
    return (
        f"{one.contestant}: {one.deliveries:,} in {one.seconds:.1f} s = {one.rate:,.0f}/s, middle {one.middle_rate:,.0f}/s, "
        f"CPU s per 1,000: {one.cpu_ms_in_all:.2f} ({parts}); others used {one.others_share:.2f} cores\n"
        f"  per second: {' '.join(map(str, one.per_second))}"
    )


def table(drains: Sequence[Drain]) -> str:
    lines = ["| | drain rate per s | median second | CPU s per 1,000 | runs |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(each.contestant for each in drains):
        runs = [each for each in drains if each.contestant == name]
        rates = sorted(each.rate for each in runs)
        lines.append(
            f"| {name} | {statistics.median(rates):,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f}) "
            f"| {statistics.median(each.middle_rate for each in runs):,.0f} "
            f"| {statistics.median(each.cpu_ms_in_all for each in runs):.2f} | {len(runs)} of {runs[0].deliveries:,} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CONTESTANTS), help=f"of {', '.join(CONTESTANTS)}")
    parser.add_argument("--deliveries", type=int, default=100_000)
    parser.add_argument(
        "--peer-deliveries", type=int, default=10_000, help="theirs: enough for some seconds of an even rate"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one document on stdout instead of the table")
    chosen = parser.parse_args()
    drains = asyncio.run(measure(chosen.only.split(","), chosen.deliveries, chosen.peer_deliveries, chosen.repeats))
    command.put(table(drains), [asdict(each) for each in drains], as_json=chosen.json)


if __name__ == "__main__":
    main()
