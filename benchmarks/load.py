"""An even load from outside, and how long each delivery took from its acceptance to its first byte at the receiver."""

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import asyncpg

from benchmarks.ours import Ours
from benchmarks.servers import Nginx
from fanout.database.schema import Schema
from fanout.database.wakeups import Bell
from fanout.home.publishing import publish
from fanout.ledger import channels
from fanout.model.shipment import ShipmentVersion

CONNECTIONS = 4
ACCEPTED = "SELECT shipment_id, extract(epoch FROM v.accepted_at)::float8 FROM fanout.version v JOIN fanout.shipment USING (shipment_no)"


async def publish_steadily(ours: Ours, news: Iterator[ShipmentVersion], per_second: float, seconds: float) -> int:
    """Versions at random moments, so many per second on average, each in a transaction of its own, whatever becomes of
    those before; how many.
    """
    bell = Bell(ours.url, "fanout benchmark", channels.outbox(Schema("fanout")))
    chance = random.Random(11)
    loop = asyncio.get_running_loop()
    async with (
        asyncpg.create_pool(ours.url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool,
        asyncio.TaskGroup() as group,
    ):

        async def one(version: ShipmentVersion) -> None:
            async with pool.acquire() as connection:
                await publish(connection, version)
            bell.ring()

        published, due = 0, loop.time()
        ends = due + seconds
        while (due := due + chance.expovariate(per_second)) < ends:
            await asyncio.sleep(max(0.0, due - loop.time()))
            group.create_task(one(next(news)))
            published += 1
    await bell.close()
    return published


@dataclass(frozen=True, slots=True)
class Latencies:
    """In milliseconds, of ``count`` deliveries."""

    count: int
    p50: float
    p99: float
    worst: float


async def latencies(ours: Ours, receiver: Nginx, counts: Callable[[str, str], bool]) -> Latencies:
    """From acceptance to the first byte at the receiver, of the deliveries that count (by shipment and subscriber)."""
    accepted = {row[0]: row[1] for row in await ours.watch.fetch(ACCEPTED)}
    waits = []
    for key, arrived in receiver.arrivals().items():
        _, shipment, _, subscriber, *_ = key.split(":")
        if counts(shipment, subscriber):
            waits.append((arrived - accepted[shipment]) * 1000)
    waits.sort()
    if not waits:
        raise RuntimeError("nothing arrived")
    return Latencies(len(waits), waits[len(waits) // 2], waits[len(waits) * 99 // 100], waits[-1])
