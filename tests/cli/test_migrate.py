"""`fanout migrate`: repeatable, tells what it did, and one database that is away stops no other."""

import asyncpg

from .conftest import AWAY


async def test_it_says_what_it_applied_and_a_repeat_has_nothing_to_do(empty):
    first = await empty("migrate")
    assert first.status == 0
    assert "home: schema fanout applied 0001_home.sql" in first.out
    assert "eu: schema fanout_eu applied 0001_ledger.sql" in first.out
    assert "us: schema fanout_us applied 0001_ledger.sql" in first.out

    again = await empty("migrate")
    assert again.status == 0
    assert [line.rsplit(" ", 3)[1:] for line in again.out.splitlines()] == [["up", "to", "date"]] * 3


async def test_a_region_whose_database_is_away_is_named_and_the_others_are_done(empty):
    empty.setting(FANOUT__REGIONS__EU__DATABASE_URL=AWAY)
    said = await empty("migrate")
    assert said.status == 1
    assert "eu: the database postgresql://operator:***@127.0.0.1:1/nothing cannot be reached" in said.out
    assert "us: schema fanout_us applied 0001_ledger.sql" in said.out
    assert said.err == "not migrated: eu; mend that and run `fanout migrate` again: it does what is left\n"


async def test_home_being_away_does_not_stop_the_regions(empty, database_url):
    empty.setting(FANOUT_DATABASE_URL=AWAY, FANOUT__REGIONS__EU__DATABASE_URL=database_url)
    said = await empty("migrate")
    assert said.status == 1
    assert "eu: schema fanout_eu applied" in said.out
    assert "not migrated: home, us" in said.err


async def test_a_region_that_was_added_to_the_settings_is_made_known_at_home(cli, database_url, tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/fanout.toml").write_text("[regions.eu]\n[regions.us]\n[regions.ap]\n")
    refused = await cli("publish", "-")
    assert (refused.status, "region ap" in refused.err, "run: fanout migrate" in refused.err) == (1, True, True)

    said = await cli("migrate")
    assert "home: schema fanout applied region ap" in said.out
    connection = await asyncpg.connect(database_url)
    regions = await connection.fetch("SELECT region FROM fanout.region ORDER BY region")
    await connection.close()
    assert [row["region"] for row in regions] == ["ap", "eu", "us"]


async def test_a_schema_of_a_newer_version_is_left_alone(cli, database_url):
    connection = await asyncpg.connect(database_url)
    await connection.execute("INSERT INTO fanout_eu.migration (name, checksum) VALUES ('9999_later.sql', 'x')")
    await connection.close()
    said = await cli("migrate")
    assert said.status == 1
    assert "eu: schema fanout_eu has migration 9999_later.sql, which this version does not know" in said.out


async def test_no_database_at_all_is_a_setting_that_is_missing(bare):
    said = await bare("migrate")
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith("home.database_url: no database is known; set FANOUT_DATABASE_URL")


async def test_a_program_gets_one_document_with_what_was_done_and_what_was_not(empty):
    empty.setting(FANOUT__REGIONS__EU__DATABASE_URL=AWAY)
    said = await empty("migrate", "--json")
    assert said.status == 1
    assert {name: bool(each["applied"]) for name, each in said.document["schemas"].items()} == {
        "home": True, "eu": False, "us": True,
    }  # fmt: skip
    assert "cannot be reached" in said.document["schemas"]["eu"]["error"]
    assert said.document["schemas"]["us"] | {"applied": []} == {"schema": "fanout_us", "applied": [], "error": None}
