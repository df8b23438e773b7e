"""The databases that the API speaks to: home and one ledger for each region, every one on its own and with its own deadline."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncpg
import structlog

from fanout.api.problems import RETRY_AFTER_SECONDS, Refused
from fanout.database.connection import SteadyConnection
from fanout.database.errors import describe, is_transient
from fanout.database.schema import Schema
from fanout.database.wakeups import Bell
from fanout.home.registry import region_of, regions
from fanout.ledger import channels
from fanout.model.problems import Invalid
from fanout.settings import RegionSettings, Settings

APPLICATION = "fanout api"
HOME_CONNECTIONS = 12
REGION_CONNECTIONS = 4
"""So many connections at most, opened when they are needed; and one more each for the wake-ups."""
ANSWER_SECONDS = 2.5
"""What a database may take, waiting for a free connection and connecting included. Then the caller gets 503."""

_MISPLACED = ("28", "3D", "3F000", "42P01", "42883")
"""Login refused, no such database, schema, table or function: nothing that we say is wrong, but what is there."""

_log = structlog.get_logger()

Result = TypeVar("Result")


class Away(Refused):
    """A database gave no answer: 503. What was asked may have been done all the same: every call of the API may be repeated."""

    def __init__(self, place: str, why: str) -> None:
        after = str(RETRY_AFTER_SECONDS).encode()
        super().__init__(503, f"{place} is away; repeat the call", headers=[(b"retry-after", after)])
        self.place = place
        self.why = why
        """For the log and for probes; callers learn which part is away."""


class Connections:
    """Runs one statement at a time on each of a few connections that stay open: one round trip, and no reset between callers."""

    def __init__(self, place: str, url: str, most: int, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.place = place
        self._room = asyncio.Semaphore(most)
        self._idle = [SteadyConnection(url, APPLICATION) for _ in range(most)]
        self._all = tuple(self._idle)
        self._answer_seconds = answer_seconds
        self._away = False

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[asyncpg.Record]:
        """Raises Away within the deadline, and as they are the errors that another try would not mend."""
        try:
            async with asyncio.timeout(self._answer_seconds), self._room:
                connection = self._idle.pop()  # the one that was used last, so that few are opened
                try:
                    rows = await connection.fetch(sql, *arguments)
                finally:
                    self._idle.append(connection)
        except Exception as error:
            if (away := _away(self.place, error)) is None:
                raise
            self._note(away)
            raise away from error
        if self._away:
            self._away = False
            _log.info("service back", service=self.place)
        return rows

    def _note(self, away: Away) -> None:
        if not self._away:
            self._away = True
            _log.warning("service away", service=self.place, error=away.why)

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._all))


def _away(place: str, error: Exception) -> Away | None:
    if isinstance(error, ValueError):  # asyncpg's DataError: an argument that cannot be encoded is an error of ours
        return None
    if isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "").startswith(_MISPLACED):
        return Away(place, f"{describe(error)} (is it migrated? `fanout doctor` looks)")
    return Away(place, describe(error)) if is_transient(error) else None


@dataclass(frozen=True, slots=True)
class Place:
    """Home, or the ledger of a region, with the bell that wakes whoever works there."""

    name: str
    region: str
    """Of a region, its name; home has none."""
    schema: Schema
    connections: Connections
    bell: Bell

    async def check(self) -> None:
        """Raises Away where a ledger does not answer."""
        await self.connections.fetch(self.schema.sql("SELECT FROM {schema}.destination LIMIT 1"))


class Places:
    """All databases of a deployment. Making them connects to nothing."""

    def __init__(self, settings: Settings) -> None:
        home_schema = Schema(settings.home.schema)
        bell = channels.outbox(home_schema)
        self.home = _place("home", "", settings.home.url, home_schema, bell, HOME_CONNECTIONS)
        self.regions: Mapping[str, Place] = {each.name: _region(each) for each in settings.regions.values()}
        self._known_at_home = False

    def region(self, name: str, field: str = "region") -> Place:
        if name not in self.regions:
            raise Invalid.field(
                field, f"there is no region {name[:40]!a}", f"the regions are {', '.join(self.regions)}"
            )
        return self.regions[name]

    async def check_home_knows_regions(self) -> None:
        """Once, before anything is published: a version gets an outbox row for each region that home knows of, and for no other."""
        if self._known_at_home:
            return
        known = await regions(self.home.connections, self.home.schema)
        if missing := self.regions.keys() - set(known):
            raise Away("home", f"it does not know region {', '.join(sorted(missing))} yet: run `fanout migrate`")
        self._known_at_home = True

    async def check_home(self) -> None:
        """Raises Away where publishing would not work."""
        self._known_at_home = False
        await self.check_home_knows_regions()

    async def of_subscriber(self, subscriber_id: str, *, deleted_too: bool = True) -> Place:
        """The region that a subscriber belongs to, or 404. Whether it is there at all, the region itself says."""
        registered = await region_of(self.home.connections, self.home.schema, subscriber_id)
        if registered is None or (registered.deleted and not deleted_too):
            raise unknown_subscriber(subscriber_id)
        if registered.region not in self.regions:
            raise Away(f"region {registered.region}", "it is not configured here any more")
        return self.regions[registered.region]

    async def ask_regions(
        self, question: Callable[[str, Place], Coroutine[Any, Any, Result]], names: Sequence[str] | None = None
    ) -> dict[str, Result | Away]:
        """Ask regions at the same time, all or those named. One that is away gives its Away and delays nobody beyond the deadline."""

        async def ask(name: str) -> Result | Away:
            try:
                return await question(name, self.regions[name])
            except Away as away:
                return away

        asked = list(self.regions) if names is None else names
        return dict(zip(asked, await asyncio.gather(*map(ask, asked)), strict=True))

    async def close(self) -> None:
        for place in (self.home, *self.regions.values()):
            await place.bell.close()
            await place.connections.close()


def _region(settings: RegionSettings) -> Place:
    schema = Schema(settings.schema)
    name = f"region {settings.name}"
    return _place(name, settings.name, settings.url, schema, channels.due(schema), REGION_CONNECTIONS)


def _place(name: str, region: str, url: str, schema: Schema, channel: str, most: int) -> Place:
    return Place(name, region, schema, Connections(name, url, most), Bell(url, APPLICATION, channel))


def unknown_subscriber(subscriber_id: str) -> Refused:
    return Refused(404, f"there is no subscriber {subscriber_id}")
