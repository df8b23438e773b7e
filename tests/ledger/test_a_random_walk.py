"""Whatever happens to a ledger, and in whatever order: limits hold, the books add up, and what is due is never left asleep.

The walk moves the clock by moving every time in the ledger back. FANOUT_TEST_WALK_STEPS makes it longer, FANOUT_TEST_WALK_SEEDS wider.
"""

import os
import random
from collections import Counter

import pytest

from fanout.ledger import registry
from fanout.ledger.promotion import wake_missed
from fanout.ledger.settlement import Settlement
from fanout.ledger.sweeping import close_out, expired_leases, give_back, requeue_lost
from fanout.ledger.turn import settle_and_claim
from fanout.model.states import Outcome, Reason, State
from services.region import Region, released, result

STEPS = int(os.environ.get("FANOUT_TEST_WALK_STEPS", "300"))
SEEDS = int(os.environ.get("FANOUT_TEST_WALK_SEEDS", "3"))
DRAIN_STEPS_MAX = 2_000
NAMES = [f"a-{n}" for n in range(6)]

pytestmark = pytest.mark.timeout(60 + STEPS)

ASLEEP = """
SELECT d.* FROM {schema}.destination d
WHERE d.paused_at IS NULL AND d.disabled_at IS NULL AND d.in_flight + d.queued = 0
  AND EXISTS (SELECT FROM {schema}.delivery y
              WHERE y.destination_id = d.id AND y.state = 'waiting' AND NOT y.blocked AND y.eligible_at <= clock_timestamp())
  AND coalesce(d.wake_at, 'infinity') > {schema}.gate_opens_at(d.hold_until, d.rate_next_at, clock_timestamp())
"""
TIMES = """
SELECT c.table_name, string_agg(format('%1$I = %1$I - make_interval(secs => $1)', c.column_name), ', ') AS changes
FROM information_schema.columns c
WHERE c.table_schema = $1 AND c.table_name IN ('destination', 'delivery') AND c.data_type = 'timestamp with time zone'
GROUP BY c.table_name
"""


class Walk:
    """A ledger, what its queue holds, and the leases that somebody has."""

    def __init__(self, region: Region, seed: int) -> None:
        self.region = region
        self.chance = random.Random(seed)
        self.queue = []
        self.leases = []
        self.versions = Counter()
        self.subscribers: dict[str, int] = {}
        self.steps = {
            self.arrive: 6,
            self.promote: 10,
            self.turn: 20,
            self.time_passes: 5,
            self.tune: 2,
            self.pause: 1,
            self.disable: 1,
            self.lose: 2,
            self.refuse: 1,
            self.sweep: 3,
        }

    async def begin(self) -> None:
        for name in NAMES:
            self.subscribers[name] = await self.region.subscriber(
                name,
                concurrency=self.chance.randint(1, 4),
                ordering=self.chance.choice(["any", "per_shipment", "latest"]),
                rate_per_second=self.chance.choice([None, None, 2.0]),
            )

    async def step(self) -> None:
        (step,) = self.chance.choices(list(self.steps), list(self.steps.values()))
        await step()

    async def arrive(self) -> None:
        shipment = f"s-{self.chance.randrange(8)}"
        self.versions[shipment] += 1
        late = self.chance.choice([0.0, 0.0, 5.0])
        news = self.region.announcement(shipment, self.versions[shipment], delay_seconds=late)
        await self.region.arrive(news)

    async def promote(self) -> None:
        self.queue += await self.region.promote(most=self.chance.choice([1, 64]), probes=self.chance.choice([1, 50]))

    async def turn(self, *, well: bool = False) -> None:
        self.chance.shuffle(self.queue)
        self.chance.shuffle(self.leases)
        ended, self.leases = self.leases[:8], self.leases[8:]
        settlements = [result(lease) if well else self.outcome(lease) for lease in ended]
        asked = {each.delivery_id: each for each in self.queue[:8]}
        self.queue = self.queue[8:] + [each for each in asked.values() if self.chance.random() < 0.1]  # given out twice
        _, leases = await settle_and_claim(
            self.region.connection,
            self.region.schema,
            settlements,
            list(asked.values()),
            "w",
            self.chance.random(),
            15.0,
        )
        self.leases += leases
        for lease in leases:
            row = await self.region.destination(lease.destination_id)
            assert row["in_flight"] <= row["concurrency"], "more leases than the limit"

    def outcome(self, lease):
        match self.chance.choice(
            ["delivered"] * 6 + ["throttled", "failed", "failed", "unknown", "rejected", "gone", "released"]
        ):
            case "delivered":
                return result(lease)
            case "throttled":
                return result(lease, Outcome.THROTTLED, hold_seconds=self.chance.choice([None, 3.0]))
            case "failed":
                return result(lease, Outcome.FAILED, delay_seconds=self.chance.choice([0.0, 20.0]))
            case "unknown":
                return result(lease, Outcome.UNKNOWN, delay_seconds=5.0)
            case "rejected":
                return result(lease, Outcome.REJECTED, state=State.DEAD, reason=Reason.REJECTED)
            case "gone" if self.chance.random() < 0.2:
                return result(lease, Outcome.GONE, state=State.DEAD, reason=Reason.GONE)
        return released(lease)

    async def time_passes(self, seconds: float | None = None) -> None:
        seconds = seconds if seconds is not None else self.chance.choice([0.5, 2.0, 10.0, 60.0])
        async with self.region.connection.transaction():
            for table, changes in await self.region.rows(TIMES, self.region.schema.name):
                await self.region.execute(f"UPDATE {{schema}}.{table} SET {changes}", seconds)

    async def tune(self) -> None:
        await registry.tune(
            self.region.connection,
            self.region.schema,
            self.chance.choice(NAMES),
            concurrency=self.chance.randint(1, 5),
            rate_per_second=self.chance.choice([None, 1.0, 5.0]),
            by="walk",
        )

    async def pause(self) -> None:
        operate = self.chance.choice([registry.pause, registry.resume, registry.resume])
        await operate(self.region.connection, self.region.schema, self.chance.choice(NAMES), by="walk", why="a test")

    async def disable(self) -> None:
        operate = self.chance.choice([registry.disable, registry.enable, registry.enable, registry.enable])
        await operate(self.region.connection, self.region.schema, self.chance.choice(NAMES), by="walk", why="a test")

    async def lose(self) -> None:
        """A part of the queue, and of the leases: their worker is not heard of again."""
        self.queue = [each for each in self.queue if self.chance.random() < 0.7]
        self.leases = [each for each in self.leases if self.chance.random() < 0.9]

    async def refuse(self) -> None:
        """The broker takes some references back."""
        self.chance.shuffle(self.queue)
        back, self.queue = self.queue[:3], self.queue[3:]
        await give_back(self.region.connection, self.region.schema, back)

    async def sweep(self) -> None:
        connection, schema = self.region.connection, self.region.schema
        expired = await expired_leases(connection, schema, 100)
        lease_of = ("delivery_id", "token", "destination_id", "attempt")
        ends = [
            Settlement(
                **{name: getattr(each, name) for name in lease_of},
                outcome=Outcome.UNKNOWN,
                state=State.WAITING,
                delay_seconds=1.0,
                expired=True,
            )
            for each in expired
        ]
        await self.region.settle(*ends)
        await requeue_lost(connection, schema, 15.0, 100)
        await close_out(connection, schema, self.chance.choice([1, 100]))

    async def check(self) -> None:
        assert await self.region.drift() == []
        assert await self.region.rows(ASLEEP) == [], "due, nothing on its way, and nobody is woken in time"
        assert await wake_missed(self.region.connection, self.region.schema) == 0, "the floor has nothing to do"

    async def drain(self) -> None:
        """Everybody answers well from now on: everything ends."""
        for name in NAMES:
            for operate in (registry.resume, registry.enable):
                await operate(self.region.connection, self.region.schema, name, by="walk")
        for _ in range(DRAIN_STEPS_MAX):
            if not await self.region.value("SELECT sum(waiting + queued + in_flight) FROM {schema}.destination"):
                return
            await self.time_passes(1.0)
            await self.sweep()
            self.queue += await self.region.promote()
            await self.turn(well=True)
        raise AssertionError(f"not over: {await self.region.rows('SELECT * FROM {schema}.destination')}")


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_nothing_is_exceeded_lost_or_left_asleep(region, seed):
    walk = Walk(region, seed)
    await walk.begin()
    for _ in range(STEPS):
        await walk.step()
        await walk.check()
    await walk.drain()
    await walk.check()
    created = await region.value("SELECT sum(created) FROM {schema}.expansion")
    over = await region.value("SELECT sum(delivered + dead) FROM {schema}.destination")
    assert created == over > 0
