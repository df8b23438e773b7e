"""Names to addresses without a thread per lookup: c-ares, a bounded cache, and one lookup per name however many wait."""

import asyncio
import contextlib
import functools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

import aiodns
import pycares

from regions.egress.errors import ResolveFailed
from regions.egress.guard import Address

_WORDS = {
    aiodns.error.ARES_ENOTFOUND: "the name does not exist",
    aiodns.error.ARES_ENODATA: "the name has no address",
    aiodns.error.ARES_ETIMEOUT: "no name server answered in time",
    aiodns.error.ARES_ESERVFAIL: "the name server reports a failure",
    aiodns.error.ARES_EREFUSED: "the name server refuses to answer",
    aiodns.error.ARES_ECONNREFUSED: "no name server can be reached",
    aiodns.error.ARES_EBADNAME: "it is not a valid name",
}


@dataclass(frozen=True, slots=True)
class _Answer:
    addresses: tuple[Address, ...]
    error: str
    until: float


class Resolver:
    """Shared by all sends of a process and bound to its event loop. Search domains and the environment are not used.

    An answer is kept for its TTL, at least 1 s and at most ``ttl_seconds_max``; a failure for 1 s. At most ``lookups_max``
    lookups run at once and each ends after ``lookup_seconds_max``, so names that hang only hold up names that are not in the
    cache, and those no longer than that. ``/etc/hosts`` comes first.
    """

    def __init__(
        self,
        *,
        nameservers: Sequence[str] | None = None,
        lookups_max: int = 256,
        names_max: int = 4096,
        ttl_seconds_max: float = 60.0,
        lookup_seconds_max: float = 5.0,
    ) -> None:
        self._nameservers = nameservers
        self._ttl_seconds_max = ttl_seconds_max
        self._lookup_seconds_max = lookup_seconds_max
        self._names_max = names_max
        self._slots = asyncio.Semaphore(lookups_max)
        self._cache: OrderedDict[str, _Answer] = OrderedDict()
        self._lookups: dict[str, asyncio.Task[_Answer]] = {}
        self._ares: aiodns.DNSResolver | None = None

    async def resolve(self, host: str) -> tuple[Address, ...]:
        """The addresses of a name, at least one. Raises ``ResolveFailed``. Cancelling a waiter does not end the lookup."""
        answer = self._cache.get(host)
        if answer is None or answer.until <= asyncio.get_running_loop().time():
            lookup = self._lookups.get(host)
            if lookup is None:
                lookup = self._lookups[host] = asyncio.create_task(self._look_up(host))
                lookup.add_done_callback(functools.partial(self._forget, host))
            answer = await asyncio.shield(lookup)
        if answer.error:
            raise ResolveFailed(f"cannot resolve {host}: {answer.error}")
        return answer.addresses

    async def aclose(self) -> None:
        lookups = list(self._lookups.values())
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)
        if self._ares is not None:
            await self._ares.close()
            self._ares = None

    def _forget(self, host: str, _lookup: asyncio.Task[_Answer]) -> None:
        self._lookups.pop(host, None)

    async def _look_up(self, host: str) -> _Answer:
        """Never raises but for cancellation: a failure is an answer, too, and shared by all who wait for it."""
        addresses: tuple[Address, ...] = ()
        seconds, error = 1.0, ""
        try:
            async with asyncio.timeout(self._lookup_seconds_max), self._slots:
                addresses, seconds = await self._ask(host)
        except TimeoutError:
            error = "no name server answered in time"
        except aiodns.error.DNSError as failure:
            error = _WORDS.get(failure.args[0], f"name server error {failure.args[0]}")
        except (UnicodeError, ValueError, pycares.AresError):
            error = "it is not a valid name"
        if not addresses and not error:
            error = "the name has no address"
        answer = _Answer(addresses, error, asyncio.get_running_loop().time() + seconds)
        self._cache[host] = answer
        self._cache.move_to_end(host)
        if len(self._cache) > self._names_max:
            self._cache.popitem(last=False)
        return answer

    async def _ask(self, host: str) -> tuple[tuple[Address, ...], float]:
        if self._ares is None:
            self._ares = aiodns.DNSResolver(
                nameservers=self._nameservers,
                lookups="fb",
                flags=pycares.ARES_FLAG_NOSEARCH | pycares.ARES_FLAG_NOALIASES,
                timeout=2.0,
                tries=2,
            )
        result = await self._ares.getaddrinfo(host)
        found: dict[Address, None] = {}
        for node in result.nodes:
            with contextlib.suppress(ValueError):  # what cannot be read is as good as not there: the guard fails closed
                text = node.addr[0]
                found[ip_address(text.decode() if isinstance(text, bytes) else text)] = None
        ttl = min((node.ttl for node in result.nodes), default=1)
        return tuple(found), min(max(float(ttl), 1.0), self._ttl_seconds_max)
