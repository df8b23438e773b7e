"""P1, P8: a version, a statement or a connection that goes wrong delays itself, and nothing else."""

import asyncio

import asyncpg
import pytest

from fanout.ledger.expansion import copy_versions
from fanout.model.problems import Invalid
from fanout.model.shipment import ShipmentVersion
from fanout.model.times import parse_time
from services.deployment import versions
from services.waiting import eventually


async def test_a_version_that_a_region_cannot_take_is_set_aside_and_the_others_go_through(deployment):
    await deployment.subscriber("a")
    await deployment.publish(*versions(20))
    await deployment.region.execute("UPDATE fanout.version SET eligible_at = 'infinity' WHERE version_no = 7")
    deployment.start()
    await deployment.delivered(19)
    [event] = await deployment.region.rows("SELECT kind, detail FROM {schema}.operator_event")
    assert event["kind"] == "version_set_aside"
    assert "version 1 of shipment s-" in event["detail"]
    assert await deployment.region.value("SELECT count(*) FROM fanout.outbox WHERE NOT done AND region = 'eu'") == 1
    await deployment.region.execute("UPDATE fanout.version SET eligible_at = NULL WHERE version_no = 7")
    await deployment.region.execute("UPDATE fanout.outbox SET taken_until = NULL WHERE version_no = 7")
    await deployment.delivered(20)


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59.9999999Z", "0001-01-01T00:00:00Z", "3000-01-01T00:00:00Z"])
def test_the_ends_of_calendars_are_no_times(time):
    with pytest.raises(Invalid, match="outside the years"):
        parse_time("Fanout-Eligible-At", time)


async def test_a_number_that_means_another_version_here_than_at_home_is_refused_with_both_names(deployment):
    """Home restored from a backup gives out numbers again that a region has seen."""
    from fanout.ledger.expansion import Copy

    region = deployment.region
    await region.arrive(region.announcement("before", 3))
    region._version_no = 0
    with pytest.raises(
        asyncpg.RaiseError, match="version 3 of shipment before here, and version 1 of shipment after at home"
    ):
        await copy_versions(
            region.connection, region.schema, [Copy(region.announcement("after", 1), forbidden=False, payload=b"x")]
        )


async def test_many_versions_of_one_shipment_are_taken_together_in_order(deployment):
    from fanout.home.outbox import take

    await deployment.publish(*(ShipmentVersion("one", n, "shipment.booked", b"x") for n in (3, 1, 2, 5, 4)))
    rows = await take(deployment.region.connection, deployment.region.home, "eu", 4, 30.0)
    assert sorted(row.announcement.version for row in rows) == [1, 2, 3, 4]
    assert await take(deployment.region.connection, deployment.region.home, "eu", 4, 30.0) == [], (
        "the rest waits behind them"
    )


async def test_a_consumer_survives_statements_that_are_cancelled_and_a_login_that_is_refused_for_a_while(deployment):
    await deployment.subscriber("a", concurrency=4)
    deployment.receiver.use([{"answer": 200, "delay_seconds": 0.05}])
    started = deployment.start()
    await deployment.publish(*versions(60))
    for _ in range(30):
        await deployment.region.value(
            "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name LIKE 'fanout %'"
        )
        await asyncio.sleep(0.05)  # the attack itself
    await deployment.delivered(60)
    assert all(role.running for role in started)


async def test_results_in_hand_wait_for_a_full_disk_and_are_not_thrown_away(deployment):
    await deployment.subscriber("a", concurrency=4)
    await deployment.region.execute(
        "CREATE FUNCTION {schema}.disk_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; END $$"
    )
    await deployment.region.execute(
        "CREATE TRIGGER disk_full BEFORE INSERT ON {schema}.attempt FOR EACH ROW EXECUTE FUNCTION {schema}.disk_full()"
    )
    deployment.start()
    await deployment.publish(*versions(4))
    await eventually(lambda: deployment.receiver.stats.answers[200] == 4, 20, "four answers")
    await deployment.region.execute("DROP TRIGGER disk_full ON {schema}.attempt")
    await deployment.delivered(4)
    assert await deployment.attempts() == [(1, "delivered")] * 4
