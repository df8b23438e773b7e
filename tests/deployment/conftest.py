"""The broker of a region, configured as its container is."""

from collections.abc import AsyncIterator

import pytest

from services.broker import MISSING, STANDARD_URL, OwnBroker, programs

from .compose import ROOT

CONFIGURATION = ROOT / "config" / "rabbitmq" / "rabbitmq.conf"
USER, PASSWORD, VHOST = "fanout", "secret", "fanout"


class ComposedBroker(OwnBroker):
    """Configured as the container is. Its first user comes from the file: the variables are the image's way to the same keys."""

    @property
    def url(self) -> str:
        return self.url_for(USER, PASSWORD, VHOST)


@pytest.fixture
async def broker() -> AsyncIterator[ComposedBroker]:
    if programs() is None:
        pytest.skip(MISSING.format(url=STANDARD_URL))
    broker = ComposedBroker()
    first = [f"default_user = {USER}", f"default_pass = {PASSWORD}", f"default_vhost = {VHOST}"]
    broker.configure(*CONFIGURATION.read_text().splitlines(), *first)
    try:
        await broker.start()
        yield broker
    finally:
        await broker.close()
