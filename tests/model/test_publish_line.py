"""A line of a file of versions: the payload goes on byte for byte, and whatever is wrong has a line number and a field."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanout.model.problems import Invalid
from fanout.model.publish_line import LINE_BYTES_MAX, parse_publish_line

PAYLOADS = [
    b"{}", b"null", b'""', b"0", b"[ ]", b'{"z":1,"a":2}', b'{"a":1,"a":2}', b"1e400", b"-1E-400", b"1.0", b"0.1000",
    b"9" * 5000, b'"\\ud800"', b'"\\u0000"', b'"\\/\\u00e9"', '"é📦\u2028"'.encode(), b'{ "a" :\t[1 ,  2] }', b'"}\\"{"',
    b"[" * 200 + b"]" * 200, b'"' + b"x" * 1_048_574 + b'"',
]  # fmt: skip

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def line(payload=b"{}", **fields):
    given = {"shipment_id": "S1", "version": 1, "event_type": "shipment.booked"} | fields
    return json.dumps(given).encode()[:-1] + b', "payload" :  ' + payload + b" }\n"


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: repr(payload[:24]))
def test_the_payload_is_the_exact_text_of_the_line(payload):
    assert parse_publish_line(line(payload), 1).payload == payload


@given(json_values, st.booleans(), st.sampled_from([None, 1, " \t"]))
def test_any_json_is_published_as_it_was_written(value, ascii_only, indent):
    payload = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    assert parse_publish_line(line(payload), 1).payload == payload


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"  \n"])
def test_the_line_end_and_a_byte_order_mark_mean_nothing(end):
    text = b'\xef\xbb\xbf{"payload":[1],"version":"12","shipment_id":"S1","event_type":"a.b"}' + end
    version = parse_publish_line(text, 1)
    assert (version.shipment_id, version.version, version.event_type, version.payload) == ("S1", 12, "a.b", b"[1]")
    assert version.content_type == "application/json"


def test_every_field_can_be_given():
    version = parse_publish_line(
        line(
            labels={"carrier": "UA"}, residency="eu_only", occurred_at="2013-07-10T02:00:00-04:00", content_type="text/x",
            eligible_at="2013-07-11T00:00:00Z", traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01", tracestate="a=1",
        ), 1,
    )  # fmt: skip
    assert (version.labels, version.residency, version.content_type) == ({"carrier": "UA"}, "eu_only", "text/x")
    assert version.occurred_at.isoformat() == "2013-07-10T06:00:00+00:00"
    assert version.eligible_at.day == 11
    assert version.tracestate == "a=1"


@pytest.mark.parametrize(
    "name", ["labels", "residency", "occurred_at", "eligible_at", "content_type", "traceparent", "tracestate"]
)
def test_null_means_absent(name):
    assert parse_publish_line(line(**{name: None}), 1) == parse_publish_line(line(), 1)


@pytest.mark.parametrize("value", [5, "garbage", ["a"]])
def test_a_broken_trace_context_is_no_error(value):
    assert parse_publish_line(line(traceparent=value, tracestate=value), 1).traceparent is None


WRONG_FIELDS = [
    ({"version": "007"}, "version"), ({"version": 1.0}, "version"), ({"version": None}, "version"), ({"shipment_id": ".."}, "shipment_id"),
    ({"event_type": "a b"}, "event_type"), ({"labels": {"a": 1}}, "labels.a"), ({"labels": []}, "labels"),
    ({"occurred_at": "2013-07-10"}, "occurred_at"), ({"eligible_at": 5}, "eligible_at"), ({"residency": ""}, "residency"),
    ({"content_type": "é"}, "content_type"), ({"colour": "red"}, "colour"), ({"Payload": 1}, "Payload"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "named"), WRONG_FIELDS, ids=repr)
def test_a_wrong_field_is_named_with_its_line(fields, named):
    with pytest.raises(Invalid) as refusal:
        parse_publish_line(line(**fields), 17)
    assert [problem.field for problem in refusal.value.problems] == [f"line 17, {named}"]


def test_all_that_is_missing_or_wrong_is_named_at_once():
    with pytest.raises(Invalid) as refusal:
        parse_publish_line(b'{"version":-1,"labels":{"a":""},"x":1}', 2)
    assert [problem.field.removeprefix("line 2, ") for problem in refusal.value.problems] == [
        "shipment_id", "version", "event_type", "payload", "labels.a", "x",
    ]  # fmt: skip


MALFORMED = [
    b"", b"   ", b"\n", b"[]", b"5", b'"a"', b"{", b"{]", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,', b'{"a":1,}', b'{"a" 1}', b"{a:1}",
    b"{'a':1}", b'{"a":}', b'{"a":1 "b":2}', b'{"a":1}x', b'{"a":1}{"a":1}', b'{"a":01}', b'{"a":1.}', b'{"a":NaN}',
    b'{"a":-Infinity}', b'{"a":tru}', b'{"a":"x\ty"}', b'{"a":"\\x"}', b'{"a":"\\ud8"}', b'{"a":"\xff"}', b"\xff\xfe{}", b'{"a":1}\x00',
    b'{"payload":1,"payload":2}', b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}", b"{,}", b'{"a":1,,"b":2}', b"// {}",
]  # fmt: skip


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: repr(text[:24]))
def test_a_line_that_is_not_one_json_object_is_malformed(text):
    with pytest.raises(Invalid, match=r"^line 3: ") as refusal:
        parse_publish_line(text, 3)
    assert refusal.value.malformed
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("text", [b"{}", b" { } "])
def test_an_empty_object_lacks_everything(text):
    with pytest.raises(Invalid) as refusal:
        parse_publish_line(text, 1)
    assert [problem.why for problem in refusal.value.problems] == ["is missing"] * 4


def test_a_name_twice_is_found_in_the_fields_but_not_in_the_payload():
    with pytest.raises(Invalid, match=r"^line 4, labels: the name 'a' stands twice"):
        parse_publish_line(
            b'{"shipment_id":"S1","version":1,"event_type":"a","labels":{"a":"b","a":"c"},"payload":{"a":1,"a":2}}', 4
        )


def test_a_number_too_long_for_a_version_is_refused_like_any_other():
    with pytest.raises(Invalid, match=r"^line 1, version: "):
        parse_publish_line(b'{"shipment_id":"S1","version":' + b"9" * 5000 + b',"event_type":"a","payload":1}', 1)


def test_a_payload_or_a_line_that_is_too_long_is_refused():
    with pytest.raises(Invalid, match=r"^line 1, payload: is 1048577 bytes"):
        parse_publish_line(line(b'"' + b"x" * 1_048_575 + b'"'), 1)
    with pytest.raises(Invalid, match=r"^line 1: is longer than"):
        parse_publish_line(b" " * (LINE_BYTES_MAX + 1), 1)


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")))
def test_no_bytes_do_anything_but_read_or_be_refused(text):
    with pytest.raises(Invalid, match=r"^line 1"):
        parse_publish_line(text, 1)
