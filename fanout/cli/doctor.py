"""``fanout doctor``: every setting, database and broker looked at; what is wrong, and how to mend it."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fanout.api.places import HOME_CONNECTIONS, REGION_CONNECTIONS
from fanout.cli.brokers import examine_broker
from fanout.cli.ending import DONE, FAILED, USAGE
from fanout.cli.examining import SKEW_SECONDS_MAX, Check, Examined, Server, examine
from fanout.cli.output import printable, say, show_json
from fanout.cli.working import working
from fanout.model.problems import Problem
from fanout.running.schemas import all_places
from fanout.settings import Settings, SettingsError, redact_url
from fanout.settings.sources import Written, read_sources
from fanout.telemetry.logs import configure_logs

_MOST_SECRET = ("database_url", "amqp_url")
# What one process of each role opens at most, counting its wake-ups and its probe.
HOME_CONNECTIONS_FIXED = HOME_CONNECTIONS + 1 + 1
"""By the api, and by the publisher's probe."""
HOME_CONNECTIONS_PER_REGION = 2
"""By the publisher: its own, and its ear."""
LEDGER_CONNECTIONS = REGION_CONNECTIONS + 1 + 3 + 5 + 6
"""By the api; by the publisher (its own, its bell, its probe); a scheduler; a consumer."""


async def examine_everything(*, json_output: bool, with_settings: bool) -> int:
    """``FAILED`` if anything is wrong, ``USAGE`` where it is the settings: then nothing else can be looked at."""
    configure_logs("critical", sys.stderr)  # what a connection has to say of its troubles is said by a check
    try:
        settings = Settings.load()
    except SettingsError as error:
        if not json_output:
            raise
        _report([_mistake(each) for each in error.problems], [], json_output=json_output)
        return USAGE
    checks = await _examined(settings)
    values = _values(settings) if with_settings else []
    _report(checks, values, json_output=json_output)
    return DONE if all(check.ok for check in checks) else FAILED


async def _examined(settings: Settings) -> list[Check]:
    checks: list[Check] = []
    brokers = [
        asyncio.create_task(examine_broker(region, settings.exchange))
        for region in settings.regions.values()
        if region.transport == "rabbitmq"
    ]
    try:
        places = all_places(settings)
    except SettingsError as error:
        checks += [_mistake(each) for each in error.problems]
    else:
        examined = await asyncio.gather(*map(examine, places))
        for each in examined:
            checks += each.checks
        checks += [*_clocks(examined), *_connections(examined, settings), *await working(settings)]
    for found in await asyncio.gather(*brokers):
        checks += found
    return checks


def _mistake(problem: Problem) -> Check:
    return Check(problem.field, problem.why, problem.right)


def _values(settings: Settings) -> list[Check]:
    """Every value that somebody wrote, and where; and what each region's references go through."""
    written = read_sources(os.environ, Path.cwd())
    file = str(settings.file) if settings.file else "none: the defaults, and the environment"
    checks = [Check("settings file", file)]
    checks += [Check(f"{region.name}: transport", region.transport) for region in settings.regions.values()]
    for keys, writer in sorted(written.writers.items()):
        value = _value_at(written, keys)
        if isinstance(value, dict):
            continue
        text = redact_url(str(value)) if keys[-1] in _MOST_SECRET else str(value)
        checks.append(Check(".".join(keys), f"{printable(text)}  (from {writer})"))
    return checks


def _value_at(written: Written, keys: tuple[str, ...]) -> object:
    value: object = written.values
    for key in keys:
        assert isinstance(value, dict)
        value = value[key]
    return value


def _clocks(examined: Sequence[Examined]) -> list[Check]:
    """Only durations travel, so a skew breaks no promise; but listings of two databases are hard to compare, and subscribers judge the
    time that a worker's machine has signed.
    """
    home = examined[0].server
    checks = []
    for each in examined:
        if each.server is not None:
            skews = {"this machine's": each.server.ahead_seconds}
            if home is not None and each is not examined[0]:
                skews["home's"] = each.server.ahead_seconds - home.ahead_seconds
            found = ", ".join(
                f"{abs(skew):.1f} s {'ahead of' if skew >= 0 else 'behind'} {whose}" for whose, skew in skews.items()
            )
            wrong = any(abs(skew) > SKEW_SECONDS_MAX for skew in skews.values())
            mend = "synchronise the clocks of that server, of home's and of this machine (NTP)" if wrong else ""
            checks.append(Check(f"{each.place.name}: clock", found, mend))
    return checks


def _connections(examined: Sequence[Examined], settings: Settings) -> list[Check]:
    """One process of each role, as most our own would open, against what each server has room for."""
    needed: dict[str, tuple[Server, list[str], int]] = {}
    for each in examined:
        if each.server is None:
            continue
        home = each.place.name == "home"
        count = (
            HOME_CONNECTIONS_FIXED + HOME_CONNECTIONS_PER_REGION * len(settings.regions) if home else LEDGER_CONNECTIONS
        )
        server, names, sum_ = needed.get(each.server.identity, (each.server, [], 0))
        needed[each.server.identity] = server, [*names, each.place.name], sum_ + count
    checks = []
    for server, names, count in needed.values():
        room = server.connections_max - server.connections_others
        found = (
            f"at most {count} for one process of each role; room for {room} (others have {server.connections_others})"
        )
        mend = f"raise max_connections by {count - room}, or close others" if count > room else ""
        checks.append(Check(f"{', '.join(names)}: connections", found, mend))
    return checks


def _report(checks: Sequence[Check], values: Sequence[Check], *, json_output: bool) -> None:
    """What is wrong first."""
    ordered = sorted(checks, key=lambda check: check.ok)
    if json_output:
        document: dict[str, object] = {"ok": all(check.ok for check in checks)}
        document["checks"] = [check.document() for check in ordered]
        if values:
            document["settings"] = {check.what: check.found for check in values}
        show_json(document)
        return
    for check in ordered:
        mend = f"\n       {check.mend}" if check.mend else ""
        say(f"{'ok   ' if check.ok else 'WRONG'}  {check.what}: {check.found}{mend}")
    for value in values:
        say(f"set    {value.what}: {value.found}")
    wrong = sum(not check.ok for check in checks)
    well = "settings, databases and brokers are well, and nothing waits for a role that is not there"
    say(f"{wrong} wrong, at the top" if wrong else well)
