"""Is anybody working? Sessions of our roles, beside how long work has been waiting for them."""

from collections.abc import Sequence

import asyncpg

from fanout.cli.examining import Check
from fanout.database.connection import connect
from fanout.database.errors import CONNECTION_LOST, describe
from fanout.database.schema import Schema
from fanout.home.inspection import outbox_figures
from fanout.ledger.books import region_figures
from fanout.settings import RegionSettings, Settings

WAITED_SECONDS_MAX = 10.0
"""Work that has waited longer than this for a role of which no session is seen waits for somebody to start it."""
APPLICATION = "fanout doctor"


async def working(settings: Settings) -> list[Check]:
    """For each region: who is connected, and what waits. Databases that do not answer are told of by the other checks."""
    checks: list[Check] = []
    for region in settings.regions.values():
        try:
            checks += await _region(settings, region)
        except (asyncpg.PostgresError, *CONNECTION_LOST) as error:
            checks.append(Check(f"{region.name}: roles", f"not seen: {describe(error)}"))
    return checks


async def _region(settings: Settings, region: RegionSettings) -> Sequence[Check]:
    home = await connect(settings.home.url, APPLICATION)
    try:
        ledger = await connect(region.url, APPLICATION)
        try:
            pending = await outbox_figures(home, Schema(settings.home.schema), region.name)
            figures = await region_figures(ledger, Schema(region.schema))
            names = [row[0] for row in await ledger.fetch("SELECT application_name FROM pg_stat_activity")]
        finally:
            await ledger.close(timeout=2)
    finally:
        await home.close(timeout=2)
    waits = {
        "publisher": (pending.oldest_pending_age_seconds, f"{pending.pending} versions in the outbox"),
        "scheduler": (figures.oldest_due_age_seconds, "deliveries due"),
        "consumer": (figures.oldest_due_age_seconds, "deliveries due"),
    }
    checks = []
    for role, (seconds, what) in waits.items():
        sessions = names.count(f"fanout {role} {region.name}")
        waiting = f"{what}, the oldest for {seconds:.0f} s" if seconds > 0 else "nothing waits for it"
        command = f"fanout {role}" if role == "publisher" else f"fanout {role} {region.name}"
        missing = sessions == 0 and seconds > WAITED_SECONDS_MAX
        seen = f"{sessions} sessions" if sessions else "no session is seen"
        checks.append(Check(f"{region.name}: {role}", f"{seen}; {waiting}", f"start it: {command}" if missing else ""))
    return checks
