"""Every answer that says no is a problem document, whatever was asked and however it was spelt."""

import asyncio
import json

import pytest
from served import Served, problem_of

from fanout.running import heads


@pytest.mark.parametrize(
    "target",
    [
        "/", "/v1", "/v1/", "/v2/subscribers", "//v1/subscribers", "/v1//subscribers", "/v1/shipments/a/b/versions/1",
        "/v1/shipments/a/versions/1/", "/v1/../v1/subscribers", "/v1/%2e%2e/healthz", "/v1%2Fsubscribers", "/HEALTHZ",
    ],
)  # fmt: skip
async def test_a_path_that_leads_nowhere_is_404_and_is_not_tidied_up(api: Served, target: str):
    status, headers, problem = await api.ask(target)
    assert (status, headers["content-type"], problem["status"]) == (404, "application/problem+json", 404)


async def test_segments_may_be_percent_encoded_where_they_need_not_be(api: Served):
    status, _, listed = await api.ask("/v1/%73ubscribers")
    assert (status, listed) == (200, {"items": [], "next": None})


async def test_bytes_that_are_no_utf8_are_malformed(api: Served):
    status, _, problem = await api.ask("/v1/%ff")
    assert (status, problem["errors"][0]["field"]) == (400, "path")


async def test_a_method_that_a_path_does_not_take_is_405_with_those_it_takes(api: Served):
    answer = await api.client.post("/v1/subscribers/acme", json={})
    problem_of(answer, 405)
    assert answer.headers["allow"] == "DELETE, GET, HEAD, PATCH, PUT"
    assert problem_of(await api.client.request("OPTIONS", "/v1/regions"), 405)["title"] == "Method Not Allowed"


async def test_head_answers_as_get_without_a_body(api: Served):
    answer = await api.client.head("/v1/regions")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


async def test_a_query_that_cannot_be_read_is_malformed(api: Served):
    for query in ("state=%ff", "&".join(f"p{n}=1" for n in range(200))):
        status, _, problem = await api.ask(f"/v1/deliveries?{query}")
        assert (status, problem["errors"][0]["field"]) == (400, "query")


async def test_an_error_of_ours_is_500_and_tells_the_caller_nothing_of_it(
    api: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("internals")

    monkeypatch.setattr("fanout.api.versions.home_version", broken)
    answer = await api.get("/v1/shipments/s-1/versions/1")
    problem_of(answer, 500)
    assert "internals" not in answer.text
    assert "internals" in capsys.readouterr().out
    assert (await api.get("/healthz")).status_code == 200


async def test_the_connection_is_kept_after_a_refusal_without_a_body_and_closed_where_bytes_are_left(api: Served):
    kept = await api.client.get("/v1/nowhere")
    assert kept.headers.get("connection") != "close"
    left = await api.client.put("/v1/nowhere", content=b"x" * 200_000)
    assert left.headers["connection"] == "close"
    assert (await api.client.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    "field", [b"X-Long: %b\r\n" % (b"a" * 40_000), b"".join(b"X-%d: a\r\n" % n for n in range(6000))]
)
async def test_a_head_that_is_too_long_is_431_whether_it_ends_or_not(api: Served, field: bytes):
    whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + field + b"\r\n"
    status, headers, body = await api.raw(whole)
    assert (status, headers["content-type"], headers["connection"]) == (431, "application/problem+json", "close")
    assert "32768 bytes" in json.loads(body)["detail"]
    endless = [b"GET / HTTP/1.1\r\nX-Long: ", *([b"a" * 1024] * 80)]
    assert (await api.raw(*endless))[0] == 431
    assert (await api.raw(b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 431


async def test_a_head_within_its_bound_passes_one_after_another_on_one_connection(api: Served):
    one = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 32_000 + b"\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    for _ in range(5):
        writer.write(one)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    writer.close()


async def test_a_long_body_counts_for_no_head_and_the_next_request_has_its_own(api: Served):
    for version in (1, 2, 3):
        assert (await api.put(version=version, body=b"x" * 300_000)).status_code == 202


async def test_a_head_that_never_ends_is_408(api: Served, monkeypatch):
    monkeypatch.setattr(heads, "HEAD_SECONDS", 0.05)
    assert (await api.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\n"))[0] == 408


async def test_what_is_not_http_is_400_as_a_problem(api: Served):
    status, headers, _ = await api.raw(b"GET /healthz HTTP/1.1\r\nno field\r\n\r\n")
    assert (status, headers["content-type"]) == (400, "application/problem+json")
