"""The demo, with the first hours of its day: it ends, adds up, and says so."""

import gzip
import json
from importlib.resources import files
from itertools import islice

import asyncpg
import pytest

VERSIONS = 300


def wanted_by_region(versions: int) -> dict[str, int]:
    """How many deliveries the shipped files ask for, by nothing but the rules of matching."""
    folder = files("fanout.demo") / "data"
    with (folder / "air-cargo-day.jsonl.gz").open("rb") as packed, gzip.open(packed) as lines:
        day = [json.loads(line) for line in islice(lines, versions)]
    counts = {"eu": 0, "us": 0}
    for subscriber in json.loads((folder / "subscribers.json").read_bytes())["subscribers"]:
        types = subscriber["event_types"]
        for version in day:
            by_type = any(
                version["event_type"].startswith(t[:-1]) if t.endswith("*") else version["event_type"] == t
                for t in types
            )
            labels = version["labels"]
            counts[subscriber["region"]] += by_type and all(
                labels.get(name) in values for name, values in subscriber["labels"].items()
            )
    return counts


async def test_a_day_with_storms_ends_balanced_and_every_region_got_what_it_wanted(start_demo):
    demo = start_demo("--json", "--versions", str(VERSIONS))
    assert await demo.ended(100) == 0
    document = json.loads(demo.out)
    regions = document["regions"]
    assert document["balanced"] is True
    assert {name: region["accepted"] for name, region in regions.items()} == wanted_by_region(VERSIONS)
    for region in regions.values():
        assert region["accepted"] == region["delivered"] + region["dead"]
        assert region["open"] == region["outbox_pending"] == 0
        assert region["receiver_keys_accepted"] == region["delivered"]
        assert region["subscribers_over_their_limit"] == 0
        assert region["receiver_bad_signatures"] == 0
        assert region["answered_429"] > 0
    assert regions["eu"]["dead_by_reason"]["gone"] > 0
    assert regions["us"]["unknown_attempts"] > 0
    assert regions["us"]["retries"] >= regions["us"]["unknown_attempts"]
    assert all(check["ok"] for check in document["checks"])
    assert len(document["delivery"]["attempt_list"]) > 1
    assert document["transport"] == "ledger"


async def test_kept_it_can_be_looked_at_from_another_terminal_until_ctrl_c(start_demo):
    demo = start_demo("--keep", "--versions", "5")
    await demo.says("until Ctrl-C")
    await demo.says("status\n")
    address = next(line for line in demo.out.splitlines() if "FANOUT_DATABASE_URL=" in line)
    connection = await asyncpg.connect(address.partition("=")[2].strip("'"))
    assert await connection.fetchval("SELECT sum(delivered) FROM fanout_eu.destination") > 0
    await connection.close()
    key = next(line for line in demo.out.splitlines() if " deliveries show " in line).rpartition(" ")[2]
    assert f"\n{key}\n" in demo.out
    known = demo.descendants()
    assert sum("fanout.receiver" in command for command in known.values()) == 2
    demo.press_ctrl_c()
    assert await demo.ended() == 0
    await demo.left_nothing(known)


OVER_TOO_SOON = "import asyncio, sys; from fanout.demo.command import run_demo; sys.exit(asyncio.run(run_demo(json_output=True, versions=300, overall_seconds=8)))"


@pytest.mark.long
async def test_when_the_time_is_over_it_says_what_is_open_and_fails(start_demo):
    """The subscriber that hangs keeps the day from ending in time."""
    demo = start_demo(command=("-c", OVER_TOO_SOON))
    assert await demo.ended() == 1
    if "not ready in time" not in demo.err:  # a machine that slow has not come to publishing
        document = json.loads(demo.out)
        assert document["ok"] is False
        assert [check["ok"] for check in document["checks"] if "nothing is open" in check["question"]] == [False]
        assert "not over after 8 s" in demo.err
    await demo.left_nothing({})
