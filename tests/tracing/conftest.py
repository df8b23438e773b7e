"""Tracing is one for the process: after each test nothing is in use."""

from collections.abc import AsyncIterator, Iterator

import pytest
from way import Spans, Way, way_through

from fanout.telemetry.tracing import use


@pytest.fixture
def spans() -> Iterator[Spans]:
    """Everything is followed, and kept."""
    kept = Spans()
    use(kept.tracing())
    yield kept
    use(None)


@pytest.fixture
async def way(database_url, receiver) -> AsyncIterator[Way]:
    async with way_through(database_url, receiver) as opened:
        yield opened
