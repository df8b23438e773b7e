"""`fanout subscribers`: the registry from a file, all or nothing per region, and one subscriber at a time."""

import json
import stat

import asyncpg
import pytest

from .conftest import AWAY, subscriber, subscribers_json, written


async def ids_in(url: str, region: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            f"SELECT subscriber_id FROM fanout_{region}.subscriber WHERE deleted_at IS NULL ORDER BY 1"
        )
    finally:
        await connection.close()
    return [row["subscriber_id"] for row in rows]


async def test_a_file_creates_and_updates_and_applying_it_again_changes_nothing(cli, tmp_path):
    file = written(tmp_path / "f", subscribers_json(subscriber("A"), subscriber("B"), subscriber("C", "us")))
    first = await cli("subscribers", "apply", file)
    assert first.status == 0
    assert first.row("region") == ["region", "created", "updated", "unchanged", "deleted"]
    assert first.row("eu") == ["eu", "2", "0", "0", "0"]
    assert first.row("us") == ["us", "1", "0", "0", "0"]
    assert (await cli("subscribers", "apply", file)).row("eu") == ["eu", "0", "0", "2", "0"]

    written(file, subscribers_json(subscriber("A", concurrency=9), subscriber("B")))
    changed = await cli("subscribers", "apply", file, "--json")
    assert changed.document == {
        "regions": {"eu": {"created": [], "updated": ["A"], "unchanged": ["B"], "deleted": []}},
        "not_applied": {},
    }


async def test_those_not_in_the_file_stay_unless_pruned(cli, database_url, tmp_path):
    await cli(
        "subscribers", "apply", "-", stdin=subscribers_json(subscriber("A"), subscriber("B"), subscriber("C", "us"))
    )
    only_a = subscribers_json(subscriber("A"))
    await cli("subscribers", "apply", "-", stdin=only_a)
    assert await ids_in(database_url, "eu") == ["A", "B"]
    said = await cli("subscribers", "apply", "-", "--prune", stdin=only_a)
    assert (said.row("eu"), said.row("us")) == (["eu", "0", "0", "1", "1"], ["us", "0", "0", "0", "1"])
    assert (await ids_in(database_url, "eu"), await ids_in(database_url, "us")) == (["A"], [])
    assert (await cli("subscribers", "show", "B")).status == 1


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"endpoint": "http://10.0.0.1/x"}, "subscribers[1].endpoint"),
        ({"endpoint": "ftp://example.com"}, "subscribers[1].endpoint"),
        ({"region": "mars"}, "subscribers[1].region"),
        ({"colour": "red"}, "subscribers[1].colour"),
        ({"subscriber_id": ".."}, "subscribers[1].subscriber_id"),
        ({"concurrency": 0}, "subscribers[1].concurrency"),
        ({"secrets": ["whsec_geheim"]}, "subscribers[1].secrets[0]"),
    ],
)
async def test_one_wrong_entry_is_named_and_nothing_is_applied(cli, database_url, wrong, field):
    said = await cli("subscribers", "apply", "-", stdin=subscribers_json(subscriber("A"), subscriber("B") | wrong))
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith(f"{field}: ")
    assert await ids_in(database_url, "eu") == []


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"subscribers": [], "more": 1}', b"\xff", b"{}"])
async def test_a_file_that_is_no_such_document_is_one_clear_line(cli, body):
    said = await cli("subscribers", "apply", "-", stdin=body)
    assert (said.status, said.out, len(said.err.splitlines())) == (2, "", 1)


async def test_a_region_that_is_away_is_named_and_the_other_is_applied_as_a_whole(cli, database_url, tmp_path):
    cli.setting(FANOUT__REGIONS__US__DATABASE_URL=AWAY)
    secrets = tmp_path / "secrets.json"
    both = subscribers_json(subscriber("A"), subscriber("B", "us"))
    said = await cli("subscribers", "apply", "-", "--secrets-out", secrets, stdin=both)
    assert said.status == 1
    assert said.row("eu") == ["eu", "1", "0", "0", "0"]
    assert said.err.startswith("us: the database postgresql://operator:***@127.0.0.1:1/nothing cannot be reached")
    assert f"not applied: us; {secrets} is not written" in said.err
    assert await ids_in(database_url, "eu") == ["A"]
    assert list(tmp_path.iterdir()) == []


async def test_a_changed_region_is_refused_and_nobody_is_lost_by_pruning(cli, database_url):
    await cli("subscribers", "apply", "-", stdin=subscribers_json(subscriber("A"), subscriber("B")))
    moved = subscribers_json(subscriber("A", "us"), subscriber("B"))
    said = await cli("subscribers", "apply", "-", stdin=moved)
    assert said.status == 1
    assert said.row("eu") == ["eu", "0", "0", "1", "0"]
    assert "us: A is in eu, not in us: a subscriber belongs to one region for life" in said.err
    pruned = await cli("subscribers", "apply", "-", "--prune", stdin=moved)
    assert pruned.status == 1
    assert "eu: not pruned: A would be deleted here, and the file names it in another region" in pruned.err
    assert (await ids_in(database_url, "eu"), await ids_in(database_url, "us")) == (["A", "B"], [])


async def test_the_secrets_file_is_private_and_holds_old_and_new_secrets_that_nothing_else_shows(cli, tmp_path):
    mine = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo="
    everyone = subscribers_json(subscriber("A", secrets=[mine]), subscriber("B", "us"))
    shown = (await cli("subscribers", "apply", "-", stdin=everyone)).out
    secrets = tmp_path / "secrets.json"
    secrets.write_text("old")
    secrets.chmod(0o644)
    said = await cli("subscribers", "apply", "-", "--secrets-out", secrets, stdin=everyone)
    assert said.status == 0
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    known = json.loads(secrets.read_text())
    assert known["A"] == [mine]
    assert [each.startswith("whsec_") for each in known["B"]] == [True]
    for command in (["list"], ["list", "--json"], ["show", "A"], ["show", "B", "--json"]):
        shown += (await cli("subscribers", *command)).out
    assert "whsec_" not in shown + said.out + said.err
    assert list(tmp_path.iterdir()) == [secrets]


@pytest.mark.parametrize("target", ["link", "folder", "missing/secrets.json"])
async def test_a_secrets_file_that_cannot_be_made_safely_stops_everything(cli, database_url, tmp_path, target):
    (tmp_path / "elsewhere").write_text("untouched")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "folder").mkdir()
    path = tmp_path / target
    said = await cli("subscribers", "apply", "-", "--secrets-out", path, stdin=subscribers_json(subscriber("A")))
    assert said.status == 2
    assert said.err.startswith("--secrets-out: ")
    assert (tmp_path / "elsewhere").read_text() == "untouched"
    assert await ids_in(database_url, "eu") == []


async def test_disable_and_enable_say_what_they_do_and_may_be_repeated(cli):
    await cli("subscribers", "apply", "-", stdin=subscribers_json(subscriber("A")))
    closed = await cli("subscribers", "disable", "A", "--why", "wrong file", "--by", "night shift")
    assert (closed.status, closed.out) == (
        0,
        "A is disabled by night shift: wrong file; its open deliveries end as dead, what is being sent finishes\n",
    )
    assert (await cli("subscribers", "disable", "A", "--why", "again")).out == "A was disabled already\n"
    assert (await cli("subscribers", "list")).row("A")[2] == "disabled"
    assert (await cli("subscribers", "enable", "A", "--by", "day shift")).out == "A is enabled: its gate is open\n"
    assert (await cli("subscribers", "enable", "A")).out == "A was not disabled\n"
    shown = (await cli("subscribers", "show", "A")).out
    assert "disable by night shift" in shown
    assert "enable by day shift" in shown


async def test_list_shows_one_region_or_all(cli):
    await cli("subscribers", "apply", "-", stdin=subscribers_json(subscriber("A"), subscriber("B", "us")))
    assert (await cli("subscribers", "list")).row("B")[:4] == ["B", "us", "active", "4"]
    only = (await cli("subscribers", "list", "--region", "eu", "--json")).document
    assert [(each["subscriber_id"], each["region"]) for each in only["items"]] == [("A", "eu")]
    unknown = await cli("subscribers", "list", "--region", "mars")
    assert (unknown.status, unknown.err) == (2, "--region: there is no region 'mars'; the regions are eu, us\n")


async def test_tune_changes_limits_once_and_puts_it_on_record(cli):
    await cli("subscribers", "apply", "-", stdin=subscribers_json(subscriber("A")))
    said = await cli("subscribers", "tune", "A", "--concurrency", 7, "--rate", 2.5, "--by", "night shift")
    assert (said.status, said.out) == (
        0,
        "A now has concurrency 7, 2.5 per second (config version 2)\n",
    )
    assert (await cli("subscribers", "tune", "A", "--rate", "2.5")).out.startswith("A already had 2.5 per second")
    assert (await cli("subscribers", "tune", "A", "--rate", "none")).status == 0
    shown = (await cli("subscribers", "show", "A", "--json")).document
    assert (shown["concurrency"], shown["rate_per_second"], shown["config_version"]) == (7, None, 3)
    assert "changed by night shift: concurrency 4 to 7" in (await cli("subscribers", "show", "A")).out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--concurrency, --rate: nothing to change"),
        (["--concurrency", "0"], "--concurrency: is out of range; write a whole number from 1 to 100"),
        (["--concurrency", "many"], "fanout subscribers tune: "),
        (["--rate", "0"], "--rate: '0' is not a rate"),
        (["--rate", "nan"], "--rate: 'nan' is not a rate"),
        (["--rate", "fast"], "--rate: 'fast' is not a rate"),
        (["--rate", "3", "--by", " "], "--by: is empty"),
    ],
)
async def test_a_limit_that_cannot_be_is_refused(cli, options, said):
    await cli("subscribers", "apply", "-", stdin=subscribers_json(subscriber("A")))
    answer = await cli("subscribers", "tune", "A", *options)
    assert answer.status == 2
    assert answer.err.startswith(said)
    assert (await cli("subscribers", "show", "A", "--json")).document["config_version"] == 1


async def test_pause_and_resume_say_who_and_why_and_a_repeat_changes_nothing(cli):
    import getpass

    await cli("subscribers", "apply", "-", stdin=subscribers_json(subscriber("A")))
    paused = await cli("subscribers", "pause", "A", "--why", "their release night")
    assert paused.out == f"A is paused by {getpass.getuser()}: their release night\n"
    assert (await cli("subscribers", "pause", "A", "--why", "their release night")).out == "A was paused so already\n"
    assert ": their release night" in (await cli("subscribers", "show", "A")).out
    assert (await cli("subscribers", "list")).row("A")[2] == "paused"
    assert (await cli("subscribers", "resume", "A", "--by", "me")).out == "A is resumed\n"
    assert (await cli("subscribers", "resume", "A")).out == "A was not paused\n"
    assert (await cli("subscribers", "pause", "A")).status == 2
    assert (await cli("subscribers", "pause", "A", "--why", "")).status == 2
    assert (await cli("subscribers", "list")).row("A")[2] == "active"


async def test_a_resumed_destination_wakes_the_scheduler(cli, database_url):
    import asyncio

    await cli("subscribers", "apply", "-", stdin=subscribers_json(subscriber("A")))
    await cli("subscribers", "pause", "A", "--why", "x")
    connection = await asyncpg.connect(database_url)
    rung = asyncio.Event()
    await connection.add_listener("fanout_eu_due", lambda *_: rung.set())
    await cli("subscribers", "resume", "A")
    await asyncio.wait_for(rung.wait(), 5)
    await connection.close()


@pytest.mark.parametrize("command", [["show"], ["tune", "--concurrency", "2"], ["pause", "--why", "x"], ["resume"]])
async def test_a_subscriber_that_is_not_there_is_exit_1_and_an_id_that_cannot_be_is_exit_2(cli, command):
    absent = await cli("subscribers", *command, "nobody")
    assert (absent.status, absent.out) == (1, "")
    assert absent.err.startswith("there is no subscriber nobody")
    assert (await cli("subscribers", *command, "a/b")).err.startswith("ID: holds '/'")


async def test_while_home_is_away_a_subscriber_is_found_in_its_region(cli, database_url):
    await cli("subscribers", "apply", "-", stdin=subscribers_json(subscriber("A", "us")))
    for region in ("EU", "US"):
        cli.setting(**{f"FANOUT__REGIONS__{region}__DATABASE_URL": database_url})
    cli.setting(FANOUT_DATABASE_URL=AWAY)
    said = await cli("subscribers", "pause", "A", "--why", "home is on fire")
    assert (said.status, "asking every region" in said.err) == (0, True)


async def test_pruning_with_an_empty_file_asks_whether_that_is_meant(cli, tmp_path):
    empty = tmp_path / "empty.json"
    empty.write_text('{"subscribers": []}')
    await cli("migrate")
    said = await cli("subscribers", "apply", "--prune", str(empty))
    assert said.status == 2
    assert said.err.startswith("--prune: the file names no subscriber")
    assert (await cli("subscribers", "apply", "--prune", "--yes", str(empty))).status == 0


async def test_applying_what_is_there_already_says_that_there_is_nothing_to_change(cli):
    everyone = subscribers_json(subscriber("A"))
    assert "nothing to change" not in (await cli("subscribers", "apply", "-", stdin=everyone)).out
    assert (await cli("subscribers", "apply", "-", stdin=everyone)).out.splitlines()[-1] == "nothing to change"
    assert (await cli("subscribers", "apply", "-", stdin=subscribers_json())).out == "nothing to change\n"


@pytest.mark.parametrize(
    ("order", "status"),
    [
        (["pause", "--why", "x"], "paused"),
        (["resume"], "active"),
        (["disable", "--why", "x"], "disabled"),
        (["enable"], "active"),
        (["tune", "--concurrency", "2"], "active"),
    ],
)
async def test_an_order_can_answer_a_program_with_the_subscriber_as_it_is_then(cli, order, status):
    await cli("subscribers", "apply", "-", stdin=subscribers_json(subscriber("A")))
    if order[0] in ("resume", "enable"):
        await cli("subscribers", "pause" if order[0] == "resume" else "disable", "A", "--why", "x")
    first = (await cli("subscribers", *order, "A", "--json")).document
    again = (await cli("subscribers", *order, "A", "--json")).document
    assert (first["changed"], first["subscriber_id"], first["status"]) == (True, "A", status)
    assert again == first | {"changed": False, "updated_at": again["updated_at"]}
