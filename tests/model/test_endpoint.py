"""A subscriber's URL: one spelling, one meaning, and nowhere it must not lead."""

import contextlib
from ipaddress import ip_address, ip_network

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanout.model.endpoint import Endpoint, parse_endpoint, parse_url
from fanout.model.problems import Invalid

LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))

NORMALISED = {
    "https://h.example": "https://h.example/",
    "HTTPS://H.Example:443/A": "https://h.example/A",
    "https://h.example?": "https://h.example/?",
    "https://h.example?a=b": "https://h.example/?a=b",
    "https://h.example/a/../b/./c": "https://h.example/b/c",
    "https://h.example/../..": "https://h.example/",
    "https://h.example/a/b/..": "https://h.example/a/",
    "https://h.example/a/.": "https://h.example/a/",
    "https://h.example//a//b/": "https://h.example//a//b/",
    "https://h.example/%2e%2e/%C3%BC": "https://h.example/%2e%2e/%C3%BC",
    "https://h.example/ü?ö=ä": "https://h.example/%C3%BC?%C3%B6=%C3%A4",
    "https://h.example/\"<>^`{|}[]'?\"<>^`{|}[]'": "https://h.example/%22%3C%3E%5E%60%7B%7C%7D%5B%5D'?%22%3C%3E%5E%60%7B%7C%7D%5B%5D'",
    "https://h.example:8443/": "https://h.example:8443/",
    "https://h.example:0443/": "https://h.example/",
    "https://h.example:80/": "https://h.example:80/",
    "https://a_b.example/": "https://a_b.example/",
    "https://_dmarc.example/": "https://_dmarc.example/",
    "https://r2---sn.example/": "https://r2---sn.example/",
    "https://bücher.example/": "https://xn--bcher-kva.example/",
    "https://BÜCHER.example/": "https://xn--bcher-kva.example/",
    "https://xn--bcher-kva.example/": "https://xn--bcher-kva.example/",
    "https://例え。jp/": "https://xn--r8jz45g.jp/",
    "https://straße.example/": "https://xn--strae-oqa.example/",
    "https://hooks/": "https://hooks/",
    "https://" + "a" * 63 + ".example/": "https://" + "a" * 63 + ".example/",
    "https://8.8.8.8/": "https://8.8.8.8/",
    "https://[2606:4700:0:0::1]:8443/x": "https://[2606:4700::1]:8443/x",
}


@pytest.mark.parametrize(("text", "url"), NORMALISED.items())
def test_a_url_is_stored_in_one_spelling_that_the_client_library_reads_alike(text, url):
    endpoint = parse_endpoint("endpoint", text)
    assert endpoint.url == url
    assert parse_endpoint("endpoint", url) == parse_url("endpoint", url) == endpoint
    theirs = httpx2.URL(url)
    assert theirs.raw_host.decode() == endpoint.host
    assert (theirs.port or 443, theirs.raw_path.decode(), theirs.netloc.decode()) == (
        endpoint.port,
        endpoint.target,
        endpoint.authority,
    )


URL_TRICKS = {
    "": "not a URL", "h.example": "not a URL", "https:h.example": "not a URL", "https:/h.example": "not a URL", "//h.example/": "not a URL",
    "https:///x": "no host", "https://": "no host", "https://:443/": "no host", "https://?x": "no host",
    "ftp://h.example/": "'ftp' is not a scheme", "file:///etc/passwd": "'file' is not a scheme", "javascript://x/%0a": "'javascript' is not",
    "gopher://127.0.0.1:6379/_x": "'gopher' is not a scheme", "ws://h.example/": "'ws' is not a scheme",
    "https://u@h.example/": "user name", "https://u:hush@h.example/": "user name", "https://good.example@127.0.0.1/": "user name",
    "https://127.0.0.1#@good.example/": "fragment", "https://h.example/#a": "fragment",
    "https://h.example\\@evil.example/": "parsers disagree", "https:\\\\h.example/": "parsers disagree", "https://h.example/a b": "parsers disagree",
    " https://h.example/": "parsers disagree", "https://h.example/\n": "parsers disagree", "https://h.example/a\r\nX: 1": "parsers disagree",
    "https://h.example/\x00": "parsers disagree", "https://h.exa\tmple/": "parsers disagree", "https://h.example/\ud800": "parsers disagree",
    "https://h.example/\u2028": "parsers disagree",
    "https://h.example/%": "'%' without", "https://h.example/%zz": "'%' without", "https://h.example/?a=%1": "'%' without",
    "https://h.example/" + "a" * 2048: "characters long", "https://h.example/" + "ü" * 1000: "characters long",
    "https://[::1/": "cannot be read", "https://::1/": "has no host", "https://[::1]x/": "cannot be read", "https://h]x/": "cannot be read",
    "https://[]/": "not an IPv6", "https://[1.2.3.4]/": "not an IPv6", "https://[::g]/": "not an IPv6", "https://[fe80::1%25eth0]/": "zone",
}  # fmt: skip
PORTS = {
    "https://h.example:0/": "1 to 65535", "https://h.example:65536/": "1 to 65535", "https://h.example:99999/": "1 to 65535",
    "https://h.example:/": "1 to 65535", "https://h.example:-1/": "1 to 65535", "https://h.example:+443/": "1 to 65535",
    "https://h.example:٤٤٣/": "1 to 65535", "https://h.example:443443443/": "1 to 65535", "https://h.example:a/": "1 to 65535",
    "https://h.example:22/": "port 22 belongs", "https://h.example:25/": "port 25 belongs", "https://8.8.8.8:1023/": "port 1023 belongs",
}  # fmt: skip
HOSTS = {
    "https://good..example/": "empty part", "https://.good.example/": "empty part", "https://good.example./": "ends with a dot",
    "https://./": "ends with a dot", "https://xn--a.example/": "'xn--a' cannot be", "https://xn--.example/": "cannot be",
    "https://" + "a" * 64 + ".example/": "longer than 63", "https://" + "ü" * 60 + ".example/": "cannot be",
    "https://" + "a." * 126 + "aa.example/": "longer than 253", "https://-a.example/": "cannot be", "https://a-.example/": "cannot be",
    "https://%31.example/": "cannot be", "https://a,b.example/": "cannot be", "https://a*b.example/": "cannot be",
    "https://☃.example/": "cannot be", "https://a／b.example/": "cannot be", "https://a＠b.example/": "cannot be",
    "https://\u1806.example/": "cannot be", "https://\ufffd.example/": "a character that no name can",
}  # fmt: skip
NOT_PUBLIC = [
    "2130706433", "0x7f000001", "0x7f.1", "017700000001", "127.1", "127.0.1", "0", "0.0.0.0", "127.0.0.1.", "0127.0.0.1", "1.2.3.04",
    "127.0.0.256", "127。0。0。1", "127．0．0．1", "１２７.0.0.1", "①②⑦.0.0.1", "1.2.3.4.5", "a.1", "a.0x", "a.0x1f",
    "127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "192.0.0.192",
    "198.18.0.1", "224.0.0.1", "255.255.255.255", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:169.254.169.254]",
    "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fd00:ec2::254]", "[fe80::1]", "[fec0::1]", "[ff02::1]",
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), (URL_TRICKS | PORTS | HOSTS).items(), ids=lambda text: ascii(text)[:48])
def test_what_can_be_read_in_two_ways_is_refused_with_its_reason(text, why):
    with pytest.raises(Invalid, match=f"^endpoint: .*{why}") as refusal:
        parse_endpoint("endpoint", text)
    assert "hush" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("host", NOT_PUBLIC)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_address_that_is_not_public_is_refused_in_every_spelling(scheme, host):
    with pytest.raises(Invalid, match=r"^endpoint: "):
        parse_endpoint("endpoint", f"{scheme}://{host}/hook")


@pytest.mark.parametrize("value", [None, 5, b"https://h.example/", ["https://h.example/"]])
def test_an_endpoint_is_text(value):
    with pytest.raises(Invalid, match=r"a URL is text"):
        parse_endpoint("endpoint", value)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:18901/a", "http://127.0.0.1:22/", "https://[::1]:1/", "http://[::ffff:127.0.0.1]/"]
)
def test_an_allowed_network_opens_plain_http_and_every_port(url):
    endpoint = parse_endpoint("endpoint", url, LOOPBACK)
    assert endpoint.address == ip_address(endpoint.host)


@pytest.mark.parametrize(
    "url",
    ["http://8.8.8.8/", "http://8.8.8.8:8080/", "https://8.8.8.8:22/", "https://10.0.0.1/", "https://h.example:22/"],
)
def test_an_allowed_network_opens_nothing_outside_it(url):
    with pytest.raises(Invalid):
        parse_endpoint("endpoint", url, LOOPBACK)


def test_plain_http_to_a_name_needs_some_allowed_network():
    assert parse_endpoint("endpoint", "http://receiver:8080/x", LOOPBACK).address is None
    with pytest.raises(Invalid, match=r"plain http is only for networks in allow_networks; use https"):
        parse_endpoint("endpoint", "http://receiver:8080/x")


def test_a_stored_url_is_read_without_asking_whether_it_may_be_reached():
    assert parse_url("endpoint", "http://10.0.0.1:22/a?b") == Endpoint("http", "10.0.0.1", 22, "/a?b")


@pytest.mark.parametrize(
    ("query", "shown"),
    [("", ""), ("?", "?"), ("?token=hush", "?token=***"), ("?a=hush&b=hush&c", "?a=***&b=***&***"), ("?hush", "?***"), ("?a=", "?a="),
     ("?a=hush=hush", "?a=***"), ("?=hush", "?=***"), ("?hush?hush", "?***"), ("?&&", "?&&")],
)  # fmt: skip
def test_values_of_the_query_are_never_shown(query, shown):
    endpoint = parse_endpoint("endpoint", f"https://h.example/p{query}")
    assert endpoint.redacted() == f"https://h.example/p{shown}"
    assert "hush" not in f"{endpoint!r} {endpoint}"


hostile = st.text(st.sampled_from("aé.:/@#?\\[]%0x127。\x00 \n-_ｘ１"), max_size=24)


@given(hostile)
def test_no_text_does_anything_but_read_or_be_refused(text):
    for url in (text, f"https://{text}", f"http://h{text}/"):
        with contextlib.suppress(Invalid):
            endpoint = parse_endpoint("endpoint", url, LOOPBACK)
            assert endpoint.url.isascii()
            assert parse_endpoint("endpoint", endpoint.url, LOOPBACK) == endpoint
            assert httpx2.URL(endpoint.url).raw_path.decode() == endpoint.target
