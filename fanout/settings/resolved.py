"""Settings as the program uses them: every value there, typed, frozen and checked against the others."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fanout.model.problems import Problem
from fanout.model.subscriber import SubscriberRules
from fanout.settings.sources import AMQP_URL, DATABASE_URL, SettingsError, Written, read_sources
from fanout.settings.tables import DeliveryTable, HttpTable, LogTable, Network, RegionTable, RetentionTable, Tables
from fanout.settings.urls import server_and_path

_NEVER_SHOWN = frozenset({"database_url", "amqp_url"})
_VALUE_LENGTH_SHOWN = 60


@dataclass(frozen=True, slots=True)
class HomeSettings:
    database_url: str | None = field(repr=False)
    schema: str
    poll_seconds: float

    @property
    def url(self) -> str:
        """Raises ``SettingsError`` where no database is known."""
        return _known(self.database_url, "home.database_url")


@dataclass(frozen=True, slots=True)
class RegionSettings:
    """One region. ``database_url`` is ``None`` where none is known: ``up`` and ``demo`` then bring their own PostgreSQL."""

    name: str
    database_url: str | None = field(repr=False)
    schema: str
    amqp_url: str | None = field(repr=False)
    queue: str
    transport: Literal["rabbitmq", "ledger"]
    declare: bool
    """False: exchange and queues are made by others, and this user may not even be allowed to."""
    allow_networks: tuple[Network, ...]

    @property
    def url(self) -> str:
        """Raises ``SettingsError`` where no database is known."""
        return _known(self.database_url, f"regions.{self.name}.database_url")

    @property
    def broker_url(self) -> str:
        """Of a region whose transport is ``rabbitmq``: ``load`` has checked that there is one."""
        assert self.amqp_url is not None
        return self.amqp_url


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a process. ``repr`` shows no URL of a database or broker."""

    namespace: str
    home: HomeSettings
    http: HttpTable
    log: LogTable
    regions: Mapping[str, RegionSettings]
    delivery: DeliveryTable
    residency: Mapping[str, tuple[str, ...]]
    """By residency class, the regions that its payloads may go to."""
    retention: RetentionTable
    file: Path | None = field(default=None, compare=False)
    """The file that was read."""

    @classmethod
    def load(cls, environ: Mapping[str, str] = os.environ, cwd: Path | None = None) -> Self:
        """Read file and environment. Raises ``SettingsError`` with every key that is wrong or unknown; where all keys are right by
        themselves, with the first that does not go with another.
        """
        written = read_sources(environ, cwd or Path.cwd())
        tables = _validate(written)
        database_url = written.for_all_regions.get(DATABASE_URL) or tables.home.database_url
        amqp_url = written.for_all_regions.get(AMQP_URL)
        settings = cls(
            namespace=tables.namespace,
            home=HomeSettings(tables.home.database_url, tables.namespace, tables.home.poll_seconds),
            http=tables.http,
            log=tables.log,
            regions={
                name: _resolve_region(name, table, tables.namespace, database_url, amqp_url)
                for name, table in tables.regions.items()
            },
            delivery=tables.delivery,
            residency=_resolve_residency(tables),
            retention=tables.retention,
            file=written.file,
        )
        _cross_check(settings, written)
        return settings

    @property
    def exchange(self) -> str:
        return self.namespace

    def subscriber_rules(self) -> SubscriberRules:
        """What a subscriber's fields are checked against."""
        return SubscriberRules(
            {name: region.allow_networks for name, region in self.regions.items()},
            self.delivery.concurrency,
            self.delivery.timeout_seconds,
        )


def _known(url: str | None, key: str) -> str:
    if url is None:
        raise SettingsError.field(
            key, "no database is known", f"set {DATABASE_URL}, or run `fanout up`, which brings its own"
        )
    return url


def _validate(written: Written) -> Tables:
    problems = list(written.problems)
    try:
        tables = Tables.model_validate(written.values)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            problem = _problem(written, each)
            # Not of what lacks what was left out, and once of a variable that stands for several keys.
            if not any(noted.field.startswith(problem.field) for noted in problems):
                problems.append(problem)
    if problems:
        raise SettingsError(*problems)
    return tables


def _problem(written: Written, error: ErrorDetails) -> Problem:
    keys = tuple(str(key) for key in error["loc"] if key != "[key]")
    value = error["input"]
    requirement = error["msg"].removeprefix("Value error, ").replace("Input should", "has to")
    writer = written.writer_of(keys)
    if error["type"] == "too_short":
        return Problem(writer, "is empty", "name at least one")
    if isinstance(value, dict):  # a rule between the values of one table
        return Problem(writer, requirement, "change one of them")
    shown = "its value" if keys[-1] in _NEVER_SHOWN else f"{value!r:.{_VALUE_LENGTH_SHOWN}}"
    return Problem(writer, f"{shown} is not allowed", f"it {requirement}")


def _resolve_region(
    name: str, table: RegionTable, namespace: str, database_url: str | None, amqp_url: str | None
) -> RegionSettings:
    amqp_url = table.amqp_url or amqp_url
    return RegionSettings(
        name=name,
        database_url=table.database_url or database_url,
        schema=table.schema_name or f"{namespace}_{name}",
        amqp_url=amqp_url,
        queue=table.queue or f"{namespace}.{name}",
        transport=table.transport or ("rabbitmq" if amqp_url else "ledger"),
        declare=table.declare,
        allow_networks=table.allow_networks,
    )


def _resolve_residency(tables: Tables) -> dict[str, tuple[str, ...]]:
    if tables.residency is None:
        return {"eu_only": ("eu",)} if "eu" in tables.regions else {}
    return dict(tables.residency)


def _cross_check(settings: Settings, written: Written) -> None:
    for name, regions in settings.residency.items():
        if strange := [region for region in regions if region not in settings.regions]:
            why = f"there is no region '{strange[0]}'"
            right = f"the regions are {', '.join(settings.regions)}"
            raise SettingsError.field(written.writer_of(("residency", name)), why, right)
    for name, region in settings.regions.items():
        if region.transport == "rabbitmq" and region.amqp_url is None:
            key = written.writer_of(("regions", name, "transport"))
            raise SettingsError.field(key, "'rabbitmq' needs a broker", f"set regions.{name}.amqp_url or {AMQP_URL}")
    _check_apart(
        written,
        "schema",
        [("home", settings.home.database_url, settings.home.schema)]
        + [(f"regions.{name}", region.database_url, region.schema) for name, region in settings.regions.items()],
    )
    _check_apart(
        written,
        "queue",
        [(f"regions.{name}", each.amqp_url, each.queue) for name, each in settings.regions.items() if each.amqp_url],
    )


def _check_apart(written: Written, what: str, owners: Iterable[tuple[str, str | None, str]]) -> None:
    """Two owners on one server must not share a name there: each would take the other's rows or messages for its own."""
    seen: dict[tuple[tuple[str, ...], str], str] = {}
    for owner, url, name in owners:
        place = (server_and_path(url) if url else (), name)
        if place in seen:
            wrote_other = (*seen[place].split("."), what) in written.writers
            mine, other = (seen[place], owner) if wrote_other else (owner, seen[place])
            key = written.writer_of((*mine.split("."), what))
            raise SettingsError.field(key, f"'{name}' is also the {what} of {other}", "give each its own")
        seen[place] = owner
