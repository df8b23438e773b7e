"""Every test of the sender runs on both event loops: each promise has to hold on either."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from ipaddress import ip_network
from typing import Protocol

import pytest
import uvloop

from fanout.signing import webhook_id
from regions.decisions.classification import AttemptResult, classify_failure
from regions.egress.errors import EgressError, ForbiddenDestination
from regions.egress.exchange import Answered, Exchange, Outgoing
from regions.egress.request import Target, build_request, version_lines
from regions.egress.sender import Sender
from regions.egress.transport import WireTransport

from .hostile import CERTIFICATES

LOOPBACK = [ip_network("127.0.0.0/8"), ip_network("::1/128")]
KEY = "shipment:S-1:subscriber:acme:version:3"


def pytest_asyncio_loop_factories(
    config: object, item: object
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Send(Protocol):
    def __call__(
        self,
        url: str,
        payload: bytes = b"{}",
        *,
        seconds: float = 5.0,
        retry_statuses: frozenset[int] | None = None,
        own_headers: tuple[tuple[str, str], ...] = (),
        may_write: Callable[[], bool] | None = None,
        transport: WireTransport | None = None,
    ) -> Awaitable[AttemptResult | None]: ...


async def exchange(client: Exchange, outgoing: Outgoing) -> Answered:
    """One exchange, awaited: its answer, or its error raised. To cancel it is to cancel the exchange."""
    told: asyncio.Future[Answered | EgressError] = asyncio.get_running_loop().create_future()
    underway = client.begin(outgoing, lambda end: None if told.cancelled() else told.set_result(end))
    try:
        end = await told
    except asyncio.CancelledError:
        underway.cancel()
        raise
    if isinstance(end, EgressError):
        raise end
    return end


async def result_of(
    client: Exchange, outgoing: Outgoing, retry_statuses: frozenset[int] | None
) -> AttemptResult | None:
    """One attempt through the sender, awaited."""
    told: asyncio.Future[AttemptResult | None] = asyncio.get_running_loop().create_future()
    underway = Sender(client).send(
        outgoing,
        retry_statuses=retry_statuses,
        ended=lambda result: None if told.cancelled() else told.set_result(result),
    )
    try:
        return await told
    finally:
        if told.cancelled():
            underway.cancel()


@pytest.fixture
async def transport() -> AsyncIterator[WireTransport]:
    """May reach loopback, and trusts the authority of the tests."""
    transport = WireTransport(allow_networks=LOOPBACK, ca_file=CERTIFICATES / "authority.pem")
    yield transport
    await transport.aclose()
    assert transport.open_connections == 0


@pytest.fixture
def send(transport: WireTransport) -> Send:
    """One attempt through the whole sender."""
    default = transport

    async def send_one(
        url: str,
        payload: bytes = b"{}",
        *,
        seconds: float = 5.0,
        retry_statuses: frozenset[int] | None = None,
        own_headers: tuple[tuple[str, str], ...] = (),
        may_write: Callable[[], bool] | None = None,
        transport: WireTransport | None = None,
    ) -> AttemptResult | None:
        try:
            target = Target(url, [b"k" * 32], own_headers)
        except ForbiddenDestination as error:
            return classify_failure(error.failure())
        lines = version_lines(
            payload=payload,
            content_type="application/json",
            shipment_id="S-1",
            version=3,
            event_type="shipment.departed",
        )
        request = build_request(
            target,
            lines,
            payload=payload,
            key=KEY,
            webhook_id=webhook_id(KEY),
            timestamp=1_800_000_000,
            attempt=2,
            traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            deadline=asyncio.get_running_loop().time() + seconds,
            may_write=may_write,
        )
        return await result_of(transport or default, request, retry_statuses)

    return send_one
