"""Logs are one JSON object per line, and hold nothing that is confidential."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from served import Served, serving, settings_for

from fanout.model.signing_secret import Secret
from fanout.telemetry.logs import configure_logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where logs go; afterwards they are as they were."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    text = io.StringIO()
    configure_logs("info", text)
    yield text
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_begins_with_time_level_and_event(stream: io.StringIO):
    structlog.get_logger().info("leases expired", region="eu", count=2)
    structlog.get_logger().debug("not from info on")
    [line] = lines(stream)
    assert list(line)[:3] == ["time", "level", "event"]
    assert str(line["time"]).endswith("Z")
    assert (line["level"], line["event"], line["region"], line["count"]) == ("info", "leases expired", "eu", 2)


def test_libraries_write_the_same_lines_from_warning_on(stream: io.StringIO):
    logging.getLogger("asyncio").warning("took %s seconds", 3)
    logging.getLogger("uvicorn.error").info("started")
    [line] = lines(stream)
    assert (line["event"], line["level"], line["logger"]) == ("took 3 seconds", "warning", "asyncio")


@pytest.mark.parametrize("name", ["secret", "secrets", "authorization", "headers", "payload", "Authorization"])
def test_what_is_confidential_by_its_name_is_censored_at_any_depth(stream: io.StringIO, name: str):
    structlog.get_logger().info("x", **{name: "private"}, inside={"list": [{name: {"deep": "private"}}]})
    logging.getLogger("library").warning("y", extra={name: "private"})
    assert "private" not in stream.getvalue()
    assert lines(stream)[0]["inside"] == {"list": [{name: "***"}]}


def test_a_secret_shows_nothing_of_itself_under_any_name(stream: io.StringIO):
    secret = Secret.new()
    structlog.get_logger().info(f"made {secret}", made=secret, several=[secret])
    assert secret.reveal().removeprefix("whsec_") not in stream.getvalue()


def test_an_exception_is_rendered_with_its_traceback_and_without_variables(stream: io.StringIO):
    def fails(password: str) -> None:
        variable = password[::-1]
        raise RuntimeError(f"no {len(variable)}")

    for log in (structlog.get_logger().exception, logging.getLogger("library").exception):
        try:
            fails("hunter" + "2")
        except RuntimeError:
            log("step failed")
    for line in lines(stream):
        assert "RuntimeError: no 7" in str(line["exception"])
        assert "in fails" in str(line["exception"])
    assert len(lines(stream)) == 2
    assert "hunter2" not in stream.getvalue()
    assert "2retnuh" not in stream.getvalue()


async def test_nothing_confidential_is_logged_by_the_api(ready_url: str, stream: io.StringIO):
    configure_logs("debug", stream)
    nowhere = "postgresql://me:pass-word@127.0.0.1:1/nothing"
    async with serving(settings_for(ready_url, FANOUT__REGIONS__US__DATABASE_URL=nowhere)) as api:
        secrets = (await api.subscribe(headers={"X-Key": "private-value"})).json()["secrets"]
        secrets += (await api.client.post("/v1/subscribers/acme/rotate-secret", json={"by": "x"})).json()["secrets"]
        await api.subscribe("zeta", region="us", headers={"X-Key": "private-value"}, secrets=secrets)
        await api.put(body=b"private-value")
        await api.client.put("/v1/subscribers/acme", json={"secrets": [secrets[0] + "="]})
    written = stream.getvalue()
    assert '"service away"' in written, "the test would see it"
    for private in (*secrets, "private-value", "pass-word", "very-private"):
        assert private not in written


async def test_a_database_that_goes_and_comes_is_one_line_each(api: Served, stream: io.StringIO):
    places = settings_for("postgresql://nobody@127.0.0.1:1/nothing")
    async with serving(places) as lost:
        await asyncio.gather(*(lost.put(version=n) for n in range(10)))
    away = [line for line in lines(stream) if line["event"] == "service away"]
    assert [line["service"] for line in away] == ["home"]
