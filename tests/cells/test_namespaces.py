"""FANOUT_NAMESPACE: two deployments in one database know nothing of each other."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from fanout.database.schema import Schema
from fanout.database.wakeups import Bell, Ear
from fanout.home.publishing import publish
from fanout.ledger import channels
from fanout.ledger.books import region_figures
from fanout.ledger.inspection import list_deliveries
from fanout.ledger.promotion import promote
from fanout.ledger.registry import save
from fanout.ledger.registry_reading import show
from fanout.model.shipment import ShipmentVersion
from fanout.model.subscriber import parse_subscriber
from fanout.publisher.publisher import RegionPublisher
from fanout.running.schemas import all_places, migrate_place
from fanout.settings import Settings


@pytest.fixture
async def two(database_url):
    found = [
        Settings.load({"FANOUT_DATABASE_URL": database_url, "FANOUT_NAMESPACE": name}, Path("/nowhere"))
        for name in ("blue", "green")
    ]
    for settings in found:
        for place in all_places(settings):
            await migrate_place(place)
    return found


@pytest.fixture
async def connection(database_url):
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


async def expanded(settings: Settings) -> int:
    publisher = RegionPublisher(settings, settings.regions["eu"])
    count = (await publisher.run_once()).versions
    for part in (publisher._ear, publisher._bell, publisher._home, publisher._ledger):
        await part.close()
    return count


async def test_what_is_published_in_one_is_expanded_promoted_and_listed_there_alone(two, connection):
    blue, green = two
    spec = {"endpoint": "https://hooks.example.com/{}", "region": "eu", "event_types": ["*"]}
    for settings in two:
        own = spec | {"endpoint": f"https://hooks.example.com/{settings.namespace}"}
        schema = Schema(settings.regions["eu"].schema)
        await save(connection, schema, "acme", parse_subscriber(own, settings.subscriber_rules()), by="test")
    receipt = await publish(connection, ShipmentVersion("s-1", 1, "shipment.moved", b"blue"), schema=Schema("blue"))
    assert receipt.verdict == "accepted"
    assert (await expanded(green), await expanded(blue)) == (0, 1)

    eu = {settings.namespace: Schema(settings.regions["eu"].schema) for settings in two}
    assert [(await region_figures(connection, schema)).accepted for schema in eu.values()] == [1, 0]
    assert len((await list_deliveries(connection, eu["blue"])).items) == 1
    assert (await list_deliveries(connection, eu["green"])).items == []
    assert (await promote(connection, eu["green"], 64, 10)).references == []
    assert len((await promote(connection, eu["blue"], 64, 10)).references) == 1
    for name, schema in eu.items():
        shown = await show(connection, schema, "eu", "acme")
        assert shown.settings["endpoint"] == f"https://hooks.example.com/{name}"

    again = await publish(connection, ShipmentVersion("s-1", 1, "shipment.moved", b"green"), schema=Schema("green"))
    assert again.verdict == "accepted", "the same version of another deployment is another version"


async def test_everything_of_a_deployment_stands_in_schemas_of_its_name(two, connection):
    rows = await connection.fetch(
        "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema|public)'"
    )
    names = {f"{namespace}{part}" for namespace in ("blue", "green") for part in ("", "_eu", "_us")}
    assert {row["nspname"] for row in rows} == names
    assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0


async def test_a_wake_up_of_one_wakes_nobody_of_the_other(two, database_url):
    ears = [Ear(database_url, "test", channels.due(Schema(settings.regions["eu"].schema))) for settings in two]
    for ear in ears:
        ear.start()
    bell = Bell(database_url, "test", channels.due(Schema("blue_eu")))
    try:
        for ear in ears:
            await ear.wait(0.5)  # whatever a new ear hears first
        heard = [asyncio.create_task(ear.wait(3)) for ear in ears]
        bell.ring()
        done, _ = await asyncio.wait(heard, return_when=asyncio.FIRST_COMPLETED)
        assert done == {heard[0]}
        await asyncio.wait(heard)
    finally:
        await bell.close()
        for ear in ears:
            await ear.close()
