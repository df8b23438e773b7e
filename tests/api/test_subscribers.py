"""Subscribers over HTTP: one region for life, whole or not at all, and secrets told once."""

import asyncio
import json

import pytest
from served import ENDPOINT, SUBSCRIBER, Served, fields_of, problem_of

SECRET = "whsec_" + "QUJD" * 10


async def test_the_first_put_creates_and_the_next_ones_replace(api: Served):
    created = await api.subscribe()
    assert created.status_code == 201
    again = await api.subscribe()
    assert again.status_code == 200
    assert again.json()["config_version"] == 1, "nothing changed"
    changed = await api.subscribe(concurrency=2, labels={"carrier": ["UA"]})
    assert changed.status_code == 200
    shown = (await api.get("/v1/subscribers/acme")).json()
    assert (shown["concurrency"], shown["labels"], shown["config_version"]) == (2, {"carrier": ["UA"]}, 2)
    assert (await api.subscribe()).json()["labels"] == {}, "PUT replaces what it does not name"


async def test_a_generated_secret_stands_in_the_answer_to_the_creation_and_nowhere_else(api: Served):
    [secret] = (await api.subscribe()).json()["secrets"]
    assert secret.startswith("whsec_")
    answers = [
        await api.subscribe(concurrency=3),
        await api.get("/v1/subscribers/acme"),
        await api.get("/v1/subscribers"),
        await api.client.patch("/v1/subscribers/acme", json={"concurrency": 1}),
        await api.client.post("/v1/subscribers/acme/pause", json={"by": "me", "why": "test"}),
    ]
    for answer in answers:
        assert answer.status_code == 200
        assert "secrets" not in answer.text
        assert secret not in answer.text
    assert await api.value("SELECT secret FROM {schema}.secret", region="eu") == secret, "absent means kept"


async def test_secrets_that_the_caller_brings_are_not_repeated_to_anyone(api: Served):
    created = await api.subscribe(secrets=[SECRET])
    assert created.status_code == 201
    assert "secrets" not in created.json()
    refused = await api.subscribe(secrets=[SECRET + "!"])
    assert fields_of(refused, 422) == {"secrets[0]"}
    assert SECRET not in refused.text


async def test_rotating_answers_the_new_secret_and_the_old_one_still_signs(api: Served):
    [old] = (await api.subscribe()).json()["secrets"]
    rotated = (await api.client.post("/v1/subscribers/acme/rotate-secret", json={"by": "me"})).json()
    assert rotated["secrets"] != [old]
    assert rotated["config_version"] == 2
    signing = await api.rows("SELECT secret FROM {schema}.secret ORDER BY place", region="eu")
    assert [row[0] for row in signing] == [*rotated["secrets"], old]


async def test_values_of_own_headers_are_never_listed_and_survive_a_patch(api: Served):
    await api.subscribe(headers={"Authorization": "Bearer very-private"})
    shown = await api.get("/v1/subscribers/acme")
    assert shown.json()["headers"] == {"Authorization": "***"}
    patched = await api.client.patch("/v1/subscribers/acme", json={"concurrency": 7})
    for answer in (shown, patched, await api.get("/v1/subscribers")):
        assert "Bearer" not in answer.text
    stored = await api.value("SELECT headers::text FROM {schema}.subscriber", region="eu")
    assert "Bearer very-private" in stored


async def test_a_patch_changes_what_it_names_and_null_means_the_default(api: Served):
    await api.subscribe(labels={"carrier": ["UA"], "destination": ["ORD"]}, concurrency=9)
    patch = {"labels": {"carrier": None}, "concurrency": None}
    answer = await api.client.patch(
        "/v1/subscribers/acme", json=patch, headers={"Content-Type": "application/merge-patch+json"}
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["labels"] == {"destination": ["ORD"]}
    assert answer.json()["concurrency"] == 4
    assert answer.json()["endpoint"] == ENDPOINT


async def test_a_region_is_for_life(api: Served):
    await api.subscribe()
    assert "acme is in eu" in problem_of(await api.subscribe(region="us"), 409)["detail"]
    problem_of(await api.client.patch("/v1/subscribers/acme", json={"region": "us"}), 409)
    await api.client.delete("/v1/subscribers/acme")
    problem_of(await api.subscribe(region="us"), 409)
    assert await api.rows("SELECT * FROM {schema}.subscriber", region="us") == []


async def test_who_is_deleted_is_gone_from_everywhere_and_may_come_back(api: Served):
    await api.subscribe()
    deleted = await api.client.delete("/v1/subscribers/acme")
    assert (deleted.status_code, deleted.content) == (204, b"")
    problem_of(await api.get("/v1/subscribers/acme"), 404)
    problem_of(await api.client.delete("/v1/subscribers/acme"), 404)
    problem_of(await api.client.patch("/v1/subscribers/acme", json={}), 404)
    assert (await api.get("/v1/subscribers")).json() == {"items": [], "next": None}
    back = await api.subscribe()
    assert back.status_code == 201
    assert back.json()["secrets"]
    assert len((await api.get("/v1/subscribers")).json()["items"]) == 1


async def test_an_id_that_is_reserved_and_nothing_more_is_not_there_and_the_same_put_mends_it(api: Served):
    await api.rows("INSERT INTO {schema}.subscriber (subscriber_id, region) VALUES ('acme', 'eu') RETURNING 1")
    problem_of(await api.get("/v1/subscribers/acme"), 404)
    assert (await api.get("/v1/subscribers")).json()["items"] == []
    assert (await api.subscribe()).status_code == 201


async def test_of_ten_creations_at_once_one_creates_and_tells_the_secret(api: Served):
    answers = await asyncio.gather(*(api.subscribe() for _ in range(10)))
    assert sorted(each.status_code for each in answers) == [200] * 9 + [201]
    assert sum("secrets" in each.json() for each in answers) == 1


async def test_of_two_regions_at_once_one_wins(api: Served):
    for n in range(5):
        pair = await asyncio.gather(*(api.subscribe(f"s-{n}", region=region) for region in ("eu", "us")))
        assert sorted(each.status_code for each in pair) == [201, 409]


# ---- operating


async def test_pausing_says_who_and_why_and_resuming_opens_again(api: Served):
    await api.subscribe()
    order = {"by": "ann", "why": "their release"}
    paused = (await api.client.post("/v1/subscribers/acme/pause", json=order)).json()
    assert paused["status"] == "paused"
    assert (paused["gate"]["paused_by"], paused["gate"]["paused_why"]) == ("ann", "their release")
    again = (await api.client.post("/v1/subscribers/acme/pause", json=order)).json()
    assert again["config_version"] == paused["config_version"], "an order that changes nothing is no change"
    resumed = (await api.client.post("/v1/subscribers/acme/resume", json={"by": "ann"})).json()
    assert resumed["status"] == "active"


async def test_disabling_and_enabling(api: Served):
    await api.subscribe()
    closed = (await api.client.post("/v1/subscribers/acme/disable", json={"by": "ann", "why": "left"})).json()
    assert closed["status"] == "disabled"
    assert (await api.client.post("/v1/subscribers/acme/enable", json={"by": "ann"})).json()["status"] == "active"


@pytest.mark.parametrize("verb", ["pause", "resume", "disable", "enable", "rotate-secret"])
async def test_an_order_to_nobody_is_404(api: Served, verb: str):
    problem_of(await api.client.post(f"/v1/subscribers/nobody/{verb}", json={"by": "ann", "why": "x"}), 404)


@pytest.mark.parametrize(
    ("order", "wrong"),
    [
        ({}, {"by", "why"}),
        ({"by": "ann"}, {"why"}),
        ({"by": "", "why": "x"}, {"by"}),
        ({"by": "ann", "why": 1}, {"why"}),
        ({"by": "a\x00b", "why": "\ud800"}, {"by", "why"}),
        ({"by": "ann", "why": "x", "until": "tomorrow"}, {"until"}),
    ],
)
async def test_an_order_that_is_not_whole_is_refused(api: Served, order: dict[str, object], wrong: set[str]):
    await api.subscribe()
    answer = await api.client.post(
        "/v1/subscribers/acme/pause", content=json.dumps(order), headers={"Content-Type": "application/json"}
    )
    assert fields_of(answer, 422) == wrong
    assert (await api.get("/v1/subscribers/acme")).json()["status"] == "active"


# ---- refused


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"region": "moon"}, {"region"}),
        ({"endpoint": "https://10.0.0.1/in"}, {"endpoint"}),
        ({"endpoint": "https://169.254.169.254/latest"}, {"endpoint"}),
        ({"endpoint": "http://hooks.example.com/in"}, {"endpoint"}),
        ({"endpoint": "https://user:pass@hooks.example.com/"}, {"endpoint"}),
        ({"endpoint": None}, {"endpoint"}),
        ({"concurency": 3}, {"concurency"}),
        ({"concurrency": 0, "ordering": "random", "event_types": []}, {"concurrency", "ordering", "event_types"}),
        ({"headers": {"Host": "x"}}, {"headers.'Host'"}),
        ({"timeout_seconds": "15"}, {"timeout_seconds"}),
    ],
)
async def test_a_field_that_is_wrong_is_named_and_nothing_is_saved(
    api: Served, fields: dict[str, object], wrong: set[str]
):
    assert fields_of(await api.subscribe(**fields), 422) == wrong
    assert await api.rows("SELECT * FROM {schema}.subscriber") == []
    assert await api.rows("SELECT * FROM {schema}.subscriber", region="eu") == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"region":"eu","region":"us"}', b'{"concurrency":NaN}', b"\xff", b"[" * 100_000, b"1" * 5_000],
    ids=["nothing", "cut", "twice", "nan", "not utf-8", "deep", "long number"],
)
async def test_a_body_that_is_not_json_is_malformed(api: Served, body: bytes):
    answer = await api.client.put("/v1/subscribers/acme", content=body, headers={"Content-Type": "application/json"})
    assert fields_of(answer, 400) == {"body"}


async def test_json_that_is_no_object_is_refused(api: Served):
    assert fields_of(await api.client.put("/v1/subscribers/acme", json=[SUBSCRIBER]), 422) == {"body"}


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded"])
async def test_what_a_browser_sends_to_any_site_is_not_taken_for_json(api: Served, content_type: str):
    headers = {"Content-Type": content_type} if content_type else {}
    problem_of(await api.client.post("/v1/subscribers/acme/pause", content=b"{}", headers=headers), 415)


async def test_a_document_is_at_most_256_kib(api: Served):
    answer = await api.subscribe(headers={"X-Long": "x" * 262_144})
    assert "262144" in problem_of(answer, 413)["detail"]


@pytest.mark.parametrize("subscriber_id", ["a:b", "%2e%2e", "x" * 129, "a%2Fb"])
async def test_a_subscriber_id_that_is_none_is_malformed(api: Served, subscriber_id: str):
    status, _, problem = await api.ask(f"/v1/subscribers/{subscriber_id}")
    assert (status, problem["errors"][0]["field"]) == (400, "subscriber_id")


# ---- lists


async def test_lists_come_in_pages_over_all_regions_in_the_order_of_ids(api: Served):
    for n in range(7):
        assert (await api.subscribe(f"s-{n}", region="eu" if n % 3 else "us")).status_code == 201
    seen: list[str] = []
    page = (await api.get("/v1/subscribers", limit=3)).json()
    while True:
        seen += [each["subscriber_id"] for each in page["items"]]
        if page["next"] is None:
            break
        page = (await api.get("/v1/subscribers", limit=3, cursor=page["next"])).json()
    assert seen == [f"s-{n}" for n in range(7)]
    us = (await api.get("/v1/subscribers", region="us")).json()["items"]
    assert [each["subscriber_id"] for each in us] == ["s-0", "s-3", "s-6"]
    assert {each["region"] for each in us} == {"us"}


@pytest.mark.parametrize(
    ("params", "status", "field"),
    [
        ({"limit": "0"}, 422, "limit"),
        ({"limit": "501"}, 422, "limit"),
        ({"limit": "9" * 5000}, 422, "limit"),
        ({"limit": "ten"}, 400, "limit"),
        ({"limit": ""}, 400, "limit"),
        ({"cursor": "made-up"}, 400, "cursor"),
        ({"cursor": "WyJkZWxpdmVyaWVzIix7ImV1IjoxfV0"}, 400, "cursor"),
        ({"cursor": "é"}, 400, "cursor"),
        ({"region": "moon"}, 422, "region"),
        ({"regions": "eu"}, 422, "regions"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/subscribers", "/v1/deliveries"])
async def test_a_parameter_that_is_wrong_is_named(
    api: Served, path: str, params: dict[str, str], status: int, field: str
):
    if path == "/v1/deliveries" and params.get("cursor", "").startswith("Wy"):
        params = {"cursor": "WyJzdWJzY3JpYmVycyIsImEiXQ"}
    assert fields_of(await api.get(path, **params), status) == {field}


async def test_of_patches_at_the_same_moment_none_is_lost(api: Served):
    await api.subscribe()
    patches = [{"labels": {f"name-{n}": ["x"]}} for n in range(8)] + [{"concurrency": 7}, {"headers": {"X-A": "b"}}]
    answers = await asyncio.gather(*(api.client.patch("/v1/subscribers/acme", json=patch) for patch in patches))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["config_version"] for answer in answers}) == len(patches), "each was a change of its own"
    now = (await api.get("/v1/subscribers/acme")).json()
    assert set(now["labels"]) == {f"name-{n}" for n in range(8)}
    assert (now["concurrency"], list(now["headers"])) == (7, ["X-A"])
