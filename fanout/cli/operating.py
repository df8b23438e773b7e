"""``fanout subscribers tune``, ``pause``, ``resume``, ``disable`` and ``enable``: one subscriber, one change, on record."""

import math

from fanout.cli.databases import opened
from fanout.cli.ending import DONE, Failed
from fanout.cli.operators import check_text, find, ring_scheduler, who
from fanout.cli.output import moment, say, show_json
from fanout.ledger import registry
from fanout.ledger.registry import KEEP, Change, Keep, UnknownSubscriber
from fanout.ledger.registry_reading import Subscriber
from fanout.model.problems import Invalid, Problem
from fanout.model.subscriber import CONCURRENCY_MAX, RATE_PER_SECOND_MAX, RATE_PER_SECOND_MIN
from fanout.settings import Settings


async def tune_one(
    subscriber_id: str, concurrency: int | None, rate: str | None, by: str | None, *, json_output: bool
) -> int:
    operator = who(by)
    rate_per_second = _check_limits(concurrency, rate)
    found = await find(Settings.load(), subscriber_id)
    try:
        async with opened(found.place, "subscribers") as connection:
            saved = await registry.tune(
                connection,
                found.place.schema,
                subscriber_id,
                concurrency=concurrency,
                rate_per_second=rate_per_second,
                by=operator,
            )
            await ring_scheduler(connection, found.place)
    except UnknownSubscriber as error:
        raise Failed(str(error)) from None
    limits = [f"concurrency {concurrency}"] if concurrency is not None else []
    if rate_per_second is not KEEP:
        limits.append("no rate limit" if rate_per_second is None else f"{rate_per_second:g} per second")
    if json_output:
        return await _show_json(subscriber_id, changed=saved.change is not Change.UNCHANGED)
    done = "already had" if saved.change is Change.UNCHANGED else "now has"
    say(f"{subscriber_id} {done} {', '.join(limits)} (config version {saved.config_version})")
    return DONE


_ORDERS = {
    "pause": (registry.pause, "is paused by {by}: {why}", "was paused so already"),
    "resume": (registry.resume, "is resumed", "was not paused"),
    "disable": (
        registry.disable,
        "is disabled by {by}: {why}; its open deliveries end as dead, what is being sent finishes",
        "was disabled already",
    ),
    "enable": (registry.enable, "is enabled: its gate is open", "was not disabled"),
}
"""What an order calls, what it says when it changed something, and when it did not."""


async def operate(verb: str, subscriber_id: str, by: str | None, why: str | None = None, *, json_output: bool) -> int:
    """``verb``: pause, resume, disable or enable. ``why`` is None where the order needs no reason."""
    operator = who(by)
    reason = "" if why is None else check_text("--why", why, "say why, for whoever wonders later")
    order, done, nothing_to_do = _ORDERS[verb]
    found = await find(Settings.load(), subscriber_id)
    try:
        async with opened(found.place, "subscribers") as connection:
            changed = await order(connection, found.place.schema, subscriber_id, by=operator, why=reason)
            await ring_scheduler(connection, found.place)
    except UnknownSubscriber as error:
        raise Failed(str(error)) from None
    if json_output:
        return await _show_json(subscriber_id, changed=changed)
    said = done.format(by=operator, why=reason) if changed else nothing_to_do
    say(f"{subscriber_id} {said}{_still_closed(found.subscriber) if verb == 'resume' else ''}")
    return DONE


def _still_closed(subscriber: Subscriber) -> str:
    """What ``resume`` does not undo."""
    gate = subscriber.gate
    if gate.disabled_at is None:
        return ""
    closed = f"it is disabled ({gate.disabled_why}) since {moment(gate.disabled_at)} by {gate.disabled_by}"
    return f"; {closed}: `fanout subscribers enable {subscriber.subscriber_id}` opens it again"


async def _show_json(subscriber_id: str, *, changed: bool) -> int:
    """The subscriber as it is now, and whether that is new."""
    found = await find(Settings.load(), subscriber_id)
    show_json({"changed": changed, **found.subscriber.document()})
    return DONE


def _check_limits(concurrency: int | None, rate: str | None) -> float | Keep | None:
    """The rate to set: None for no limit, KEEP where nothing was said."""
    problems = []
    if concurrency is None and rate is None:
        problems.append(Problem("--concurrency, --rate", "nothing to change", "give one of them or both"))
    if concurrency is not None and not 1 <= concurrency <= CONCURRENCY_MAX:
        problems.append(
            Problem("--concurrency", "is out of range", f"write a whole number from 1 to {CONCURRENCY_MAX}")
        )
    wanted: float | Keep | None = KEEP
    if rate is not None:
        wanted = None if rate == "none" else _number(rate)
        if wanted is not None and not RATE_PER_SECOND_MIN <= wanted <= RATE_PER_SECOND_MAX:
            right = f"write a number from {RATE_PER_SECOND_MIN:f} to {RATE_PER_SECOND_MAX}, or none for no limit"
            problems.append(Problem("--rate", f"{rate[:40]!a} is not a rate", right))
    if problems:
        raise Invalid(*problems)
    return wanted


def _number(text: str) -> float:
    """NaN, which is in no range, for what is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan
