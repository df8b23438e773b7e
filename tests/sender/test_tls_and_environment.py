"""TLS is verified against the region's authorities, and no variable of the environment changes what is sent or whom it trusts."""

from pathlib import Path

import pytest

from fanout.model.problems import Invalid
from fanout.model.states import Outcome
from regions.egress.tls import tls_context
from regions.egress.transport import WireTransport

from .conftest import LOOPBACK, Send
from .hostile import CERTIFICATES, OK, Names, answer, receiver


async def test_a_verified_receiver_gets_the_payload_over_tls_and_the_connection_is_kept(
    send: Send, transport: WireTransport
) -> None:
    async with receiver(answer(OK), certificate="right.pem") as there:
        for payload in (b"x" * (1 << 20), b"", b"{}"):
            result = await send(there.url(), payload)
            assert result is not None
            assert (result.outcome, result.excerpt) == (Outcome.DELIVERED, b"ok")
        assert [len(got.body) for got in there.got] == [1 << 20, 0, 2]
        assert there.connections == 1
        assert transport.idle_connections == 1


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "hooks.example", "hooks.example."])
async def test_the_host_name_is_what_is_verified(send: Send, host: str) -> None:
    names = Names(**{"localhost": ["127.0.0.1"], "hooks.example": ["127.0.0.1"], "hooks.example.": ["127.0.0.1"]})
    transport = WireTransport(allow_networks=LOOPBACK, ca_file=CERTIFICATES / "authority.pem", resolver=names)
    async with receiver(answer(OK), certificate="right.pem") as there:
        result = await send(there.url(host=host), transport=transport)
    assert result is not None
    assert result.outcome is Outcome.DELIVERED
    await transport.aclose()


@pytest.mark.parametrize(
    ("certificate", "error"),
    [
        ("self-signed.pem", "no TLS session with 127.0.0.1: self-signed certificate"),
        (
            "wrong-name.pem",
            "no TLS session with 127.0.0.1: IP address mismatch, certificate is not valid for '127.0.0.1'.",
        ),
    ],
)
async def test_a_certificate_that_does_not_verify_is_unreachable_and_says_why(
    send: Send, transport: WireTransport, certificate: str, error: str
) -> None:
    async with receiver(answer(OK), certificate=certificate) as there:
        result = await send(there.url())
        await there.until(lambda: there.open == 0)
    assert result is not None
    assert (result.outcome, result.status, result.error) == (Outcome.UNREACHABLE, None, error)
    assert (there.got, transport.open_connections) == ([], 0)


async def test_an_authority_nobody_named_is_not_trusted(send: Send) -> None:
    transport = WireTransport(allow_networks=LOOPBACK)
    async with receiver(answer(OK), certificate="right.pem") as there:
        result = await send(there.url(), transport=transport)
    assert result is not None
    assert result.outcome is Outcome.UNREACHABLE
    assert "unable to get local issuer certificate" in result.error
    await transport.aclose()


async def test_https_to_a_port_that_speaks_plain_http_is_unreachable(send: Send) -> None:
    async def plain(wire) -> None:
        await wire.reader.read(100)
        await wire.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    async with receiver(answer(OK), on_connect=plain) as there:
        result = await send(f"https://127.0.0.1:{there.port}/")
    assert result is not None
    assert (result.outcome, result.error) == (
        Outcome.UNREACHABLE,
        "no TLS session with 127.0.0.1: wrong version number",
    )


async def test_plain_http_to_a_tls_port_is_not_delivered(send: Send) -> None:
    async with receiver(answer(OK), certificate="right.pem") as there:
        result = await send(f"http://127.0.0.1:{there.port}/")
    assert result is not None
    assert result.outcome in (Outcome.UNKNOWN, Outcome.FAILED)
    assert there.got == []


async def test_the_environment_is_ignored(send: Send, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = tmp_path / "session-keys"
    async with receiver(answer(OK)) as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", "[::1],fd00::/8")
        monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/at/all.pem")
        monkeypatch.setenv("SSL_CERT_DIR", "/nowhere")
        monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
        monkeypatch.setenv("NETRC", "/nowhere/netrc")
        transport = WireTransport(allow_networks=LOOPBACK, ca_file=CERTIFICATES / "authority.pem")
        async with receiver(answer(OK)) as plain, receiver(answer(OK), certificate="right.pem") as secure:
            results = [await send(there.url(), transport=transport) for there in (plain, secure)]
        await transport.aclose()
        assert proxy.connections == 0
    assert [result and result.outcome for result in results] == [Outcome.DELIVERED] * 2
    assert not keys.exists()


def test_the_systems_authorities_are_found_without_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/at/all.pem")
    monkeypatch.setenv("SSL_CERT_DIR", "/nowhere")
    assert tls_context().verify_mode.name == "CERT_REQUIRED"


@pytest.mark.parametrize("content", [None, "not a certificate"])
def test_an_authority_file_that_cannot_be_read_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "authority.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(Invalid, match="ca_file") as refused:
        tls_context(path)
    assert str(path) in str(refused.value)
