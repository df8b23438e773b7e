"""The publisher's hold on the outbox rows that it has taken."""

import pytest

from fanout.home import outbox
from fanout.home.publishing import publish_many
from fanout.publisher import publisher as module
from fanout.publisher.publisher import RegionPublisher
from fanout.settings import Settings
from services.deployment import versions
from services.region import Region


@pytest.fixture
async def publisher(region: Region, database_url):
    settings = Settings.load({"FANOUT_DATABASE_URL": database_url})
    publisher = RegionPublisher(settings, settings.regions["eu"])
    yield publisher
    for connection in (publisher._home, publisher._ledger, publisher._bell):
        await connection.close()


async def away(*_):
    raise ConnectionError("away")


async def test_what_it_could_not_give_back_because_home_was_away_as_well_is_given_back_first(
    region: Region, publisher, monkeypatch
):
    await region.subscriber("a")
    await publish_many(region.connection, versions(2))
    with monkeypatch.context() as both:
        both.setattr(module, "wanted", away)
        both.setattr(outbox, "give_back", away)
        with pytest.raises(ConnectionError):
            await publisher.run_once()
    assert (await publisher.run_once()).versions == 2


async def test_a_batch_that_takes_long_renews_its_take_with_each_page(region: Region, publisher, monkeypatch):
    for name in "abcde":
        await region.subscriber(name)
    await publish_many(region.connection, versions(1))
    renewed = []
    keep = outbox.keep

    async def noted(connection, schema, region_name, numbers, seconds):
        renewed.append(numbers)
        await keep(connection, schema, region_name, numbers, seconds)

    monkeypatch.setattr(outbox, "keep", noted)
    monkeypatch.setattr(module, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(module, "EXPAND_ROWS", 2)
    assert await publisher.run_once() == module.Expanded(1, 5)
    assert len(renewed) == 3
    assert await region.value("SELECT count(*) FROM fanout.outbox WHERE region = 'eu' AND NOT done") == 0
