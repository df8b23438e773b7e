"""Probes and metrics: is the process up, can it work, and what has it done."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.routing import Router
from starlette.types import ASGIApp

from fanout.api.answers import Answer, document
from fanout.api.call import Call
from fanout.api.paths import Line, Paths
from fanout.api.places import Away
from fanout.database.errors import describe
from fanout.telemetry.metrics import CONTENT_TYPE, Figures, Reading, exposition

CHECK_SECONDS = 2.5

Check = Callable[[], Awaitable[None]]
"""Returns where all is well, and raises whatever is the matter."""


def create_probes(
    name: str, checks: Mapping[str, Check], figures: Figures, shown: Mapping[str, Check] | None = None
) -> ASGIApp:
    """The HTTP side of a role without an API: ``/healthz``, ``/readyz`` (ready where every check passes; those ``shown`` do not
    decide), ``/metrics``.
    """
    return Router(default=Paths(Probes(name, checks, figures, shown=shown).lines()), redirect_slashes=False)


class Probes:
    """``shown``: checks that are reported and do not decide. ``ask``: figures that have to be asked for at each scrape."""

    def __init__(
        self,
        name: str,
        checks: Mapping[str, Check],
        figures: Figures,
        *,
        shown: Mapping[str, Check] | None = None,
        ask: Callable[[], Awaitable[Sequence[Reading]]] | None = None,
    ) -> None:
        self._name = name
        self._checks = dict(checks)
        self._shown = dict(shown or {})
        self._figures = figures
        self._ask = ask

    def lines(self) -> list[Line]:
        return [("GET", "/healthz", self.healthz), ("GET", "/readyz", self.readyz), ("GET", "/metrics", self.metrics)]

    async def healthz(self, _call: Call) -> Answer:
        """The event loop turns. Nothing else is asked: restarting us does not bring a database back."""
        return document(200, {"status": "ok", "role": self._name})

    async def readyz(self, _call: Call) -> Answer:
        decisive, shown = await asyncio.gather(_run(self._checks), _run(self._shown))
        ready = all(why is None for why in decisive.values())
        results = {name: _result(why) for name, why in (decisive | shown).items()}
        return document(200 if ready else 503, {"ready": ready, "role": self._name, "checks": results})

    async def metrics(self, _call: Call) -> Answer:
        asked = [] if self._ask is None else await self._ask()
        return Answer(200, exposition([*asked, *self._figures.read()]), CONTENT_TYPE)


async def _run(checks: Mapping[str, Check]) -> dict[str, str | None]:
    """By check, what is the matter; None where all is well."""
    return dict(zip(checks, await asyncio.gather(*map(_why, checks.values())), strict=True))


async def _why(check: Check) -> str | None:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await check()
    except TimeoutError:
        return f"no answer within {CHECK_SECONDS} seconds"
    except Away as away:
        return away.why
    except Exception as error:  # noqa: BLE001 - whatever a check raises is its answer
        return describe(error)
    return None


def _result(why: str | None) -> dict[str, object]:
    return {"ok": True} if why is None else {"ok": False, "why": why}
