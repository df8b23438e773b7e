"""Names are resolved without holding anyone up: bounded, cached, shared, and with a deadline of their own."""

import asyncio

import pytest

from fanout.model.states import Outcome
from regions.egress.errors import ResolveFailed
from regions.egress.resolver import Resolver
from regions.egress.transport import WireTransport

from .conftest import LOOPBACK, Send
from .hostile import OK, answer, name_server, receiver


async def test_names_that_hang_do_not_stop_other_sends(send: Send) -> None:
    loop = asyncio.get_running_loop()
    async with name_server({"good.example": ["127.0.0.1"]}) as (server, address), receiver(answer(OK)) as there:
        transport = WireTransport(allow_networks=LOOPBACK, resolver=Resolver(nameservers=[address]))
        hanging = [
            asyncio.create_task(send(there.url(host=f"hang{n}.example"), seconds=0.7, transport=transport))
            for n in range(60)
        ]
        async with asyncio.timeout(3):
            await server.until(lambda: len({name for name in server.asked if name.startswith("hang")}) == 60)
        began = loop.time()
        good = await send(there.url(host="good.example"), transport=transport)
        literal = await send(there.url(), transport=transport)
        took = loop.time() - began
        assert took < 0.5
        assert not any(task.done() for task in hanging)
        results = await asyncio.gather(*hanging)
        await transport.aclose()
    assert {result and result.outcome for result in (good, literal)} == {Outcome.DELIVERED}
    assert {result and result.outcome for result in results} == {Outcome.UNREACHABLE}
    assert results[0] is not None
    assert results[0].error == "hang0.example was not resolved before the deadline"


async def test_a_lookup_ends_at_its_own_deadline() -> None:
    async with name_server({}) as (_, address):
        resolver = Resolver(nameservers=[address], lookup_seconds_max=0.2)
        with pytest.raises(ResolveFailed, match=r"cannot resolve hang\.example: no name server answered in time"):
            await resolver.resolve("hang.example")
        await resolver.aclose()


async def test_waiters_share_one_lookup_and_cancelling_one_does_not_end_it() -> None:
    async with name_server({"one.example": ["127.0.0.1", "127.0.0.2"]}, ttl=30) as (server, address):
        resolver = Resolver(nameservers=[address])
        waiters = [asyncio.create_task(resolver.resolve("one.example")) for _ in range(50)]
        await asyncio.sleep(0)
        waiters[0].cancel()
        answers = await asyncio.gather(*waiters[1:])
        again = await resolver.resolve("one.example")
        assert {tuple(sorted(map(str, answer))) for answer in [*answers, again]} == {("127.0.0.1", "127.0.0.2")}
        assert server.asked.count("one.example") <= 2, "A and AAAA, once"
        await resolver.aclose()


async def test_a_failure_is_kept_for_a_second_and_an_answer_for_its_ttl() -> None:
    async with name_server({"soon.example": ["127.0.0.1"]}, ttl=0) as (server, address):
        resolver = Resolver(nameservers=[address])
        for _ in range(3):
            with pytest.raises(ResolveFailed, match="the name does not exist"):
                await resolver.resolve("nothing.example")
            await resolver.resolve("soon.example")
        asked = (server.asked.count("nothing.example"), server.asked.count("soon.example"))
        assert max(asked) <= 2
        await asyncio.sleep(1.05)
        await resolver.resolve("soon.example")
        assert server.asked.count("soon.example") > asked[1]
        await resolver.aclose()


async def test_the_cache_is_bounded() -> None:
    async with name_server({f"n{n}.example": ["127.0.0.1"] for n in range(20)}, ttl=30) as (_, address):
        resolver = Resolver(nameservers=[address], names_max=5)
        await asyncio.gather(*[resolver.resolve(f"n{n}.example") for n in range(20)])
        assert len(resolver._cache) == 5
        await resolver.aclose()


async def test_at_most_so_many_lookups_run_at_once_and_all_are_answered() -> None:
    async with name_server({f"n{n}.example": ["127.0.0.1"] for n in range(20)}) as (_, address):
        resolver = Resolver(nameservers=[address], lookups_max=2)
        answers = await asyncio.gather(*[resolver.resolve(f"n{n}.example") for n in range(20)])
        assert {str(each[0]) for each in answers} == {"127.0.0.1"}
        await resolver.aclose()


async def test_localhost_is_known_without_a_name_server(send: Send) -> None:
    transport = WireTransport(allow_networks=LOOPBACK, resolver=Resolver(nameservers=["127.0.0.1:9"]))
    async with receiver(answer(OK)) as there:
        result = await send(there.url(host="localhost"), transport=transport)
    assert result is not None
    assert result.outcome is Outcome.DELIVERED
    await transport.aclose()


@pytest.mark.parametrize(
    "host", ["a" * 64 + ".example", "good..example", "a_b.example", "r2---sn.example", "nope.example"]
)
async def test_a_name_without_an_address_is_unreachable_whatever_it_looks_like(send: Send, host: str) -> None:
    async with name_server({}) as (_, address):
        transport = WireTransport(allow_networks=LOOPBACK, resolver=Resolver(nameservers=[address]))
        result = await send(f"http://{host}/", transport=transport)
        await transport.aclose()
    assert result is not None
    assert result.outcome in (Outcome.UNREACHABLE, Outcome.FORBIDDEN)
    assert result.error


async def test_a_name_with_no_address_record_says_so() -> None:
    async with name_server({"empty.example": []}) as (_, address):
        resolver = Resolver(nameservers=[address])
        with pytest.raises(ResolveFailed, match="the name has no address"):
            await resolver.resolve("empty.example")
        await resolver.aclose()


async def test_closing_with_lookups_under_way_does_not_wait_for_them() -> None:
    async with name_server({}) as (_, address):
        resolver = Resolver(nameservers=[address])
        waiting = asyncio.create_task(resolver.resolve("hang.example"))
        await asyncio.sleep(0.01)
        async with asyncio.timeout(1):
            await resolver.aclose()
        with pytest.raises(asyncio.CancelledError):
            await waiting
