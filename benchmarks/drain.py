"""Drain rate of one consumer process, and the CPU of the whole system per 1,000 deliveries.

    python -m benchmarks.drain --only ours-rabbitmq,ours-ledger --deliveries 20000 --repeats 3 [--json]

The backlog is complete and on disk before the clock starts. Then the consumer starts (ours: scheduler and consumer), and
the time runs from the first delivery that is done to the last. Contestants take turns, so that a busy minute of the
machine meets all of them.
"""

import argparse
import asyncio
import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from benchmarks.accounts import Accounts
from benchmarks.ours import Ours, subscribers, versions
from benchmarks.peers import PEERS, PeerDrain
from benchmarks.sampling import Point, middle_rate, per_second, sample, span_of_growth
from benchmarks.scenario import Document, Scenario, Size, spread, tell
from benchmarks.servers import Servers, running_servers

SUBSCRIBERS = 200
CONCURRENCY = 50
"""What the limit of each was tuned to, for a receiver that stands as much: the peers know no limit at all."""
RECEIVER = "receiver"
OURS_HOW = "everything on: signatures, attempts recorded, metrics scraped, 1 % traced"
OURS_DURABILITY = "PostgreSQL, fsync on; nothing"


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
    uses: tuple[str, ...]
    """The servers that take part: what the others do at rest is not its CPU."""

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

    def __init__(self, transport: str, consumers: int = 1) -> None:
        self.name = f"ours-{transport}"
        self.uses = ("postgresql", "rabbitmq") if transport == "rabbitmq" else ("postgresql",)
        self._transport = transport
        self._consumers = consumers

    async def prepare(self, servers: Servers, deliveries: int) -> int:
        entries = subscribers(SUBSCRIBERS, servers.receiver.url, concurrency=CONCURRENCY)
        self._ours = await Ours.build(servers, f"drain_{self._transport}", self._transport, entries)
        return await self._ours.backlog(versions(deliveries // SUBSCRIBERS))

    async def start(self, accounts: Accounts) -> None:
        accounts.add("scheduler", self._ours.start("scheduler", "eu").pid)
        for _ in range(self._consumers):
            accounts.add("consumer", self._ours.start("consumer", "eu").pid)

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
        accounts = servers.accounts(contestant.uses)
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
            tell(f"{peer.name} is skipped: its server is not installed")
            continue
        able[peer.name] = functools.partial(PeerDrain, peer, program)
    return able


async def measure(chosen: argparse.Namespace) -> Document:
    names = chosen.only.split(",")
    if unknown := set(names) - set(CONTESTANTS):
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(CONTESTANTS)}")
    runs = []
    async with running_servers(redis=any(peer.needs_redis for peer in PEERS if peer.name in names)) as servers:
        able = await contestants(names, servers)
        for _ in range(chosen.repeats):
            for name, make in able.items():
                runs.append(await drain(make(), servers, chosen.deliveries if name in OURS else chosen.peer_deliveries))
                tell(shown(runs[-1]))
    return {"runs": [asdict(run) for run in runs]}


def shown(one: Drain) -> str:
    parts = ", ".join(f"{group} {used:.2f}" for group, used in sorted(one.cpu_ms.items()))
    return (
        f"{one.contestant}: {one.deliveries:,} in {one.seconds:.1f} s = {one.rate:,.0f}/s, middle {one.middle_rate:,.0f}/s, "
        f"CPU s per 1,000: {one.cpu_ms_in_all:.2f} ({parts}); others used {one.others_share:.2f} cores\n"
        f"  per second: {' '.join(map(str, one.per_second))}"
    )


def table(document: Document) -> str:
    says = {peer.name: (peer.shown, peer.how, peer.durability) for peer in PEERS}
    says |= {name: (f"**ours**, {name.removeprefix('ours-')}", OURS_HOW, OURS_DURABILITY) for name in OURS}
    lines = [
        "| one consumer process | deliveries per s | median second | CPU s per 1,000 | of that the consumer | runs | how | kept in; a crash of the machine loses |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(run["contestant"] for run in document["runs"]):
        runs = [run for run in document["runs"] if run["contestant"] == name]
        shown_as, how, durability = says[name]
        lines.append(
            f"| {shown_as} | {spread([run['rate'] for run in runs])} | {spread([run['middle_rate'] for run in runs])} "
            f"| {spread([run['cpu_ms_in_all'] for run in runs], 2)} | {spread([run['cpu_ms']['consumer'] for run in runs], 2)} | {len(runs)} of {runs[0]['deliveries']:,} | {how} | {durability} |"
        )
    return "\n".join(lines)


SCENARIO = Scenario(
    "drain",
    "Drain rate of one consumer process, and CPU of the whole system",
    "The same messages to the same receiver, from a backlog that is complete and on disk before the clock starts, to the last that is "
    "done. CPU: user and system time of consumer, scheduler, PostgreSQL, RabbitMQ and Redis; the receiver's is left out. One thread cannot "
    "do more than 1,000 divided by the consumer's CPU seconds, however quiet the machine.",
    {
        "only": Size(",".join(CONTESTANTS), ",".join(CONTESTANTS), f"some of {', '.join(CONTESTANTS)}"),
        "deliveries": Size(10_000, 100_000, "ours"),
        "peer_deliveries": Size(3_000, 10_000, "theirs: some seconds of an even rate"),
        "repeats": Size(1, 3, "turns"),
    },
    measure,
    table,
)

if __name__ == "__main__":
    SCENARIO.main()
