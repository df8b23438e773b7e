"""The file of ``fanout subscribers apply``: ``{"subscribers": [{"subscriber_id": …, and the fields of a subscriber}]}``."""

from fanout.model.documents import Form, check_object, json_kind, read_object
from fanout.model.identity import check_id
from fanout.model.problems import Invalid, Problem
from fanout.model.subscriber import SubscriberRules, SubscriberSpec, parse_subscriber


def parse_subscribers_file(body: bytes, rules: SubscriberRules) -> list[tuple[str, SubscriberSpec]]:
    """Read the whole file or refuse it: ``Invalid`` holds every problem of every entry, as ``subscribers[3].endpoint``."""
    form = Form(read_object("file", body))
    entries = form.required("subscribers", _check_list)
    form.finish()
    subscribers: list[tuple[str, SubscriberSpec]] = []
    first_at: dict[str, int] = {}
    problems: list[Problem] = []
    for position, entry in enumerate(entries):
        here = f"subscribers[{position}]"
        try:
            subscriber_id, spec = _parse_entry(here, entry, rules)
        except Invalid as error:
            problems.extend(error.problems)
            continue
        if subscriber_id in first_at:
            why = f"'{subscriber_id}' already stands at subscribers[{first_at[subscriber_id]}]"
            problems.append(Problem(f"{here}.subscriber_id", why, "write each subscriber once"))
        first_at.setdefault(subscriber_id, position)
        subscribers.append((subscriber_id, spec))
    if problems:
        raise Invalid(*problems)
    return subscribers


def _parse_entry(here: str, entry: object, rules: SubscriberRules) -> tuple[str, SubscriberSpec]:
    fields = dict(check_object(here, entry))
    form = Form({"subscriber_id": fields.pop("subscriber_id")} if "subscriber_id" in fields else {}, at=f"{here}.")
    subscriber_id = form.required("subscriber_id", check_id)
    spec = form.attempt(lambda: parse_subscriber(fields, rules, at=f"{here}."))
    form.finish()
    return subscriber_id, spec


def _check_list(field: str, value: object) -> list[object]:
    if not isinstance(value, list):
        raise Invalid.field(field, f"is {json_kind(value)}", "write a list of subscribers")
    return value
