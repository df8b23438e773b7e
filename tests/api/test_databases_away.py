"""A database that is away: said at once, of its own parts only, and over as soon as it is back."""

import asyncio
import time
from collections.abc import AsyncIterator

import asyncpg
import httpx2
import pytest
from served import SUBSCRIBER, Served, migrated, problem_of, serving, settings_for

from fanout.embedded import EmbeddedPostgres
from services import eventually

SECONDS_MAX = 3.5


async def refused_soon(calls: list) -> list[httpx2.Response]:
    began = time.monotonic()
    answers = await asyncio.gather(*calls)
    assert time.monotonic() - began < SECONDS_MAX
    for answer in answers:
        assert "away" in problem_of(answer, 503)["detail"]
        assert int(answer.headers["retry-after"]) > 0
    return answers


@pytest.fixture
async def fragile(own_postgres: EmbeddedPostgres) -> AsyncIterator[Served]:
    """An API whose one database a test may stop."""
    url = own_postgres.database_url("postgres", over="tcp")
    async with serving(await migrated(settings_for(url))) as api:
        await api.subscribe()
        yield api


async def test_home_stopped_is_503_at_once_and_works_again_without_a_restart_of_ours(
    fragile: Served, own_postgres: EmbeddedPostgres
):
    assert (await fragile.put()).status_code == 202
    await own_postgres.stop("immediate")
    await refused_soon(
        [
            fragile.put(),
            fragile.put(version=2),
            fragile.get("/v1/shipments/s-1/versions/1"),
            fragile.get("/v1/subscribers"),
            fragile.subscribe("other"),
            fragile.client.delete("/v1/subscribers/acme"),
            fragile.get("/v1/deliveries"),
            fragile.get("/v1/regions"),
        ]
    )
    ready = await fragile.get("/readyz")
    assert (ready.status_code, ready.json()["ready"]) == (503, False)
    assert (await fragile.get("/healthz")).status_code == 200
    assert "fanout_up{" in (await fragile.get("/metrics")).text
    problem_of(await fragile.put("a:b"), 400)

    await own_postgres.start()

    async def accepted() -> bool:
        return (await fragile.put(version=2)).status_code in {200, 202}

    await eventually(accepted, 10)
    assert (await fragile.put()).status_code == 200
    assert (await fragile.get("/readyz")).status_code == 200


async def test_a_database_that_hangs_is_given_up_after_the_deadline(fragile: Served, own_postgres: EmbeddedPostgres):
    blocker = await _connect(own_postgres)
    try:
        await blocker.execute("BEGIN; LOCK TABLE fanout.version IN ACCESS EXCLUSIVE MODE")
        await refused_soon([fragile.put(version=n) for n in range(30)])
        assert (await fragile.get("/v1/subscribers")).status_code == 200, "what needs no version goes on"
        await blocker.execute("ROLLBACK")
        assert (await fragile.put(version=3)).status_code in {200, 202}
    finally:
        await blocker.close()


async def _connect(server: EmbeddedPostgres):
    return await asyncpg.connect(server.database_url("postgres"))


# ---- one region


NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.fixture
async def lame(ready_url: str) -> AsyncIterator[Served]:
    """An API whose region us is away; home and eu are there."""
    async with serving(settings_for(ready_url, FANOUT__REGIONS__US__DATABASE_URL=NOWHERE)) as api:
        for region, subscriber_id in (("eu", "acme"), ("us", "zeta")):
            await api.rows(
                "INSERT INTO {schema}.subscriber (subscriber_id, region) VALUES ($1, $2) RETURNING 1",
                subscriber_id,
                region,
            )
        assert (await api.subscribe()).status_code == 201
        yield api


async def test_a_region_that_is_away_keeps_nobody_from_publishing(lame: Served):
    assert (await lame.put()).status_code == 202
    regions = (await lame.get("/v1/shipments/s-1/versions/1")).json()["regions"]
    assert regions["eu"]["expansion"] == "pending"
    assert regions["us"] == {
        "expansion": "unreachable", "accepted": None, "waiting": None, "queued": None, "leased": None, "delivered": None, "dead": None,
    }  # fmt: skip


async def test_its_subscribers_are_503_and_the_others_are_there(lame: Served):
    assert (await lame.get("/v1/subscribers/acme")).status_code == 200
    answers = await refused_soon(
        [
            lame.get("/v1/subscribers/zeta"),
            lame.client.patch("/v1/subscribers/zeta", json={"concurrency": 1}),
            lame.client.delete("/v1/subscribers/zeta"),
            lame.client.post("/v1/subscribers/zeta/pause", json={"by": "ann", "why": "x"}),
            lame.get("/v1/subscribers", region="us"),
            lame.get("/v1/deliveries", region="us"),
            lame.get("/v1/deliveries/shipment:s-1:subscriber:zeta:version:1"),
        ]
    )
    assert all("region us" in answer.json()["detail"] for answer in answers)
    assert all("nobody" not in answer.text for answer in answers), "who logs in there is nobody's business"


async def test_lists_name_what_is_unreachable(lame: Served):
    items = (await lame.get("/v1/subscribers")).json()["items"]
    assert [(each["subscriber_id"], each["status"]) for each in items] == [("acme", "active"), ("zeta", "unreachable")]
    page = (await lame.get("/v1/deliveries")).json()
    assert (page["items"], page["unreachable"]) == ([], ["us"])
    problem_of(
        await lame.get("/v1/deliveries", cursor=page["next"]), 503
    )  # the list is not over before us has answered


async def test_the_books_are_unknown_and_the_api_is_ready(lame: Served):
    books = (await lame.get("/v1/regions")).json()
    assert books["balanced"] is None
    assert books["regions"]["us"]["accepted"] is None
    assert books["regions"]["us"]["outbox_pending"] == 0
    assert books["regions"]["eu"]["accepted"] == 0
    ready = await lame.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["checks"]["region us"]["ok"] is False
    metrics = (await lame.get("/metrics")).text
    assert 'fanout_up{service="region us"} 0.0' in metrics
    assert 'fanout_up{service="region eu"} 1.0' in metrics


async def test_a_subscriber_that_was_half_created_is_mended_by_the_same_put(ready_url: str):
    async with serving(settings_for(ready_url, FANOUT__REGIONS__US__DATABASE_URL=NOWHERE)) as api:
        await refused_soon([api.subscribe("zeta", region="us")])
    async with serving(settings_for(ready_url)) as api:
        problem_of(await api.get("/v1/subscribers/zeta"), 404)
        assert (await api.get("/v1/subscribers")).json()["items"] == []
        problem_of(await api.subscribe("zeta", region="eu"), 409)
        mended = await api.client.put("/v1/subscribers/zeta", json=SUBSCRIBER | {"region": "us"})
        assert mended.status_code == 201
        assert mended.json()["secrets"]
