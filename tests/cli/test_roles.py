"""Each role as a process: it starts, answers probes, stops in order on a signal, in a hurry on the second one."""

import json
import socket

import httpx2
import pytest

from fanout.receiver import serve
from services import Role, eventually

from .conftest import AWAY, json_lines, subscriber, subscribers_json, version_line

ROLES = [["api"], ["publisher"], ["scheduler", "eu"], ["consumer", "us"], ["up"]]
ANY_PORT = {"FANOUT_HTTP_PORT": "0"}


async def listening(role: Role) -> str:
    return json.loads(await role.says('"started"'))["listening"]


async def answer(url: str) -> httpx2.Response:
    async with httpx2.AsyncClient(trust_env=False) as client:
        return await client.get(url)


@pytest.mark.parametrize("command", ROLES, ids=lambda command: command[0])
async def test_a_role_answers_probes_and_stops_in_order_on_sigterm(cli, roles, command):
    role = roles.start(*command, env=ANY_PORT)
    url = await listening(role)
    assert (await answer(f"{url}/healthz")).status_code == 200

    async def ready() -> bool:
        return (await answer(f"{url}/readyz")).status_code == 200

    await eventually(ready)
    metrics = (await answer(f"{url}/metrics")).text
    assert "process_cpu_seconds_total" in metrics
    role.terminate()
    assert await role.ended() == 0
    lines = [json.loads(line) for line in role.log.splitlines() if line.startswith("{")]
    assert [line["event"] for line in lines] == ["started", "stopping", "stopped"]


@pytest.mark.parametrize("command", ROLES, ids=lambda command: command[0])
async def test_a_taken_port_is_exit_status_2(cli, roles, command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        role = roles.start(*command, env={"FANOUT_HTTP_PORT": port})
        assert await role.ended() == 2
    assert role.log.startswith(f"http.port: cannot listen on 127.0.0.1 port {port}: ")
    assert len(role.log.splitlines()) == 1


@pytest.mark.parametrize("command", ROLES, ids=lambda command: command[0])
async def test_a_schema_that_is_behind_ends_every_role_with_the_command_that_mends_it(empty, roles, command):
    role = roles.start(*command, env=ANY_PORT)
    assert await role.ended() == 1
    assert role.log.splitlines()[-1].endswith("run: fanout migrate")
    assert "Traceback" not in role.log


async def test_a_refused_login_is_not_waited_for(cli, roles, own_postgres):
    user, _, rest = own_postgres.database_url("postgres", over="tcp").rpartition("@")
    wrong = f"{user.rpartition(':')[0]}:geheim@{rest}"
    role = roles.start("scheduler", "eu", env=ANY_PORT | {"FANOUT__REGIONS__EU__DATABASE_URL": wrong})
    assert await role.ended() == 1
    last = role.log.splitlines()[-1]
    assert "refuses the login" in last
    assert "geheim" not in role.log


async def test_a_database_that_is_away_at_the_start_is_waited_for(bare, roles, own_postgres):
    bare.setting(FANOUT_DATABASE_URL=own_postgres.dsn)
    assert (await bare("migrate")).status == 0
    await own_postgres.stop()
    role = roles.start("scheduler", "eu", env=ANY_PORT)
    await role.says("database away, waiting for it")
    url = await listening(role)
    assert (await answer(f"{url}/healthz")).status_code == 200
    assert (await answer(f"{url}/readyz")).status_code == 503
    await own_postgres.start()
    await role.says("database back")

    async def ready() -> bool:
        return (await answer(f"{url}/readyz")).status_code == 200

    await eventually(ready)
    role.terminate()
    assert await role.ended() == 0


async def test_a_role_that_still_waits_for_its_database_stops_at_once(bare, roles):
    role = roles.start("consumer", "eu", env=ANY_PORT | {"FANOUT_DATABASE_URL": AWAY})
    await role.says("database away")
    role.terminate()
    assert await role.ended(3) == 0


async def test_a_region_that_is_away_does_not_keep_the_publisher_from_the_others(cli, roles):
    await cli("subscribers", "apply", "-", stdin=subscribers_json(subscriber("A"), subscriber("C", "us")))
    await cli("publish", "-", stdin=json_lines([version_line()]))
    cli.setting(FANOUT__REGIONS__EU__DATABASE_URL=AWAY)
    publisher = roles.start("publisher", env=ANY_PORT)

    async def expanded() -> bool:
        return (await cli("status", "--json")).document["regions"]["us"]["accepted"] == 1

    await eventually(expanded)
    regions = (await cli("status", "--json")).document["regions"]
    assert (regions["us"]["outbox_pending"], regions["eu"]["outbox_pending"]) == (0, 1)
    publisher.terminate()
    assert await publisher.ended() == 0


@pytest.mark.parametrize(("signal", "status"), [("terminate", 143), ("interrupt", 130)])
async def test_a_second_signal_ends_what_hangs_within_seconds_and_the_attempt_is_maybe_delivered(
    cli, roles, signal, status
):
    async with await serve([{"hang_seconds": 60}]) as receiver:
        await cli("subscribers", "apply", "-", stdin=subscribers_json(subscriber("A", endpoint=receiver.endpoint("A"))))
        await cli("publish", "-", stdin=json_lines([version_line()]))
        role = roles.start("up", env=ANY_PORT)
        await eventually(lambda: receiver.snapshot()["total"]["in_flight"] == 1, 20)
        getattr(role, signal)()
        await role.says('"stopping"')
        with pytest.raises(AssertionError):
            await role.ended(0.5)  # what is in flight may finish
        getattr(role, signal)()
        assert await role.ended(4) == status
    document = (await cli("deliveries", "show", "shipment:S1:subscriber:A:version:1", "--json")).document
    assert document["state"] == "waiting"
    assert [attempt["outcome"] for attempt in document["attempt_list"]] == ["unknown"]


async def test_up_brings_a_database_of_its_own_and_keeps_its_data(bare, roles, open_folder):
    for published in ("1 accepted, 0 duplicate", "0 accepted, 1 duplicate"):
        role = roles.start("up", "--data", open_folder / "pg", env=ANY_PORT)
        said = await role.says("PostgreSQL runs in ")
        url = await listening(role)
        assert f"the API listens on {url}" in role.log
        bare.setting(FANOUT_DATABASE_URL=said.partition("FANOUT_DATABASE_URL=")[2].strip("'"))
        assert (await bare("publish", "-", stdin=json_lines([version_line()]))).out.startswith(published)
        assert (await answer(f"{url}/v1/regions")).json()["balanced"] is True
        role.terminate()
        assert await role.ended() == 0
        assert not (open_folder / "pg/data/postmaster.pid").exists()
        bare.setting(FANOUT_DATABASE_URL="")


async def test_a_folder_that_another_process_uses_is_told_and_left_alone(bare, roles, open_folder):
    first = roles.start("up", "--data", open_folder / "pg", env=ANY_PORT)
    await listening(first)
    second = roles.start("up", "--data", open_folder / "pg", env=ANY_PORT)
    assert await second.ended() == 1
    said = second.log.splitlines()[-1]
    assert f"{open_folder / 'pg'} is in use: a PostgreSQL runs in it already" in said
    assert "`fanout up --data FOLDER`" in said
    assert "Traceback" not in second.log
    assert first.running
    first.terminate()
    assert await first.ended() == 0
