"""The host of a URL: a literal address in its one plain form, or a name in A-labels."""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address

import idna

from fanout.model.problems import Invalid

NAME_LENGTH_MAX = 253
LABEL_LENGTH_MAX = 63
HOST_RIGHT = (
    "write a host name as hooks.example.com, an IPv4 address as 203.0.113.7 or an IPv6 address as [2001:db8::7]"
)

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")


def parse_host(field: str, text: str) -> str | IPv4Address | IPv6Address:
    """Read the host of a URL, IPv6 in brackets. Raises ``Invalid`` for what resolvers and parsers read in several ways.

    Whatever ends in a number is an address to most of them (``127.1``, ``0x7f000001``, ``2130706433``, fullwidth digits):
    only four plain decimal parts are accepted. Names may hold underscores, as names in real use do.
    """
    if text.startswith("["):
        return _parse_ipv6(field, text[1:-1])
    if not text:
        raise Invalid.field(field, "has no host", HOST_RIGHT)
    name = _mapped(field, text)
    if _NUMBER.fullmatch(name.rstrip(".").rpartition(".")[2]):
        return _parse_ipv4(field, text)
    if name.endswith("."):
        raise Invalid.field(field, "the host ends with a dot", "leave the dot out")
    name = ".".join(_a_label(field, label) for label in name.split("."))
    if len(name) > NAME_LENGTH_MAX:
        raise Invalid.field(field, f"the host is longer than {NAME_LENGTH_MAX} characters", HOST_RIGHT)
    return name


def _parse_ipv6(field: str, text: str) -> IPv6Address:
    try:
        address = IPv6Address(text)
    except AddressValueError:
        raise Invalid.field(field, "what stands in brackets is not an IPv6 address", HOST_RIGHT) from None
    if address.scope_id is not None:
        raise Invalid.field(field, "the address carries a zone (the part after '%')", HOST_RIGHT)
    return address


def _parse_ipv4(field: str, text: str) -> IPv4Address:
    try:
        return IPv4Address(text)
    except AddressValueError:
        why = "the host is an address in a form that not everyone reads alike"
        raise Invalid.field(field, why, "write IPv4 as four decimal numbers with dots, without leading zeros") from None


def _mapped(field: str, text: str) -> str:
    """Lower case, and for anything beyond ASCII the mapping of UTS 46 (which also makes ``。`` a dot)."""
    if text.isascii():
        return text.lower()
    try:
        return idna.uts46_remap(text, std3_rules=False, transitional=False)
    except idna.IDNAError:
        raise Invalid.field(field, "the host holds a character that no name can", HOST_RIGHT) from None


def _a_label(field: str, label: str) -> str:
    if not label:
        raise Invalid.field(field, "the host has an empty part between dots", HOST_RIGHT)
    try:
        if label.startswith("xn--"):
            idna.ulabel(label)
        ascii_label = label if label.isascii() else idna.alabel(label).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise Invalid.field(field, f"{label[:LABEL_LENGTH_MAX]!a} cannot be part of a host name", HOST_RIGHT) from None
    if len(ascii_label) > LABEL_LENGTH_MAX:
        raise Invalid.field(field, f"a part of the host is longer than {LABEL_LENGTH_MAX} characters", HOST_RIGHT)
    if not _LABEL.fullmatch(ascii_label):
        raise Invalid.field(field, f"{ascii_label!a} cannot be part of a host name", HOST_RIGHT)
    return ascii_label
