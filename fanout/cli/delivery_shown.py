"""``fanout deliveries show``: one delivery from acceptance to its end, with every attempt, and why it waits now."""

from collections.abc import Iterator

from fanout.cli.databases import opened
from fanout.cli.ending import DONE, Failed
from fanout.cli.operators import candidate_places
from fanout.cli.output import moment, printable, say, show_json, table
from fanout.ledger.inspection import Attempt, Delivery, show_delivery
from fanout.model.identity import parse_key
from fanout.model.states import State
from fanout.settings import Settings

EXCERPT_SHOWN = 400
COLUMNS = {
    "#": "right",
    "started": "left",
    "took": "right",
    "outcome": "left",
    "status": "right",
    "config": "right",
    "worker": "left",
    "what was said": "left",
}


async def show_one(key_text: str, *, json_output: bool) -> int:
    """``Failed`` where there is no such delivery."""
    key = parse_key(key_text, "KEY")
    for place in await candidate_places(Settings.load(), key.subscriber_id):
        async with opened(place, "deliveries") as connection:
            found = await show_delivery(connection, place.schema, key.shipment_id, key.subscriber_id, key.version)
        if found is not None:
            if json_output:
                show_json(found.document(place.name))
            else:
                _show(found, place.name)
            return DONE
    raise Failed(
        f"there is no delivery {key}: its subscriber is unknown, did not want that version, or the version is not expanded yet "
        "(`fanout subscribers show`, `fanout status` tell)"
    )


def _show(delivery: Delivery, region: str) -> None:
    facts = [
        ["state", f"{delivery.state}{f': {delivery.reason}' if delivery.reason else ''}"],
        ["why", delivery.why.sentence],
        ["region", region],
        ["event type", delivery.event_type or "- (the version may not come here)"],
        ["accepted", moment(delivery.accepted_at)],
        ["eligible", moment(delivery.eligible_at)],
        ["finished", moment(delivery.finished_at)],
        ["attempts", _attempts(delivery)],
        ["webhook id", delivery.webhook_id],
        ["trace", delivery.trace_id or "-"],
    ]
    say(delivery.key)
    say(table({"": "left", " ": "left"}, [[name, printable(text)] for name, text in facts], heads=False))
    attempts = delivery.attempt_list or ()
    if attempts:
        say("")
        say(table(COLUMNS, [_row(each) for each in attempts]))
    else:
        say("no attempt yet" if delivery.finished_at is None else "no attempt was made")


def _attempts(delivery: Delivery) -> str:
    """How many, and how many of them the budget counts. One that is under way is not judged yet."""
    if not delivery.attempts:
        return "none"
    if delivery.state is not State.LEASED:
        return f"{delivery.attempts}, {delivery.budget_used} of them count against the budget"
    if delivery.attempts == 1:
        return "the first is under way"
    before = delivery.attempts - 1
    return f"{before}, {delivery.budget_used} of them count against the budget; number {delivery.attempts} is under way"


def _row(attempt: Attempt) -> list[str]:
    late = " (late)" if attempt.late else ""
    return [
        str(attempt.n),
        moment(attempt.started_at),
        f"{attempt.duration_ms:,} ms",
        f"{attempt.outcome}{late}",
        "-" if attempt.status is None else str(attempt.status),
        "-" if attempt.config_version is None else str(attempt.config_version),
        attempt.worker or "-",
        "; ".join(_said(attempt)) or "-",
    ]


def _said(attempt: Attempt) -> Iterator[str]:
    if attempt.retry_after_seconds is not None:
        yield f"retry after {attempt.retry_after_seconds:g} s"
    if attempt.error:
        yield printable(attempt.error)
    if attempt.address:
        yield f"at {attempt.address}"
    if attempt.trace_id:
        yield f"trace {attempt.trace_id}"
    if attempt.response_excerpt:
        text = attempt.response_excerpt.decode("utf-8", "replace")
        yield f"answer: {printable(text[:EXCERPT_SHOWN])}{'…' if len(text) > EXCERPT_SHOWN else ''}"
