"""Connections are kept, bounded and never trusted: a stale one is reported as such, a storm of cancellations leaves no trace."""

import asyncio
import gc
import random
from collections.abc import Callable

import pytest

from fanout.model.states import Outcome
from regions.egress.errors import ConnectionBroken, EgressError, NotSent
from regions.egress.exchange import Answered, Outgoing
from regions.egress.request import Target
from regions.egress.transport import WireTransport

from .conftest import LOOPBACK, Send, exchange
from .hostile import OK, Close, Got, Wire, answer, receiver


def post(url: str, may_write: Callable[[], bool] | None = None) -> Outgoing:
    target = Target(url, [b"k"])
    head = target.first + b"Content-Length: 2\r\n" + target.last
    return Outgoing(url, target.origin, head, b"{}", asyncio.get_running_loop().time() + 15, may_write)


async def test_one_connection_serves_many_requests_in_a_row(send: Send, transport: WireTransport) -> None:
    async with receiver(answer(OK)) as there:
        results = [await send(there.url()) for _ in range(50)]
        assert (there.connections, len(there.got)) == (1, 50)
        assert (transport.open_connections, transport.idle_connections) == (1, 1)
    assert {result and result.outcome for result in results} == {Outcome.DELIVERED}


async def test_the_response_tells_address_and_reuse(transport: WireTransport) -> None:
    async with receiver(answer(OK)) as there:
        first = await exchange(transport, post(there.url()))
        second = await exchange(transport, post(there.url()))
    assert (first.address, first.reused) == ("127.0.0.1", False)
    assert second.reused is True
    assert first.body == b"ok"


@pytest.mark.parametrize("reset", [False, True])
async def test_a_kept_connection_that_breaks_before_an_answer_is_unknown_and_retried_soon(send: Send, reset) -> None:
    async def once(wire: Wire, _got: Got) -> None:
        await wire.send(OK)
        assert await wire.request() is not None
        if reset:
            wire.reset()
        raise Close

    async with receiver(once) as there:
        first, second = await send(there.url()), await send(there.url())
    assert first is not None
    assert second is not None
    assert (first.outcome, first.retry_soon) == (Outcome.DELIVERED, False)
    assert (second.outcome, second.retry_soon, second.status) == (Outcome.UNKNOWN, True, None)
    assert second.error.startswith("the connection broke before a final status line: ")


async def test_a_kept_connection_that_breaks_inside_a_status_line_is_not_retried_soon(send: Send) -> None:
    async def once(wire: Wire, _got: Got) -> None:
        await wire.send(OK)
        assert await wire.request() is not None
        await wire.send(b"HTTP/1.1 20")
        raise Close

    async with receiver(once) as there:
        await send(there.url())
        second = await send(there.url())
    assert second is not None
    assert (second.outcome, second.retry_soon) == (Outcome.UNKNOWN, False)


async def test_a_receiver_that_closes_soon_after_each_answer_gets_all_within_two_attempts(send: Send) -> None:
    async def behave(wire: Wire, _got: Got) -> None:
        await wire.send(OK)
        await asyncio.sleep(0.003)
        raise Close

    async with receiver(behave) as there:
        for _ in range(100):
            result = await send(there.url())
            assert result is not None
            if result.outcome is not Outcome.DELIVERED:
                assert result.retry_soon
                result = await send(there.url())
                assert result is not None
                assert result.outcome is Outcome.DELIVERED
            await asyncio.sleep(random.uniform(0, 0.006))


async def test_bytes_nobody_asked_for_close_an_idle_connection(send: Send, transport: WireTransport) -> None:
    wires: list[Wire] = []

    async def behave(wire: Wire, _got: Got) -> None:
        wires.append(wire)
        await wire.send(OK)

    async with receiver(behave) as there:
        await send(there.url())
        await wires[0].send(b"HTTP/1.1 500 Not for you\r\nContent-Length: 0\r\n\r\n")
        await there.until(lambda: there.open == 0, seconds=2)  # long before it would be closed as idle
        assert transport.open_connections == 0
        result = await send(there.url())
    assert result is not None
    assert (result.outcome, there.connections) == (Outcome.DELIVERED, 2)


async def test_an_idle_connection_is_closed_after_its_time() -> None:
    transport = WireTransport(allow_networks=LOOPBACK, idle_seconds=0.1)
    async with receiver(answer(OK)) as there:
        await exchange(transport, post(there.url()))
        assert there.open == 1
        await there.until(lambda: there.open == 0)
    assert transport.open_connections == 0
    await transport.aclose()


async def test_idle_connections_are_bounded_per_origin_and_in_total() -> None:
    transport = WireTransport(allow_networks=LOOPBACK, idle_per_origin_max=2, idle_max=3)

    async def slow(wire: Wire, _got: Got) -> None:
        await asyncio.sleep(0.02)
        await wire.send(OK)

    async with receiver(slow) as one, receiver(slow) as two:
        for there, idle in ((one, 2), (two, 3)):
            await asyncio.gather(*[exchange(transport, post(there.url())) for _ in range(6)])
            assert transport.idle_connections == idle
        await one.until(lambda: one.open == 1)  # the oldest of the first had to go
        await two.until(lambda: two.open == 2)
    await transport.aclose()
    assert transport.open_connections == 0


async def test_a_request_that_may_not_be_written_is_not_sent_and_costs_no_connection(
    send: Send, transport: WireTransport
) -> None:
    async with receiver(answer(OK)) as there:
        assert await send(there.url(), may_write=lambda: False) is None
        assert transport.idle_connections == 1
        result = await send(there.url(), may_write=lambda: True)
        assert await send(there.url(), may_write=lambda: False) is None
        with pytest.raises(NotSent) as refused:
            await exchange(transport, post(there.url(), may_write=lambda: False))
        assert not refused.value.written
        assert (there.connections, len(there.got)) == (1, 1)
    assert result is not None
    assert result.outcome is Outcome.DELIVERED


async def test_may_write_is_asked_when_the_connection_stands_and_not_before(send: Send) -> None:
    seen: list[int] = []

    def may_write() -> bool:
        seen.append(transport.open_connections)
        return True

    transport = WireTransport(allow_networks=LOOPBACK)
    async with receiver(answer(OK)) as there:
        await send(there.url(), may_write=may_write, transport=transport)
    assert seen == [1]
    await transport.aclose()


async def test_a_kept_connection_that_is_lost_just_before_the_write_is_replaced(transport: WireTransport) -> None:
    async with receiver(answer(OK)) as there:
        await exchange(transport, post(there.url()))
        (kept,) = transport._open
        second = asyncio.create_task(exchange(transport, post(there.url())))
        while transport.idle_connections:  # it waits for the others of its step
            await asyncio.sleep(0)
            kept.abort()
        assert (await second).status == 200
        assert (there.connections, len(there.got)) == (2, 2)


async def test_requests_of_one_step_are_written_together_and_one_that_fails_leaves_the_others_alone(
    transport: WireTransport,
) -> None:
    def explode() -> bool:
        raise RuntimeError

    async with receiver(answer(OK)) as there:
        await asyncio.gather(*[exchange(transport, post(there.url())) for _ in range(3)])
        checks = [None, explode, None]
        ends = await asyncio.gather(
            *[exchange(transport, post(there.url(), check)) for check in checks], return_exceptions=True
        )
        assert [isinstance(end, Answered) for end in ends] == [True, False, True]
        assert isinstance(ends[1], EgressError)
        assert not ends[1].written
        assert len(there.got) == 5


async def test_what_is_cancelled_before_it_was_written_is_never_sent(transport: WireTransport) -> None:
    async with receiver(answer(OK)) as there:
        await exchange(transport, post(there.url()))
        transport.begin(post(there.url()), lambda _: None).cancel()
        await exchange(transport, post(there.url()))
        assert len(there.got) == 2


async def test_a_storm_of_cancellations_leaves_the_transport_healthy(transport: WireTransport) -> None:
    dice = random.Random(7)

    async def behave(wire: Wire, _got: Got) -> None:
        await asyncio.sleep(dice.uniform(0, 0.01))
        await wire.send(OK)
        if dice.random() < 0.5:
            raise Close

    async with receiver(behave) as there:

        async def one() -> None:
            try:
                async with asyncio.timeout(dice.uniform(0, 0.012)):
                    await exchange(transport, post(there.url()))
            except (TimeoutError, ConnectionBroken):
                pass

        async def worker() -> None:
            for _ in range(40):
                await one()

        await asyncio.gather(*[worker() for _ in range(40)])
        await there.until(lambda: there.open == transport.idle_connections)
        assert transport.open_connections == transport.idle_connections
        answers = await asyncio.gather(
            *[exchange(transport, post(there.url())) for _ in range(20)], return_exceptions=True
        )
        assert all(
            isinstance(each, Answered) or (isinstance(each, ConnectionBroken) and each.reused) for each in answers
        )
    gc.collect()  # a socket that was lost track of would warn, and warnings are errors


async def test_cancelling_in_the_tls_handshake_closes_the_socket(transport: WireTransport) -> None:
    async def silent(wire: Wire) -> None:
        await wire.gone()

    async with receiver(answer(OK), on_connect=silent) as there:
        request = asyncio.create_task(exchange(transport, post(f"https://127.0.0.1:{there.port}/")))
        await there.until(lambda: there.open == 1)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await there.until(lambda: there.open == 0)
    assert transport.open_connections == 0
    gc.collect()


async def test_closing_ends_requests_in_flight_as_broken_and_refuses_new_ones() -> None:
    transport = WireTransport(allow_networks=LOOPBACK)

    async def never(wire: Wire, _got: Got) -> None:
        await wire.gone()

    async with receiver(never) as there:
        request = asyncio.create_task(exchange(transport, post(there.url())))
        await there.until(lambda: len(there.got) == 1)
        await transport.aclose()
        with pytest.raises(ConnectionBroken):
            await request
        with pytest.raises(EgressError, match="closing") as refused:
            await exchange(transport, post(there.url()))
        assert not refused.value.written
    assert transport.open_connections == 0
    await transport.aclose()


async def test_a_hundred_at_once_each_get_their_own_answer(send: Send, transport: WireTransport) -> None:
    async def echo(wire: Wire, got: Got) -> None:
        await asyncio.sleep(0.001)
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(got.body), got.body))

    async with receiver(echo) as there:
        bodies = [b"payload %d" % number for number in range(300)]
        slots = asyncio.Semaphore(50)

        async def one(body: bytes) -> bytes:
            async with slots:
                result = await send(there.url(), body)
            assert result is not None
            return result.excerpt

        assert await asyncio.gather(*map(one, bodies)) == bodies
        assert there.connections <= 50
