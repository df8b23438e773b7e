"""What was published arrives to the byte, under headers that say what it is and that nobody can override."""

import hashlib

import pytest

from fanout.model.own_headers import check_headers
from fanout.model.problems import Invalid
from fanout.model.states import Outcome
from regions.egress.request import RESERVED_HEADERS, RESERVED_PREFIXES, Target

from .conftest import KEY, Send
from .hostile import OK, answer, receiver

PAYLOADS = {
    "empty": b"",
    "one byte": b"0",
    "raw NUL": b'{"a":"x\x00y"}',
    "escaped NUL": rb'{"a":"x\u0000y"}',
    "lone surrogate escape": rb'{"a":"\ud800"}',
    "duplicate keys": b'{"a":1,"a":2}',
    "huge exponent": b'{"n":1e400}',
    "thirty digits": b'{"n":123456789012345678901234567890}',
    "key order and spaces": b'{ "z": 1.0 ,\t"a": 0.1000 }\n',
    "escapes": rb'{"u":"https:\/\/a.example","e":"\u00e9"}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "not UTF-8": b"\xff\xfe\x00\x80",
    "CRLF": b"a\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    "every byte": bytes(range(256)) * 16,
    "one piece and a byte": b"p" * 65537,
    "exactly 1 MiB": bytes(range(256)) * 4096,
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
async def test_a_payload_arrives_with_the_same_sha256(send: Send, payload: bytes) -> None:
    async with receiver(answer(OK)) as there:
        for _ in range(2):
            result = await send(there.url(), payload)
            assert result is not None
            assert result.outcome is Outcome.DELIVERED
    for got in there.got:
        assert hashlib.sha256(got.body).digest() == hashlib.sha256(payload).digest()
        assert got.value("content-length") == str(len(payload))
        assert got.values("transfer-encoding") == []


async def test_the_request_has_these_headers_in_this_order(send: Send) -> None:
    async with receiver(answer(OK)) as there:
        await send(
            there.url("/in/here?x=1&y=%20"), own_headers=(("X-Api-Key", "s3cret"), ("Authorization", "Bearer t"))
        )
    (got,) = there.got
    assert got.line == b"POST /in/here?x=1&y=%20 HTTP/1.1"
    shown = [(name.decode(), value.decode()) for name, value in got.headers if name != b"webhook-signature"]
    assert shown == [
        ("Host", f"127.0.0.1:{there.port}"),
        ("User-Agent", "regional-fanout"),
        ("Accept", "*/*"),
        ("Accept-Encoding", "identity"),
        ("Content-Type", "application/json"),
        ("Content-Length", "2"),
        ("Fanout-Shipment-Id", "S-1"),
        ("Fanout-Version", "3"),
        ("Fanout-Event-Type", "shipment.departed"),
        ("Idempotency-Key", KEY),
        ("webhook-id", "msg_c6y7p45xkk34xu5ert7qvhp3it"),
        ("webhook-timestamp", "1800000000"),
        ("Fanout-Attempt", "2"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("X-Api-Key", "s3cret"),
        ("Authorization", "Bearer t"),
    ]
    assert got.value("webhook-signature").startswith("v1,")


async def test_a_subscribers_own_headers_never_override_ours(send: Send) -> None:
    ours = (
        "host",
        "Content-Length",
        "TRANSFER-ENCODING",
        "idempotency-key",
        "Webhook-Id",
        "Fanout-Anything",
        "Connection",
    )
    async with receiver(answer(OK)) as there:
        await send(there.url(), own_headers=tuple((name, "evil") for name in ours))
    (got,) = there.got
    assert b"evil" not in got.raw_head
    assert got.value("host") == f"127.0.0.1:{there.port}"


async def test_a_subscriber_may_name_its_own_user_agent(send: Send) -> None:
    async with receiver(answer(OK)) as there:
        await send(there.url(), own_headers=(("user-agent", "for acme"),))
    assert there.got[0].value("user-agent") == "for acme"


@pytest.mark.parametrize("name", [*sorted(RESERVED_HEADERS), *(f"{prefix}x" for prefix in RESERVED_PREFIXES)])
def test_registration_refuses_what_the_sender_would_drop(name: str) -> None:
    with pytest.raises(Invalid, match="set by the sender"):
        check_headers("headers", {name: "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-A", "secret\r\nX-Injected: 1"),
        ("X-A", "secret\nX-Injected: 1"),
        ("X-A", "secret\rX-Injected: 1"),
        ("X-A", "secret\x00"),
        ("X-A\r\nX-Injected", "secret"),
        ("X A", "secret"),
        ("X:A", "secret"),
        ("", "secret"),
        ("X-Ä", "secret"),
    ],
)
async def test_a_header_that_cannot_be_sent_is_forbidden_and_never_shown(send: Send, name: str, value: str) -> None:
    async with receiver(answer(OK)) as there:
        result = await send(there.url(), own_headers=((name, value),))
        assert there.connections == 0
    assert result is not None
    assert result.outcome is Outcome.FORBIDDEN
    assert "secret" not in repr(result)


async def test_a_header_value_outside_ascii_arrives_as_utf8(send: Send) -> None:
    async with receiver(answer(OK)) as there:
        await send(there.url(), own_headers=(("X-Name", "é"),))
    assert there.got[0].values("x-name") == ["é".encode()]


@pytest.mark.parametrize(
    "endpoint",
    [
        "ftp://a.example/",
        "/only/a/path",
        "http:///x",
        "http://",
        "http://a.example:0/",
        "http://a.example:99999/",
        "http:x",
        "http://[::1",
        "\x00",
    ],
)
async def test_an_endpoint_that_cannot_be_used_is_forbidden(send: Send, endpoint: str) -> None:
    result = await send(endpoint)
    assert result is not None
    assert result.outcome is Outcome.FORBIDDEN
    assert result.error


def test_a_target_shows_neither_secrets_nor_headers_nor_userinfo() -> None:
    target = Target("https://user:pass@a.example/p?token=1", [b"secret" * 6], [("X-Key", "secret")])
    assert repr(target) == "Target(https://a.example:443)"
