"""The address guard: of the addresses a name leads to, those that a connection may be made to."""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from fanout.model.addresses import AddressVerdict, judge
from regions.egress.errors import ForbiddenDestination

Address = IPv4Address | IPv6Address

_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.ASCII | re.IGNORECASE | re.DOTALL)


class AddressGuard:
    """Judges every address just before a connection is made to it, literal or resolved."""

    def __init__(self, allow_networks: Sequence[IPv4Network | IPv6Network] = ()) -> None:
        self._allow_networks = tuple(allow_networks)

    def choose(self, scheme: str, host: str, addresses: Sequence[Address]) -> list[Address]:
        """The addresses that may be used, in their order. Raises ``ForbiddenDestination`` if there is none.

        A name that leads to allowed and forbidden addresses is only reached at the allowed ones. Plain ``http`` goes
        to addresses in ``allow_networks`` and nowhere else.
        """
        verdicts = [(address, judge(address, self._allow_networks)) for address in addresses]
        usable = [address for address, verdict in verdicts if verdict.allowed]
        if not usable:
            address, verdict = verdicts[0] if verdicts else (None, AddressVerdict.UNREADABLE)
            where = host if address is None or host == str(address) else f"{host} leads to {address}, which"
            raise ForbiddenDestination(
                f"{where} {verdict.value}: no request is sent there unless allow_networks lists it",
                address=None if address is None else str(address),
            )
        if scheme == "https":
            return usable
        listed = [address for address in usable if self._is_listed(address)]
        if not listed:
            raise ForbiddenDestination(
                f"plain http to {usable[0]}: only https is used outside allow_networks", address=str(usable[0])
            )
        return listed

    def _is_listed(self, address: Address) -> bool:
        inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return any(address in network or (inner is not None and inner in network) for network in self._allow_networks)


def read_literal(host: str) -> Address | None:
    """The address if ``host`` is one, None if it is a name.

    Raises ``ForbiddenDestination`` for numbers that only some resolvers take for addresses (``127.1``, ``2130706433``,
    ``0x7f.1``; the rule is the URL standard's: the last label is a number) and for zones.
    """
    try:
        address = ip_address(host)
    except ValueError:
        if "%" in host or ":" in host or _NUMERIC.fullmatch(host.removesuffix(".")):
            raise ForbiddenDestination(f"{host!r} is neither a name nor a whole IP address") from None
        return None
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise ForbiddenDestination(f"{host!r} carries a zone, which names an interface of this machine")
    return address
