"""`fanout doctor`: each line is fine, or says what is wrong and how to mend it."""

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import asyncpg
import pytest

from fanout.cli import doctor
from fanout.cli.doctor import HOME_CONNECTIONS_FIXED, HOME_CONNECTIONS_PER_REGION, LEDGER_CONNECTIONS
from fanout.cli.examining import Examined, Server
from fanout.embedded import EmbeddedPostgres
from fanout.home.publishing import publish
from fanout.model.shipment import ShipmentVersion
from services import eventually
from services.broker import free_port

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
        people.out.splitlines()[-1]
        == "settings, databases and brokers are well, and nothing waits for a role that is not there"
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
    shown = (await cli("doctor", "--json", "--settings")).document["settings"]
    assert shown["settings file"] == str(tmp_path / "config/fanout.toml")
    assert shown["home.poll_seconds"] == "2  (from config/fanout.toml: home.poll_seconds)"
    people = await cli("doctor", "--settings")
    assert "set    home.poll_seconds: 2  (from config/fanout.toml: home.poll_seconds)" in people.out
    assert "poll_seconds" not in (await cli("doctor")).out
    url = shown["regions.us.database_url"]
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


def test_a_clock_that_is_wrong_is_told_beside_this_machine_and_beside_home():
    def found(**ahead_seconds: float) -> dict[str, tuple[str, bool]]:
        places = [
            Examined(SimpleNamespace(name=name), [], Server(name, seconds, 100, 0))
            for name, seconds in ahead_seconds.items()
        ]
        return {each.what: (each.found, each.ok) for each in doctor._clocks(places)}

    assert found(home=0.9, eu=0.0, us=-1800) == {
        "home: clock": ("0.9 s ahead of this machine's", True),
        "eu: clock": ("0.0 s ahead of this machine's, 0.9 s behind home's", True),
        "us: clock": ("1800.0 s behind this machine's, 1800.9 s behind home's", False),
    }
    assert found(home=0.6, eu=-0.6)["eu: clock"] == ("0.6 s behind this machine's, 1.2 s behind home's", False)


async def test_clocks_of_one_machine_are_seen_to_agree(cli):
    assert all(each["ok"] for each in (await cli("doctor", "--json")).document["checks"] if "clock" in each["check"])


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
    waits = r"eu: publisher: no session is seen; 1 versions in the outbox, the oldest for 6\d s"
    assert re.search(waits, said.out)
    assert "start it: fanout publisher" in said.out


async def test_what_is_wrong_stands_first(cli):
    cli.setting(FANOUT__REGIONS__US__DATABASE_URL=AWAY)
    said = await cli("doctor")
    marks = [line.split()[0] for line in said.out.splitlines() if line.startswith(("ok ", "WRONG"))]
    assert marks == sorted(marks, reverse=False)
    assert marks[0] == "WRONG"
    assert said.out.splitlines()[-1] == f"{marks.count('WRONG')} wrong, at the top"
    document = (await cli("doctor", "--json")).document
    assert [each["ok"] for each in document["checks"]] == sorted(each["ok"] for each in document["checks"])


async def test_all_mistakes_in_the_settings_are_told_at_once(bare):
    bare.setting(FANOUT_HTTP_PORT="many", FANOUT_SPEED="9", FANOUT__DELIVERY__ATTEMPTS="0")
    people = await bare("doctor")
    assert (people.status, people.out) == (2, "")
    assert {line.partition(":")[0] for line in people.err.splitlines()} == {
        "FANOUT_HTTP_PORT", "FANOUT_SPEED", "FANOUT__DELIVERY__ATTEMPTS",
    }  # fmt: skip
    said = await bare("doctor", "--json")
    assert (said.status, said.document["ok"], len(said.document["checks"])) == (2, False, 3)


# ---- a pooler in front of the database


PGBOUNCER = os.environ.get("FANOUT_TEST_PGBOUNCER") or shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


@pytest.fixture
async def pooler(own_postgres, tmp_path):
    """Starts pgbouncer before the test's own server; the URL that leads through it."""
    if (program := PGBOUNCER) is None:
        pytest.skip("no pgbouncer (on Debian: `apt-get install pgbouncer`), or name one in FANOUT_TEST_PGBOUNCER")
    started = []

    async def start(mode: str, *lines: str) -> str:
        port = free_port()
        ini = tmp_path / "pgbouncer.ini"
        target = f"host={own_postgres.socket_folder} port=5432 dbname=postgres user=fanout"
        if own_postgres.tcp_port:
            target = target.replace("port=5432", f"port={own_postgres.tcp_port}")
        ini.write_text(
            "\n".join(
                [
                    "[databases]", f"postgres = {target}", "[pgbouncer]", "listen_addr = 127.0.0.1", f"listen_port = {port}",
                    "unix_socket_dir =", "auth_type = any", f"pool_mode = {mode}", *lines, "",
                ]
            )
        )  # fmt: skip
        own = ["--user=nobody"] if os.geteuid() == 0 else []
        for parent in (ini, *ini.parents):
            if (
                str(parent).startswith(tempfile.gettempdir())
                and os.geteuid() == 0
                and parent != Path(tempfile.gettempdir())
            ):
                parent.chmod(parent.stat().st_mode | 0o055)
        process = await asyncio.create_subprocess_exec(
            program, *own, str(ini), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        started.append(process)

        async def answers() -> bool:
            assert process.returncode is None, (await process.stdout.read()).decode()
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return True
            return False

        await eventually(answers, 10)
        return f"postgresql://fanout@127.0.0.1:{port}/postgres?sslmode=disable"

    yield start
    for process in started:
        if process.returncode is None:
            process.terminate()
        await process.wait()


IGNORED = "ignore_startup_parameters = idle_in_transaction_session_timeout"


@pytest.mark.parametrize("lines", [(IGNORED,), (IGNORED, "server_round_robin = 1", "min_pool_size = 3")])
async def test_a_pooler_that_takes_sessions_apart_is_told(bare, own_postgres, pooler, lines):
    bare.setting(FANOUT_DATABASE_URL=own_postgres.dsn)
    assert (await bare("migrate")).status == 0
    bare.setting(FANOUT_DATABASE_URL=await pooler("transaction", *lines))
    found = check(await bare("doctor", "--json"), "home: pooler")
    assert found["ok"] is False
    assert "by the transaction" in found["found"]
    assert found["mend"].startswith("let home.database_url name the server itself")


async def test_a_pooler_that_refuses_what_our_sessions_ask_for_is_told(bare, pooler):
    bare.setting(FANOUT_DATABASE_URL=await pooler("session"))
    found = check(await bare("doctor", "--json"), "home: pooler")
    assert found["ok"] is False
    assert "idle_in_transaction_session_timeout" in found["found"]


async def test_a_pooler_that_keeps_sessions_whole_is_in_nobodys_way(bare, own_postgres, pooler):
    bare.setting(FANOUT_DATABASE_URL=own_postgres.dsn)
    assert (await bare("migrate")).status == 0
    bare.setting(FANOUT_DATABASE_URL=await pooler("session", IGNORED))
    assert check(await bare("doctor", "--json"), "home: pooler")["ok"] is True
