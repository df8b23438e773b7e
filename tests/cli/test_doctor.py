"""`fanout doctor`: each line is fine, or says what is wrong and how to mend it."""

import asyncpg

from fanout.cli import doctor, examining
from fanout.cli.doctor import HOME_CONNECTIONS_FIXED, HOME_CONNECTIONS_PER_REGION, LEDGER_CONNECTIONS
from fanout.embedded import EmbeddedPostgres
from fanout.home.publishing import publish
from fanout.model.shipment import ShipmentVersion
from services import eventually

from .conftest import AWAY


def check(said, what: str):
    return next(each for each in said.document["checks"] if each["check"] == what)


def wrong(said) -> list[dict[str, object]]:
    """Beside the fsync that the servers of tests do without."""
    return [each for each in said.document["checks"] if not each["ok"] and not each["check"].endswith(": durable")]


async def test_all_is_well_after_migrating(bare):
    async with EmbeddedPostgres() as server:
        bare.setting(FANOUT_DATABASE_URL=server.dsn)
        await bare("migrate")
        people = await bare("doctor")
        said = await bare("doctor", "--json")
    assert people.status == 0
    assert (
        people.out.splitlines()[-1] == "settings and databases are well, and nothing waits for a role that is not there"
    )
    assert said.document["ok"] is True
    assert check(said, "eu: schema fanout_eu")["found"] == "up to date"


async def test_a_server_that_may_forget_is_told(cli):
    said = await cli("doctor", "--json")
    assert said.status == 1
    assert check(said, "home: durable")["mend"] == "switch fsync on"


async def test_every_value_that_was_set_is_shown_with_its_origin_and_without_password(cli, tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/fanout.toml").write_text("[home]\npoll_seconds = 2\n")
    cli.setting(FANOUT__REGIONS__US__DATABASE_URL="postgresql://operator:geheim@127.0.0.1:1/x?password=geheim")
    said = await cli("doctor", "--json")
    assert check(said, "settings file")["found"] == str(tmp_path / "config/fanout.toml")
    assert check(said, "home.poll_seconds")["found"] == "2  (from config/fanout.toml: home.poll_seconds)"
    url = check(said, "regions.us.database_url")["found"]
    assert url == "postgresql://operator:***@127.0.0.1:1/x?password=***  (from FANOUT__REGIONS__US__DATABASE_URL)"


async def test_a_schema_that_is_behind_is_told_with_the_command(empty):
    said = await empty("doctor", "--json")
    assert said.status == 1
    assert check(said, "home: schema fanout") == {
        "check": "home: schema fanout",
        "ok": False,
        "found": "to apply: 0001_home.sql, functions",
        "mend": "run: fanout migrate",
    }


async def test_a_region_that_is_away_is_the_only_thing_wrong(cli):
    cli.setting(FANOUT__REGIONS__EU__DATABASE_URL=AWAY)
    said = await cli("doctor", "--json")
    assert said.status == 1
    [found] = wrong(said)
    assert found["check"] == "eu: reachable"
    assert "cannot be reached" in found["found"]
    assert "regions.eu.database_url" in found["mend"]


async def test_a_database_that_takes_no_writes_is_told(cli, database_url):
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$"
    )
    await connection.close()
    said = await cli("doctor", "--json")
    assert said.status == 1
    assert check(said, "home: writable")["mend"] == "switch it off for this database and user"


async def test_a_clock_that_is_wrong_is_told(cli, monkeypatch):
    offsets = iter([0, 1800, 3600])

    async def each_server_its_own(_connection):
        return next(offsets)

    monkeypatch.setattr(examining, "_ahead_seconds", each_server_its_own)
    found = wrong(await cli("doctor", "--json"))
    assert {each["check"] for each in found} == {"eu: clock", "us: clock"}
    assert all("NTP" in each["mend"] for each in found)


async def test_too_little_room_for_our_connections_is_told(cli, monkeypatch):
    monkeypatch.setattr(doctor, "LEDGER_CONNECTIONS", 500)
    [found] = wrong(await cli("doctor", "--json"))
    assert found["check"] == "home, eu, us: connections"
    assert found["mend"].startswith("raise max_connections by ")


async def test_no_process_of_ours_opens_more_connections_than_the_budget_says(cli, roles, database_url):
    for command in (
        ["api"],
        ["publisher"],
        ["scheduler", "eu"],
        ["consumer", "eu"],
        ["scheduler", "us"],
        ["consumer", "us"],
    ):
        role = roles.start(*command, env={"FANOUT_HTTP_PORT": "0"})
        await role.says('"started"')
    connection = await asyncpg.connect(database_url)
    ours = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'fanout %'"
    )

    async def several() -> bool:
        return await connection.fetchval(ours) >= 12

    await eventually(several)
    count = await connection.fetchval(ours)
    await connection.close()
    assert count <= HOME_CONNECTIONS_FIXED + 2 * HOME_CONNECTIONS_PER_REGION + 2 * LEDGER_CONNECTIONS


async def test_without_any_database_doctor_says_what_to_set(bare):
    said = await bare("doctor")
    assert said.status == 1
    assert "WRONG  home.database_url: no database is known" in said.out


async def test_work_that_waits_for_a_role_that_is_not_there_is_told_with_the_command_that_starts_it(cli, database_url):
    await cli("migrate")
    connection = await asyncpg.connect(database_url)
    try:
        await publish(connection, ShipmentVersion("s-1", 1, "shipment.booked", b"{}"))
        await connection.execute("UPDATE fanout.version SET accepted_at = now() - interval '1 minute'")
    finally:
        await connection.close()
    said = await cli("doctor")
    assert said.status == 1
    assert "eu: publisher: no session is seen; 1 versions in the outbox, the oldest for 60 s" in " ".join(
        said.out.split()
    )
    assert "start it: fanout publisher" in said.out
