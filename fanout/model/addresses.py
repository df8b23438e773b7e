"""Which IP addresses a request may go to: the rule behind the address guard, for literals and for resolved names alike.

The tables are explicit and closed: what is in no table and is not ordinary unicast space is refused. They follow the IANA
special-purpose registries (RFC 6890 and its updates) and the metadata services of the large clouds. ``ipaddress`` itself
is only used to parse: its ``is_global`` of Python 3.11 calls NAT64, 6to4, multicast and site-local addresses global.
"""

from collections.abc import Sequence
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address


class AddressVerdict(Enum):
    """What an address is. Only ``ALLOWED`` may be connected to; the value of each member is the reason for a person."""

    ALLOWED = "may be connected to"
    LOOPBACK = "is this machine itself (loopback)"
    PRIVATE = "is in a private network"
    LINK_LOCAL = "is link-local"
    METADATA = "is a cloud metadata service"
    MULTICAST = "is a multicast address"
    UNSPECIFIED = "is unspecified ('this host' or 'this network')"
    RESERVED = "is reserved, for documentation or not assigned to anyone"
    SHARED = "is in shared carrier space (100.64.0.0/10)"
    BENCHMARK = "is reserved for benchmarks"
    TRANSLATED = "is an IPv4 address in a translation or tunnel form (NAT64, 6to4, Teredo, ISATAP)"
    MAPPED = "is an IPv4 address in IPv6 form (mapped or compatible)"
    SCOPED = "carries a zone (the part after '%')"
    UNREADABLE = "is not an IP address"

    @property
    def allowed(self) -> bool:
        return self is AddressVerdict.ALLOWED


_V4: tuple[tuple[IPv4Network, AddressVerdict], ...] = tuple(
    (IPv4Network(network), verdict)
    for network, verdict in (  # the first match decides, so single addresses stand before their network
        ("169.254.169.254/32", AddressVerdict.METADATA),  # AWS, Google Cloud, Azure, OpenStack and others
        ("169.254.170.2/32", AddressVerdict.METADATA),  # AWS container credentials
        ("169.254.170.23/32", AddressVerdict.METADATA),  # AWS EKS pod identity
        ("100.100.100.200/32", AddressVerdict.METADATA),  # Alibaba Cloud
        ("192.0.0.192/32", AddressVerdict.METADATA),  # Oracle Cloud
        ("168.63.129.16/32", AddressVerdict.METADATA),  # Azure's host agent, in public space
        ("0.0.0.0/8", AddressVerdict.UNSPECIFIED),
        ("10.0.0.0/8", AddressVerdict.PRIVATE),
        ("100.64.0.0/10", AddressVerdict.SHARED),
        ("127.0.0.0/8", AddressVerdict.LOOPBACK),
        ("169.254.0.0/16", AddressVerdict.LINK_LOCAL),
        ("172.16.0.0/12", AddressVerdict.PRIVATE),
        ("192.0.0.0/24", AddressVerdict.RESERVED),
        ("192.0.2.0/24", AddressVerdict.RESERVED),
        ("192.88.99.0/24", AddressVerdict.TRANSLATED),  # 6to4 relay anycast, withdrawn by RFC 7526
        ("192.168.0.0/16", AddressVerdict.PRIVATE),
        ("198.18.0.0/15", AddressVerdict.BENCHMARK),
        ("198.51.100.0/24", AddressVerdict.RESERVED),
        ("203.0.113.0/24", AddressVerdict.RESERVED),
        ("224.0.0.0/4", AddressVerdict.MULTICAST),
        ("240.0.0.0/4", AddressVerdict.RESERVED),  # with 255.255.255.255
    )
)

_V6: tuple[tuple[IPv6Network, AddressVerdict], ...] = tuple(
    (IPv6Network(network), verdict)
    for network, verdict in (
        ("::/128", AddressVerdict.UNSPECIFIED),
        ("::1/128", AddressVerdict.LOOPBACK),
        ("fd00:ec2::254/128", AddressVerdict.METADATA),  # AWS
        ("fd00:ec2::23/128", AddressVerdict.METADATA),  # AWS EKS pod identity
        ("fd20:ce::254/128", AddressVerdict.METADATA),  # Google Cloud
        ("fc00::/7", AddressVerdict.PRIVATE),
        ("fec0::/10", AddressVerdict.PRIVATE),  # site-local, deprecated by RFC 3879 and still routed by some
        ("fe80::/10", AddressVerdict.LINK_LOCAL),
        ("ff00::/8", AddressVerdict.MULTICAST),
        ("2001:2::/48", AddressVerdict.BENCHMARK),
        ("2001::/23", AddressVerdict.RESERVED),  # protocol assignments, ORCHID; Teredo is unwrapped before
        ("2001:db8::/32", AddressVerdict.RESERVED),
        ("3fff::/20", AddressVerdict.RESERVED),
    )
)

_V6_UNICAST = IPv6Network("2000::/3")
"""The only space from which IANA assigns; everything outside it that no other table names is refused."""

_MAPPED = IPv6Network("::ffff:0:0/96")
_COMPATIBLE = IPv6Network("::/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = IPv6Network("64:ff9b:1::/48")
_SIIT = IPv6Network("::ffff:0:0:0/96")
_TEREDO = IPv6Network("2001::/32")
_6TO4 = IPv6Network("2002::/16")
_ISATAP_MARKS = frozenset({0x00005EFE, 0x02005EFE})


def judge(
    address: str | IPv4Address | IPv6Address, allowed: Sequence[IPv4Network | IPv6Network] = ()
) -> AddressVerdict:
    """Say whether a connection to ``address`` is permitted, and if not, why. Never raises; what cannot be read is refused.

    ``allowed`` are the region's ``allow_networks``: an address inside one of them is allowed. IPv4 in a mapped form is
    judged as that IPv4 address as well, so ``127.0.0.0/8`` also allows ``::ffff:127.0.0.1``. A translated or tunnelled
    address is only allowed if a listed network lies inside that translation prefix *and* the address it leads to may
    be connected to: ``::/0`` does not open NAT64.
    """
    if isinstance(address, str):
        try:
            address = ip_address(address)
        except ValueError:
            return AddressVerdict.UNREADABLE
    if isinstance(address, IPv4Address):
        return _judge_v4(address, allowed)
    if address.scope_id is not None:
        return AddressVerdict.SCOPED
    return _judge_v6(address, allowed)


def _judge_v4(address: IPv4Address, allowed: Sequence[IPv4Network | IPv6Network]) -> AddressVerdict:
    if any(address in network for network in allowed):
        return AddressVerdict.ALLOWED
    return next((verdict for network, verdict in _V4 if address in network), AddressVerdict.ALLOWED)


def _judge_v6(address: IPv6Address, allowed: Sequence[IPv4Network | IPv6Network]) -> AddressVerdict:
    wrapping = _unwrap(address)
    if wrapping is not None:
        return _judge_wrapped(address, *wrapping, allowed)
    if any(address in network for network in allowed):
        return AddressVerdict.ALLOWED
    for network, verdict in _V6:
        if address in network:
            return verdict
    return AddressVerdict.ALLOWED if address in _V6_UNICAST else AddressVerdict.RESERVED


def _judge_wrapped(
    address: IPv6Address,
    prefix: IPv6Network,
    inner: tuple[IPv4Address, ...],
    allowed: Sequence[IPv4Network | IPv6Network],
) -> AddressVerdict:
    named = any(
        isinstance(network, IPv6Network) and network.subnet_of(prefix) and address in network for network in allowed
    )
    verdicts = [_judge_v4(each, allowed) for each in inner]
    refused = next((verdict for verdict in verdicts if not verdict.allowed), None)
    if prefix in {_MAPPED, _COMPATIBLE}:
        if named or (prefix == _MAPPED and any(inner[0] in network for network in allowed)):
            return AddressVerdict.ALLOWED
        return refused or AddressVerdict.MAPPED
    if named and refused is None:
        return AddressVerdict.ALLOWED
    return refused or AddressVerdict.TRANSLATED


def _unwrap(address: IPv6Address) -> tuple[IPv6Network, tuple[IPv4Address, ...]] | None:
    """The prefix that makes ``address`` a wrapped IPv4 address, and every IPv4 address it may lead to."""
    bits = int(address)
    low = IPv4Address(bits & 0xFFFFFFFF)
    found: tuple[IPv6Network, tuple[IPv4Address, ...]] | None = None
    if (prefix := next((each for each in (_MAPPED, _NAT64, _SIIT) if address in each), None)) is not None:
        found = prefix, (low,)
    elif address in _COMPATIBLE and bits > 1:  # ``::`` and ``::1`` are not IPv4
        found = _COMPATIBLE, (low,)
    elif address in _NAT64_LOCAL:  # RFC 6052: the prefix may be /48 (the IPv4 stands around bits 64 to 71) up to /96
        split = (bits >> 64 & 0xFFFF) << 16 | (bits >> 40 & 0xFFFF)
        found = _NAT64_LOCAL, (low, IPv4Address(split))
    elif address in _TEREDO:  # RFC 4380: the client's address is stored inverted
        found = _TEREDO, (IPv4Address(~bits & 0xFFFFFFFF), IPv4Address(bits >> 64 & 0xFFFFFFFF))
    elif address in _6TO4:
        found = _6TO4, (IPv4Address(bits >> 80 & 0xFFFFFFFF),)
    elif bits >> 32 & 0xFFFFFFFF in _ISATAP_MARKS:  # RFC 5214: below any prefix, so nobody can name it by network
        found = IPv6Network((bits, 128)), (low,)
    return found
