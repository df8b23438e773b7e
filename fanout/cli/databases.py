"""Connections for a command: opened, used, closed; and whatever goes wrong on them in words for a person."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import asyncpg

from fanout.cli.ending import Failed
from fanout.database.connection import connect
from fanout.database.errors import describe, is_transient
from fanout.database.migrations import MigrationError
from fanout.running.schemas import Place, SchemaBehind
from fanout.settings import redact_url
from fanout.settings.sources import DATABASE_URL

_REFUSED = ("28",)
_NO_DATABASE = "3D000"
_NO_SCHEMA = ("3F000", "42P01", "42883", "42703", "42704")
"""Schema, table, function, column or type that is not there: an older schema, or none."""
_NO_RIGHT = "42501"
_CONFIGURED_BADLY = (asyncpg.exceptions.ClientConfigurationError, ValueError)


@contextmanager
def translated(place: Place) -> Iterator[None]:
    """Database trouble inside the block becomes ``Failed``. Nothing else is touched."""
    try:
        yield
    except Exception as error:
        if not is_databases(error):
            raise
        raise Failed(explain(place, error)) from error


@asynccontextmanager
async def opened(place: Place, command: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to ``place``. Database trouble inside the block, too, becomes ``Failed``."""
    with translated(place):
        try:
            connection = await connect(place.url, f"fanout {command}")
        except ValueError as error:  # asyncpg on a URL that is one only in form
            raise Failed(explain(place, error)) from error
        try:
            yield connection
        finally:
            if not connection.is_closed():
                await connection.close()


def explain(place: Place, error: Exception) -> str:
    """One line: which database, what is wrong, how to mend it. Without password."""
    database = f"{place.name}: the database {redact_url(place.url)}"
    where = f"{place.setting} (or {DATABASE_URL})"
    sqlstate = (isinstance(error, asyncpg.PostgresError) and error.sqlstate) or ""
    if isinstance(error, (SchemaBehind, MigrationError)):
        return str(error) if isinstance(error, SchemaBehind) else f"{place.name}: {error}"
    if isinstance(error, _CONFIGURED_BADLY):
        return f"{place.name}: {place.setting} cannot be used: {error}; correct it"
    if sqlstate.startswith(_REFUSED):
        return f"{database} refuses the login: {error}; correct the user or password in {where}"
    if sqlstate == _NO_DATABASE:
        return f"{database} does not exist; create it, or correct {where}"
    if sqlstate in _NO_SCHEMA:
        return f"{place.name}: schema {place.schema.name} is not there or not up to date ({error}); run: fanout migrate"
    if sqlstate == _NO_RIGHT:
        return f"{database} does not permit it: {error}; give its user that right"
    if is_transient(error):
        return f"{database} cannot be reached: {describe(error)}; see whether it runs, or correct {where}"
    return f"{database} refused: {describe(error)}"


def is_databases(error: Exception) -> bool:
    """Whether ``explain`` has words for it."""
    return is_transient(error) or isinstance(error, (asyncpg.PostgresError, SchemaBehind, MigrationError))
