"""Times come in as RFC 3339 with an offset and go out in UTC."""

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanout.model.problems import Invalid
from fanout.model.times import format_utc, parse_time

moments = st.datetimes(min_value=datetime(1900, 1, 2), max_value=datetime(2999, 12, 30))  # noqa: DTZ001 - zones are drawn apart
offsets = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))

READ = {
    "2026-03-01T09:30:00Z": "2026-03-01T09:30:00Z",
    "2026-03-01t09:30:00z": "2026-03-01T09:30:00Z",
    "2026-03-01T16:30:00+07:00": "2026-03-01T09:30:00Z",
    "2026-03-01T16:30:00 07:00": "2026-03-01T09:30:00Z",
    "2026-03-01T02:30:00-07:00": "2026-03-01T09:30:00Z",
    "2026-03-01T09:30:00-00:00": "2026-03-01T09:30:00Z",
    "2026-03-01T09:30:00.5Z": "2026-03-01T09:30:00.500000Z",
    "2026-03-01T09:30:00.123456789Z": "2026-03-01T09:30:00.123456Z",
    "2026-03-01T09:30:00.9999999Z": "2026-03-01T09:30:00.999999Z",
    "2038-01-19T03:14:08Z": "2038-01-19T03:14:08Z",
    "2024-02-29T00:00:00Z": "2024-02-29T00:00:00Z",
    "2999-12-31T23:59:59Z": "2999-12-31T23:59:59Z",
    "1900-01-01T00:00:00Z": "1900-01-01T00:00:00Z",
}
REFUSED = {
    "2026-03-01T09:30:00": "has no offset",
    "2026-03-01 09:30:00": "has no offset",
    "2016-12-31T23:59:60Z": "leap second",
    "0000-01-01T00:00:00Z": "on no calendar",
    "9999-12-31T23:59:59-01:00": "on no calendar",
    "0001-01-01T00:00:00+01:00": "on no calendar",
    "2026-02-29T00:00:00Z": "on no calendar",
    "2026-03-01T24:00:00Z": "on no calendar",
    "2026-03-01T09:30:61Z": "on no calendar",
    "2026-03-01T09:30:00+24:00": "on no calendar",
    "2026-03-01T09:30:00+07:60": "on no calendar",
    "2026-03-01": "is not a time",
    "2026-03-01T09:30Z": "is not a time",
    "2026-03-01T09:30:00.Z": "is not a time",
    "2026-03-01T09:30:00Z\n": "is not a time",
    "٢٠٢٦-03-01T09:30:00Z": "is not a time",
    "10000-01-01T00:00:00Z": "is not a time",
    "infinity": "is not a time",
    "": "is not a time",
}


@pytest.mark.parametrize(("text", "utc"), READ.items())
def test_each_form_of_rfc_3339_is_read_and_written_in_utc(text, utc):
    assert format_utc(parse_time("occurred_at", text)) == utc


@pytest.mark.parametrize(("text", "why"), REFUSED.items())
def test_what_is_no_point_in_time_is_refused_with_its_reason(text, why):
    with pytest.raises(Invalid, match=f"^eligible_at: .*{why}"):
        parse_time("eligible_at", text)


@pytest.mark.parametrize("value", [None, 1700000000, 1.5, datetime.now(UTC)])
def test_a_time_is_text(value):
    with pytest.raises(Invalid, match=r"a time is text"):
        parse_time("occurred_at", value)


@given(moments, offsets)
def test_a_time_survives_writing_and_reading_in_any_zone(moment, zone):
    there = moment.replace(tzinfo=UTC).astimezone(zone) if 2 < moment.year < 9998 else moment.replace(tzinfo=UTC)
    assert parse_time("t", there.isoformat()) == there
    assert parse_time("t", there.isoformat().replace("+", " ")) == there
    assert parse_time("t", format_utc(there)) == there
    assert format_utc(there).endswith("Z")


@given(st.text(max_size=40))
def test_no_text_does_anything_but_read_or_be_refused(text):
    with contextlib.suppress(Invalid):
        assert parse_time("t", text).tzinfo is UTC


def test_a_naive_time_is_never_written():
    with pytest.raises(AssertionError):
        format_utc(datetime.max)  # noqa: DTZ901 - what the driver makes of infinity
