"""The file of subscribers is read whole or refused whole, with every problem under the number of its entry."""

import json
from ipaddress import ip_network

import pytest

from fanout.model.problems import Invalid
from fanout.model.subscriber import SubscriberRules
from fanout.model.subscribers_file import parse_subscribers_file

RULES = SubscriberRules({"eu": (), "us": (ip_network("127.0.0.0/8"),)})


def entry(subscriber_id, **fields):
    return {
        "subscriber_id": subscriber_id,
        "region": "eu",
        "endpoint": "https://h.example/",
        "event_types": ["a"],
    } | fields


def read(*entries):
    return parse_subscribers_file(json.dumps({"subscribers": entries}).encode(), RULES)


def test_entries_come_in_the_order_of_the_file():
    subscribers = read(entry("b"), entry("a", region="us", endpoint="http://127.0.0.1:18901/a"))
    assert [(subscriber_id, spec.region) for subscriber_id, spec in subscribers] == [("b", "eu"), ("a", "us")]
    assert read() == []


def test_every_problem_of_every_entry_is_named():
    with pytest.raises(Invalid) as refusal:
        read(
            entry("a"),
            entry(".."),
            entry("c", endpoint="http://10.0.0.1/", x=1),
            entry("a"),
            5,
            {"region": "eu"},
            entry(None, concurrency=0),
        )
    assert [problem.field for problem in refusal.value.problems] == [
        "subscribers[1].subscriber_id", "subscribers[2].endpoint", "subscribers[2].x", "subscribers[3].subscriber_id", "subscribers[4]",
        "subscribers[5].subscriber_id", "subscribers[5].endpoint", "subscribers[5].event_types",
        "subscribers[6].subscriber_id", "subscribers[6].concurrency",
    ]  # fmt: skip
    assert "'a' already stands at subscribers[0]" in str(refusal.value)


@pytest.mark.parametrize(
    ("body", "named"),
    [(b"[]", "file"), (b"{}", "subscribers"), (b'{"subscribers": {}}', "subscribers"), (b'{"subscribers": [], "version": 1}', "version"),
     (b'{"subscribers": null}', "subscribers"), (b'{"Subscribers": []}', "subscribers")],
)  # fmt: skip
def test_the_file_is_an_object_with_a_list(body, named):
    with pytest.raises(Invalid, match=f"^{named}: "):
        parse_subscribers_file(body, RULES)


@pytest.mark.parametrize(
    ("body", "why"),
    [(b"", "is not JSON"), (b"{", "is not JSON: .* at line 1, column 2"), (b'{"subscribers": [],}', "is not JSON"), (b"\xff", "byte 0 is not UTF-8"),
     (b'{"subscribers": [], "subscribers": []}', "the name 'subscribers' stands twice"), (b'{"subscribers": [{"a": 1, "a": 1}]}', "the name 'a' stands twice"),
     (b'{"subscribers": [NaN]}', "NaN is not a JSON number"), (b"[" * 100_000, "nested too deeply"), (b"9" * 5000, "number that is too long")],
)  # fmt: skip
def test_what_is_not_json_is_malformed(body, why):
    with pytest.raises(Invalid, match=f"^file: .*{why}") as refusal:
        parse_subscribers_file(body, RULES)
    assert refusal.value.malformed


def test_a_byte_order_mark_is_no_problem():
    assert parse_subscribers_file(b'\xef\xbb\xbf{"subscribers": []}', RULES) == []
