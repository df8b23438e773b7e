"""PUT of a shipment version: bytes as they are, once, and checked before anything is written."""

import asyncio
import hashlib
import os
import socket
import tracemalloc

import asyncpg
import pytest
from served import Served, fields_of, pieces, problem_of, serving, settings_for

from services import eventually

MIB = 1024 * 1024


async def test_a_new_version_is_202_an_equal_one_200_and_another_content_409(api: Served):
    first = await api.put(body=b'{"a":1}', Content_Type="application/json")
    assert first.status_code == 202
    receipt = first.json()
    assert (receipt["shipment_id"], receipt["version"], receipt["verdict"]) == ("s-1", 1, "accepted")
    assert receipt["accepted_at"].endswith("Z")

    again = await api.put(body=b'{"a":1}', Content_Type="application/json")
    assert again.status_code == 200
    assert again.json() == receipt | {"verdict": "duplicate"}

    other = problem_of(await api.put(body=b'{"a": 1}', Content_Type="application/json"), 409)
    assert {name: other[name] for name in receipt} == receipt | {"verdict": "conflict"}
    assert "higher version" in other["detail"]


@pytest.mark.parametrize(
    "changed",
    [
        {"Content_Type": "text/plain"},
        {"Fanout_Event_Type": "shipment.delayed"},
        {"Fanout_Labels": "carrier=BA"},
        {"Fanout_Residency": "eu_only"},
    ],
)
async def test_other_metadata_under_the_same_version_is_a_conflict(api: Served, changed: dict[str, str]):
    assert (await api.put(Fanout_Labels="carrier=UA")).status_code == 202
    assert (await api.put(**({"Fanout_Labels": "carrier=UA"} | changed))).status_code == 409


async def test_times_and_traces_make_no_difference_and_the_first_ones_stay(api: Served):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert (await api.put(Fanout_Occurred_At="2026-03-01T09:30:00+02:00", traceparent=trace)).status_code == 202
    assert (await api.put(Fanout_Occurred_At="2027-01-01T00:00:00Z")).status_code == 200
    [row] = await api.rows("SELECT occurred_at::text, traceparent FROM {schema}.version")
    assert row["occurred_at"].startswith("2026-03-01 07:30:00")
    assert row["traceparent"] == trace


BODIES = {
    "empty": b"",
    "nul": b"\x00a\x00",
    "lone surrogate": b'{"a":"\\ud800"}',
    "duplicate keys and key order": b'{"b":1,"a":2,"b":3}',
    "1e400": b'{"n":1e400,  "m":-0}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "not utf-8": bytes(range(256)),
    "line ends": b"a\r\nb\rc\n\r\n",
    "exactly 1 MiB": os.urandom(MIB),
}


@pytest.mark.parametrize("name", BODIES)
async def test_any_bytes_are_stored_as_they_came(api: Served, name: str):
    body = BODIES[name]
    assert (await api.put(body=body)).status_code == 202
    assert await api.value("SELECT payload FROM {schema}.version") == body
    shown = (await api.get("/v1/shipments/s-1/versions/1")).json()
    assert (shown["bytes"], shown["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())


async def test_bytes_that_arrive_in_pieces_of_unknown_length_are_joined(api: Served):
    chunks = [os.urandom(70_000) for _ in range(7)]
    assert (await api.put(body=pieces(chunks))).status_code == 202
    assert await api.value("SELECT payload FROM {schema}.version") == b"".join(chunks)


async def test_the_content_type_is_kept_as_it_stands_and_octets_are_the_default(api: Served):
    written = 'Application/JSON; charset="utf-8" ; profile=x'
    await api.put(version=1, Content_Type=written)
    await api.put(version=2)
    rows = await api.rows("SELECT content_type FROM {schema}.version ORDER BY version")
    assert [row[0] for row in rows] == [written, "application/octet-stream"]


async def test_labels_are_read_from_one_or_several_header_lines(api: Served):
    status, _, body = await api.raw(
        b"PUT /v1/shipments/s/versions/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nFanout-Event-Type: a.b\r\n"
        b"Fanout-Labels: carrier=UA\r\nfanout-labels: city=K%C3%B6ln, destination = ORD\r\n\r\n"
    )
    assert status == 202, body
    labels = await api.value("SELECT labels::text FROM {schema}.version")
    assert '"city": "Köln"' in labels
    assert '"destination": "ORD"' in labels


async def test_what_becomes_eligible_later_keeps_its_time(api: Served):
    assert (await api.put(Fanout_Eligible_At="2031-01-01T00:00:00Z")).status_code == 202
    assert str(await api.value("SELECT eligible_at FROM {schema}.version")) == "2031-01-01 00:00:00+00:00"


async def test_a_trace_context_that_cannot_be_read_counts_as_none(api: Served):
    assert (await api.put(traceparent="nonsense", tracestate="x" * 600)).status_code == 202
    [row] = await api.rows("SELECT traceparent, tracestate FROM {schema}.version")
    assert row["traceparent"].startswith("00-")
    assert row["tracestate"] is None


async def test_publishing_wakes_whoever_listens_for_the_outbox(api: Served):
    heard: list[str] = []
    connection = await asyncpg.connect(api.settings.home.url)
    try:
        await connection.add_listener("fanout_outbox", lambda *message: heard.append(message[2]))
        await api.put()
        await eventually(lambda: heard, 5)
    finally:
        await connection.close()


# ---- refused


@pytest.mark.parametrize(
    "shipment_id", ["..", ".", "%2e%2e", "a%2Fb", "a%00b", "%ff", "%zz", "a%252Fb", "a%20b", "a:b", "é", "x" * 129, ""]
)
async def test_a_shipment_id_that_is_none_is_malformed_and_named(api: Served, shipment_id: str):
    target = f"/v1/shipments/{shipment_id}/versions/1".encode().decode("latin-1")
    status, headers, body = await api.raw(
        f"PUT {target} HTTP/1.1\r\nHost: x\r\nFanout-Event-Type: a\r\nContent-Length: 0\r\n\r\n".encode("latin-1")
    )
    assert status == 400, body
    if shipment_id.isascii():  # other bytes never get past the parser of the HTTP server
        assert headers["content-type"] == "application/problem+json"
        assert b'"shipment_id"' in body or b'"path"' in body
    assert await api.value("SELECT count(*) FROM {schema}.version") == 0


@pytest.mark.parametrize(
    "version", ["007", "+1", "-1", "1.0", "1e3", "9223372036854775808", "one", "0x1", "%31%20", "٣"]
)
async def test_a_version_that_is_none_is_malformed_and_named(api: Served, version: str):
    assert fields_of(await api.put(version=version), 400) == {"version"}


async def test_the_highest_version_and_percent_encoded_ids_are_fine(api: Served):
    response = await api.put("%41~b", 9223372036854775807)
    assert response.status_code == 202
    assert response.json()["shipment_id"] == "A~b"
    assert response.json()["version"] == 9223372036854775807


@pytest.mark.parametrize(
    ("headers", "status", "field"),
    [
        ({"Fanout_Event_Type": "a..b"}, 422, "Fanout-Event-Type"),
        ({"Fanout_Event_Type": ""}, 422, "Fanout-Event-Type"),
        ({"Fanout_Labels": "carrier"}, 400, "Fanout-Labels"),
        ({"Fanout_Labels": "a=1, a=2"}, 400, "Fanout-Labels"),
        ({"Fanout_Labels": "a=%zz"}, 400, "Fanout-Labels"),
        ({"Fanout_Labels": ",".join(f"k{n}=v" for n in range(33))}, 422, "Fanout-Labels"),
        ({"Fanout_Occurred_At": "yesterday"}, 422, "Fanout-Occurred-At"),
        ({"Fanout_Eligible_At": "2026-03-01T09:30:00"}, 422, "Fanout-Eligible-At"),
        ({"Fanout_Residency": "moon_only"}, 422, "Fanout-Residency"),
        ({"Fanout_Residence": "eu_only"}, 422, "fanout-residence"),
        ({"Content_Type": "text/plain\u00e9"}, 422, "Content-Type"),
    ],
)
async def test_a_header_that_is_wrong_is_named(api: Served, headers: dict[str, str], status: int, field: str):
    assert fields_of(await api.put(**headers), status) == {field}
    assert await api.value("SELECT count(*) FROM {schema}.version") == 0


async def test_every_problem_is_told_at_once(api: Served):
    response = await api.client.put(
        "/v1/shipments/a:b/versions/007", content=b"x", headers={"Fanout-Residency": "x", "Fanout-Occurred-At": "x"}
    )
    wrong = fields_of(response, 400)
    assert wrong == {"shipment_id", "version", "Fanout-Event-Type", "Fanout-Residency", "Fanout-Occurred-At"}


async def test_a_header_that_is_there_twice_is_malformed(api: Served):
    status, _, body = await api.raw(
        b"PUT /v1/shipments/s/versions/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
        b"Fanout-Event-Type: a\r\nFanout-Event-Type: b\r\n\r\n"
    )
    assert status == 400
    assert b"Fanout-Event-Type" in body


async def test_an_encoded_body_is_refused_before_it_is_read(api: Served):
    response = await api.put(body=b"\x1f\x8b...", Content_Encoding="gzip")
    assert "gzip" in problem_of(response, 415)["detail"]
    assert response.headers["accept-encoding"] == "identity"
    assert (await api.put(Content_Encoding="identity")).status_code == 202


async def test_a_parameter_that_means_nothing_is_refused(api: Served):
    response = await api.client.put(
        "/v1/shipments/s/versions/1?residency=eu_only", content=b"", headers={"Fanout-Event-Type": "a"}
    )
    assert fields_of(response, 422) == {"residency"}


# ---- too much, too little


async def test_one_byte_more_than_1_mib_is_413_announced_or_not(api: Served):
    assert "1048576" in problem_of(await api.put(body=bytes(MIB + 1)), 413)["detail"]
    problem_of(await api.put(body=pieces([bytes(MIB), b"x"])), 413)
    assert await api.value("SELECT count(*) FROM {schema}.version") == 0


async def test_an_announced_length_that_is_too_long_is_refused_before_a_byte_of_it_arrives(api: Served):
    status, headers, _ = await api.raw(
        b"PUT /v1/shipments/s/versions/1 HTTP/1.1\r\nHost: x\r\nFanout-Event-Type: a\r\n"
        b"Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n"
    )
    assert status == 413
    assert headers["connection"] == "close"


async def test_a_body_without_end_is_refused_at_the_limit_and_its_memory_is_let_go(api: Served):
    chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
    head = b"PUT /v1/shipments/s/versions/1 HTTP/1.1\r\nHost: x\r\nFanout-Event-Type: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    tracemalloc.start()
    try:
        status, _, _ = await api.raw(head, *[chunk] * 400)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert status == 413
    assert peak_bytes < 4 * MIB, "of 25 MiB that were sent"


async def test_a_caller_that_sends_all_before_it_reads_still_gets_the_refusal(api: Served):
    def send_then_read() -> bytes:
        with socket.create_connection(("127.0.0.1", api.port), timeout=10) as plain:
            plain.sendall(
                b"PUT /v1/shipments/s/versions/1 HTTP/1.1\r\nHost: x\r\nFanout-Event-Type: a\r\n"
                b"Content-Length: %d\r\n\r\n" % (6 * MIB)
            )
            for _ in range(6):
                plain.sendall(bytes(MIB))
            return plain.recv(65536)

    assert (await asyncio.to_thread(send_then_read)).startswith(b"HTTP/1.1 413 ")


async def test_a_body_that_breaks_off_is_not_published(api: Served):
    _, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(
        b"PUT /v1/shipments/s/versions/1 HTTP/1.1\r\nHost: x\r\nFanout-Event-Type: a\r\nContent-Length: 100\r\n\r\nhalf"
    )
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await api.put("s", 2)).status_code == 202
    assert [row[0] for row in await api.rows("SELECT version FROM {schema}.version")] == [2]


# ---- at once


async def test_of_twenty_identical_puts_exactly_one_is_accepted(api: Served):
    for round_ in range(5):
        answers = await asyncio.gather(*(api.put(version=round_) for _ in range(20)))
        assert sorted(each.status_code for each in answers) == [200] * 19 + [202]
    assert await api.value("SELECT count(*) FROM {schema}.outbox") == 10


async def test_of_twenty_different_contents_exactly_one_is_accepted(api: Served):
    for round_ in range(5):
        answers = await asyncio.gather(*(api.put(version=round_, body=b"%d" % n) for n in range(20)))
        assert sorted(each.status_code for each in answers) == [202] + [409] * 19
        winner = next(n for n, each in enumerate(answers) if each.status_code == 202)
        assert await api.value("SELECT payload FROM {schema}.version WHERE version = $1", round_) == b"%d" % winner


async def test_a_body_that_drips_is_given_up(api: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fanout.api.call.BODY_SECONDS", 0.1)
    status, headers, _ = await api.raw(
        b"PUT /v1/shipments/s/versions/1 HTTP/1.1\r\nHost: x\r\nFanout-Event-Type: a\r\nContent-Length: 100\r\n\r\nhalf"
    )
    assert (status, headers["connection"]) == (408, "close")
    assert await api.value("SELECT count(*) FROM {schema}.version") == 0


async def test_more_bodies_at_once_than_memory_is_meant_for_are_503_and_the_room_comes_back(
    ready_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("fanout.api.call.Buffered.__init__.__defaults__", (3 * MIB,))
    async with serving(settings_for(ready_url)) as api:
        answers = await asyncio.gather(*(api.put(version=n, body=bytes(MIB)) for n in range(12)))
        refused = [each for each in answers if each.status_code == 503]
        assert all(each.headers["retry-after"] for each in refused)
        assert {each.status_code for each in answers} == {202, 503}
        assert (await api.put(version=50, body=bytes(MIB))).status_code == 202
