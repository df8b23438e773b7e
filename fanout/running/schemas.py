"""The schemas that a deployment consists of: home's and one for each region. Bringing them up to date, and insisting that they are."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import asyncpg
import structlog

from fanout.database.connection import CONNECT_SECONDS, connect
from fanout.database.errors import describe, is_transient
from fanout.database.migrations import migrate, pending
from fanout.database.schema import Schema
from fanout.home.registry import regions, set_regions
from fanout.loops import Patience
from fanout.settings import RegionSettings, Settings

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Place:
    """A schema of ours in a database."""

    name: str
    """``home``, or the region."""
    setting: str
    """The setting that says where it is."""
    url: str = field(repr=False)
    schema: Schema
    package: str
    """Whose migrations it is made of."""
    regions: tuple[str, ...] = ()
    """Those that home has to know, so that every version gets an outbox row for each."""


class SchemaBehind(Exception):  # noqa: N818 - says what is the matter
    """A schema is not as this version needs it."""

    def __init__(self, place: Place, missing: list[str]) -> None:
        super().__init__(
            f"{place.name}: schema {place.schema.name} is not up to date (to apply: {', '.join(missing)}); run: fanout migrate"
        )


class Unusable(Exception):  # noqa: N818 - says what is the matter
    """A database that a process needs refuses it, or its schema is not as it has to be. Waiting does not mend it."""

    def __init__(self, place: Place, why: Exception) -> None:
        super().__init__(f"{place.name}: {why}")
        self.place = place
        self.why = why


def home_place(settings: Settings) -> Place:
    """Raises ``SettingsError`` where no database is known, as the next two do."""
    schema = Schema(settings.home.schema)
    return Place("home", "home.database_url", settings.home.url, schema, "fanout.home", tuple(settings.regions))


def region_place(region: RegionSettings) -> Place:
    return Place(region.name, f"regions.{region.name}.database_url", region.url, Schema(region.schema), "fanout.ledger")


def all_places(settings: Settings) -> list[Place]:
    """Home first."""
    return [home_place(settings), *(region_place(region) for region in settings.regions.values())]


async def migrate_place(place: Place) -> list[str]:
    """Bring one schema up to date; what was done, nothing if it was. Repeatable. A migration may take its time."""
    connection = await asyncpg.connect(
        place.url, timeout=CONNECT_SECONDS, server_settings={"application_name": "fanout migrate"}
    )
    try:
        applied = await migrate(connection, place.package, place.schema)
        new = await set_regions(connection, place.schema, place.regions) if place.regions else []
    finally:
        await connection.close()
    return [*applied, *(f"region {name}" for name in new)]


async def missing_in(connection: asyncpg.Connection, place: Place) -> list[str]:
    """What ``migrate_place`` would do. Raises MigrationError where a newer version was here."""
    missing = await pending(connection, place.package, place.schema)
    if place.regions and not missing:
        known = await regions(connection, place.schema)
        missing = [f"region {name}" for name in place.regions if name not in known]
    return missing


async def insist(connection: asyncpg.Connection, place: Place) -> None:
    """Raises SchemaBehind, MigrationError."""
    if missing := await missing_in(connection, place):
        raise SchemaBehind(place, missing)


async def await_schema(place: Place, stopping: asyncio.Event) -> bool:
    """True as soon as the database answers with an up-to-date schema; one that is away is waited for. False: ``stopping`` came
    first. Raises ``Unusable`` with what waiting does not mend.
    """
    patience = Patience()
    away = False
    while not stopping.is_set():
        try:
            connection = await connect(place.url, "fanout start")
            try:
                await insist(connection, place)
            finally:
                await connection.close()
        except Exception as error:
            if not is_transient(error) or isinstance(error, asyncpg.exceptions.ClientConfigurationError):
                raise Unusable(place, error) from error
            if not away:
                _log.warning("database away, waiting for it", place=place.name, error=describe(error))
            away = True
            await patience.wait()
        else:
            if away:
                _log.info("database back", place=place.name)
            return True
    return False


@dataclass(frozen=True, slots=True)
class Migrated:
    """What became of one schema: ``applied`` is empty where it was up to date, or ``error`` says what is the matter."""

    place: Place
    applied: list[str] = field(default_factory=list)
    error: Exception | None = None


async def migrate_all(settings: Settings) -> AsyncIterator[Migrated]:
    """Every schema, each on its own: one that cannot be brought up to date stops no other."""
    for place in all_places(settings):
        try:
            yield Migrated(place, await migrate_place(place))
        except Exception as error:  # noqa: BLE001 - told, and the next one has its turn
            yield Migrated(place, error=error)
