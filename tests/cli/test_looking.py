"""`fanout status` and `fanout deliveries`: the books, one delivery with all its attempts, and why another still waits."""

import json

import asyncpg
import pytest

from fanout.publisher.publisher import RegionPublisher
from fanout.receiver import serve
from fanout.settings import Settings
from services import eventually

from .conftest import AWAY, json_lines, subscriber, subscribers_json, version_line

FIGURES = [
    "accepted", "delivered", "dead", "open", "waiting", "queued", "leased", "oldest_due_age_seconds", "held_destinations",
    "outbox_pending", "unknown_attempts", "late_results",
]  # fmt: skip


async def expanded(cli, *subscribers: dict[str, object], lines=(), regions=("eu", "us")) -> None:
    """Subscribers, versions, and a publisher that has done its work."""
    assert (await cli("subscribers", "apply", "-", stdin=subscribers_json(*subscribers))).status == 0
    assert (await cli("publish", "-", stdin=json_lines(lines or [version_line()]))).status == 0
    settings = Settings.load()
    for name in regions:
        publisher = RegionPublisher(settings, settings.regions[name])
        while (await publisher.run_once()).versions:
            pass
        await publisher._ear.close()
        await publisher._bell.close()
        await publisher._home.close()
        await publisher._ledger.close()


async def test_status_is_one_document_in_the_shape_that_programs_rely_on(cli):
    await expanded(cli, subscriber("A"), subscriber("B"), subscriber("C", "us"), regions=["eu"])
    said = await cli("status", "--json")
    assert said.status == 0
    assert list(said.document) == ["balanced", "regions"]
    assert said.document["balanced"] is True
    assert {name: list(figures) for name, figures in said.document["regions"].items()} == {"eu": FIGURES, "us": FIGURES}
    eu, us = said.document["regions"]["eu"], said.document["regions"]["us"]
    assert (eu["accepted"], eu["open"], eu["waiting"], eu["outbox_pending"]) == (2, 2, 2, 0)
    assert (us["accepted"], us["outbox_pending"]) == (0, 1)


async def test_status_for_people_says_whether_the_books_agree(cli):
    await expanded(cli, subscriber("A"))
    said = await cli("status")
    assert said.out.splitlines()[0].split() == ["eu", "us"]
    assert [said.row(name)[1:] for name in ("accepted", "delivered", "open")] == [["1", "0"], ["0", "0"], ["1", "0"]]
    assert said.out.splitlines()[-1] == "balanced: yes"


async def test_a_delivery_that_vanished_makes_status_fail_and_is_named(cli, database_url):
    await expanded(cli, subscriber("A"), subscriber("B"))
    connection = await asyncpg.connect(database_url)
    await connection.execute("UPDATE fanout_eu.expansion SET created = created - 1")
    await connection.close()
    said = await cli("status")
    assert said.status == 1
    assert "balanced: no" in said.out
    assert "eu: shipment S1 version 1: home says 2 deliveries, the region says 1" in said.out
    assert (await cli("status", "--json")).document["balanced"] is False


async def test_recount_finds_a_counter_that_is_wrong(cli, database_url):
    await expanded(cli, subscriber("A"))
    assert (await cli("status", "--recount")).status == 0
    connection = await asyncpg.connect(database_url)
    await connection.execute("UPDATE fanout_eu.destination SET delivered = delivered + 3")
    await connection.close()
    said = await cli("status", "--recount", "--json")
    assert said.status == 1
    assert "eu: destination 1: delivered says 3, rows are 0" in said.err
    assert said.document["regions"]["eu"]["delivered"] == 3


async def test_a_region_that_is_away_makes_balanced_null_and_the_others_are_shown(cli):
    await expanded(cli, subscriber("A"), subscriber("C", "us"))
    cli.setting(FANOUT__REGIONS__EU__DATABASE_URL=AWAY)
    said = await cli("status", "--json")
    assert (said.status, said.document["balanced"]) == (1, None)
    assert (said.document["regions"]["eu"]["accepted"], said.document["regions"]["us"]["accepted"]) == (None, 1)
    assert said.err.startswith("eu: cannot be read: ")
    people = await cli("status")
    assert people.row("accepted") == ["accepted", "?", "1"]
    assert "balanced: unknown" in people.out
    listed = await cli("deliveries", "list", "--json")
    assert (listed.status, [each["region"] for each in listed.document["items"]]) == (1, ["us"])
    assert listed.document["next"] is not None, "the region that is away keeps its place"


async def test_without_home_there_is_no_book(cli):
    cli.setting(FANOUT_DATABASE_URL=AWAY)
    said = await cli("status", "--json")
    assert (said.status, said.out, len(said.err.splitlines())) == (1, "", 1)


async def test_deliveries_are_listed_newest_first_a_page_at_a_time_over_all_regions(cli):
    lines = [version_line(f"S{n}") for n in range(7)]
    await expanded(cli, subscriber("A"), subscriber("C", "us"), lines=lines)
    keys, cursor = [], []
    for _ in range(5):
        page = (await cli("deliveries", "list", "--limit", 3, "--json", *cursor)).document
        keys += [each["key"] for each in page["items"]]
        cursor = ["--cursor", page["next"]]
    assert page["next"] is None
    assert sorted(keys) == sorted(f"shipment:S{n}:subscriber:{who}:version:1" for n in range(7) for who in "AC")
    for who in "AC":
        shipments = [key.split(":")[1] for key in keys if f":{who}:" in key]
        assert shipments == sorted(shipments, reverse=True)
    people = await cli("deliveries", "list", "--limit", 2)
    assert "there are more: --cursor " in people.out.splitlines()[-1]


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (["--subscriber", "A"], 2),
        (["--shipment", "S1"], 2),
        (["--region", "us"], 2),
        (["--state", "waiting"], 4),
        (["--state", "dead"], 0),
        (["--reason", "exhausted"], 0),
        (["--older-than", "1h"], 0),
        (["--older-than", "0"], 4),
        (["--subscriber", "A", "--shipment", "S2"], 1),
    ],
)
async def test_filters_add_up(cli, filters, count):
    lines = [version_line("S1"), version_line("S2")]
    await expanded(cli, subscriber("A"), subscriber("C", "us"), lines=lines)
    assert len((await cli("deliveries", "list", *filters, "--json")).document["items"]) == count


async def test_a_subscriber_that_nobody_knows_has_no_list_and_one_without_deliveries_an_empty_one(cli):
    await cli("subscribers", "apply", "-", stdin=subscribers_json(subscriber("A")))
    unknown = await cli("deliveries", "list", "--subscriber", "nobody")
    assert (unknown.status, unknown.out) == (1, "")
    assert unknown.err.startswith("there is no subscriber nobody")
    known = await cli("deliveries", "list", "--subscriber", "A")
    assert (known.status, known.out) == (0, "no deliveries\n")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "none"),
        ({"state": "leased", "attempts": "1"}, "the first is under way"),
        (
            {"state": "leased", "attempts": "3", "budget_used": "1"},
            "2, 1 of them count against the budget; number 3 is under way",
        ),
        ({"attempts": "2", "budget_used": "1"}, "2, 1 of them count against the budget"),
    ],
)
async def test_attempts_are_told_as_they_are(cli, database_url, columns, said):
    await expanded(cli, subscriber("A"))
    connection = await asyncpg.connect(database_url)
    lease = {"lease_until": "now() + interval '1 min'", "worker": "'w'"} if "state" in columns else {}
    changes = {name: f"'{value}'" for name, value in columns.items()} | lease
    if changes:
        await connection.execute(
            f"UPDATE fanout_eu.delivery SET {', '.join(f'{name} = {value}' for name, value in changes.items())}"
        )
    await connection.close()
    shown = await cli("deliveries", "show", "shipment:S1:subscriber:A:version:1")
    assert " ".join(shown.row("attempts")[1:]) == said


async def test_show_says_why_a_delivery_waits(cli):
    key = "shipment:S1:subscriber:A:version:1"
    await expanded(cli, subscriber("A"))
    await cli("subscribers", "pause", "A", "--why", "their release night", "--by", "night shift")
    said = await cli("deliveries", "show", key)
    assert said.status == 0
    assert said.out.splitlines()[0] == key
    assert "paused by night shift: their release night" in said.out
    assert "no attempt yet" in said.out
    document = (await cli("deliveries", "show", key, "--json")).document
    assert document["waits_for"]["code"] == "paused"
    assert (document["state"], document["attempt_list"], document["webhook_id"][:4]) == ("waiting", [], "msg_")


@pytest.mark.parametrize("key", ["shipment:S1:subscriber:A:version:2", "shipment:S1:subscriber:B:version:1"])
async def test_a_delivery_that_is_not_there_is_exit_1(cli, key):
    await expanded(cli, subscriber("A"))
    said = await cli("deliveries", "show", key)
    assert (said.status, said.out) == (1, "")
    assert said.err.startswith(f"there is no delivery {key}")


async def test_the_whole_way_from_a_file_to_the_timeline_of_each_attempt(cli, roles):
    async with await serve([{"subscriber": "G", "answer": 410, "body": "we\x1b[31m moved"}]) as receiver:
        everyone = [
            subscriber("A", endpoint=receiver.endpoint("A")),
            subscriber("G", "us", endpoint=receiver.endpoint("G")),
        ]
        await cli("subscribers", "apply", "-", stdin=subscribers_json(*everyone))
        await cli("publish", "-", stdin=json_lines([version_line()]))
        up = roles.start("up", env={"FANOUT_HTTP_PORT": "0"})

        async def ended() -> bool:
            regions = (await cli("status", "--json")).document["regions"]
            return (regions["eu"]["delivered"], regions["us"]["dead"]) == (1, 1)

        await eventually(ended, 20)
        up.terminate()
        assert await up.ended() == 0
    delivered = await cli("deliveries", "show", "shipment:S1:subscriber:A:version:1", "--json")
    [attempt] = delivered.document["attempt_list"]
    assert (attempt["n"], attempt["outcome"], attempt["status"], attempt["config_version"]) == (1, "delivered", 200, 1)
    gone = await cli("deliveries", "show", "shipment:S1:subscriber:G:version:1")
    assert "dead: gone" in gone.out
    assert r"answer: we\x1b[31m moved" in gone.out
    assert gone.row("1")[4:7] == ["gone", "410", "1"]
    [item] = (await cli("deliveries", "list", "--reason", "gone", "--json")).document["items"]
    assert item["subscriber_id"] == "G"
    assert (await cli("subscribers", "list")).row("G")[2] == "disabled"
    assert "disable by itself (answered 410 Gone: disabled" in (await cli("subscribers", "show", "G")).out
    resumed = await cli("subscribers", "resume", "G")
    assert resumed.out.startswith("G was not paused; it is disabled (gone) since ")
    assert resumed.out.endswith("by the subscriber answered 410: `fanout subscribers enable G` opens it again\n")
    assert json.loads(up.log.splitlines()[-1])["event"] == "stopped"
