"""No request reaches an address that is not allowed, in whatever form it is written or resolved."""

from ipaddress import IPv4Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanout.model.addresses import AddressVerdict as V
from fanout.model.addresses import judge
from fanout.model.states import Outcome
from regions.egress.transport import WireTransport

from .conftest import LOOPBACK, Send
from .hostile import OK, Names, answer, receiver

FORBIDDEN = [
    ("127.0.0.1", V.LOOPBACK),
    ("127.255.255.254", V.LOOPBACK),
    ("::1", V.LOOPBACK),
    ("0.0.0.0", V.UNSPECIFIED),
    ("0.1.2.3", V.UNSPECIFIED),
    ("::", V.UNSPECIFIED),
    ("10.0.0.1", V.PRIVATE),
    ("172.16.0.1", V.PRIVATE),
    ("172.31.255.255", V.PRIVATE),
    ("192.168.1.1", V.PRIVATE),
    ("fc00::1", V.PRIVATE),
    ("fdff::1", V.PRIVATE),
    ("fec0::1", V.PRIVATE),
    ("100.64.0.1", V.SHARED),
    ("100.127.255.255", V.SHARED),
    ("169.254.1.1", V.LINK_LOCAL),
    ("fe80::1", V.LINK_LOCAL),
    ("169.254.169.254", V.METADATA),
    ("169.254.170.2", V.METADATA),
    ("100.100.100.200", V.METADATA),
    ("192.0.0.192", V.METADATA),
    ("168.63.129.16", V.METADATA),
    ("fd00:ec2::254", V.METADATA),
    ("fd20:ce::254", V.METADATA),
    ("224.0.0.1", V.MULTICAST),
    ("ff02::1", V.MULTICAST),
    ("240.0.0.1", V.RESERVED),
    ("255.255.255.255", V.RESERVED),
    ("192.0.0.8", V.RESERVED),
    ("192.0.2.1", V.RESERVED),
    ("198.51.100.1", V.RESERVED),
    ("203.0.113.1", V.RESERVED),
    ("2001:db8::1", V.RESERVED),
    ("2001:20::1", V.RESERVED),
    ("3fff::1", V.RESERVED),
    ("100::1", V.RESERVED),
    ("5f00::1", V.RESERVED),
    ("4000::1", V.RESERVED),
    ("198.18.0.1", V.BENCHMARK),
    ("2001:2::1", V.BENCHMARK),
    ("192.88.99.1", V.TRANSLATED),
    ("64:ff9b::7f00:1", V.LOOPBACK),
    ("64:ff9b::8.8.8.8", V.TRANSLATED),
    ("64:ff9b:1::10.0.0.1", V.PRIVATE),
    ("64:ff9b:1:a00:0:100:808:808", V.PRIVATE),
    ("64:ff9b:1:808:8:800:808:808", V.TRANSLATED),
    ("::ffff:0:8.8.8.8", V.TRANSLATED),
    ("2002:7f00:1::", V.LOOPBACK),
    ("2002:808:808::1", V.TRANSLATED),
    ("2001:0:808:808::f5ff:fffe", V.PRIVATE),
    ("2001:0:808:808::f7f7:f7f7", V.TRANSLATED),
    ("2606:4700::5efe:10.0.0.1", V.PRIVATE),
    ("2606:4700::200:5efe:8.8.8.8", V.TRANSLATED),
    ("::127.0.0.1", V.LOOPBACK),
    ("::8.8.8.8", V.MAPPED),
    ("::ffff:7f00:1", V.LOOPBACK),
    ("::ffff:169.254.169.254", V.METADATA),
    ("::ffff:8.8.8.8", V.MAPPED),
    ("fe80::1%eth0", V.SCOPED),
    ("2606:4700::1111%1", V.SCOPED),
    *((text, V.UNREADABLE) for text in ("", "2130706433", "0x7f000001", "127.1", "0", "0177.0.0.1", "127.0.0.1 ", "x")),
]


@pytest.mark.parametrize(("address", "verdict"), FORBIDDEN)
def test_each_special_address_is_refused_for_its_reason(address: str, verdict: V) -> None:
    assert judge(address) is verdict
    assert not verdict.allowed


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "100.63.255.255", "172.32.0.1", "2606:4700::1111", "2a00::1"]
)
def test_ordinary_addresses_are_allowed(address: str) -> None:
    assert judge(address) is V.ALLOWED


@pytest.mark.parametrize(
    ("address", "network", "verdict"),
    [
        ("127.0.0.1", "127.0.0.0/8", V.ALLOWED),
        ("::ffff:127.0.0.1", "127.0.0.0/8", V.ALLOWED),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.0/104", V.ALLOWED),
        ("::127.0.0.1", "127.0.0.0/8", V.MAPPED),
        ("::ffff:10.0.0.1", "127.0.0.0/8", V.PRIVATE),
        ("169.254.169.254", "169.254.169.254/32", V.ALLOWED),
        ("fd12::1", "fd12::/16", V.ALLOWED),
        ("fe80::1%eth0", "fe80::/10", V.SCOPED),
        ("64:ff9b::8.8.8.8", "64:ff9b::/96", V.ALLOWED),
        ("64:ff9b::10.0.0.1", "64:ff9b::/96", V.PRIVATE),
        ("64:ff9b::8.8.8.8", "::/0", V.TRANSLATED),
        ("::ffff:127.0.0.1", "::/0", V.LOOPBACK),
        ("64:ff9b::127.0.0.1", "127.0.0.0/8", V.TRANSLATED),
    ],
)
def test_a_listed_network_opens_itself_and_nothing_behind_it(address: str, network: str, verdict: V) -> None:
    assert judge(address, [ip_network(network)]) is verdict


@given(st.ip_addresses(v=4))
def test_no_wrapped_form_is_ever_allowed_by_itself(inner: IPv4Address) -> None:
    number = int(inner)
    for wrapped in (f"::ffff:{inner}", f"64:ff9b::{inner}", f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1"):
        assert not judge(wrapped).allowed
    assert not judge(f"::{inner}").allowed


@given(st.text())
def test_any_text_has_a_verdict(text: str) -> None:
    assert isinstance(judge(text), V)


LITERALS = [
    *("127.0.0.1", "127.1", "0", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.0.0.1."),
    *("[::1]", "[::]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"),
    *("127。0。0。1", "0.0.0.0"),
]


@pytest.mark.parametrize("literal", LITERALS)
async def test_a_canary_on_loopback_sees_no_connection_by_any_literal(send: Send, literal: str) -> None:
    strict = WireTransport()
    async with receiver(answer(OK)) as canary, receiver(answer(OK), host="::1") as canary6:
        for port in (canary.port, canary6.port):
            for scheme in ("http", "https"):
                result = await send(f"{scheme}://{literal}:{port}/", transport=strict)
                assert result is not None
                assert (result.outcome, result.status) == (Outcome.FORBIDDEN, None)
                assert result.error
        assert (canary.connections, canary6.connections) == (0, 0)
    await strict.aclose()


async def test_a_name_that_leads_to_a_forbidden_address_is_forbidden(send: Send) -> None:
    strict = WireTransport(resolver=Names(**{"inside.example": ["127.0.0.1", "::1", "10.0.0.1"]}))
    async with receiver(answer(OK)) as canary:
        result = await send(f"https://inside.example:{canary.port}/", transport=strict)
        assert canary.connections == 0
    assert result is not None
    assert (result.outcome, result.address) == (Outcome.FORBIDDEN, "127.0.0.1")
    assert result.error == (
        "inside.example leads to 127.0.0.1, which is this machine itself (loopback): "
        "no request is sent there unless allow_networks lists it"
    )
    await strict.aclose()


async def test_of_a_mix_only_allowed_addresses_are_used(send: Send) -> None:
    names = Names(**{"mix.example": ["10.255.255.1", "169.254.169.254", "127.0.0.1"]})
    transport = WireTransport(allow_networks=LOOPBACK, resolver=names)
    async with receiver(answer(OK)) as there:
        result = await send(there.url(host="mix.example"), transport=transport)
    assert result is not None
    assert (result.outcome, result.address) == (Outcome.DELIVERED, "127.0.0.1")
    assert there.got[0].value("host") == f"mix.example:{there.port}"
    await transport.aclose()


async def test_plain_http_goes_only_to_listed_networks(send: Send) -> None:
    transport = WireTransport(allow_networks=LOOPBACK, resolver=Names(**{"public.example": ["8.8.8.8"]}))
    result = await send("http://public.example/", transport=transport)
    assert result is not None
    assert result.outcome is Outcome.FORBIDDEN
    assert "plain http" in result.error
    await transport.aclose()


async def test_the_mapped_form_of_a_listed_address_is_reached(send: Send, transport: WireTransport) -> None:
    async with receiver(answer(OK)) as there:
        result = await send(there.url(host="[::ffff:127.0.0.1]"))
    assert result is not None
    assert result.outcome is Outcome.DELIVERED


async def test_an_address_is_judged_when_connecting_not_before(send: Send) -> None:
    """DNS rebinding: the second answer for the name is an inside address, and the kept connection is gone."""
    names = Names(**{"rebind.example": ["127.0.0.1"]})
    transport = WireTransport(allow_networks=[ip_network("127.0.0.1/32")], resolver=names)
    async with receiver(answer(OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"))) as there:
        first = await send(there.url(host="rebind.example"), transport=transport)
        names.names["rebind.example"] = ["127.0.0.2"]
        second = await send(there.url(host="rebind.example"), transport=transport)
    assert [result and result.outcome for result in (first, second)] == [Outcome.DELIVERED, Outcome.FORBIDDEN]
    assert there.connections == 1
    await transport.aclose()
