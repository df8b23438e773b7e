"""Where a subscriber's deliveries go: its URL, checked and brought into one spelling when it is saved.

The stored text is plain ASCII and means the same to every parser (RFC 3986 after IDNA and percent-encoding), so nothing can
be one host to the check and another to the sender. Names are not resolved here: their addresses are judged at each connection.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import quote

from fanout.model.addresses import judge
from fanout.model.host import parse_host
from fanout.model.problems import Invalid

Network = IPv4Network | IPv6Network

URL_LENGTH_MAX = 2048
ENDPOINT_RIGHT = "write https://HOST/PATH, as https://hooks.example.com/shipments?source=fanout"
PORT_RIGHT = "use 443, 80 or a port from 1024 to 65535"

_PORTS = {"https": 443, "http": 80}
_WELL_KNOWN_PORTS_MAX = 1023
_PORT_MAX = 65535
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\xa0\ud800-\udfff\\]|[\u2028\u2029]")
_SHAPE = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?]*)(?P<path>/[^?]*)?(?P<query>\?.*)?")
_AUTHORITY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?::(?P<port>.*))?")
_BROKEN_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_KEPT_IN_PATH = "/%~!$&'()*+,;=:@"
_KEPT_IN_QUERY = "?" + _KEPT_IN_PATH


@dataclass(frozen=True, slots=True, repr=False)
class Endpoint:
    """A checked URL in its parts. ``repr`` and ``redacted`` hide the values of the query string: senders put keys there."""

    scheme: str
    host: str
    """What to connect to: an A-label name or a literal address, IPv6 without brackets."""
    port: int
    target: str
    """Path and query as they stand in the request line."""

    @property
    def address(self) -> IPv4Address | IPv6Address | None:
        """The literal address, where the host is one."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None

    @property
    def authority(self) -> str:
        """The ``Host`` header: without the scheme's own port, IPv6 in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The normalised text: what is stored. Reading it again gives the same endpoint."""
        return f"{self.scheme}://{self.authority}{self.target}"

    def redacted(self) -> str:
        """The URL for logs, spans and listings."""
        address, question, query = self.url.partition("?")
        return address + question + "&".join(_without_value(piece) for piece in query.split("&"))

    def __repr__(self) -> str:
        return f"Endpoint({self.redacted()!r})"


def parse_endpoint(field: str, text: object, allow_networks: Sequence[Network] = ()) -> Endpoint:
    """Read a URL and check it against the region's ``allow_networks``. Errors never repeat the URL: it may hold secrets.

    ``https`` goes to any public address; plain ``http`` and unusual ports only into ``allow_networks``. An ``http`` URL with
    a host *name* is accepted where there are such networks at all, since only a connection shows where the name leads.
    """
    endpoint = parse_url(field, text)
    _check_reach(field, endpoint, allow_networks)
    return endpoint


def parse_url(field: str, text: object) -> Endpoint:
    """Read and normalise a URL without asking whether it may be reached: for one that was checked when it was saved."""
    shape = _take_apart(field, text)
    scheme = shape["scheme"].lower()
    authority = _AUTHORITY.fullmatch(shape["authority"])
    if authority is None:
        raise Invalid.field(field, "the host cannot be read", ENDPOINT_RIGHT)
    host = str(parse_host(field, authority["host"]))
    port = _parse_port(field, authority["port"], _PORTS[scheme])
    path = quote(_without_dot_segments(shape["path"] or "/"), safe=_KEPT_IN_PATH)
    endpoint = Endpoint(scheme, host, port, path + quote(shape["query"] or "", safe=_KEPT_IN_QUERY))
    if len(endpoint.url) > URL_LENGTH_MAX:
        raise Invalid.field(field, f"is {len(endpoint.url)} characters long", f"write at most {URL_LENGTH_MAX}")
    return endpoint


def _take_apart(field: str, text: object) -> re.Match[str]:
    if not isinstance(text, str):
        raise Invalid.field(field, f"a URL is text, not {type(text).__name__}", ENDPOINT_RIGHT)
    if len(text) > URL_LENGTH_MAX:
        raise Invalid.field(field, f"is {len(text)} characters long", f"write at most {URL_LENGTH_MAX}")
    if unsafe := _UNSAFE.search(text):
        raise Invalid.field(field, f"holds {unsafe[0]!a}, which parsers disagree about", "percent-encode it")
    if "#" in text:
        raise Invalid.field(field, "has a fragment ('#'), which is never sent", "leave it out, or write %23")
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise Invalid.field(field, "is not a URL with a scheme and a host", ENDPOINT_RIGHT)
    if shape["scheme"].lower() not in _PORTS:
        raise Invalid.field(field, f"'{shape['scheme'][:20]}' is not a scheme that deliveries can use", ENDPOINT_RIGHT)
    if "@" in shape["authority"]:
        raise Invalid.field(field, "holds a user name or password", "send credentials in headers of the subscriber")
    if not shape["authority"]:
        raise Invalid.field(field, "has no host", ENDPOINT_RIGHT)
    if _BROKEN_PERCENT.search((shape["path"] or "") + (shape["query"] or "")):
        raise Invalid.field(field, "has a '%' without two hexadecimal digits behind it", "write %25 for a '%'")
    return shape


def _parse_port(field: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= _PORT_MAX:
        raise Invalid.field(field, "the port is not a number from 1 to 65535", PORT_RIGHT)
    return int(text)


def _check_reach(field: str, endpoint: Endpoint, allow_networks: Sequence[Network]) -> None:
    inside = False
    if endpoint.address is not None:
        verdict = judge(endpoint.address, allow_networks)
        if not verdict.allowed:
            why = f"{endpoint.host} {verdict.value}"
            raise Invalid.field(field, why, "use a public address, or add its network to the region's allow_networks")
        inside = any(endpoint.address in network for network in allow_networks) or not judge(endpoint.address).allowed
    may_lead_inside = endpoint.address is None and bool(allow_networks)
    if endpoint.scheme == "http" and not inside and not may_lead_inside:
        raise Invalid.field(field, "plain http is only for networks in allow_networks", "use https")
    if not inside and endpoint.port <= _WELL_KNOWN_PORTS_MAX and endpoint.port not in _PORTS.values():
        raise Invalid.field(field, f"port {endpoint.port} belongs to another service", PORT_RIGHT)


def _without_dot_segments(path: str) -> str:
    """RFC 3986, section 5.2.4, for a path that begins with a slash."""
    kept: list[str] = []
    *steps, last = path.split("/")[1:]
    for step in steps:
        if step == "..":
            kept = kept[:-1]
        elif step != ".":
            kept.append(step)
    if last == "..":
        kept = kept[:-1]
    return "/" + "".join(f"{step}/" for step in kept) + (last if last not in {".", ".."} else "")


def _without_value(piece: str) -> str:
    name, equals, value = piece.partition("=")
    return name + equals + ("***" if value else "") if equals else "***" if piece else ""
