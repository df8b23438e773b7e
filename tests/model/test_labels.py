"""Labels as an object and as a header."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanout.model.labels import check_labels, format_labels_header, parse_labels_header
from fanout.model.problems import Invalid

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=256)

MALFORMED = [
    "carrier", "carrier=UA,", ",carrier=UA", "carrier=UA,,a=b", "carrier=U A", "carrier=UA;a=b", "carrier=é", "carrier=%G1",
    "carrier=%1", "carrier=%FF", "carrier=%ED%A0%80", "carrier=a=b", "carrier=UA, carrier=DL", "c%61=1,ca=2", 'carrier="UA"',
]  # fmt: skip
NOT_ALLOWED = ["carrier=", "=UA", "carrier=%00", "carrier=%0D%0A", "carrier=" + "a" * 257]


@given(st.dictionaries(texts, texts, max_size=32))
def test_any_labels_survive_the_header(labels):
    assert parse_labels_header(format_labels_header(labels)) == labels == check_labels("labels", labels)


def test_blanks_around_names_and_values_mean_nothing():
    assert parse_labels_header("carrier=UA, destination=ORD") == {"carrier": "UA", "destination": "ORD"}
    assert parse_labels_header("\t carrier = UA ,destination=ORD ") == {"carrier": "UA", "destination": "ORD"}
    assert parse_labels_header("") == parse_labels_header("  ") == {}
    assert parse_labels_header("stra%C3%9Fe=Z%c3%bcrich") == {"straße": "Zürich"}


@pytest.mark.parametrize("text", MALFORMED)
def test_a_header_that_cannot_be_read_is_malformed(text):
    with pytest.raises(Invalid, match=r"^Fanout-Labels: label [12] ") as refusal:
        parse_labels_header(text)
    assert refusal.value.malformed


@pytest.mark.parametrize("text", NOT_ALLOWED)
def test_a_header_that_reads_well_may_still_hold_what_no_label_can(text):
    with pytest.raises(Invalid, match=r"^Fanout-Labels") as refusal:
        parse_labels_header(text)
    assert not refusal.value.malformed


@pytest.mark.parametrize(
    "labels", [[], "a=b", 5, {"a": 1}, {"a": None}, {"a": ["b"]}, {"": "a"}, {"a": ""}, {"a": "\ud800"}, {"\x00": "a"},
               {"a": "b\x7f"}, {1: "a"}, {str(n): "a" for n in range(33)}], ids=repr,
)  # fmt: skip
def test_labels_are_at_most_32_non_empty_texts(labels):
    with pytest.raises(Invalid, match=r"^labels"):
        check_labels("labels", labels)


def test_each_wrong_label_is_named():
    with pytest.raises(Invalid) as refusal:
        check_labels("labels", {"carrier": 1, "origin": "EWR", "destination": ""})
    assert [problem.field for problem in refusal.value.problems] == ["labels.carrier", "labels.destination"]


def test_labels_are_copied():
    mine = {"a": "b"}
    theirs = check_labels("labels", mine)
    mine["a"] = "c"
    assert theirs == {"a": "b"}
