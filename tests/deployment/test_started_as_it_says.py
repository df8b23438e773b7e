"""Every container's command in its own environment, as real processes on a real database and broker: it comes up and delivers."""

import asyncio
import json
import re
import subprocess
import sys
from urllib.request import urlopen

import pytest

from fanout.embedded import EmbeddedPostgres
from fanout.receiver import ReceiverServer
from services import Roles, eventually

from .cells import make_cells, url_here
from .compose import ROOT, environment_of, ours, services
from .conftest import ComposedBroker

ROLES = ("api", "publisher", "scheduler-eu", "scheduler-us", "consumer-eu", "consumer-us")


def told(name: str, postgres: EmbeddedPostgres, broker: ComposedBroker) -> dict[str, str]:
    """What the container is told, but for where the servers are, and that probes stay on this machine."""
    environment = environment_of(services(ALLOW_NETWORKS="127.0.0.0/8")[name])
    for key, value in environment.items():
        if value.startswith("postgresql://"):
            environment[key] = url_here(value, postgres)
        elif value.startswith("amqp://"):
            environment[key] = broker.url
    return environment | {"FANOUT_HTTP_HOST": "127.0.0.1", "FANOUT_HTTP_PORT": "0"}


async def in_api(environment: dict[str, str], *arguments: str, stdin: str = "") -> str:
    """As ``docker compose exec -T api fanout …``."""
    command = [sys.executable, "-m", "fanout", *arguments]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, env=environment, input=stdin, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def ready(log: str) -> bool:
    match = re.search(r'"listening": ?"(http://[^"]+)"', log)
    assert match, log
    try:
        answer = await asyncio.to_thread(urlopen, f"{match[1]}/readyz")
    except OSError:  # 503 is one of them
        return False
    return answer.status == 200


@pytest.mark.slow
async def test_what_compose_starts_is_ready_and_delivers_in_both_regions(
    own_postgres: EmbeddedPostgres, broker: ComposedBroker, receiver: ReceiverServer, roles: Roles
):
    assert (await make_cells(own_postgres)).returncode == 0
    migrated = roles.start(*ours()["migrate"]["command"], env=told("migrate", own_postgres, broker))
    assert await migrated.ended() == 0

    started = {
        name: roles.start(*ours()[name]["command"], env=told(name, own_postgres, broker), name=name) for name in ROLES
    }
    for name, role in started.items():
        line = await role.says('"started"')
        await eventually(lambda line=line: ready(line), 30, f"{name} is ready")

    api = told("api", own_postgres, broker)
    wishes = [
        {
            "subscriber_id": f"s-{region}",
            "region": region,
            "endpoint": receiver.endpoint(f"s-{region}"),
            "event_types": ["*"],
        }
        for region in ("eu", "us")
    ]
    await in_api(api, "subscribers", "apply", "-", stdin=json.dumps({"subscribers": wishes}))
    version = {"shipment_id": "S-1", "version": 1, "event_type": "shipment.moved", "payload": {"at": "dock"}}
    await in_api(api, "publish", "-", stdin=json.dumps(version) + "\n")
    await eventually(lambda: len(receiver.received) == 2, 30, "a request for each region")

    async def settled() -> bool:
        status = json.loads(await in_api(api, "status", "--json"))
        return status["balanced"] and all(each["delivered"] == 1 for each in status["regions"].values())

    await eventually(settled, 30, "both deliveries are settled")
    queues = await broker.control("list_queues", "--no-table-headers", "-p", "fanout", "name")
    assert set(queues.split()) == {"fanout.eu", "fanout.eu.dead", "fanout.us", "fanout.us.dead"}, (
        "it went by the broker"
    )

    for role in started.values():
        role.terminate()
    assert {name: await role.ended(45) for name, role in started.items()} == dict.fromkeys(ROLES, 0)
