"""``fanout subscribers apply``."""

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from fanout.cli.databases import opened
from fanout.cli.ending import DONE, FAILED, PROBLEMS_SHOWN, Failed, complain
from fanout.cli.operators import ring_scheduler, who
from fanout.cli.output import say, show_json, table
from fanout.cli.secrets_file import SecretsFile
from fanout.database.fetching import Fetches
from fanout.home import registry as home_registry
from fanout.home.registry import RegionChanged, Reservation, UnknownRegion
from fanout.ledger import registry
from fanout.ledger.registry import Applied, StillClosing, TooManyOpen
from fanout.ledger.registry_reading import secrets_of
from fanout.model.problems import Invalid
from fanout.model.signing_secret import Secret
from fanout.model.subscriber import SubscriberSpec
from fanout.model.subscribers_file import parse_subscribers_file
from fanout.running.schemas import Place, home_place, insist, region_place
from fanout.settings import Settings

ALL = 1_000_000_000
CHANGES = ("created", "updated", "unchanged", "deleted")

Specs = Mapping[str, SubscriberSpec]


@dataclass(slots=True)
class Outcome:
    """What ``apply`` came to: by region, and the regions where it did not."""

    applied: dict[str, Applied] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, list[Secret]] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        regions = {name: {change: getattr(each, change) for change in CHANGES} for name, each in self.applied.items()}
        return {"regions": regions, "not_applied": self.troubles}


async def apply_file(
    file: str, *, prune: bool, secrets_out: Path | None, by: str | None, json_output: bool, sure: bool = False
) -> int:
    """Each region by itself: all of it or nothing. One that refuses or is away stops no other; then the command fails."""
    settings = Settings.load()
    operator = who(by)
    subscribers = parse_subscribers_file(_read(file), settings.subscriber_rules())
    if prune and not subscribers and not sure:
        why = "the file names no subscriber, so every one there is would be deleted, and its open deliveries ended"
        raise Invalid.field("--prune", why, "say --yes if that is meant")
    specs: dict[str, dict[str, SubscriberSpec]] = {name: {} for name in settings.regions}
    for subscriber_id, spec in subscribers:
        specs[spec.region][subscriber_id] = spec
    with SecretsFile(secrets_out) if secrets_out else nullcontext() as secrets_file:
        outcome = await _apply(settings, specs, prune=prune, by=operator)
        if secrets_file is not None and not outcome.troubles:
            secrets_file.write(outcome.secrets)
    if json_output:
        show_json(outcome.document())
    else:
        _show(outcome)
    for trouble in outcome.troubles.values():
        complain(trouble)
    if outcome.troubles:
        unwritten = f"; {secrets_out} is not written" if secrets_out else ""
        complain(f"not applied: {', '.join(outcome.troubles)}{unwritten}; mend that and apply the file again")
    return FAILED if outcome.troubles else DONE


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise Invalid.field(file, f"cannot be read: {error.strerror}", "name a readable file") from None


async def _apply(settings: Settings, specs: Mapping[str, Specs], *, prune: bool, by: str) -> Outcome:
    home = home_place(settings)
    async with opened(home, "subscribers") as connection:
        await insist(connection, home)
        strays = await _named_elsewhere(connection, home, specs) if prune else {}
    outcome = Outcome(troubles=strays)
    for name, wanted in specs.items():
        if name in strays or not (wanted or prune):
            continue
        place = region_place(settings.regions[name])
        try:
            outcome.applied[name], secrets = await _apply_region(home, place, wanted, prune=prune, by=by)
        except (Failed, RegionChanged, StillClosing, TooManyOpen, UnknownRegion) as error:
            said = str(error)
            outcome.troubles[name] = said if said.startswith((f"{name}: ", "home: ")) else f"{name}: {said}"
        else:
            outcome.secrets |= secrets
    return outcome


async def _named_elsewhere(connection: Fetches, home: Place, specs: Mapping[str, Specs]) -> dict[str, str]:
    """Regions that would lose a subscriber which the file still names, under a region that it cannot move to."""
    wanted = {subscriber_id: name for name, each in specs.items() for subscriber_id in each}
    strays: dict[str, list[str]] = {}
    for known in await home_registry.list_registered(connection, home.schema, limit=ALL):
        if wanted.get(known.subscriber_id, known.region) != known.region:
            strays.setdefault(known.region, []).append(known.subscriber_id)
    return {
        region: f"{region}: not pruned: {', '.join(ids[:PROBLEMS_SHOWN])} would be deleted here, and the file names it in another "
        "region; a subscriber belongs to one region for life: keep the region, or take it out of the file"
        for region, ids in strays.items()
    }


async def _apply_region(
    home: Place, place: Place, specs: Specs, *, prune: bool, by: str
) -> tuple[Applied, dict[str, list[Secret]]]:
    """Home ties the ids to their region, then the region takes them all. Interrupted anywhere, applying again completes it."""
    async with opened(place, "subscribers") as ledger, opened(home, "subscribers") as connection:
        await insist(ledger, place)
        reserved = await home_registry.reserve_all(connection, home.schema, list(specs), place.name)
        applied = await registry.apply_all(ledger, place.schema, specs, prune=prune, by=by)
        deleted_before = [each for each, reservation in reserved.items() if reservation is Reservation.DELETED]
        await home_registry.revive(connection, home.schema, deleted_before)
        await home_registry.mark_deleted(connection, home.schema, applied.deleted)
        await ring_scheduler(ledger, place)
        return applied, await secrets_of(ledger, place.schema, list(specs))


def _show(outcome: Outcome) -> None:
    rows = [
        [name, *(f"{len(getattr(each, change)):,}" for change in CHANGES)] for name, each in outcome.applied.items()
    ]
    if rows:
        say(table({"region": "left"} | dict.fromkeys(CHANGES, "right"), rows))
    changed = any(each.created or each.updated or each.deleted for each in outcome.applied.values())
    if not changed and not outcome.troubles:
        say("nothing to change")
