"""However it is called wrongly, the answer is a line and exit status 2; and it is quick, and quiet when interrupted."""

import os
import resource
import signal
import socket
import subprocess

import pytest

from .conftest import FANOUT, json_lines, process, subscriber, subscribers_json, version_line


def test_help_takes_less_than_half_a_second_of_work():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*FANOUT, "--help"], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5
    commands = [
        "up",
        "api",
        "publisher",
        "scheduler",
        "consumer",
        "migrate",
        "doctor",
        "publish",
        "status",
        "receiver",
        "subscribers",
        "deliveries",
    ]
    assert all(f"\n  {command} " in done.stdout for command in commands)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frobnicate"], "fanout: No such command 'frobnicate'; see `fanout --help`"),
        (["publish"], "fanout publish: Missing argument 'FILE'; see `fanout publish --help`"),
        (["publish", "f", "--fast"], "fanout publish: No such option: --fast; see `fanout publish --help`"),
        (["deliveries", "list", "--limit", "0"], "fanout deliveries list: Invalid value for '--limit'"),
        (["deliveries", "list", "--state", "lost"], "--state: 'lost' is none of them; write one of waiting, queued"),
        (["deliveries", "list", "--reason", "x"], "--reason: 'x' is none of them; write one of rejected, gone"),
        (["deliveries", "list", "--older-than", "1y"], "--older-than: '1y' is not an age; write it as 90s, 15m"),
        (["deliveries", "list", "--cursor", "x"], "cursor: is not a cursor of this list"),
        (["deliveries", "list", "--region", "mars"], "--region: there is no region 'mars'; the regions are eu, us"),
        (["deliveries", "show", "shipment:a:version:1"], "KEY: is not a delivery key; write shipment:"),
        (["consumer", "mars"], "REGION: there is no region 'mars'; the regions are eu, us"),
        (["scheduler", "mars"], "REGION: there is no region 'mars'; the regions are eu, us"),
        (["status", "--watch", "--json"], "--watch, --json: do not go together"),
        (["receiver", "--script", "/nowhere"], ""),
        (["up", "--data", "x"], "--data: a database is known already"),
    ],
)
async def test_wrong_usage_is_one_line_and_exit_status_2(empty, arguments, said):
    answer = await empty(*arguments)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith(said)
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["migrate"],
        ["doctor"],
        ["status"],
        ["publish", "-"],
        ["subscribers", "list"],
        ["deliveries", "list"],
        ["api"],
        ["publisher"],
        ["scheduler", "eu"],
        ["up"],
    ],
)
async def test_a_wrong_setting_is_one_line_and_exit_status_2_for_every_command(empty, arguments):
    empty.setting(FANOUT_HTTP_PROT="8080")
    said = await empty(*arguments)
    assert (said.status, said.out) == (2, "")
    assert said.err == "FANOUT_HTTP_PROT: there is no such setting; did you mean FANOUT_HTTP_PORT?\n"


async def test_an_api_without_keys_binds_to_this_machine_only(cli):
    cli.setting(FANOUT_HTTP_HOST="0.0.0.0")
    for command in ("api", "up"):
        said = await cli(command)
        assert said.status == 2
        assert said.err.startswith("http.host: there are no API keys, and 0.0.0.0 can be reached from other machines")


async def test_a_receiver_on_a_taken_port_is_exit_status_2(bare):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with process("receiver", "--port", str(port)) as refused:
            out, err = refused.communicate(timeout=10)
    assert (refused.returncode, out) == (2, b"")
    assert err.startswith(f"--port: cannot listen on 127.0.0.1 port {port}: ".encode())


async def test_a_reader_that_has_seen_enough_ends_a_list_quietly(cli):
    everyone = [subscriber(f"S{n:04}") for n in range(2_000)]
    assert (await cli("subscribers", "apply", "-", stdin=subscribers_json(*everyone))).status == 0
    read, write = os.pipe()
    # Unbuffered, Python itself does not notice that a reader left in the middle of a write.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with process("subscribers", "list", stdout=write, env=buffered) as listing:
        os.close(write)
        os.read(read, 10)
        os.close(read)
        assert listing.stderr.read() == b""
    assert listing.returncode == 1


async def test_ctrl_c_is_quiet(cli):
    with process("publish", "-") as reading:
        reading.stdin.write(json_lines([version_line()]))
        reading.stdin.flush()
        await _published(cli)
        reading.send_signal(signal.SIGINT)
        assert (reading.wait(10), reading.stderr.read()) == (130, b"")


async def _published(cli) -> None:
    from services import eventually

    async def there() -> bool:
        return (await cli("status", "--json")).document["regions"]["eu"]["outbox_pending"] == 1

    await eventually(there)


async def test_watching_looks_again_until_ctrl_c(cli, database_url):
    await cli("subscribers", "apply", "-", stdin=subscribers_json(subscriber("A")))
    read, write = os.openpty()
    with process("status", "--watch", stdout=write) as watching:
        os.close(write)
        screen = b""
        while screen.count(b"balanced: yes") < 3:
            screen += os.read(read, 65_536)
        watching.send_signal(signal.SIGINT)
        assert (watching.wait(10), watching.stderr.read()) == (130, b"")
    os.close(read)
    assert b"delivered / s" in screen
