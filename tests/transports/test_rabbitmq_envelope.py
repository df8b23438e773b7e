"""What a message carries, and what is not a message of ours."""

import json

import pytest

from fanout.transports.rabbitmq.envelope import HEADER_BYTES_MAX, HEADERS_MAX, Malformed, bounded, decode, encode, pack
from fanout.transports.transport import Reference


def reference(delivery, destination=1, *, probation=False):
    return Reference(delivery, 3, destination, probation)


def test_references_survive_the_way_through_an_envelope():
    references = [reference(2**63 - 1), reference(1, 2**62)]
    assert decode(encode(references)) == references
    probing = [reference(1, probation=True), reference(2, probation=True)]
    assert decode(encode(probing)) == probing


def test_messages_carry_up_to_fifty_references_in_order():
    groups = list(pack([reference(n) for n in range(120)]))
    assert [len(group) for group in groups] == [50, 50, 20]
    assert [each.delivery_id for group in groups for each in group] == list(range(120))


def test_a_destination_on_probation_shares_its_messages_with_nobody():
    references = [reference(n, n % 3, probation=n % 3 != 0) for n in range(30)]
    groups = list(pack(references))
    assert sorted(each.delivery_id for group in groups for each in group) == list(range(30))
    for group in groups:
        assert len({each.probation for each in group}) == 1
        if group[0].probation:
            assert len({each.destination_id for each in group}) == 1


def test_fields_added_by_a_later_release_are_skipped():
    body = json.loads(encode([reference(1)])) | {"trace": ["00-ab"], "colour": None}
    assert decode(json.dumps(body).encode()) == [reference(1)]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not an envelope"),
        (b"\xff\xfe", "not an envelope"),
        (b"[]", "not an envelope"),
        (b'{"v": 1, "x": ' + b"[" * 100_000, "not an envelope"),
        (b'{"v": 1}', "missing required field `references`"),
        (b'{"v": 1, "references": []}', "no references"),
        (b'{"v": 1, "references": [[1, 2]]}', "length 3"),
        (b'{"v": 1, "references": [[1, 2, "x"]]}', r"references\[0\]\[2\]"),
        (b'{"v": 1, "references": [[1, 2147483648, 3]]}', r"<= 2147483647"),
        (b'{"v": 1, "references": [[-1, 2, 3]]}', r">= 0"),
        (b'{"v": 2, "references": [[1, 2, 3]]}', "envelope version 2; this consumer reads version 1"),
        (b'{"v": 7, "batch": "of another shape"}', "envelope version 7; this consumer reads version 1"),
    ],
    ids=lambda each: str(each[:40]),
)
def test_what_is_malformed_has_a_reason_that_names_the_fault(body, reason):
    with pytest.raises(Malformed, match=reason):
        decode(body)


def test_headers_are_bounded_in_number_and_size_and_never_cut():
    assert bounded({"traceparent": "00-ab", "tracestate": "x" * (HEADER_BYTES_MAX + 1)}) == {"traceparent": "00-ab"}
    assert bounded({"a": "é" * HEADER_BYTES_MAX, "b" * 256: "x"}) == {}
    assert len(bounded({f"h{n}": "x" for n in range(100)})) == HEADERS_MAX
