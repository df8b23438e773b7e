"""P10: what belongs to a region stays in it. Three servers, six real processes, and a search through every row of every table."""

import pytest

from .cells import EU_LABEL, EU_PAYLOAD, EU_TRACE, OPEN_PAYLOAD, REGIONS, Aftermath

pytestmark = pytest.mark.timeout(240)


def test_the_search_finds_what_is_there(aftermath: Aftermath):
    assert aftermath.hold(OPEN_PAYLOAD) == {"home", "eu", "us"}
    assert aftermath.hold("europe-only") == {"home", "eu", "us"}, "the key of a forbidden delivery may be known"


@pytest.mark.parametrize("secret", [EU_PAYLOAD, EU_LABEL, EU_TRACE, "application/x-of-europe"])
def test_of_a_version_that_may_not_leave_europe_nothing_reaches_the_database_in_the_united_states(
    aftermath: Aftermath, secret
):
    assert aftermath.hold(secret) == {"home", "eu"}


def test_it_reached_the_subscriber_in_europe_and_nobody_else(aftermath: Aftermath):
    keys = {key for key, body in aftermath.reached if body == EU_PAYLOAD}
    assert keys == {"shipment:europe-only:subscriber:at-eu:version:1"}
    assert {key.split(":")[3] for key, body in aftermath.reached if body == OPEN_PAYLOAD} == {"at-eu", "at-us"}


def test_a_forbidden_delivery_is_dead_with_its_key_and_its_reason_and_nothing_else(aftermath: Aftermath):
    [version], [delivery] = aftermath.rows["version"], aftermath.rows["delivery"]
    told = {name for name, value in version.items() if value is not None}
    assert told == {
        "version_no", "shipment_no", "shipment_id", "version", "forbidden", "accepted_at", "eligible_at",
    }  # fmt: skip
    assert version["forbidden"] is True
    assert (delivery["reason"], delivery["attempts"], delivery["worker"]) == ("residency", 0, None)
    shown = aftermath.shown
    assert (shown["state"], shown["reason"], shown["attempt_list"]) == ("dead", "residency", [])
    assert (shown["event_type"], shown["trace_id"], shown["waits_for"]) == (None, None, None)


@pytest.mark.parametrize("region", REGIONS)
def test_secrets_endpoints_and_headers_of_a_region_stand_in_its_own_database_only(aftermath: Aftermath, region: str):
    for private in (aftermath.secrets[region], f"endpoint-key-of-{region}", f"header-of-{region}"):
        assert aftermath.hold(private) == {region}, private
