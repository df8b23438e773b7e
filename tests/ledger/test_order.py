"""The order of versions: what may go, what waits, what is superseded; by example, and for any order of events."""

import random
from dataclasses import replace

import pytest

from fanout.ledger import registry
from fanout.ledger.registry import TooManyOpen
from fanout.ledger.registry_reading import spec_of
from fanout.model.states import Ordering, Outcome, State
from services.region import result

pytestmark = pytest.mark.timeout(120)


async def states(region, shipment_id="s-1"):
    """Version → state, or the reason where it is dead."""
    rows = await region.rows(
        "SELECT y.version, y.state, y.reason FROM {schema}.delivery y JOIN {schema}.version v USING (version_no) "
        "WHERE v.shipment_id = $1 ORDER BY y.version",
        shipment_id,
    )
    return {row["version"]: row["reason"] or row["state"] for row in rows}


async def lease_versions(region):
    """Promote and claim what may go now: version → lease."""
    leases = await region.claim(await region.promote())
    return {
        await region.value("SELECT version FROM {schema}.delivery WHERE id = $1", lease.delivery_id): lease
        for lease in leases
    }


def failed(lease, delay_seconds=0.0):
    return result(lease, Outcome.FAILED, state=State.WAITING, delay_seconds=delay_seconds)


async def come(region, *numbers, shipment_id="s-1", delay_seconds=0.0):
    await region.arrive(*(region.announcement(shipment_id, n, delay_seconds=delay_seconds) for n in numbers))


async def make_due(region):
    await region.execute("UPDATE {schema}.delivery SET eligible_at = clock_timestamp() WHERE state = 'waiting'")
    await region.execute("UPDATE {schema}.destination SET wake_at = clock_timestamp()")


class TestPerShipment:
    async def test_one_version_after_the_other_and_other_shipments_beside_it(self, region):
        await region.subscriber("a", ordering="per_shipment", concurrency=8)
        await come(region, 1, 2, 3)
        await come(region, 1, shipment_id="s-2")
        leases = await region.claim(await region.promote())
        assert len(leases) == 2
        assert await states(region) == {1: "leased", 2: "waiting", 3: "waiting"}
        assert await states(region, "s-2") == {1: "leased"}
        await region.settle(*(result(lease) for lease in leases))
        for version in (2, 3):
            leases = await lease_versions(region)
            assert list(leases) == [version]
            await region.settle(result(leases[version]))
        assert await states(region) == {1: "delivered", 2: "delivered", 3: "delivered"}

    async def test_a_retry_keeps_the_others_waiting_and_a_final_failure_lets_them_go(self, region):
        await region.subscriber("a", ordering="per_shipment")
        await come(region, 1, 2)
        leases = await lease_versions(region)
        await region.settle(failed(leases[1], delay_seconds=60))
        assert await lease_versions(region) == {}
        await make_due(region)
        leases = await lease_versions(region)
        assert list(leases) == [1]
        await region.settle(result(leases[1], Outcome.REJECTED, state=State.DEAD, reason="rejected"))
        assert list(await lease_versions(region)) == [2]

    async def test_a_lower_version_that_comes_before_the_higher_was_ever_leased_goes_first(self, region):
        await region.subscriber("a", ordering="per_shipment")
        await come(region, 3)
        references = await region.promote()
        await come(region, 2)
        assert await region.claim(references) == [], "what was queued has given way"
        leases = await lease_versions(region)
        assert list(leases) == [2]
        await region.settle(result(leases[2]))
        assert list(await lease_versions(region)) == [3]

    @pytest.mark.parametrize("ordering", ["per_shipment", "latest"])
    async def test_a_lower_version_comes_too_late_once_a_higher_one_was_leased(self, region, ordering):
        await region.subscriber("a", ordering=ordering)
        await come(region, 2)
        leases = await lease_versions(region)
        await come(region, 1)
        assert await states(region) == {1: "superseded", 2: "leased"}
        await region.settle(failed(leases[2]))
        await come(region, 0)
        assert await states(region) == {0: "superseded", 1: "superseded", 2: "waiting"}
        await region.settle(result((await lease_versions(region))[2]))
        assert await states(region) == {0: "superseded", 1: "superseded", 2: "delivered"}

    async def test_a_version_that_is_not_due_is_waited_for(self, region):
        await region.subscriber("a", ordering="per_shipment")
        await come(region, 1, delay_seconds=3600)
        await come(region, 2)
        assert await lease_versions(region) == {}
        await make_due(region)
        assert list(await lease_versions(region)) == [1]

    async def test_the_cost_of_a_settlement_does_not_grow_with_those_that_wait_behind(self, region):
        """Counted in rows that are read, not in time."""
        await region.subscriber("a", ordering="per_shipment")
        await come(region, *range(1, 2_001))

        async def rows_read():
            await region.connection.execute("SELECT pg_stat_clear_snapshot()")
            await region.value("SELECT pg_stat_force_next_flush()")
            return await region.value(
                "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables "
                "WHERE schemaname = $1 AND relname = 'delivery'",
                region.schema.name,
            )

        leases = await lease_versions(region)
        assert list(leases) == [1]
        async with region.connection.transaction():
            before = await rows_read()
            await region.settle(failed(leases[1]))
            assert await rows_read() - before < 50


class TestLatest:
    async def test_the_newest_that_is_due_supersedes_those_that_wait(self, region):
        await region.subscriber("a", ordering="latest")
        await come(region, 1)
        await come(region, 2, 3)
        assert await states(region) == {1: "superseded", 2: "superseded", 3: "waiting"}
        assert list(await lease_versions(region)) == [3]

    async def test_it_does_so_when_it_becomes_due_and_not_before(self, region):
        await region.subscriber("a", ordering="latest")
        await come(region, 1)
        leases = await lease_versions(region)
        await come(region, 2, delay_seconds=3600)
        await region.settle(failed(leases[1], delay_seconds=1800))
        assert await states(region) == {1: "waiting", 2: "waiting"}
        await region.execute("UPDATE {schema}.delivery SET eligible_at = clock_timestamp() WHERE version = 2")
        await region.execute("UPDATE {schema}.destination SET wake_at = clock_timestamp()")
        leases = await lease_versions(region)
        assert list(leases) == [2]
        assert await states(region) == {1: "superseded", 2: "leased"}

    @pytest.mark.parametrize(
        ("outcome", "becomes"),
        [(None, "superseded"), (Outcome.THROTTLED, "superseded"), (Outcome.DELIVERED, "delivered")],
    )
    async def test_what_is_being_sent_is_not_cut_and_ends_there(self, region, outcome, becomes):
        await region.subscriber("a", ordering="latest")
        await come(region, 1)
        leases = await lease_versions(region)
        await come(region, 2)
        assert await states(region) == {1: "leased", 2: "waiting"}
        assert await lease_versions(region) == {}, "one of a shipment at a time"
        if outcome is None:
            settlement = failed(leases[1])
        elif outcome is Outcome.THROTTLED:
            settlement = result(leases[1], outcome, state=State.WAITING, counts=False, hold_seconds=1.0)
        else:
            settlement = result(leases[1])
        await region.settle(settlement)
        assert await states(region) == {1: becomes, 2: "waiting"}
        await region.execute("UPDATE {schema}.destination SET hold_until = NULL, wake_at = clock_timestamp()")
        assert list(await lease_versions(region)) == [2]

    async def test_what_may_not_go_yet_does_not_stand_before_others(self, region):
        """All permits but one are free; the front of the line are versions whose predecessors are being sent."""
        await region.subscriber("a", ordering="latest", concurrency=4)
        for n in range(3):
            await come(region, 1, shipment_id=f"s-{n}")
        first = await region.claim(await region.promote())
        assert len(first) == 3
        for n in range(3):
            await come(region, 2, shipment_id=f"s-{n}")
        await come(region, 1, shipment_id="other")
        [lease] = await region.claim(await region.promote())
        assert await states(region, "other") == {1: "leased"}
        await region.settle(*(result(each) for each in [*first, lease]))
        assert len(await region.claim(await region.promote())) == 3


async def change(region, ordering):
    """As a save does."""
    await region.rows(
        "SELECT * FROM {schema}.change_settings('a', jsonb_build_object('ordering', $1::text), 'someone')", ordering
    )


class TestAnotherOrdering:
    async def test_what_is_open_is_arranged_at_once(self, region):
        await region.subscriber("a", concurrency=2)
        await come(region, 1, 2, 3)
        references = await region.promote()
        assert len(references) == 3
        [one, two] = await region.claim(references[:2])
        await change(region, "per_shipment")
        assert await region.claim(references[2:]) == []
        await region.settle(result(two))
        assert await region.claim(await region.promote()) == [], "version 1 is still being sent"
        await region.settle(result(one))
        assert list(await lease_versions(region)) == [3]

    async def test_the_newest_alone_stays_under_latest_and_all_may_go_under_any(self, region):
        await region.subscriber("a")
        await come(region, 1, 2, 3)
        await change(region, "per_shipment")
        assert len(await region.promote()) == 1
        await change(region, "any")
        assert len(await region.promote()) == 2
        await change(region, "latest")
        assert await states(region) == {1: "superseded", 2: "superseded", 3: "queued"}

    async def test_too_much_open_is_refused_and_nothing_is_changed(self, region):
        number = await region.subscriber("a")
        await region.execute("UPDATE {schema}.destination SET waiting = 10001 WHERE id = $1", number)
        before = await region.destination(number)
        spec = replace((await spec_of(region.connection, region.schema, "eu", "a"))[0], ordering=Ordering.LATEST)
        with pytest.raises(TooManyOpen, match="a: the ordering cannot change while more than 10,000"):
            await registry.save(region.connection, region.schema, "a", spec, by="someone")
        assert await region.destination(number) == before
        await region.execute("UPDATE {schema}.destination SET waiting = 0 WHERE id = $1", number)


class AnyOrder:
    """Versions of three shipments come in any order, results are of any kind, references are lost; every claim is judged."""

    SHIPMENTS = ("s-1", "s-2", "s-3")

    def __init__(self, region, ordering, seed) -> None:
        self.region, self.ordering, self.chance = region, ordering, random.Random(seed)
        self.to_come = [(shipment, version) for shipment in self.SHIPMENTS for version in range(8)]
        self.chance.shuffle(self.to_come)
        self.references, self.under_way = [], []
        self.delivered = {shipment: [] for shipment in self.SHIPMENTS}
        self.leased = {shipment: [] for shipment in self.SHIPMENTS}

    async def run(self) -> None:
        steps = [self.come, self.promote, self.claim, self.settle, self.lose]
        for _ in range(400):
            await self.region.execute("UPDATE {schema}.destination SET hold_until = NULL WHERE hold_until IS NOT NULL")
            [step] = self.chance.choices(steps, weights=[20, 30, 25, 20, 5])
            await step()
            if not self.to_come and not self.under_way and not self.references:
                await make_due(self.region)
                await self.promote()
                if not self.references:
                    return

    async def come(self) -> None:
        count = self.chance.randint(1, 3)
        coming, self.to_come = self.to_come[:count], self.to_come[count:]
        for shipment in self.SHIPMENTS:
            if versions := [version for each, version in coming if each == shipment]:
                await come(self.region, *versions, shipment_id=shipment)

    async def promote(self) -> None:
        self.references += await self.region.promote()

    async def claim(self) -> None:
        self.chance.shuffle(self.references)
        taken, self.references = self.references[:2], self.references[2:]
        for lease in await self.region.claim(taken):
            self.under_way.append(lease)
            shipment, version, alive = await self.chain_of(lease)
            assert list(alive.values()).count("leased") == 1, "at most one of a shipment"
            assert version == (min(alive) if self.ordering == "per_shipment" else max(alive))
            assert version >= max(self.leased[shipment], default=-1), "never below what was leased before"
            self.leased[shipment].append(version)

    async def settle(self) -> None:
        if self.under_way:
            lease = self.under_way.pop(self.chance.randrange(len(self.under_way)))
            shipment, version, _ = await self.chain_of(lease)
            kind = self.chance.random()
            if kind < 0.5:
                self.delivered[shipment].append(version)
                await self.region.settle(result(lease))
            elif kind < 0.8:
                await self.region.settle(failed(lease))
            else:
                await self.region.settle(result(lease, Outcome.REJECTED, state=State.DEAD, reason="rejected"))

    async def lose(self) -> None:
        if self.references:
            lost = self.references.pop()
            await self.region.rows("SELECT {schema}.give_back($1, $2)", [lost.delivery_id], [lost.dispatch])

    async def chain_of(self, lease):
        """Shipment and version of a lease, and every open version of the shipment with its state."""
        rows = await self.region.rows(
            "SELECT v.shipment_id, v.version, y.state, y.id FROM {schema}.delivery y JOIN {schema}.version v USING (version_no) "
            "WHERE y.shipment_no = (SELECT shipment_no FROM {schema}.delivery WHERE id = $1)",
            lease.delivery_id,
        )
        [own] = [row for row in rows if row["id"] == lease.delivery_id]
        alive = {row["version"]: row["state"] for row in rows if row["state"] in ("waiting", "queued", "leased")}
        return own["shipment_id"], own["version"], alive


@pytest.mark.parametrize("ordering", ["per_shipment", "latest"])
@pytest.mark.parametrize("seed", range(4))
async def test_for_any_order_of_events(region, ordering, seed):
    await region.subscriber("a", ordering=ordering, concurrency=3)
    events = AnyOrder(region, ordering, seed)
    await events.run()
    assert await region.value("SELECT sum(waiting + queued + in_flight) FROM {schema}.destination") == 0, (
        "nothing is stuck"
    )
    for versions in events.delivered.values():
        assert versions == sorted(versions)
    assert any(events.delivered.values())
