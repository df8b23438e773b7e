import pytest

from services.region import Region


@pytest.fixture
async def region(database_url):
    region = await Region.open(database_url)
    yield region
    try:
        drift = await region.drift()
        assert not drift, f"counters disagree with rows: {drift}"
    finally:
        await region.connection.close()
