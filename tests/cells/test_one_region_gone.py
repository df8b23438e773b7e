"""P10: one region away, or not letting us in, is nobody else's trouble; and it catches up by itself when it is back."""

import json

import asyncpg
import pytest

from services import eventually

from .cells import Cells

pytestmark = pytest.mark.timeout(240)


async def said(role, event: str, region: str) -> dict[str, object]:
    """The first line of its log with this event about this region."""

    def line():
        lines = [json.loads(each) for each in role.log.splitlines() if each.startswith("{")]
        return next((each for each in lines if each["event"] == event and each.get("region") == region), None)

    return await eventually(line, 20, f"{role.name} says {event} of {region}")


async def test_while_a_region_is_away_versions_are_accepted_the_other_delivers_and_its_own_subscribers_are_503(
    cells: Cells,
):
    api, publisher = await cells.start_home()
    for region in ("eu", "us"):
        cells.start_region(region)
        await cells.subscribe(f"at-{region}", region)
    await cells.servers["eu"].stop("immediate")

    assert (await cells.publish("s-1")).status_code == 202
    await cells.has("us", delivered=1, open=0)
    for method, path in (("GET", ""), ("PATCH", ""), ("POST", "/pause"), ("POST", "/resume"), ("DELETE", "")):
        body = {} if method != "POST" else {"by": "ann", "why": "x"}
        answer = await cells.ask(method, f"/v1/subscribers/at-eu{path}", json=body)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert answer.json()["detail"].startswith("region eu is away")
    assert (await cells.ask("PATCH", "/v1/subscribers/at-us", json={"concurrency": 2})).status_code == 200
    ready = await cells.ask("GET", "/readyz")
    assert (ready.status_code, ready.json()["checks"]["region eu"]["ok"]) == (200, False)
    assert (await cells.ask("GET", "/v1/regions")).json()["balanced"] is None
    assert (await cells.figures("eu"))["outbox_pending"] == 1

    await cells.servers["eu"].start()
    await cells.has("eu", delivered=1, open=0, outbox_pending=0)
    assert (await cells.ask("GET", "/v1/regions")).json()["balanced"] is True
    assert api.running
    assert publisher.running


async def test_a_region_that_refuses_our_login_from_the_start_ends_no_process_that_another_region_needs(cells: Cells):
    """Until an operator mends it; then it is used without a restart."""
    superuser = await asyncpg.connect(cells.servers["eu"].database_url("cell"))
    await superuser.execute("CREATE ROLE worker SUPERUSER LOGIN PASSWORD 'another-one'")
    refused = cells.urls["eu"].replace(cells.urls["eu"].split("@")[0], "postgresql://worker:the-right-one")
    api, publisher = await cells.start_home(eu=refused)
    cells.start_region("us")
    await cells.subscribe("at-us", "us")
    for role in (api, publisher):
        line = await said(role, "region cannot be used, the others go on", "eu")
        assert "password authentication failed" in str(line["error"])
        assert line["level"] == "error"
    assert (await cells.publish("s-1")).status_code == 202
    await cells.has("us", delivered=1, open=0)
    ready = (await cells.ask("GET", "/readyz")).json()
    assert (ready["ready"], ready["checks"]["region eu"]["ok"]) == (True, False)
    listening = json.loads(await publisher.says('"started"'))["listening"]
    cells.url, api_url = listening, cells.url
    ready = await cells.ask("GET", "/readyz")
    assert (ready.status_code, {name: each["ok"] for name, each in ready.json()["checks"].items()}) == (
        200,
        {"home": True, "eu": False, "us": True},
    )
    cells.url = api_url
    assert (await cells.figures("eu"))["outbox_pending"] == 1

    await superuser.execute("ALTER ROLE worker PASSWORD 'the-right-one'")
    await superuser.close()
    await cells.has("eu", outbox_pending=0)
    assert (await cells.ask("GET", "/readyz")).json()["checks"]["region eu"]["ok"] is True
    for role in (api, publisher):
        assert role.running
        assert "the-right-one" not in role.log
        role.terminate()
        assert await role.ended() == 0


async def test_a_region_whose_schema_is_behind_ends_none_either_and_is_used_once_it_is_migrated(cells: Cells):
    connection = await asyncpg.connect(cells.servers["eu"].database_url("cell"))
    checksum = await connection.fetchval("SELECT checksum FROM fanout_eu.migration WHERE name = 'functions'")
    await connection.execute("UPDATE fanout_eu.migration SET checksum = 'older' WHERE name = 'functions'")
    api, publisher = await cells.start_home()
    cells.start_region("us")
    await cells.subscribe("at-us", "us")
    assert "run: fanout migrate" in str(
        (await said(publisher, "region cannot be used, the others go on", "eu"))["error"]
    )
    assert (await cells.publish("s-1")).status_code == 202
    await cells.has("us", delivered=1, open=0)
    await connection.execute("UPDATE fanout_eu.migration SET checksum = $1 WHERE name = 'functions'", checksum)
    await connection.close()
    await cells.has("eu", outbox_pending=0)
    assert api.running
