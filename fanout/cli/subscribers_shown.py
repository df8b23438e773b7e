"""``fanout subscribers list`` and ``show``. Neither shows a secret or the value of a subscriber's own header."""

import json
from collections.abc import Sequence

from fanout.cli.databases import opened
from fanout.cli.ending import DONE, FAILED, Failed, complain
from fanout.cli.operators import find, places_of
from fanout.cli.output import moment, printable, say, show_json, table
from fanout.ledger.registry_reading import ConfigChange, Gate, Subscriber, changes_of, list_subscribers
from fanout.model.times import span
from fanout.settings import Settings

PAGE = 1_000
CHANGES_SHOWN = 10


async def list_all(region: str | None, *, json_output: bool) -> int:
    """A region that is away is told, and the others are shown; then the command fails."""
    found: list[tuple[str, Subscriber]] = []
    away = False
    for place in places_of(Settings.load(), region):
        try:
            async with opened(place, "subscribers") as connection:
                after = ""
                while page := await list_subscribers(connection, place.schema, place.name, after=after, limit=PAGE):
                    found += [(place.name, each) for each in page]
                    after = page[-1].subscriber_id
        except Failed as error:
            complain(str(error))
            away = True
    if json_output:
        show_json({"items": [each.document() for _, each in found], "next": None})
    else:
        _show_list(found)
    return FAILED if away else DONE


def _show_list(found: Sequence[tuple[str, Subscriber]]) -> None:
    columns = {"subscriber": "left", "region": "left", "status": "left", "limit": "right", "window": "right"}
    columns |= dict.fromkeys(("waiting", "queued", "leased", "delivered", "dead"), "right") | {"endpoint": "left"}
    rows = []
    for region, each in found:
        counts = each.counters
        numbers = (counts.waiting, counts.queued, counts.leased, counts.delivered, counts.dead)
        limits = (str(each.gate.concurrency), str(each.gate.window))
        rows.append(
            [each.subscriber_id, region, each.status, *limits]
            + [f"{number:,}" for number in numbers]
            + [printable(str(each.settings["endpoint"]))]
        )
    say(table(columns, rows) if rows else "no subscribers")


async def show_one(subscriber_id: str, *, json_output: bool) -> int:
    found = await find(Settings.load(), subscriber_id)
    async with opened(found.place, "subscribers") as connection:
        changes = await changes_of(connection, found.place.schema, subscriber_id, limit=CHANGES_SHOWN)
    if json_output:
        show_json(found.subscriber.document())
        return DONE
    rows = _facts(found.subscriber) + [("changed", _change(each)) for each in changes]
    say(table({"": "left", subscriber_id: "left"}, [[name, printable(text)] for name, text in rows]))
    return DONE


def _facts(subscriber: Subscriber) -> list[tuple[str, str]]:
    settings, gate, counts = subscriber.settings, subscriber.gate, subscriber.counters
    rate = settings["rate_per_second"]
    limits = f"{gate.concurrency} at once, {'no rate limit' if rate is None else f'{rate:g} per second'}"
    statuses = settings["retry_statuses"]
    usual = "the usual ones" if statuses is None else _listed(statuses) or "none"
    return [
        ("status", f"{subscriber.status}{_stands(gate)}"),
        ("region", str(settings["region"])),
        ("endpoint", str(settings["endpoint"])),
        ("event types", _listed(settings["event_types"])),
        ("labels", _labels(settings["labels"])),
        ("headers", _listed(settings["headers"]) or "none"),
        ("limits", f"{limits}, {settings['timeout_seconds']:g} s for an answer"),
        ("window", f"{gate.window} of {gate.concurrency}{', on probation' if gate.probation else ''}"),
        ("ordering", str(settings["ordering"])),
        ("retried statuses", usual),
        ("open", f"{counts.waiting:,} waiting, {counts.queued:,} queued, {counts.leased:,} leased"),
        ("ended", f"{counts.delivered:,} delivered, {counts.dead:,} dead"),
        ("attempts", f"{counts.unknown_attempts:,} unknown, {counts.late_results:,} results came late"),
        ("last success", moment(gate.last_success_at)),
        (
            "failing since",
            f"{moment(gate.failing_since)}{f', {gate.fail_streak} in a row' if gate.fail_streak else ''}",
        ),
        ("config version", str(subscriber.config_version)),
        ("created", moment(subscriber.created_at)),
    ]


def _stands(gate: Gate) -> str:
    if gate.disabled_at is not None:
        return f" ({gate.disabled_why}) by {gate.disabled_by} at {moment(gate.disabled_at)}"
    if gate.paused_at is not None:
        return f" by {gate.paused_by} at {moment(gate.paused_at)}: {gate.paused_why}"
    if gate.held_for_seconds is not None:
        return f" for another {span(gate.held_for_seconds)}, until {moment(gate.held_until)}: {gate.hold_why}"
    return ""


def _change(change: ConfigChange) -> str:
    fields = change.change.get("fields") or {}
    what = ", ".join(f"{name} {_value(each.get('from'))} to {_value(each.get('to'))}" for name, each in fields.items())
    why = change.change.get("why")
    said = "".join((f": {what}" if what else "", f" ({why})" if why else ""))
    return f"{moment(change.changed_at)} {change.change.get('action')} by {change.changed_by}{said}"


def _value(value: object) -> str:
    return str(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _labels(labels: object) -> str:
    assert isinstance(labels, dict)
    return "; ".join(f"{name} = {', '.join(values)}" for name, values in labels.items()) or "any"


def _listed(values: object) -> str:
    assert isinstance(values, (list, tuple, dict))
    return ", ".join(map(str, values))
