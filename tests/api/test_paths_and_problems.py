"""Every answer that says no is a problem document, whatever was asked and however it was spelt."""

import pytest
from served import Served, problem_of


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
