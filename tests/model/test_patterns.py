"""Who wants what: the two ways of asking, pattern by pattern and by candidates, always agree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanout.model.patterns import check_event_type, check_pattern, labels_match, pattern_candidates, pattern_matches
from fanout.model.problems import Invalid

event_types = st.from_regex(r"[ab_-]{1,4}(\.[ab~]{1,3}){0,3}", fullmatch=True)
patterns = st.one_of(
    event_types, event_types.map(lambda text: text + "*"), event_types.map(lambda text: text + ".*"), st.just("*")
)
words = st.sampled_from(["UA", "DL", "ORD", "carrier", "origin"])


@given(patterns, event_types)
def test_a_pattern_matches_exactly_if_it_is_a_candidate(pattern, event_type):
    assert check_pattern("event_types[0]", pattern) == pattern
    assert pattern_matches(pattern, event_type) == (pattern in pattern_candidates(event_type))


@given(event_types)
def test_each_candidate_is_a_pattern_that_matches(event_type):
    candidates = pattern_candidates(check_event_type("event_type", event_type))
    assert len(set(candidates)) == len(candidates) == len(event_type) + 2
    for candidate in candidates:
        assert pattern_matches(check_pattern("p", candidate), event_type)


def test_a_star_matches_the_rest_of_a_name():
    assert pattern_matches("shipment.*", "shipment.delayed")
    assert pattern_matches("shipment.*", "shipment.delayed.again")
    assert pattern_matches("ship*", "shipment.delayed")
    assert pattern_matches("*", "anything")
    assert not pattern_matches("shipment.*", "shipment")
    assert not pattern_matches("shipment", "shipment.delayed")
    assert not pattern_matches("Shipment.*", "shipment.delayed")


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a b", "a/b", "é", "a\n", "*", "a*", "a" * 129, None, 5])
def test_what_is_no_event_type_is_refused(text):
    with pytest.raises(Invalid, match=r"^event_type: "):
        check_event_type("event_type", text)


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..*", ".*", "a*b", "**", "*.a", "a *", "é*", "a" * 129 + "*", None, 5]
)
def test_a_pattern_that_can_match_nothing_is_refused(text):
    with pytest.raises(Invalid, match=r"^event_types\[2\]: "):
        check_pattern("event_types[2]", text)


def test_the_longest_event_type_has_a_pattern():
    assert check_event_type("event_type", "a" * 128)
    assert check_pattern("event_types[0]", "a" * 128 + "*")


@given(st.dictionaries(words, st.lists(words, min_size=1)), st.dictionaries(words, words))
def test_labels_match_if_no_named_label_is_absent_or_has_another_value(wanted, labels):
    against = [name for name in wanted if name not in labels or labels[name] not in wanted[name]]
    assert labels_match(wanted, labels) == (not against)


@given(st.dictionaries(words, words))
def test_an_empty_filter_matches_all(labels):
    assert labels_match({}, labels)
