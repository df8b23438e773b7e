"""The promises, on real processes that are stopped, killed and lied to."""

import pytest

from fanout.receiver import serve
from services.deployment import Deployment
from services.region import Region


@pytest.fixture
async def deployment(database_url, roles):
    us = await Region.open(database_url, "us", watched=False)  # there, and asked, but nobody lives in it
    await us.connection.close()
    region = await Region.open(database_url)
    async with await serve([], record=True) as receiver:
        yield Deployment(region, roles, receiver)
        for role in reversed(roles.started):
            if role.running:
                role.kill()
        drift = await region.drift()
        assert not drift, f"counters disagree with rows: {drift}"
    await region.connection.close()
