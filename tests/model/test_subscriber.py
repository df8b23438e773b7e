"""A subscriber's wishes: all that is wrong is named at once, and no secret is ever repeated."""

import contextlib
import copy
import json
import logging
import pickle
from ipaddress import ip_network

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fanout.model.problems import Invalid
from fanout.model.signing_secret import Secret
from fanout.model.states import Ordering
from fanout.model.subscriber import SubscriberRules, merge_patch, parse_subscriber

RULES = SubscriberRules({"eu": (ip_network("127.0.0.0/8"),), "us": ()}, concurrency=7, timeout_seconds=20)
SECRET = "whsec_" + "aHVzaGh1c2hodXNo" * 2
OTHER_SECRET = "whsec_" + "b3RoZXJvdGhlcm90" * 2
SIX_SECRETS = ["whsec_" + "aHVzaGh1c2hodXN" + letter + "aHVzaGh1c2hodXNo" for letter in "ghijkl"]
SMALLEST = {"region": "eu", "endpoint": "https://h.example/?key=hush", "event_types": ["shipment.*"]}
FULL = SMALLEST | {
    "labels": {"carrier": ["UA", "DL"]}, "concurrency": 8, "rate_per_second": 2.5, "ordering": "latest",
    "headers": {"X-Api-Key": "hush hush"}, "secrets": [SECRET, OTHER_SECRET], "timeout_seconds": 30, "retry_statuses": [503, 409, 503],
}  # fmt: skip


def problems_of(document, rules=RULES):
    with pytest.raises(Invalid) as refusal:
        parse_subscriber(document, rules)
    text = str(refusal.value)
    assert "hush" not in text
    assert "aHVz" not in text
    assert not refusal.value.malformed
    return [problem.field for problem in refusal.value.problems]


def test_every_field_is_read():
    spec = parse_subscriber(FULL, RULES)
    assert (spec.region, spec.endpoint.url, spec.event_types) == ("eu", "https://h.example/?key=hush", ("shipment.*",))
    assert (spec.labels, spec.concurrency, spec.rate_per_second) == ({"carrier": ("UA", "DL")}, 8, 2.5)
    assert (spec.ordering, spec.headers, spec.timeout_seconds) == (Ordering.LATEST, {"X-Api-Key": "hush hush"}, 30)
    assert spec.retry_statuses == (409, 503)
    assert [secret.reveal() for secret in spec.secrets] == [SECRET, OTHER_SECRET]


@pytest.mark.parametrize("fields", [{}, dict.fromkeys(set(FULL) - set(SMALLEST))], ids=["absent", "null"])
def test_what_is_absent_or_null_has_its_default(fields):
    spec = parse_subscriber(SMALLEST | fields, RULES)
    assert (spec.concurrency, spec.timeout_seconds, spec.ordering, spec.rate_per_second) == (7, 20, Ordering.ANY, None)
    assert (spec.labels, spec.headers, spec.secrets, spec.retry_statuses) == ({}, {}, None, None)


def test_an_empty_list_of_retried_statuses_is_not_the_usual_ones():
    assert parse_subscriber(SMALLEST | {"retry_statuses": []}, RULES).retry_statuses == ()


def test_what_stands_twice_in_a_list_counts_once():
    spec = parse_subscriber(SMALLEST | {"event_types": ["a", "b", "a"], "labels": {"c": ["x", "x"]}}, RULES)
    assert (spec.event_types, spec.labels) == (("a", "b"), {"c": ("x",)})


WRONG = [
    ({"region": "mars"}, "region"), ({"region": None}, "region"), ({"region": ["eu"]}, "region"), ({"region": ""}, "region"),
    ({"endpoint": "https://169.254.169.254/?hush"}, "endpoint"), ({"endpoint": None}, "endpoint"),
    ({"region": "us", "endpoint": "http://127.0.0.1:1/"}, "endpoint"),
    ({"event_types": []}, "event_types"), ({"event_types": "shipment.*"}, "event_types"), ({"event_types": ["a", "b c"]}, "event_types[1]"),
    ({"event_types": ["a"] * 101}, "event_types"), ({"event_types": None}, "event_types"),
    ({"labels": []}, "labels"), ({"labels": {"a": []}}, "labels.a"), ({"labels": {"a": "b"}}, "labels.a"), ({"labels": {"a": [1]}}, "labels.a[0]"),
    ({"labels": {"a": None}}, "labels.a"), ({"labels": {"": ["a"]}}, "labels (a name)"), ({"labels": {str(n): ["a"] for n in range(33)}}, "labels"),
    ({"labels": {"a": [str(n) for n in range(257)]}}, "labels.a"),
    ({"concurrency": 0}, "concurrency"), ({"concurrency": 101}, "concurrency"), ({"concurrency": 1.5}, "concurrency"),
    ({"concurrency": True}, "concurrency"), ({"concurrency": "8"}, "concurrency"),
    ({"rate_per_second": 0}, "rate_per_second"), ({"rate_per_second": -1}, "rate_per_second"), ({"rate_per_second": 10_001}, "rate_per_second"),
    ({"rate_per_second": float("nan")}, "rate_per_second"), ({"rate_per_second": float("inf")}, "rate_per_second"),
    ({"rate_per_second": True}, "rate_per_second"), ({"rate_per_second": 1e-300}, "rate_per_second"), ({"rate_per_second": "1"}, "rate_per_second"),
    ({"ordering": "fifo"}, "ordering"), ({"ordering": 1}, "ordering"), ({"ordering": ["any"]}, "ordering"),
    ({"timeout_seconds": 0.5}, "timeout_seconds"), ({"timeout_seconds": 301}, "timeout_seconds"), ({"timeout_seconds": False}, "timeout_seconds"),
    ({"retry_statuses": [399]}, "retry_statuses[0]"), ({"retry_statuses": [500, 600]}, "retry_statuses[1]"), ({"retry_statuses": 500}, "retry_statuses"),
    ({"retry_statuses": [True]}, "retry_statuses[0]"),
    ({"secrets": []}, "secrets"), ({"secrets": [SECRET] * 2}, "secrets"), ({"secrets": SECRET}, "secrets"), ({"secrets": ["hush"]}, "secrets[0]"),
    ({"secrets": SIX_SECRETS}, "secrets"), ({"secrets": [SECRET, None]}, "secrets[1]"),
    ({"secrets": ["whsec_hush!"]}, "secrets[0]"), ({"secrets": ["whsec_hush"]}, "secrets[0]"), ({"secrets": ["whsec_é"]}, "secrets[0]"),
    ({"secrets": ["whsec_" + "A" * 88]}, "secrets[0]"), ({"secrets": ["whsec_" + "A" * 28]}, "secrets[0]"), ({"secrets": [SECRET + "\n"]}, "secrets[0]"),
    ({"colour": "hush"}, "colour"), ({"Region": "eu"}, "Region"), ({"subscriber_id": "a"}, "subscriber_id"), ({"a\nb": 1}, "a\\nb"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "named"), WRONG, ids=lambda value: repr(value)[:60])
def test_a_wrong_field_is_named(fields, named):
    assert problems_of(SMALLEST | fields) == [named]


@pytest.mark.parametrize("name", SMALLEST)
def test_a_missing_field_is_named(name):
    assert problems_of({key: value for key, value in SMALLEST.items() if key != name}) == [name]


def test_all_problems_are_found_at_once_and_a_wrong_region_hides_none():
    document = {
        "region": "mars",
        "endpoint": "http://127.0.0.1/",
        "concurrency": 0,
        "secrets": ["hush"],
        "headers": {"Host": "hush"},
        "x": 1,
    }
    assert problems_of(document) == ["region", "event_types", "concurrency", "headers.'Host'", "secrets[0]", "x"]


HEADERS = [
    ({"X-A": "é"}, "'X-A'"), ({"X-A": "abc "}, "'X-A'"), ({"X-A": " abc"}, "'X-A'"), ({"X-A": "a\r\nX: hush"}, "'X-A'"), ({"X-A": "a\x00"}, "'X-A'"),
    ({"X-A": "📦"}, "'X-A'"), ({"X-A": "a\tb"}, "'X-A'"), ({"X-A": 5}, "'X-A'"), ({"X-A": None}, "'X-A'"), ({"X-A": "a\n"}, "'X-A'"),
    ({"X-A": "a" * 4094}, "'X-A'"), ({"X-A": "***"}, "'X-A'"), ({"": "a"}, "''"), ({"X A": "a"}, "'X A'"), ({"X:A": "a"}, "'X:A'"),
    ({"X-A\r\n": "a"}, "'X-A\\r\\n'"), ({"é": "a"}, "'\\xe9'"), ({"X-A": "1", "x-a": "2"}, "'x-a'"),
]  # fmt: skip
OURS = [
    "Idempotency-Key", "webhook-id", "Webhook-Signature", "Fanout-Version", "FANOUT-anything", "traceparent", "TraceState", "Host", "Content-Length",
    "Content-Type", "Transfer-Encoding", "Connection", "Accept-Encoding", "Expect", "Upgrade", "TE", "Trailer", "Proxy-Authorization", "Keep-Alive",
]  # fmt: skip


@pytest.mark.parametrize(("headers", "named"), HEADERS, ids=lambda value: repr(value)[:40])
def test_a_header_that_could_not_be_sent_is_refused_when_it_is_saved(headers, named):
    assert problems_of(SMALLEST | {"headers": headers}) == [f"headers.{named}"]


@pytest.mark.parametrize("name", OURS)
def test_a_header_of_the_sender_cannot_be_replaced(name):
    assert problems_of(SMALLEST | {"headers": {name: "hush"}}) == [f"headers.{name!r}"]


@pytest.mark.parametrize("headers", [[], {f"X-{number}": "a" for number in range(33)}])
def test_there_are_at_most_32_headers(headers):
    assert problems_of(SMALLEST | {"headers": headers}) == ["headers"]


def test_usual_headers_are_kept_as_they_are():
    headers = {
        "Authorization": "Bearer hush",
        "X-Empty": "",
        "x_y!": "a b ~",
        "X-Long": "a" * 4090,
        "Content-Encoding-Hint": "no",
    }
    assert parse_subscriber(SMALLEST | {"headers": headers}, RULES).headers == headers


def test_no_secret_no_header_value_and_no_query_value_is_shown(caplog):
    spec = parse_subscriber(FULL, RULES)
    logging.getLogger().warning("%s %r %s", spec, spec, spec.secrets)
    shown = f"{spec} {spec!r} {spec.secrets} {spec.secrets[0]!s:>40} {caplog.text}"
    assert "hush" not in shown
    assert SECRET not in shown + json.dumps(spec.listing())
    assert spec.listing()["headers"] == {"X-Api-Key": "***"}
    assert "secrets" not in spec.listing()
    with pytest.raises(TypeError, match=r"not JSON serializable"):
        json.dumps(spec.secrets)


def test_a_listing_can_be_written_back():
    spec = parse_subscriber(SMALLEST | {"labels": {"a": ["b"]}, "retry_statuses": [503]}, RULES)
    assert parse_subscriber(json.loads(json.dumps(spec.listing())), RULES) == spec


def test_a_patch_changes_what_it_names_and_null_gives_the_default():
    spec = parse_subscriber(FULL, RULES)
    patched = spec.patched(
        {"concurrency": None, "labels": {"carrier": None, "origin": ["EWR"]}, "headers": {"X-New": "1"}}, RULES
    )
    assert (patched.concurrency, patched.labels) == (7, {"origin": ("EWR",)})
    assert patched.headers == {"X-Api-Key": "hush hush", "X-New": "1"}
    assert (patched.secrets, patched.endpoint, patched.retry_statuses) == (
        spec.secrets,
        spec.endpoint,
        spec.retry_statuses,
    )
    assert spec == parse_subscriber(FULL, RULES)
    assert spec.patched({}, RULES) == spec
    assert [secret.reveal() for secret in spec.patched({"secrets": [SECRET]}, RULES).secrets] == [SECRET]
    assert spec.patched({"secrets": None}, RULES).secrets == spec.secrets


@pytest.mark.parametrize(
    ("patch", "named"), [({"endpoint": None}, "endpoint"), ({"x": 1}, "x"), ({"concurrency": 0}, "concurrency")]
)
def test_a_patch_is_checked_like_the_whole(patch, named):
    with pytest.raises(Invalid, match=f"^{named}: "):
        parse_subscriber(FULL, RULES).patched(patch, RULES)


@pytest.mark.parametrize("patch", [[], "x", None])
def test_a_patch_that_is_no_object_is_refused(patch):
    with pytest.raises(Invalid, match=r"^body: "):
        parse_subscriber(FULL, RULES).patched(patch, RULES)


RFC_7396 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}), ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}), ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}), ({"a": ["b"]}, {"a": "c"}, {"a": "c"}), ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}), ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]), ({"a": "b"}, ["c"], ["c"]), ({"a": "foo"}, None, None), ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}), ([1, 2], {"a": "b", "c": None}, {"a": "b"}), ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]  # fmt: skip


@pytest.mark.parametrize(("target", "patch", "result"), RFC_7396)
def test_a_merge_patch_does_what_the_table_of_rfc_7396_says(target, patch, result):
    before = copy.deepcopy(target)
    assert merge_patch(target, patch) == result
    assert target == before


@settings(suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(
    st.dictionaries(
        st.sampled_from([*FULL, "x"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()),
    )
)
def test_no_document_does_anything_but_read_or_be_refused(fields):
    with contextlib.suppress(Invalid):
        spec = parse_subscriber(SMALLEST | fields, RULES)
        assert (
            parse_subscriber(spec.listing() | {"headers": spec.headers, "secrets": fields.get("secrets")}, RULES)
            == spec
        )


def test_a_secret_is_equal_to_its_like_and_to_nothing_else():
    secret = Secret.parse("s", SECRET)
    assert secret == Secret.parse("s", SECRET)
    assert hash(secret) == hash(Secret.parse("s", SECRET))
    assert secret != Secret.parse("s", OTHER_SECRET)
    assert secret != SECRET
    assert secret.key == b"hush" * 6
    assert pickle.loads(pickle.dumps(secret)) == secret
    assert len(Secret.new().key) == 32
