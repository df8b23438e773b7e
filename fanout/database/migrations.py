"""Brings a schema up to date from numbered SQL files, and its functions from files that replace each other.

``migrations/NNNN_name.sql`` are applied once, in order, each in a transaction of its own, and never change afterwards (a checksum
is kept). ``functions/*.sql`` describe the functions as they should be: when any of them differs from what is installed, all functions
of the schema are dropped and created again in one transaction. An advisory lock keeps two migrations apart.
"""

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

import asyncpg

from fanout.database.schema import Schema

_ADVISORY_LOCK = 0x66616E6F7574  # "fanout"

_BOOKKEEPING = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.migration (
    name        text PRIMARY KEY,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);
"""

_DROP_FUNCTIONS = """
SELECT 'DROP FUNCTION ' || p.oid::regprocedure || ' CASCADE' FROM pg_proc p WHERE p.pronamespace = $1::regnamespace
"""

FUNCTIONS = "functions"
"""The row of the migration table that keeps the checksum of all functions."""


class MigrationError(Exception):
    """The schema is not what these files made, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def _read(folder: Traversable) -> list[Step]:
    found = [Step(entry.name, entry.read_text()) for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return sorted(found, key=lambda step: step.name)


def steps(package: str) -> tuple[list[Step], Step]:
    """The migrations of a package, and its functions as one step."""
    root = files(package)
    functions = "\n".join(step.text for step in _read(root / "functions"))
    return _read(root / "migrations"), Step(FUNCTIONS, functions)


async def migrate(connection: asyncpg.Connection, package: str, schema: Schema) -> list[str]:
    """Apply what is missing and return its names; an empty list means that everything was up to date.

    Raises MigrationError where an applied file has changed since, or where the schema was made by a newer version.
    """
    migrations, functions = steps(package)
    await connection.execute("SELECT pg_advisory_lock($1)", _ADVISORY_LOCK)
    try:
        await connection.execute(schema.sql(_BOOKKEEPING))
        applied = await _applied(connection, schema)
        _check(applied, migrations, schema)
        missing = [step for step in migrations if step.name not in applied]
        for step in missing:
            async with connection.transaction():
                await connection.execute(schema.sql(step.text))
                await _record(connection, schema, step)
        if applied.get(FUNCTIONS) != functions.checksum:
            await _replace_functions(connection, schema, functions)
            missing.append(functions)
        return [step.name for step in missing]
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", _ADVISORY_LOCK)


async def pending(connection: asyncpg.Connection, package: str, schema: Schema) -> list[str]:
    """What ``migrate`` would apply. Raises MigrationError as it does."""
    migrations, functions = steps(package)
    if await connection.fetchval("SELECT to_regclass($1)", f"{schema.quoted}.migration") is None:
        return [step.name for step in [*migrations, functions]]
    applied = await _applied(connection, schema)
    _check(applied, migrations, schema)
    missing = [step.name for step in migrations if step.name not in applied]
    return missing if applied.get(FUNCTIONS) == functions.checksum else [*missing, FUNCTIONS]


async def _applied(connection: asyncpg.Connection, schema: Schema) -> dict[str, str]:
    rows = await connection.fetch(schema.sql("SELECT name, checksum FROM {schema}.migration"))
    return {row["name"]: row["checksum"] for row in rows}


def _check(applied: dict[str, str], migrations: list[Step], schema: Schema) -> None:
    known = {step.name: step.checksum for step in migrations}
    for name, checksum in applied.items():
        if name == FUNCTIONS:
            continue
        if name not in known:
            raise MigrationError(
                f"schema {schema.name} has migration {name}, which this version does not know: run the newer version"
            )
        if known[name] != checksum:
            raise MigrationError(
                f"migration {name} was changed after it was applied to schema {schema.name}: restore the file"
            )


async def _replace_functions(connection: asyncpg.Connection, schema: Schema, functions: Step) -> None:
    async with connection.transaction():
        for row in await connection.fetch(_DROP_FUNCTIONS, schema.quoted):
            await connection.execute(row[0])
        await connection.execute(schema.sql(functions.text))
        await _record(connection, schema, functions)


async def _record(connection: asyncpg.Connection, schema: Schema, step: Step) -> None:
    await connection.execute(
        schema.sql(
            "INSERT INTO {schema}.migration (name, checksum) VALUES ($1, $2) "
            "ON CONFLICT (name) DO UPDATE SET checksum = excluded.checksum, applied_at = now()"
        ),
        step.name,
        step.checksum,
    )
