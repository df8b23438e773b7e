"""Three servers: home, eu and us have nothing in common but the network."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fanout.embedded import EmbeddedPostgres
from fanout.receiver import serve
from services import Roles, run

from .cells import NAMES, Aftermath, Cells, after_a_day


@pytest.fixture
async def cells(tmp_path: Path) -> AsyncIterator[Cells]:
    """Three servers of the test's own, which it may stop; no role runs yet."""
    async with AsyncExitStack() as stack:
        servers = {name: await stack.enter_async_context(EmbeddedPostgres(fsync=False, tcp=True)) for name in NAMES}
        receiver = await stack.enter_async_context(await serve(record=True))
        roles = Roles(tmp_path)
        stack.push_async_callback(roles.close)
        yield await Cells.made(servers, roles, receiver)


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    """What three databases hold after real roles have delivered one version everywhere, and another one in Europe alone."""
    return run(after_a_day(tmp_path_factory.mktemp("cells")))
