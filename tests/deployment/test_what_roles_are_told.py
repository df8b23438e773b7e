"""Every container's command, environment and health check, tried on the program itself."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from fanout.api.app import check_binding
from fanout.api.probes import Probes, create_probes
from fanout.cli.app import app
from fanout.cli.operators import known_region
from fanout.running.http import bind, serve
from fanout.running.schemas import all_places, home_place
from fanout.settings import HttpTable, Settings, SettingsError
from fanout.telemetry.metrics import Figures

from .compose import ROOT, environment_of, ours, secret, services

ROLES = [name for name in ours() if name != "receiver"]


def settings_of(name: str, folder: Path) -> Settings:
    """As the container loads them: its environment, and the file that is mounted in its working directory."""
    (folder / "config").mkdir(exist_ok=True)
    shutil.copy(ROOT / "config" / "fanout.toml", folder / "config")
    assert "./config/fanout.toml:/srv/fanout/config/fanout.toml:ro" in ours()[name]["volumes"]
    return Settings.load(environment_of(ours()[name]), folder)


@pytest.mark.parametrize("name", ours())
def test_its_command_is_one_of_ours(name: str):
    arguments = [str(each) for each in ours()[name]["command"]]
    program: Any = typer.main.get_command(app)
    context = program.make_context("fanout", list(arguments))
    command, found, rest = program.resolve_command(context, arguments)
    assert found is not None
    found.make_context(command, rest, parent=context)  # raises for an argument or option that is not there


@pytest.mark.parametrize("name", ROLES)
def test_its_settings_are_accepted_and_enough(name: str, tmp_path: Path):
    settings = settings_of(name, tmp_path)
    command, *arguments = ours()[name]["command"]
    if command in ("scheduler", "consumer"):
        region = known_region(settings, arguments[0])
        assert region.url.startswith(f"postgresql://fanout_{region.name}:")
        assert region.transport == "rabbitmq"
        with pytest.raises(SettingsError):
            home_place(settings)  # it has no business there
    else:
        assert {place.url.rpartition("/")[2] for place in all_places(settings)} == {
            "fanout_home",
            "fanout_eu",
            "fanout_us",
        }
    strangers = [each for each in environment_of(ours()[name]) if not each.startswith(("FANOUT_", "OTEL_"))]
    assert strangers == []


@pytest.mark.parametrize("name", ROLES)
def test_the_servers_it_is_told_of_are_on_its_networks(name: str):
    for key, value in environment_of(ours()[name]).items():
        if match := re.fullmatch(r"(postgresql|amqp)://(\w+):([\w-]+)@([\w-]+):(\d+)/(\w+)", value):
            scheme, user, password, host, port, path = match.groups()
            server = services()[host]
            assert set(server["networks"]) & set(ours()[name]["networks"]), f"{name} cannot reach {host}"
            told = environment_of(server)
            if scheme == "amqp":
                assert port == "5672"
                assert told == {
                    "RABBITMQ_DEFAULT_USER": user,
                    "RABBITMQ_DEFAULT_PASS": password,
                    "RABBITMQ_DEFAULT_VHOST": path,
                }
            else:
                assert (port, path) == ("5432", user)
                assert told[f"{user.removeprefix('fanout_').upper()}_DATABASE_PASSWORD"] == password
        else:
            assert not key.endswith("_URL"), f"{name}: {key} is not understood by this test"


def test_the_api_listens_where_the_program_lets_it_and_the_others_where_prometheus_can_ask(tmp_path: Path):
    check_binding(settings_of("api", tmp_path))
    for name in ROLES:
        host = settings_of(name, tmp_path).http.host
        assert host == {"api": "127.0.0.1", "migrate": "127.0.0.1"}.get(name, "0.0.0.0")


def test_private_networks_are_reached_only_where_env_says_so(tmp_path: Path):
    assert settings_of("consumer-eu", tmp_path).regions["eu"].allow_networks == ()
    told = environment_of(services(ALLOW_NETWORKS="172.16.0.0/12")["consumer-eu"])
    allowed = Settings.load(told, tmp_path).regions["eu"].allow_networks
    assert [str(network) for network in allowed] == ["172.16.0.0/12"]


def test_no_password_is_shown_by_settings(tmp_path: Path):
    shown = repr(settings_of("api", tmp_path))
    assert secret("HOME_DATABASE_PASSWORD") not in shown
    assert secret("EU_BROKER_PASSWORD") not in shown


async def test_the_health_check_asks_the_probes_and_believes_them():
    """The very lines of the file, on another port, with a proxy around that must not be asked."""
    checks = {tuple(ours()[name]["healthcheck"].get("test", ())) for name in ROLES}
    checks.discard(())
    assert len(checks) == 1, "all roles are asked alike, but migrate, which ends"
    (cmd, program, *options, script) = checks.pop()
    assert (cmd, program) == ("CMD", "python")
    path = re.search(r'"(/\w+)"', script)
    assert path
    assert path[1] in {line[1] for line in Probes("x", {}, Figures()).lines()}

    away = False

    async def check() -> None:
        if away:
            raise ConnectionRefusedError

    listener = bind(HttpTable(port=0))
    port = listener.getsockname()[1]
    assert "8080" in script
    stop = asyncio.Event()
    http = asyncio.create_task(serve(create_probes("test", {"database": check}, Figures()), listener, stop))

    async def status() -> int:
        command = [sys.executable, *options, script.replace("8080", str(port))]
        environment = os.environ | {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
        done = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, check=False)
        return done.returncode

    try:
        assert await status() == 0
        away = True
        assert await status() == 1
    finally:
        stop.set()
        await http
    listener.close()
    assert await status() == 1
