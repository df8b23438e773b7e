"""A publisher's trace context is used when it is valid and forgotten when it is not."""

import re

import pytest

from fanout.model.trace_context import TraceParent, usable_tracestate

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

MALFORMED = [
    None, 7, "", "00", f"00-{TRACE}-{SPAN}", f"00-{TRACE.upper()}-{SPAN}-01", f"ff-{TRACE}-{SPAN}-01",
    f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{SPAN}-01-more", f"0-{TRACE}-{SPAN}-01",
    f"00-{TRACE[1:]}-{SPAN}-01", f"00-{TRACE}-{SPAN}-1", f" 00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01\n", "é" * 55,
    f"01-{TRACE}-{SPAN}-01more",
]  # fmt: skip


@pytest.mark.parametrize("text", MALFORMED, ids=repr)
def test_a_malformed_traceparent_counts_as_absent(text):
    assert TraceParent.parse(text) is None


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("03", True), ("fe", False)])
def test_a_valid_traceparent_gives_trace_span_and_the_sampled_flag(flags, sampled):
    assert TraceParent.parse(f"00-{TRACE}-{SPAN}-{flags}") == TraceParent(TRACE, SPAN, sampled)


def test_a_later_version_is_read_by_its_first_four_fields():
    assert str(TraceParent.parse(f"cc-{TRACE}-{SPAN}-01-what-the-future-brings")) == f"00-{TRACE}-{SPAN}-01"


def test_a_new_position_is_valid_and_like_no_other():
    one, other = TraceParent.new(), TraceParent.new()
    assert TraceParent.parse(str(one)) == one
    assert one.trace_id != other.trace_id
    assert TraceParent.new(trace_id=TRACE, sampled=False).trace_id == TRACE
    assert re.fullmatch(f"00-{TRACE}-[0-9a-f]{{16}}-00", str(TraceParent.new(trace_id=TRACE, sampled=False)))


@pytest.mark.parametrize(
    ("text", "kept"),
    [("a=1", True), ("a=1, b=2", True), ("a" * 512, True), ("a" * 513, False), ("", False), (" a=1", False), ("a=é", False),
     ("a=1\r\nX: 1", False), (None, False), (5, False)],
)  # fmt: skip
def test_tracestate_is_kept_if_it_is_short_and_sendable(text, kept):
    assert usable_tracestate(text) == (text if kept else None)
