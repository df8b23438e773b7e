"""`fanout publish`: a file is all right or nothing of it is published; standard input stops at the first wrong line."""

import asyncio

import asyncpg
import pytest

from fanout.cli import publishing
from services import eventually

from .conftest import AWAY, json_lines, process, version_line, written


async def versions_in(url: str) -> list[tuple[str, int]]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT shipment_id, version FROM fanout.version JOIN fanout.shipment USING (shipment_no) ORDER BY 1, 2"
        )
    finally:
        await connection.close()
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("name", ["day.jsonl", "day.jsonl.gz"])
async def test_a_file_is_published_and_startedit_again_changes_nothing(cli, database_url, tmp_path, name):
    file = written(tmp_path / name, json_lines(version_line(f"S{n}", n) for n in range(1, 1_203)))
    first = await cli("publish", file)
    assert (first.status, first.out) == (0, "1,202 accepted, 0 duplicate, 0 conflict\n")
    again = await cli("publish", file, "--json")
    assert (again.status, again.document) == (0, {"accepted": 0, "duplicate": 1202, "conflict": 0, "conflicts": []})
    assert len(await versions_in(database_url)) == 1202


async def test_the_payload_is_the_text_of_the_line_byte_for_byte(cli, database_url, tmp_path):
    payload = b'{ "a":1e400,"b":"\\ud800",  "a" : 2}'
    line = b'{"shipment_id":"S1","version":1,"event_type":"t","payload":' + payload + b"}\n"
    assert (await cli("publish", written(tmp_path / "f", line))).status == 0
    connection = await asyncpg.connect(database_url)
    assert await connection.fetchval("SELECT payload FROM fanout.version") == payload
    await connection.close()


async def test_one_wrong_line_in_the_middle_and_nothing_of_the_file_is_published(cli, database_url, tmp_path):
    lines = [version_line(f"S{n}") for n in range(2_000)]
    lines[1_499] = version_line("..", "007", labels={"carrier": 7})
    lines[1_700] = b'{"shipment_id": "S1", '
    said = await cli("publish", written(tmp_path / "f", json_lines(lines)))
    assert (said.status, said.out) == (2, "")
    assert "line 1500, shipment_id: '..' is a step in a path" in said.err
    assert "line 1500, version: '007' is not a version" in said.err
    assert "line 1500, labels.carrier: " in said.err
    assert "line 1701: is not JSON" in said.err
    assert await versions_in(database_url) == []


async def test_of_many_wrong_lines_twenty_problems_are_shown_and_the_rest_counted(cli, tmp_path):
    said = await cli("publish", written(tmp_path / "f", b"nonsense\n" * 50))
    lines = said.err.splitlines()
    assert len(lines) == 21
    assert lines[0].startswith("line 1: is not JSON")
    assert lines[-1] == "… and 30 more"


async def test_a_residency_class_that_nobody_configured_is_refused(cli, database_url, tmp_path):
    said = await cli("publish", written(tmp_path / "f", json_lines([version_line(residency="mars")])))
    assert said.status == 2
    assert said.err == "line 1, residency: there is no residency class 'mars'; the classes are eu_only\n"
    assert await versions_in(database_url) == []


async def test_a_payload_of_more_than_a_mebibyte_is_refused_and_one_of_exactly_that_is_not(cli, database_url, tmp_path):
    fits, too_big = (version_line(f"S{n}", payload="x" * (n - 2)) for n in (2**20, 2**20 + 1))
    said = await cli("publish", written(tmp_path / "big", json_lines([fits, too_big])))
    assert said.status == 2
    assert said.err.startswith("line 2, payload: is 1048577 bytes; send at most 1048576")
    assert (await cli("publish", written(tmp_path / "fits", json_lines([fits])))).status == 0
    assert len(await versions_in(database_url)) == 1


async def test_a_conflict_is_told_with_its_line_and_the_rest_goes_on(cli, database_url, tmp_path):
    await cli("publish", written(tmp_path / "f", json_lines([version_line("S1")])))
    changed = json_lines([version_line("S0"), version_line("S1", payload={"new": 1}), version_line("S2")])
    said = await cli("publish", written(tmp_path / "f", changed), "--json")
    assert said.status == 1
    assert said.document["conflicts"] == [{"line": 2, "shipment_id": "S1", "version": 1}]
    assert said.err.startswith("line 2: conflict: version 1 of shipment S1 stands with other content since ")
    assert await versions_in(database_url) == [("S0", 1), ("S1", 1), ("S2", 1)]


async def test_blank_lines_count_and_mean_nothing(cli, tmp_path):
    file = written(tmp_path / "f", b"\n  \n" + json_lines([version_line()]) + b"\r\nwrong")
    assert (await cli("publish", file)).err.startswith("line 5: ")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("missing", None, "cannot be read: No such file or directory"),
        ("cut.gz", "cut", "is not a whole gzip file"),
        ("endless", b"x" * 3_000_000, "line 1: is longer than"),
    ],
)
async def test_a_file_that_cannot_be_read_is_one_clear_line(cli, tmp_path, name, content, said):
    file = tmp_path / name
    if content == "cut":
        written(file, json_lines(version_line(f"S{n}") for n in range(100)))
        file.write_bytes(file.read_bytes()[:-20])
    elif content:
        file.write_bytes(content)
    answer = await cli("publish", file)
    assert answer.status == 2
    assert said in answer.err
    assert len(answer.err.splitlines()) == 1


async def test_standard_input_stops_at_the_first_wrong_line_and_says_how_many_stand(cli, database_url):
    lines = [version_line(f"S{n:04}") for n in range(1_100)]
    lines[700] = version_line(version=-1)
    said = await cli("publish", "-", stdin=json_lines(lines))
    assert said.status == 2
    assert said.err.startswith("line 701, version: is out of range")
    assert "stopped there: 700 lines before it stand" in said.err
    assert said.out == "700 accepted, 0 duplicate, 0 conflict\n"
    assert [shipment for shipment, _ in await versions_in(database_url)] == [f"S{n:04}" for n in range(700)]


async def test_what_trickles_into_standard_input_is_published_before_the_next_line_comes(cli, database_url):
    with process("publish", "-") as started:
        for n in (1, 2):
            started.stdin.write(json_lines([version_line("S1", n)]))
            started.stdin.flush()
            await eventually(lambda n=n: _count_is(database_url, n))
        started.stdin.close()
        assert started.wait(10) == 0


async def _count_is(url: str, count: int) -> bool:
    return len(await versions_in(url)) == count


async def test_the_outbox_bell_rings_after_the_commit(cli, database_url, tmp_path):
    connection = await asyncpg.connect(database_url)
    rung = asyncio.Event()
    await connection.add_listener("fanout_outbox", lambda *_: rung.set())
    await cli("publish", written(tmp_path / "f", json_lines([version_line()])))
    await asyncio.wait_for(rung.wait(), 5)
    await connection.close()


async def test_a_database_that_is_away_is_one_line_and_nothing_is_published(bare, tmp_path):
    bare.setting(FANOUT_DATABASE_URL=AWAY)
    said = await bare("publish", written(tmp_path / "f", json_lines([version_line()])))
    assert (said.status, said.out, len(said.err.splitlines())) == (1, "", 1)
    assert said.err.startswith("home: the database postgresql://operator:***@127.0.0.1:1/nothing cannot be reached")


async def test_a_database_that_goes_away_between_two_batches_leaves_whole_batches_and_says_so(
    cli, database_url, tmp_path, monkeypatch
):
    real = publishing.publish_many
    batches = 0

    async def second_batch_fails(connection, versions, **named):
        nonlocal batches
        batches += 1
        if batches == 2:
            raise ConnectionResetError("gone")
        return await real(connection, versions, **named)

    monkeypatch.setattr(publishing, "publish_many", second_batch_fails)
    file = written(tmp_path / "f", json_lines(version_line(f"S{n}") for n in range(1_200)))
    said = await cli("publish", file)
    assert said.status == 1
    assert "500 lines stand; run it again" in said.err
    assert len(await versions_in(database_url)) == 500
    monkeypatch.undo()


async def test_a_schema_that_was_never_made_is_told_with_the_command_that_makes_it(empty, tmp_path):
    said = await empty("publish", written(tmp_path / "f", json_lines([version_line()])))
    assert said.status == 1
    assert "run: fanout migrate" in said.err
