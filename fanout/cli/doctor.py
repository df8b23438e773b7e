"""``fanout doctor``: every setting and every database looked at; what is wrong, and how to mend it."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from fanout.api.places import HOME_CONNECTIONS, REGION_CONNECTIONS
from fanout.cli.ending import DONE, FAILED
from fanout.cli.examining import SKEW_SECONDS_MAX, Check, Examined, Server, examine
from fanout.cli.output import printable, say, show_json
from fanout.cli.working import working
from fanout.running.schemas import all_places
from fanout.settings import RegionSettings, Settings, SettingsError, redact_url
from fanout.settings.sources import Written, read_sources

_MOST_SECRET = ("database_url", "amqp_url")
# What one process of each role opens at most, counting its wake-ups and its probe.
HOME_CONNECTIONS_FIXED = HOME_CONNECTIONS + 1 + 1
"""By the api, and by the publisher's probe."""
HOME_CONNECTIONS_PER_REGION = 2
"""By the publisher: its own, and its ear."""
LEDGER_CONNECTIONS = REGION_CONNECTIONS + 1 + 3 + 5 + 7
"""By the api; by the publisher (its own, its bell, its probe); a scheduler; a consumer."""


async def examine_everything(*, json_output: bool) -> int:
    """``FAILED`` if anything is wrong."""
    settings = Settings.load()
    written = read_sources(os.environ, Path.cwd())
    checks = [_file(settings), *_values(written)]
    for region in settings.regions.values():
        checks += _transport(region)
    try:
        places = all_places(settings)
    except SettingsError as error:
        checks += [Check(each.field, each.why, each.right) for each in error.problems]
    else:
        examined = await asyncio.gather(*map(examine, places))
        for each in examined:
            checks += each.checks
        checks += [*_clocks(examined), *_connections(examined, settings), *await working(settings)]
    if json_output:
        show_json({"ok": all(check.ok for check in checks), "checks": [check.document() for check in checks]})
    else:
        _show(checks)
    return DONE if all(check.ok for check in checks) else FAILED


def _file(settings: Settings) -> Check:
    return Check("settings file", str(settings.file) if settings.file else "none: the defaults, and the environment")


def _transport(region: RegionSettings) -> list[Check]:
    return [Check(f"{region.name}: transport", region.transport)]


def _values(written: Written) -> list[Check]:
    """Every value that somebody wrote, and where."""
    checks = []
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
    """Only durations travel, so a skew breaks no promise; it makes listings of two databases hard to compare."""
    home = examined[0].server
    checks = []
    for each in examined[1:]:
        if home is not None and each.server is not None:
            skew = each.server.ahead_seconds - home.ahead_seconds
            what, found = (
                f"{each.place.name}: clock",
                f"{abs(skew):.1f} s {'ahead of' if skew >= 0 else 'behind'} home's",
            )
            mend = "synchronise the clocks of both servers (NTP)" if abs(skew) > SKEW_SECONDS_MAX else ""
            checks.append(Check(what, found, mend))
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


def _show(checks: Sequence[Check]) -> None:
    for check in checks:
        mend = f"\n       {check.mend}" if check.mend else ""
        say(f"{'ok   ' if check.ok else 'WRONG'}  {check.what}: {check.found}{mend}")
    wrong = sum(not check.ok for check in checks)
    say(
        "settings and databases are well, and nothing waits for a role that is not there"
        if not wrong
        else f"{wrong} wrong"
    )
