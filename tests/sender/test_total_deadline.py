"""One hard deadline covers everything: no receiver holds an attempt longer, however it goes about it."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

from fanout.model.states import Outcome
from regions.egress.transport import WireTransport

from .conftest import LOOPBACK, Send
from .hostile import OK, Answer, Got, Names, Wire, answer, receiver

SECONDS = 0.3
DELIVERED = (Outcome.DELIVERED, 200)
UNKNOWN = (Outcome.UNKNOWN, None)


async def never(wire: Wire, _got: Got) -> None:
    await wire.gone()


async def drip_status_line(wire: Wire, _got: Got) -> None:
    await wire.send(*[bytes([b]) for b in OK], pause=0.05)


async def drip_interim(wire: Wire, _got: Got) -> None:
    while True:
        await wire.send(b"HTTP/1.1 100 Continue\r\n\r\n", pause=0.05)


async def drip_headers(wire: Wire, _got: Got) -> None:
    await wire.send(b"HTTP/1.1 200 OK\r\n", *[b"X: 1\r\n"] * 100, pause=0.05)


async def drip_body(wire: Wire, _got: Got) -> None:
    await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", *[b"b"] * 500, pause=0.05)


async def test_slow_receivers_of_every_kind_are_cut_off_at_the_deadline(send: Send) -> None:
    loop = asyncio.get_running_loop()

    async def one(behave: Answer, expected: tuple[Outcome, int | None]) -> None:
        async with receiver(behave) as there:
            began = loop.time()
            result = await send(there.url(), seconds=SECONDS)
            took = loop.time() - began
            await there.until(lambda: there.open == 0)
        assert result is not None
        assert (result.outcome, result.status) == expected
        assert SECONDS - 0.05 <= took <= SECONDS + 0.5
        assert not result.retry_soon

    await asyncio.gather(
        one(never, UNKNOWN),
        one(drip_status_line, UNKNOWN),
        one(drip_interim, UNKNOWN),
        one(drip_headers, DELIVERED),
        one(drip_body, DELIVERED),
    )


async def test_a_receiver_that_does_not_read_is_cut_off_and_the_request_may_have_arrived(send: Send) -> None:
    async def deaf(wire: Wire) -> None:
        wire.writer.transport.pause_reading()
        await asyncio.sleep(5)

    async with receiver(answer(OK), on_connect=deaf) as there:
        result = await send(
            there.url(), b"x" * (16 << 20), seconds=1.5
        )  # what is signed takes its time on a busy machine
    assert result is not None
    assert (result.outcome, result.error) == (
        Outcome.UNKNOWN,
        "the subscriber did not take the whole request before the deadline",
    )


@contextlib.contextmanager
def full_backlog() -> Iterator[int]:
    """A port whose connections hang in the handshake."""
    with socket.socket() as listening, contextlib.ExitStack() as stack:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


async def test_a_connect_that_hangs_is_unreachable_at_the_deadline(send: Send) -> None:
    loop = asyncio.get_running_loop()
    with full_backlog() as port:
        began = loop.time()
        result = await send(f"http://127.0.0.1:{port}/", seconds=SECONDS)
        took = loop.time() - began
    assert result is not None
    assert (result.outcome, result.error) == (Outcome.UNREACHABLE, "no connection to 127.0.0.1 before the deadline")
    assert result.address == "127.0.0.1"
    assert SECONDS - 0.05 <= took <= SECONDS + 0.5


async def test_an_address_that_hangs_leaves_time_for_the_next(send: Send) -> None:
    transport = WireTransport(allow_networks=LOOPBACK, resolver=Names(**{"two.example": ["127.0.0.1", "127.0.0.2"]}))
    with full_backlog() as port, socket.socket() as second:
        second.bind(("127.0.0.2", port))
        second.listen()
        second.setblocking(False)
        request = asyncio.create_task(send(f"http://two.example:{port}/", seconds=0.8, transport=transport))
        async with asyncio.timeout(3):
            accepted, _ = await asyncio.get_running_loop().sock_accept(second)
        accepted.setblocking(False)
        await asyncio.get_running_loop().sock_recv(accepted, 65536)
        accepted.sendall(OK)
        result = await request
        accepted.close()
    assert result is not None
    assert (result.outcome, result.address) == (Outcome.DELIVERED, "127.0.0.2")
    await transport.aclose()


async def test_an_address_that_refuses_leads_to_the_next_at_once(send: Send) -> None:
    transport = WireTransport(allow_networks=LOOPBACK, resolver=Names(**{"two.example": ["127.0.0.9", "127.0.0.1"]}))
    async with receiver(answer(OK)) as there:
        result = await send(there.url(host="two.example"), transport=transport)
    assert result is not None
    assert (result.outcome, result.address) == (Outcome.DELIVERED, "127.0.0.1")
    await transport.aclose()


async def test_a_refused_connection_is_unreachable_and_says_so(send: Send) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        result = await send(f"http://127.0.0.1:{port}/")
    assert result is not None
    assert (result.outcome, result.error) == (
        Outcome.UNREACHABLE,
        f"cannot connect to 127.0.0.1 port {port}: connection refused",
    )


async def test_a_deadline_that_has_passed_sends_nothing(send: Send) -> None:
    async with receiver(answer(OK)) as there:
        warm = await send(there.url())
        results = [await send(there.url(), seconds=-1.0) for _ in range(2)]
    assert warm is not None
    assert {result and result.outcome for result in results} == {Outcome.UNREACHABLE}
    assert len(there.got) == 1


async def test_a_tls_handshake_that_hangs_is_unreachable_at_the_deadline(send: Send) -> None:
    async def silent(wire: Wire) -> None:
        await wire.gone()

    async with receiver(answer(OK), on_connect=silent) as there:
        result = await send(f"https://127.0.0.1:{there.port}/", seconds=SECONDS)
        await there.until(lambda: there.open == 0)
    assert result is not None
    assert (result.outcome, result.error) == (Outcome.UNREACHABLE, "no TLS session with 127.0.0.1 before the deadline")
