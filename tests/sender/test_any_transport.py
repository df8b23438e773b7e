"""The sender turns whatever a transport does into one recorded outcome, and shows no secret of it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest

from fanout.model.states import Outcome
from regions.decisions.classification import AttemptResult, Phase
from regions.egress.connection import Connection
from regions.egress.errors import EgressError, describe
from regions.egress.exchange import Outgoing
from regions.egress.over_httpx import OverHttpx
from regions.egress.request import Target
from regions.egress.transport import WireTransport

from .conftest import Send, result_of
from .hostile import OK, answer, receiver

SECRET = "whsec_topsecret"


class Scripted(httpx2.AsyncBaseTransport):
    """Somebody else's transport: knows nothing of deadlines or of facts."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        made = self.act()
        if isinstance(made, Exception):
            raise made
        if isinstance(made, httpx2.Response):
            return made
        await asyncio.sleep(60)
        raise AssertionError


async def attempt(act: Callable[[], object], seconds: float = 0.2) -> AttemptResult | None:
    target = Target("https://a.example/", [b"k"], [("X-Key", SECRET)])
    deadline = asyncio.get_running_loop().time() + seconds
    request = Outgoing(target.endpoint, target.origin, target.first + target.last, b"{}", deadline)
    return await result_of(OverHttpx(Scripted(act)), request, None)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (httpx2.ConnectError(SECRET), Outcome.UNREACHABLE),
        (httpx2.ConnectTimeout(SECRET), Outcome.UNREACHABLE),
        (httpx2.PoolTimeout(SECRET), Outcome.UNREACHABLE),
        (httpx2.UnsupportedProtocol(SECRET), Outcome.FORBIDDEN),
        (httpx2.LocalProtocolError(SECRET), Outcome.FORBIDDEN),
        (httpx2.ReadTimeout(SECRET), Outcome.UNKNOWN),
        (httpx2.WriteError(SECRET), Outcome.UNKNOWN),
        (httpx2.RemoteProtocolError(SECRET), Outcome.UNKNOWN),
        (ssl.SSLError(SECRET), Outcome.UNKNOWN),
        (UnicodeError(SECRET), Outcome.UNKNOWN),
        (RuntimeError(SECRET), Outcome.UNKNOWN),
        (EgressError("ours", phase=Phase.CONNECT), Outcome.UNREACHABLE),
    ],
)
async def test_any_exception_is_an_outcome_and_its_text_is_not_shown(error: Exception, outcome: Outcome) -> None:
    result = await attempt(lambda: error)
    assert result is not None
    assert result.outcome is outcome
    assert result.error
    assert SECRET not in repr(result)


async def test_a_transport_that_keeps_no_deadline_is_cut_off() -> None:
    async with asyncio.timeout(2):
        result = await attempt(lambda: None)
    assert result is not None
    assert (result.outcome, result.error) == (Outcome.UNKNOWN, "no answer before the deadline")


@pytest.mark.parametrize("breaks", [True, False])
async def test_a_body_that_breaks_or_never_ends_changes_nothing(breaks: bool) -> None:
    class Body(httpx2.AsyncByteStream):
        closed = False

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"some"
            if breaks:
                raise httpx2.ReadError(SECRET)
            await asyncio.sleep(60)

        async def aclose(self) -> None:
            self.closed = True
            raise RuntimeError(SECRET)

    body = Body()
    async with asyncio.timeout(2):
        result = await attempt(lambda: httpx2.Response(200, stream=body))
    assert result is not None
    assert (result.outcome, result.excerpt, body.closed) == (Outcome.DELIVERED, b"some", True)


async def test_at_most_16_kib_of_an_endless_body_is_read() -> None:
    read = 0

    class Endless(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            nonlocal read
            while True:
                read += 1000
                yield b"z" * 1000

    result = await attempt(lambda: httpx2.Response(500, stream=Endless()))
    assert result is not None
    assert (result.outcome, len(result.excerpt)) == (Outcome.FAILED, 2048)
    assert read == 17_000


async def test_cancelling_is_the_one_thing_that_is_passed_on() -> None:
    task = asyncio.create_task(attempt(lambda: None, seconds=60))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_fault_of_our_own_before_the_first_byte_is_unreachable_and_after_it_unknown(
    send: Send, transport: WireTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_args: object) -> bool:
        raise RuntimeError(SECRET)

    async with receiver(answer(OK)) as there:
        before = await send(there.url(), may_write=explode)
        monkeypatch.setattr(Connection, "_write_on_later", explode)
        after = await send(there.url())
    assert before is not None
    assert after is not None
    assert (before.outcome, before.error) == (Outcome.UNREACHABLE, "unexpected RuntimeError")
    assert (after.outcome, after.error) == (Outcome.UNKNOWN, "unexpected RuntimeError")


def test_a_foreign_error_is_described_without_its_text() -> None:
    assert describe(None) == "closed by the subscriber"
    assert describe(ConnectionRefusedError(111, SECRET)) == "connection refused"
    assert describe(ConnectionResetError(SECRET)) == "connection reset by peer"
    assert describe(TimeoutError(SECRET)) == "no answer in its share of the time"
    assert describe(ssl.SSLError(SECRET)) == "protocol error"
    assert describe(ssl.SSLCertVerificationError(SECRET)) == "the certificate was not accepted"
    assert describe(UnicodeError(SECRET)) == "the host name cannot be written in ASCII"
    assert describe(ValueError(SECRET)) == "ValueError"
