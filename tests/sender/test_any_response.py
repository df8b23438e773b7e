"""Whatever a receiver answers, one final status line decides, and nothing after it can undo that."""

import asyncio
import gzip

import pytest

from fanout.model.states import Outcome
from regions.egress.transport import WireTransport

from .conftest import Send
from .hostile import OK, Close, Got, Wire, answer, receiver

STATUS = b"HTTP/1.1 200 OK\r\n"
BOMB = gzip.compress(b"\0" * 50_000_000, 9)


def outcome_of(status: int) -> Outcome:
    return Outcome.DELIVERED if status == 200 else Outcome.FAILED


@pytest.mark.parametrize(
    ("pieces", "status", "outcome", "excerpt"),
    [
        pytest.param([bytes([b]) for b in OK], 200, Outcome.DELIVERED, b"ok", id="byte by byte"),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\n" * 50, OK], 200, Outcome.DELIVERED, b"ok", id="100 fifty times"),
        pytest.param(
            [b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n", b"\r\nHTTP/1.1 200", b" OK\r\nContent-Length: 0\r\n\r\n"],
            *(200, Outcome.DELIVERED, b""),
            id="103 first",
        ),
        pytest.param([b"HTTP/1.1 101 Go\r\nUpgrade: x\r\n\r\nxx"], 101, Outcome.FAILED, b"", id="101 is final"),
        pytest.param([b"HTTP/1.1 204 No\r\n\r\nbody"], 204, Outcome.DELIVERED, b"", id="204 with a body"),
        pytest.param([b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na"], 200, Outcome.DELIVERED, b"a", id="no reason"),
        pytest.param(
            [b"HTTP/1.0 200 OK\r\n\r\nuntil the end"], 200, Outcome.DELIVERED, b"until the end", id="HTTP/1.0"
        ),
        pytest.param([STATUS + b"\r\nuntil the end"], 200, Outcome.DELIVERED, b"until the end", id="no length"),
        pytest.param([b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"], 999, Outcome.FAILED, b"", id="999"),
        pytest.param([b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n"], None, Outcome.FAILED, b"", id="099"),
        pytest.param(
            [STATUS + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc"],
            *(200, Outcome.DELIVERED, b""),
            id="two lengths",
        ),
        pytest.param(
            [STATUS + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"],
            *(200, Outcome.DELIVERED, b""),
            id="length and chunked",
        ),
        pytest.param(
            [STATUS + b"X: " + b"a" * 200_000 + b"\r\nContent-Length: 0\r\n\r\n"],
            *(200, Outcome.DELIVERED, b""),
            id="200 kB header",
        ),
        pytest.param(
            [STATUS + b"X-Name: \xff\xfe\r\nContent-Length: 2\r\n\r\nok"],
            *(200, Outcome.DELIVERED, b"ok"),
            id="0xFF in a header",
        ),
        pytest.param(
            [STATUS + b"X-Name: a\x00b\r\nContent-Length: 2\r\n\r\nok"],
            *(200, Outcome.DELIVERED, b""),
            id="NUL in a header",
        ),
        pytest.param([STATUS + b"no colon here\r\n\r\n"], 200, Outcome.DELIVERED, b"", id="a header that is none"),
        pytest.param([b"HTTP/1.1 500 No\r\nno colon here\r\n\r\n"], 500, Outcome.FAILED, b"", id="500, broken header"),
        pytest.param(
            [STATUS + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain"],
            *(200, Outcome.DELIVERED, b"plain"),
            id="bad gzip",
        ),
        pytest.param(
            [STATUS + b"Content-Type: text/plain; charset=nope\r\nContent-Length: 2\r\n\r\n\xc3\x28"],
            *(200, Outcome.DELIVERED, b"\xc3\x28"),
            id="unknown charset",
        ),
        pytest.param(
            [STATUS + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB],
            *(200, Outcome.DELIVERED, BOMB[:256]),
            id="decompression bomb",
        ),
        pytest.param(
            [STATUS + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\nZZ\r\n"],
            *(200, Outcome.DELIVERED, b"ab"),
            id="broken chunk",
        ),
        pytest.param(
            [STATUS + b"Content-Length: 99\r\n\r\ncut"], 200, Outcome.DELIVERED, b"cut", id="body ends too soon"
        ),
        pytest.param([STATUS + b"X-Cut: "], 200, Outcome.DELIVERED, b"", id="headers end too soon"),
        pytest.param([b"\r\n" + OK], 200, Outcome.DELIVERED, b"ok", id="blank line first"),
        pytest.param([b"HTTP/1.1 200 O"], None, Outcome.UNKNOWN, b"", id="status line ends too soon"),
        pytest.param([b"\x16\x03\x01 not http at all"], None, Outcome.FAILED, b"", id="garbage"),
        pytest.param([b"SSH-2.0-OpenSSH_9\r\n"], None, Outcome.FAILED, b"", id="another protocol"),
        pytest.param([b"HTTP/1.1 " + b"2" * 9000], None, Outcome.FAILED, b"", id="status line without end"),
        pytest.param([b"HTTP/1.1 100 C\r\n\r\n" * 2000], None, Outcome.FAILED, b"", id="interim without end"),
        pytest.param(
            [b"HTTP/1.1 100 C\r\nX: " + b"a" * 40_000], None, Outcome.FAILED, b"", id="an interim head without end"
        ),
        pytest.param([], None, Outcome.UNKNOWN, b"", id="closes without an answer"),
        pytest.param(
            [b"HTTP/1.1 503 No\r\nContent-Length: 3000\r\n\r\n" + b"e" * 3000],
            *(503, Outcome.FAILED, b"e" * 2048),
            id="2 KiB of an error is kept",
        ),
    ],
)
async def test_each_odd_answer_has_the_outcome_of_its_status_line(
    send: Send, pieces: list[bytes], status: int | None, outcome: Outcome, excerpt: bytes
) -> None:
    async with receiver(answer(*pieces, close=True)) as there:
        result = await send(there.url())
    assert result is not None
    assert (result.status, result.outcome, result.excerpt) == (status, outcome, excerpt)
    assert len(there.got) == 1, "the sender never repeats a request by itself"
    assert bool(result.error) == (status is None or status in (101, 999))
    assert result.address == "127.0.0.1"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_never_followed(send: Send, status: int) -> None:
    async with receiver(answer(OK)) as elsewhere:
        location = f"http://user:token@127.0.0.1:{elsewhere.port}/moved?token=1#x".encode()
        head = b"HTTP/1.1 %d Moved\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (status, location)
        async with receiver(answer(head)) as there:
            result = await send(there.url())
    assert result is not None
    assert (result.outcome, result.status) == (Outcome.REDIRECTED, status)
    assert result.location == f"http://127.0.0.1:{elsewhere.port}/moved"
    assert (len(there.got), elsewhere.connections) == (1, 0)


async def endless(wire: Wire, _got: Got) -> None:
    await wire.send(STATUS + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        await wire.send(b"1000\r\n" + b"z" * 4096 + b"\r\n")


async def endless_extension(wire: Wire, _got: Got) -> None:
    await wire.send(STATUS + b"Transfer-Encoding: chunked\r\n\r\n1;")
    while True:
        await wire.send(b"x=y;" * 1024)


async def endless_headers(wire: Wire, _got: Got) -> None:
    await wire.send(STATUS)
    while True:
        await wire.send(b"X-More: of the same\r\n" * 100)


@pytest.mark.parametrize("behave", [endless, endless_extension, endless_headers])
async def test_an_answer_without_end_is_cut_off_long_before_the_deadline(send: Send, behave, transport) -> None:
    async with receiver(behave) as there:
        async with asyncio.timeout(3):
            result = await send(there.url(), seconds=60)
        assert result is not None
        assert (result.outcome, result.status) == (Outcome.DELIVERED, 200)
        await there.until(lambda: there.open == 0)
    assert transport.idle_connections == 0


async def test_a_half_closed_connection_still_delivers_its_answer(send: Send) -> None:
    async def behave(wire: Wire, _got: Got) -> None:
        await wire.send(STATUS + b"\r\nbye")
        wire.half_close()
        await wire.gone()

    async with receiver(behave) as there:
        result = await send(there.url(), seconds=60)
    assert result is not None
    assert (result.outcome, result.excerpt) == (Outcome.DELIVERED, b"bye")


async def test_a_connection_half_closed_before_the_answer_is_unknown_at_once(send: Send) -> None:
    async def behave(wire: Wire, _got: Got) -> None:
        wire.half_close()
        await wire.gone()

    async with receiver(behave) as there:
        async with asyncio.timeout(3):
            result = await send(there.url(), seconds=60)
    assert result is not None
    assert (result.outcome, result.retry_soon) == (Outcome.UNKNOWN, False)


@pytest.mark.parametrize(
    ("sent", "outcome"),
    [
        (b"", Outcome.UNKNOWN),
        (b"HTTP/1.1 20", Outcome.UNKNOWN),
        (STATUS, Outcome.DELIVERED),
        (STATUS + b"Content-Length: 100\r\n\r\npart", Outcome.DELIVERED),
    ],
)
async def test_a_reset_changes_nothing_once_the_status_line_was_read(send: Send, sent: bytes, outcome: Outcome) -> None:
    async def behave(wire: Wire, _got: Got) -> None:
        await wire.send(sent)
        if sent:
            await asyncio.sleep(0.05)  # a reset overtakes bytes that the other side has not read yet
        wire.reset()

    async with receiver(behave) as there:
        result = await send(there.url())
    assert result is not None
    assert result.outcome is outcome


async def test_an_answer_before_the_whole_body_was_read_is_the_answer(send: Send, transport: WireTransport) -> None:
    async def refuse_early(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        await wire.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge")
        wire.half_close()
        await wire.gone()

    async with receiver(answer(OK), on_connect=refuse_early) as there:
        for _ in range(5):
            result = await send(there.url(), b"x" * (16 << 20))
            assert result is not None
            assert (result.outcome, result.status, result.excerpt) == (Outcome.REJECTED, 413, b"large")
    assert transport.idle_connections == 0


async def test_an_answer_that_comes_before_a_reset_in_a_large_body_is_the_answer(send: Send) -> None:
    async def refuse_and_reset(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        await wire.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await asyncio.sleep(0.02)
        wire.reset()

    async with receiver(answer(OK), on_connect=refuse_and_reset) as there:
        results = [await send(there.url(), b"x" * (16 << 20)) for _ in range(5)]
    assert [result and result.status for result in results] == [413] * 5


async def test_a_bomb_is_kept_as_it_came_and_never_inflated(send: Send) -> None:
    head = STATUS + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB)

    async with receiver(answer(head + BOMB, close=True)) as there:
        results = await asyncio.gather(*[send(there.url()) for _ in range(20)])
    for result in results:
        assert result is not None
        assert result.outcome is Outcome.DELIVERED
        assert result.excerpt == BOMB[:256]


async def test_extra_bytes_after_a_response_cost_the_connection_not_the_delivery(send: Send, transport) -> None:
    async with receiver(answer(OK + OK)) as there:
        first, second = await send(there.url()), await send(there.url())
    assert first is not None
    assert second is not None
    assert (first.outcome, second.outcome) == (Outcome.DELIVERED, Outcome.DELIVERED)
    assert there.connections == 2


async def test_close_after_each_response_needs_no_second_attempt_of_anyone(send: Send) -> None:
    async def behave(wire: Wire, _got: Got) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        raise Close

    async with receiver(behave) as there:
        results = [await send(there.url()) for _ in range(20)]
    assert {result and result.outcome for result in results} == {Outcome.DELIVERED}
    assert (len(there.got), there.connections) == (20, 20)
