"""P13 without any tracing backend: each attempt is one wide line in the consumer's log, and no line shows what is confidential."""

import io
import json

import pytest
import structlog
from structlog.testing import capture_logs

from fanout.ledger.claiming import Lease
from fanout.model.states import Outcome, Reason, State
from fanout.receiver import serve
from fanout.settings import Settings
from fanout.transports.ledger import LedgerMessage
from fanout.transports.transport import Reference
from regions.consumer.flight import Flight
from regions.consumer.marks import Marks
from regions.consumer.parking import Ticket
from regions.decisions.classification import AttemptResult
from regions.decisions.retry import RetryPolicy
from services.deployment import Deployment, versions
from services.region import SECRET, Region

FIELDS = {
    "key", "region", "subscriber", "outcome", "state", "reason", "status", "attempt", "duration_ms", "age_seconds",
    "claim_to_send_ms", "retry_in_seconds", "address", "error", "trace_id", "worker", "late",
}  # fmt: skip


@pytest.fixture
async def deployment(database_url, roles):
    us = await Region.open(database_url, "us", watched=False)
    await us.connection.close()
    region = await Region.open(database_url)
    async with await serve([], record=True) as receiver:
        yield Deployment(region, roles, receiver)
    await region.connection.close()


@pytest.fixture
def marks():
    return Marks(Settings.load({"FANOUT_DATABASE_URL": "postgresql://127.0.0.1:1/x"}).regions["eu"], "worker-1")


def flight(delivery_id: int = 1) -> Flight:
    lease = Lease(delivery_id, 1, 1, 1, 1, 0, 0, 1.25, 1, 15, 0, 30, 0)
    reference = Reference(delivery_id, 1, 1)
    ticket = Ticket(reference, LedgerMessage([reference]))
    return Flight(
        lease, ticket, claimed_at=0.0, granted_at=0.0, margin_seconds=15, key="shipment:s-1:subscriber:a:version:1"
    )


async def test_each_attempt_is_one_line_with_all_that_is_known_and_nothing_confidential(deployment):
    number = await deployment.subscriber("a")
    await deployment.region.execute(
        "UPDATE {schema}.subscriber SET endpoint = endpoint || '?token=private-query', headers = $2 WHERE id = $1",
        number,
        json.dumps({"X-Key": "private-header"}),
    )
    deployment.receiver.use([{"when": {"first": 1}, "answer": 500, "body": "private-answer"}])
    *_, consumer = deployment.start()
    await deployment.publish(*versions(1, b"private-payload"))
    await deployment.delivered(1)
    await consumer.says('"delivered"')
    lines = [json.loads(line) for line in consumer.log.splitlines()]
    failed, delivered = [line for line in lines if line["event"] == "attempt"]
    assert failed.keys() == delivered.keys() == FIELDS | {"time", "level", "event"}
    assert {name: failed[name] for name in ("level", "key", "region", "subscriber", "outcome", "state", "status", "attempt", "late")} == {
        "level": "warning", "key": "shipment:s-0:subscriber:a:version:1", "region": "eu", "subscriber": "a",
        "outcome": "failed", "state": "waiting", "status": 500, "attempt": 1, "late": False,
    }  # fmt: skip
    assert 0.2 <= failed["retry_in_seconds"] <= 0.3
    assert (delivered["level"], delivered["outcome"], delivered["state"], delivered["attempt"]) == (
        "info",
        "delivered",
        "delivered",
        2,
    )
    assert delivered["address"] == f"127.0.0.1:{deployment.receiver.port}" or delivered["address"] == "127.0.0.1"
    rows = await deployment.region.rows("SELECT trace_id FROM {schema}.attempt ORDER BY n")
    assert [failed["trace_id"], delivered["trace_id"]] == [row["trace_id"] for row in rows]
    for private in ("private", "token", SECRET, SECRET.removeprefix("whsec_"), "v1,"):
        assert private not in consumer.log


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_a_delivered_attempt_is_info_and_every_other_a_warning(marks, outcome):
    one = flight()
    settlement = one.concluded(AttemptResult(outcome, 200, "why"), RetryPolicy(), 1)
    with capture_logs() as lines:
        marks.leave([(one, settlement)], ())
    [line] = lines
    assert line["log_level"] == ("info" if outcome is Outcome.DELIVERED else "warning")
    assert (line["outcome"], line["error"], line["late"], line["worker"]) == (outcome, "why", False, "worker-1")


async def test_a_result_that_came_too_late_says_so(marks):
    one, other = flight(1), flight(2)
    settled = [(each, each.concluded(AttemptResult(Outcome.DELIVERED, 200), RetryPolicy(), 1)) for each in (one, other)]
    with capture_logs() as lines:
        marks.leave(settled, {2})
    assert [(line["log_level"], line["late"]) for line in lines] == [("info", False), ("warning", True)]


async def test_what_was_not_sent_is_no_attempt(marks):
    one = flight()
    assert one.payload_gone().reason is Reason.PAYLOAD_GONE
    assert one.released().state is State.WAITING
    with capture_logs() as lines:
        marks.leave([(one, one.released()), (one, one.payload_gone())], ())
    assert lines == []


async def test_an_error_is_cut_to_a_readable_length(marks):
    one = flight()
    with capture_logs() as lines:
        marks.leave([(one, one.concluded(AttemptResult(Outcome.FAILED, error="x" * 5000), RetryPolicy(), 1))], ())
    assert len(lines[0]["error"]) == 300


class Gone(io.StringIO):
    """A log whose reader is gone."""

    def write(self, _):
        raise BrokenPipeError


async def test_a_log_that_cannot_be_written_stops_no_delivery(marks):
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(Gone()))
    one = flight()
    try:
        with pytest.raises(BrokenPipeError):
            structlog.get_logger().info("it really cannot")
        marks.leave([(one, one.concluded(AttemptResult(Outcome.DELIVERED, 200), RetryPolicy(), 1))], ())
    finally:
        structlog.reset_defaults()
