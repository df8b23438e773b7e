"""Following a version into its regions: progress, deliveries, and the books."""

import pytest
from served import Served, problem_of

WHOLE = {"expansion": "done", "accepted": 2, "waiting": 2, "queued": 0, "leased": 0, "delivered": 0, "dead": 0}
NONE = {"expansion": "none", "accepted": 0, "waiting": 0, "queued": 0, "leased": 0, "delivered": 0, "dead": 0}


async def two_in_eu_and_one_in_us(api: Served) -> None:
    for subscriber_id, region, event_type in (("a", "eu", "*"), ("b", "eu", "shipment.*"), ("c", "us", "*")):
        answer = await api.subscribe(subscriber_id, region=region, event_types=[event_type])
        assert answer.status_code == 201


async def test_a_version_is_pending_until_its_regions_have_expanded_it(api: Served):
    await two_in_eu_and_one_in_us(api)
    await api.put(body=b"abc")
    pending = (await api.get("/v1/shipments/s-1/versions/1")).json()
    assert {name: each["expansion"] for name, each in pending["regions"].items()} == {"eu": "pending", "us": "pending"}
    await api.expand()
    done = (await api.get("/v1/shipments/s-1/versions/1")).json()
    assert done["regions"] == {"eu": WHOLE, "us": WHOLE | {"accepted": 1, "waiting": 1}}
    assert (done["shipment_id"], done["version"], done["bytes"]) == ("s-1", 1, 3)


async def test_a_region_where_nobody_wants_it_says_none(api: Served):
    await two_in_eu_and_one_in_us(api)
    await api.client.delete("/v1/subscribers/c")
    await api.put()
    await api.expand()
    assert (await api.get("/v1/shipments/s-1/versions/1")).json()["regions"] == {"eu": WHOLE, "us": NONE}


async def test_a_version_that_was_never_published_is_404(api: Served):
    problem_of(await api.get("/v1/shipments/s-1/versions/1"), 404)
    await api.put()
    problem_of(await api.get("/v1/shipments/s-1/versions/2"), 404)
    problem_of(await api.get("/v1/shipments/s-1/versions/02"), 400)


async def test_deliveries_are_listed_newest_first_over_all_regions_and_page_by_page(api: Served):
    await two_in_eu_and_one_in_us(api)
    for version in range(4):
        await api.put(version=version)
        await api.expand()
    everything = (await api.get("/v1/deliveries", limit=500)).json()
    assert everything["next"] is None
    versions = [each["version"] for each in everything["items"]]
    assert versions == sorted(versions, reverse=True)
    assert len(versions) == 12

    for limit in (1, 5, 12):
        seen: list[str] = []
        page = (await api.get("/v1/deliveries", limit=limit)).json()
        while True:
            seen += [each["key"] for each in page["items"]]
            assert len(page["items"]) <= limit
            if page["next"] is None:
                break
            page = (await api.get("/v1/deliveries", limit=limit, cursor=page["next"])).json()
        assert sorted(seen) == sorted(each["key"] for each in everything["items"])
        assert len(set(seen)) == 12


async def test_a_subscriber_that_nobody_knows_is_404_and_one_without_deliveries_an_empty_list(api: Served):
    problem_of(await api.get("/v1/deliveries", subscriber_id="nobody"), 404)
    await api.subscribe("acme")
    assert (await api.get("/v1/deliveries", subscriber_id="acme")).json() == {"items": [], "next": None}
    await api.client.delete("/v1/subscribers/acme")
    assert (await api.get("/v1/deliveries", subscriber_id="acme")).status_code == 200, (
        "its keys name deliveries for ever"
    )


async def test_filters_narrow_the_list(api: Served):
    await two_in_eu_and_one_in_us(api)
    for shipment_id in ("s-1", "s-2"):
        await api.put(shipment_id, Fanout_Residency="eu_only")
    await api.expand()

    async def keys(**filters: str) -> set[tuple[str, str]]:
        items = (await api.get("/v1/deliveries", **filters)).json()["items"]
        return {(each["shipment_id"], each["subscriber_id"]) for each in items}

    assert await keys(subscriber_id="a") == {("s-1", "a"), ("s-2", "a")}
    assert await keys(region="us") == {("s-1", "c"), ("s-2", "c")}
    assert await keys(shipment_id="s-2", region="eu") == {("s-2", "a"), ("s-2", "b")}
    assert await keys(state="dead") == await keys(reason="residency") == await keys(region="us")
    assert await keys(state="delivered") == set()


@pytest.mark.parametrize(
    ("params", "status", "field"),
    [
        ({"state": "lost"}, 422, "state"),
        ({"reason": "weather"}, 422, "reason"),
        ({"subscriber_id": "a:b"}, 400, "subscriber_id"),
        ({"shipment_id": ".."}, 400, "shipment_id"),
    ],
)
async def test_a_filter_that_is_wrong_is_named(api: Served, params: dict[str, str], status: int, field: str):
    problem = problem_of(await api.get("/v1/deliveries", **params), status)
    assert [each["field"] for each in problem["errors"]] == [field]


async def test_a_filter_that_is_there_twice_is_malformed(api: Served):
    problem_of(await api.client.get("/v1/deliveries?state=dead&state=waiting"), 400)


async def test_one_delivery_says_why_it_waits(api: Served):
    await two_in_eu_and_one_in_us(api)
    await api.put(traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    await api.expand()
    await api.client.post("/v1/subscribers/a/pause", json={"by": "ann", "why": "their release"})
    key = "shipment:s-1:subscriber:a:version:1"
    shown = (await api.get(f"/v1/deliveries/{key}")).json()
    assert (shown["key"], shown["region"], shown["state"], shown["attempts"]) == (key, "eu", "waiting", 0)
    assert shown["waits_for"]["code"] == "paused"
    assert "their release" in shown["waits_for"]["sentence"]
    assert shown["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert shown["attempt_list"] == []
    assert shown["webhook_id"].startswith("msg_")
    encoded = key.replace(":", "%3A")
    assert (await api.get(f"/v1/deliveries/{encoded}")).json() == shown


@pytest.mark.parametrize(
    ("key", "status"),
    [
        ("shipment:s-1:subscriber:nobody:version:1", 404),
        ("shipment:s-9:subscriber:a:version:1", 404),
        ("shipment:s-1:subscriber:a:version:01", 400),
        ("shipment:..:subscriber:a:version:1", 400),
        ("s-1", 400),
    ],
)
async def test_a_key_that_names_no_delivery(api: Served, key: str, status: int):
    await two_in_eu_and_one_in_us(api)
    assert problem_of(await api.get(f"/v1/deliveries/{key}"), status)["detail"]


async def test_the_books_of_the_regions_balance(api: Served):
    await two_in_eu_and_one_in_us(api)
    await api.put()
    before = (await api.get("/v1/regions")).json()
    assert before["balanced"] is True
    assert before["regions"]["eu"]["outbox_pending"] == 1
    await api.expand()
    after = (await api.get("/v1/regions")).json()
    assert after["balanced"] is True
    eu = after["regions"]["eu"]
    assert (eu["accepted"], eu["open"], eu["waiting"], eu["outbox_pending"]) == (2, 2, 2, 0)
    await api.rows("UPDATE {schema}.outbox SET created = created + 1 WHERE region = 'eu' RETURNING 1")
    assert (await api.get("/v1/regions")).json()["balanced"] is False
