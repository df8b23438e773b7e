"""Ids, versions and delivery keys: one spelling for each, and nothing else gets in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanout.model.identity import VERSION_MAX, DeliveryKey, check_id, delivery_key, parse_key, parse_version
from fanout.model.problems import Invalid

ids = st.from_regex(r"[A-Za-z0-9._~-]{1,128}", fullmatch=True).filter(lambda text: text not in {".", ".."})
versions = st.integers(0, VERSION_MAX)

NO_IDS = ["", ".", "..", "a" * 129, "a b", "a/b", "a\r\nX: 1", "é", "📦", "a:b", "a%2e", "a\x00", "a\n", None, 7, b"a"]
NO_VERSIONS = [
    "", "007", "00", "+1", "-1", "-0", " 1", "1 ", "1\n", "1.0", "1e3", "0x1", "1_000", "٣", "９", "a", "9" * 19, "1" * 20,
    True, False, 1.0, None, b"1", -1, 2**63,
]  # fmt: skip
NO_KEYS = [
    "", "shipment:a:subscriber:b", "shipment:a:subscriber:b:version:01", "shipment:a:subscriber:b:version:1 ",
    "shipment::subscriber:b:version:1", "shipment:a:subscriber:..:version:1", "shipment:a:b:subscriber:c:version:1",
    "Shipment:a:subscriber:b:version:1", "shipment:a:subscriber:b:version:1:version:1",
]  # fmt: skip


@given(ids)
def test_every_word_of_the_alphabet_is_an_id_as_it_stands(text):
    assert check_id("shipment_id", text) == text


@pytest.mark.parametrize("text", NO_IDS, ids=repr)
def test_anything_else_is_refused_under_the_name_of_its_field(text):
    with pytest.raises(Invalid, match=r"^shipment_id: .*; write 1 to 128 characters") as refusal:
        check_id("shipment_id", text)
    assert str(refusal.value).isprintable()
    assert not refusal.value.malformed


@given(versions)
def test_a_version_reads_alike_as_number_and_as_text(version):
    assert parse_version("version", version) == parse_version("version", str(version)) == version


@pytest.mark.parametrize("text", NO_VERSIONS, ids=repr)
def test_a_version_has_one_spelling_only(text):
    with pytest.raises(Invalid, match=r"^version: .*; write a whole number from 0 to 9223372036854775807"):
        parse_version("version", text)


@given(ids, ids, versions)
def test_a_delivery_key_is_read_back_as_what_it_was_made_of(shipment_id, subscriber_id, version):
    key = delivery_key(shipment_id, subscriber_id, version)
    assert key == f"shipment:{shipment_id}:subscriber:{subscriber_id}:version:{version}"
    assert parse_key(key) == DeliveryKey(shipment_id, subscriber_id, version)
    assert str(parse_key(key)) == key


@given(st.tuples(ids, ids, versions), st.tuples(ids, ids, versions))
def test_two_deliveries_never_share_a_key(one, other):
    assert (delivery_key(*one) == delivery_key(*other)) == (one == other)


@pytest.mark.parametrize("text", NO_KEYS)
def test_what_is_no_key_is_refused(text):
    with pytest.raises(Invalid, match=r"^key"):
        parse_key(text)
