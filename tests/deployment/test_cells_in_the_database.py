"""What config/postgres/cells.sh makes of a new server: a database for each cell, and logins that see only their own."""

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from fanout.database.connection import connect
from fanout.embedded import EmbeddedPostgres
from fanout.running.schemas import all_places, migrate_place
from fanout.settings import Settings

from .cells import make_cells, url_here
from .compose import environment_of, services

CELLS = ("fanout_home", "fanout_eu", "fanout_us")


async def test_each_login_brings_its_own_schema_up_to_date_and_enters_no_other_database(
    own_postgres: EmbeddedPostgres, tmp_path: Path
):
    done = await make_cells(own_postgres)
    assert (done.returncode, done.stderr) == (0, "")
    places = all_places(Settings.load(environment_of(services()["migrate"]), tmp_path))
    assert [urlsplit(place.url).path[1:] for place in places] == list(CELLS)
    for place in places:
        assert await migrate_place(replace(place, url=url_here(place.url, own_postgres)))
        for other in CELLS:
            if other != urlsplit(place.url).path[1:]:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connect(url_here(place.url, own_postgres, other), "test")


async def test_passwords_are_kept_as_hashes_and_stand_in_no_log(own_postgres: EmbeddedPostgres):
    strange = "it's-$HOME-\\n"
    assert (await make_cells(own_postgres, EU_DATABASE_PASSWORD=strange)).returncode == 0
    again = await make_cells(own_postgres, HOME_DATABASE_PASSWORD="not-to-be-seen")
    assert again.returncode != 0, "what is there already is not passed over in silence"
    assert "already exists" in again.stderr
    connection = await connect(own_postgres.dsn, "test")
    try:
        rows = await connection.fetch("SELECT rolname, rolpassword, rolsuper FROM pg_authid WHERE rolcanlogin")
    finally:
        await connection.close()
    made = {row["rolname"]: row for row in rows if row["rolname"] in CELLS}
    assert made.keys() == set(CELLS)
    for row in made.values():
        assert re.match(r"SCRAM-SHA-256\$", row["rolpassword"])
        assert not row["rolsuper"]
    log = own_postgres.log_file.read_text()
    assert "not-to-be-seen" not in log + again.stderr
    assert strange not in log
