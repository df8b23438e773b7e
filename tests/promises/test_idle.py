"""A deployment with nothing to do does next to nothing. FANOUT_TEST_IDLE_SECONDS: for how long it is watched."""

import asyncio
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from fanout.embedded import EmbeddedPostgres
from services.day import renamed, versions_of_the_day
from services.deployments import Deployments
from services.frames import Frames

SECONDS = float(os.environ.get("FANOUT_TEST_IDLE_SECONDS", "3"))
PER_SECOND_MAX = {"scheduler": 8.0, "consumer": 1.0, "publisher": 3.0, "api": 1.0}
"""Statements of one process. A scheduler looks for leases that ended, for what was disabled and for what is due; the publisher polls
home once a second for each region."""
CPU_MAX = 0.1
"""Of a core, each process."""
LOGGED = re.compile(r"^fanout (?P<role>\w+)[^|]*\|.*duration: [0-9.]+ ms  (?:execute|statement)", re.MULTILINE)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def deployments(private_broker, tmp_path):
    settings = {"log_min_duration_statement": "0", "log_line_prefix": "%a|"}
    async with EmbeddedPostgres(fsync=False, tcp=True, settings=settings) as postgres:
        deployments = Deployments(tmp_path, postgres, private_broker, each=1)
        yield deployments
        await deployments.close()


def cpu_seconds(pid):
    """User and system time, fields 14 and 15 of proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.long
async def test_with_nothing_to_do_no_message_passes_and_few_statements(deployments):
    frames = Frames()
    deployments.watch_broker(frames)
    day = await deployments.get(links=True)
    await day.publish(renamed(versions_of_the_day(20), "before"))
    await day.over(30)
    assert frames.counts["message"] > 0, "the watch sees messages"
    await asyncio.sleep(1)  # what follows a delivery: acknowledgements, the last wake-ups

    log = deployments.postgres.log_file
    frames.counts.clear()
    before = {name: cpu_seconds(role.pid) for name, role in day.running.items()}
    start = log.stat().st_size
    await asyncio.sleep(SECONDS)  # the time that is watched
    cpu = {name: (cpu_seconds(role.pid) - before[name]) / SECONDS for name, role in day.running.items()}
    passed = dict(frames.counts)
    with log.open(errors="replace") as lines:
        lines.seek(start)
        statements = Counter(found["role"] for found in LOGGED.finditer(lines.read()))

    for role, most in PER_SECOND_MAX.items():
        processes = day.names(role)
        rate = statements[role] / SECONDS / len(processes)
        busiest = max(cpu[name] for name in processes)
        print(f"idle for {SECONDS:.0f} s: {role}: {rate:.2f} statements/s, {busiest * 100:.1f} % of a core, each")
        assert rate <= most
        assert busiest <= CPU_MAX
    print(f"idle for {SECONDS:.0f} s: frames over AMQP: {passed}; statements of others: {dict(statements)}")
    assert passed.get("message", 0) == 0
    assert day.fallen() == []
