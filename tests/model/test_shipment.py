"""A shipment version is checked when it is made, and its payload never."""

import dataclasses
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanout.model.problems import Invalid
from fanout.model.shipment import PAYLOAD_BYTES_MAX, ShipmentVersion

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def version(**changes):
    return ShipmentVersion(
        **{"shipment_id": "S1", "version": 1, "event_type": "shipment.booked", "payload": b"{}"} | changes
    )


@given(st.binary(max_size=300))
def test_any_bytes_are_a_payload(payload):
    assert version(payload=payload).payload == payload


def test_a_payload_may_be_empty_or_one_mebibyte_and_no_more():
    assert version(payload=b"").payload == b""
    assert len(version(payload=b"x" * PAYLOAD_BYTES_MAX).payload) == 1_048_576
    with pytest.raises(Invalid, match=r"^payload: is 1048577 bytes; send at most 1048576"):
        version(payload=b"x" * (PAYLOAD_BYTES_MAX + 1))


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - what must be refused
FAR = datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))

WRONG = [
    ("shipment_id", ".."), ("shipment_id", "a b"), ("shipment_id", None), ("version", -1), ("version", True), ("version", "007"),
    ("version", None), ("event_type", "a..b"), ("event_type", None), ("payload", "text"), ("payload", bytearray(b"x")),
    ("payload", None), ("content_type", ""), ("content_type", "a\r\nX: 1"), ("content_type", " a"), ("content_type", "a "),
    ("content_type", "é"), ("content_type", "a" * 256), ("content_type", None), ("labels", "a=b"), ("labels", []),
    ("residency", "eu only"), ("residency", ""), ("occurred_at", "2026-01-01T00:00:00Z"), ("occurred_at", NAIVE),
    ("eligible_at", NAIVE), ("eligible_at", FAR),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), WRONG, ids=repr)
def test_a_wrong_field_is_named(field, value):
    with pytest.raises(Invalid) as refusal:
        version(**{field: value})
    assert [problem.field for problem in refusal.value.problems] == [field]


def test_all_wrong_fields_are_named_at_once():
    with pytest.raises(Invalid) as refusal:
        version(shipment_id="", version=-1, event_type="", content_type="")
    assert [problem.field for problem in refusal.value.problems] == [
        "shipment_id",
        "version",
        "event_type",
        "content_type",
    ]


def test_optional_fields_may_be_absent_in_every_way():
    assert version(labels=None) == version(labels={}) == version()
    assert version().content_type == "application/octet-stream"


def test_times_are_kept_in_utc():
    there = datetime(2026, 7, 1, 12, tzinfo=timezone(timedelta(hours=7)))
    assert version(occurred_at=there, eligible_at=there).eligible_at == datetime(2026, 7, 1, 5, tzinfo=UTC)
    assert version(occurred_at=there).occurred_at.tzinfo is UTC


@pytest.mark.parametrize("text", ["", "garbage", TRACEPARENT.upper(), "ff" + TRACEPARENT[2:], 5, TRACEPARENT + "-x"])
def test_a_broken_trace_context_is_absent_and_takes_its_state_along(text):
    assert (version(traceparent=text, tracestate="a=1").traceparent, version(traceparent=text).tracestate) == (
        None,
        None,
    )


def test_a_valid_trace_context_is_kept_and_a_long_state_dropped():
    kept = version(traceparent=TRACEPARENT, tracestate="a=1")
    assert (kept.traceparent, kept.tracestate) == (TRACEPARENT, "a=1")
    assert version(traceparent=TRACEPARENT, tracestate="a" * 513).tracestate is None


@pytest.mark.parametrize(
    ("changes", "same"),
    [({}, True), ({"occurred_at": datetime.now(UTC)}, True), ({"traceparent": TRACEPARENT}, True), ({"payload": b"{} "}, False),
     ({"content_type": "a/b"}, False), ({"event_type": "x"}, False), ({"labels": {"a": "b"}}, False), ({"residency": "eu"}, False)],
)  # fmt: skip
def test_content_is_payload_type_event_labels_and_residency(changes, same):
    assert version().same_content(version(**changes)) is same


def test_nothing_can_be_changed_later():
    with pytest.raises(dataclasses.FrozenInstanceError):
        version().payload = b""
    assert b"secret" not in repr(version(payload=b"secret")).encode()
