"""What the receiver counts and how it judges a sender, seen over real connections."""

import asyncio
import time

import pytest

from fanout.model.problems import Invalid
from fanout.receiver.stats import ReceiverStats, SubscriberStats
from fanout.signing import decode_secret, generate_secret, sign
from services import eventually


async def test_each_subscriber_is_counted_by_the_first_part_of_its_path(receiver, wire):
    assert (await wire.ask("carrier-1", b"12345"))[0] == 200
    await wire.ask("carrier-1/hooks?x=1", b"123")
    await wire.ask("b%61nk")
    carrier = receiver.stats.subscribers["carrier-1"]
    assert (carrier.requests, carrier.bytes, dict(carrier.answers)) == (2, 8, {200: 2})
    assert receiver.stats.subscribers["bank"].requests == 1
    assert receiver.stats.total("requests") == 3
    assert receiver.stats.connections == 1


async def test_a_second_success_for_a_key_is_a_duplicate_and_a_failure_is_not(receiver, wire):
    receiver.use([{"when": {"first": 1}, "answer": 500}])
    for _ in range(4):
        await wire.ask("a", idempotency_key="shipment:1")
    await wire.ask("a", idempotency_key="shipment:2")
    await wire.ask("a")
    seen = receiver.stats.of("a")
    assert dict(seen.answers) == {500: 1, 200: 5}
    assert (seen.distinct_keys, seen.delivered_keys, seen.duplicates, seen.without_key) == (2, 2, 2, 1)
    assert seen.duplicate_keys == ["shipment:1", "shipment:1"]


async def test_a_request_is_in_flight_from_its_headers_until_its_answer(receiver, connect):
    one, two = await connect(), await connect()
    one.send(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{")
    await eventually(lambda: receiver.stats.of("a").in_flight == 1)
    await two.ask("a")
    assert (receiver.stats.of("a").in_flight, receiver.stats.of("a").peak_in_flight) == (1, 2)
    one.send(b"}")
    await one.answer()
    assert receiver.stats.of("a").in_flight == 0
    assert receiver.stats.peak_in_flight == 2


async def test_one_after_another_is_never_two_in_flight(receiver, wire):
    for _ in range(20):
        await wire.ask("a")
    assert receiver.stats.of("a").peak_in_flight == 1


async def test_the_request_of_a_sender_that_vanishes_ends_with_its_connection(receiver, connect):
    receiver.use([{"hang_seconds": 60}])
    wires = [await connect() for _ in range(3)]
    for wire in wires:
        wire.post("a")
    await eventually(lambda: receiver.stats.of("a").in_flight == 3)
    wires[0].close()
    wires[1].writer.transport.abort()
    await eventually(lambda: receiver.stats.of("a").in_flight == 1)
    assert (receiver.stats.of("a").cut, receiver.stats.in_flight) == (2, 1)


async def test_reset_counts_from_zero_but_knows_what_is_open(receiver, connect):
    receiver.use([{"subscriber": "slow", "hang_seconds": 0.2, "answer": 200}])
    slow, quick = await connect(), await connect()
    slow.post("slow")
    await quick.ask("quick")
    await eventually(lambda: receiver.stats.of("slow").in_flight == 1)
    receiver.reset()
    assert (receiver.stats.of("slow").requests, receiver.stats.of("slow").in_flight) == (0, 1)
    assert "quick" not in receiver.stats.subscribers
    await slow.answer()
    assert (receiver.stats.of("slow").in_flight, receiver.stats.in_flight) == (0, 0)


async def test_versions_accepted_in_rising_order_are_in_order(receiver, wire):
    for version in ("1", "2", "2", "5"):
        await wire.ask("a", fanout_shipment_id="S1", fanout_version=version)
    await wire.ask("a", fanout_shipment_id="S2", fanout_version="1")
    assert receiver.stats.of("a").out_of_order == 0


async def test_a_lower_version_accepted_after_a_higher_one_is_out_of_order(receiver, wire):
    await wire.ask("a", fanout_shipment_id="S1", fanout_version="2")
    await wire.ask("a", fanout_shipment_id="S1", fanout_version="1", idempotency_key="k1")
    assert receiver.stats.of("a").out_of_order == 1
    assert receiver.stats.of("a").out_of_order_keys == ["k1"]


async def test_a_refused_version_does_not_spoil_the_order(receiver, wire):
    receiver.use([{"when": {"first": 1}, "answer": 500}])
    for version in ("2", "1", "2"):
        await wire.ask("a", fanout_shipment_id="S1", fanout_version=version)
    assert receiver.stats.of("a").out_of_order == 0


async def test_order_is_judged_by_arrival_even_if_the_earlier_answer_comes_late(receiver, connect):
    receiver.use([{"when": {"first": 1}, "delay_seconds": 0.2}])
    slow, quick = await connect(), await connect()
    slow.post("a", fanout_shipment_id="S1", fanout_version="1")
    await eventually(lambda: receiver.stats.of("a").in_flight == 1)
    await quick.ask("a", fanout_shipment_id="S1", fanout_version="2")
    await slow.answer()
    assert receiver.stats.of("a").out_of_order == 0


async def test_a_request_before_the_retry_after_is_over_is_early(receiver, connect, monkeypatch):
    monkeypatch.setattr("fanout.receiver.stats.ON_THE_WIRE_SECONDS", 0.0)
    receiver.use([{"when": {"every": 1, "until_seconds": 60}, "answer": 429, "retry_after": 5}])
    open_before, other = await connect(), await connect()
    open_before.send(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{")
    await eventually(lambda: receiver.stats.of("a").in_flight == 1)
    await other.ask("a")
    open_before.send(b"}")
    assert (await open_before.answer())[0] == 429
    assert receiver.stats.of("a").early == 0, "it was open when the first 429 was sent"
    await other.ask("b")
    assert receiver.stats.of("b").early == 0, "another subscriber was not asked"
    await other.ask("a")
    assert receiver.stats.of("a").early == 1
    assert 4 < receiver.stats.of("a").early_seconds_max <= 5


async def test_a_request_whose_first_byte_came_before_the_429_is_not_early(receiver, connect):
    receiver.use([{"answer": 429, "retry_after": 5}])
    open_before, other = await connect(), await connect()
    open_before.send(b"POST /a HT")
    await other.ask("b")
    await other.ask("a")
    open_before.send(b"TP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
    assert (await open_before.answer())[0] == 429
    assert (receiver.stats.of("a").requests, receiver.stats.of("a").early) == (2, 0)


async def test_a_request_after_the_retry_after_is_not_early(receiver, wire):
    receiver.use([{"when": {"first": 1}, "answer": 503, "retry_after": 0.1}])
    await wire.ask("a")
    await asyncio.sleep(0.11)
    await wire.ask("a")
    assert (receiver.stats.of("a").early, dict(receiver.stats.of("a").answers)) == (0, {503: 1, 200: 1})


async def test_a_plain_500_asks_for_nothing(receiver, wire):
    receiver.use([{"answer": 500, "retry_after": 60}])
    await wire.ask("a")
    await wire.ask("a")
    assert receiver.stats.of("a").early == 0


def test_the_rate_is_the_most_arrivals_in_any_second():
    stats = SubscriberStats()
    for arrival in (10.0, 10.6, 11.1, 11.5, 11.59, 13.0):
        stats.began(arrival)
    assert stats.peak_per_second == 4
    assert stats.spacing_seconds_min == pytest.approx(0.09)
    assert (stats.first_arrival, stats.last_arrival) == (10.0, 13.0)


def test_the_snapshot_sums_up_and_has_times_in_utc():
    stats = ReceiverStats()
    for name in ("b", "a"):
        stats.began(name, 5.0)
        stats.ended(name, "k", 200)
    seen = stats.snapshot(wall_offset=1_000_000_000)
    assert list(seen["subscribers"]) == ["a", "b"]
    assert seen["total"]["requests"] == 2
    assert seen["total"]["answers"] == {"200": 2}
    assert seen["subscribers"]["a"]["first_arrival"] == "2001-09-09T01:46:45Z"


async def test_latency_counts_from_the_webhook_timestamp(receiver, wire):
    await wire.ask("a", webhook_timestamp=str(int(time.time()) - 30))
    latency = receiver.stats.of("a").latency
    assert latency.count == 1
    assert 29 < latency.greatest < 32


async def test_good_signatures_pass_and_others_are_401_and_counted(receiver, wire):
    old, new = generate_secret(), generate_secret()
    receiver.verify_with({"a": [new, old]})
    now = int(time.time())

    async def signed(subscriber: str, secret: str, body: bytes, sent: bytes) -> int:
        signature = sign([decode_secret(secret)], "msg_1", now, body)
        headers = {"webhook_id": "msg_1", "webhook_timestamp": str(now), "webhook_signature": signature}
        return (await wire.ask(subscriber, sent, idempotency_key="k", **headers))[0]

    assert await signed("a", old, b"\x00\xff", b"\x00\xff") == 200
    assert await signed("a", new, b"x", b"x") == 200
    assert await signed("a", generate_secret(), b"x", b"x") == 401
    assert await signed("a", new, b"x", b"y") == 401
    assert await signed("unknown", new, b"x", b"x") == 401
    assert (await wire.ask("a"))[0] == 401
    seen = receiver.stats.of("a")
    assert (seen.bad_signatures, seen.duplicates, dict(seen.answers)) == (3, 1, {200: 2, 401: 3})
    assert receiver.stats.of("unknown").bad_signatures == 1


async def test_a_broken_secret_is_named_by_subscriber_and_never_shown(receiver):
    for broken in ("whsec_c2hvcnQ=", "c2VjcmV0c2VjcmV0", "whsec_%%%%"):
        with pytest.raises(Invalid, match="secrets of bank-7") as caught:
            receiver.verify_with({"bank-7": [broken]})
        assert broken not in str(caught.value)


async def test_it_keeps_exactly_what_came(receiver, wire):
    await wire.ask("a/x", b"\x00\r\n\xff", X_Own="b\u00e9")
    (one,) = receiver.received
    assert (one.subscriber, one.target, one.body) == ("a", "/a/x", b"\x00\r\n\xff")
    assert (b"X-Own", "b\u00e9".encode()) in one.headers
    assert one.header("HOST") == "here"
    assert abs(one.arrived_at - time.time()) < 5


async def test_only_a_post_to_a_subscriber_counts_as_a_delivery(receiver, wire):
    wire.send(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
    status, headers, _ = await wire.answer()
    assert (status, headers["allow"]) == (405, "POST")
    wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
    assert (await wire.answer())[0] == 404
    assert receiver.stats.subscribers == {}
    assert receiver.stats.other_requests == 2


async def test_what_is_not_http_is_closed_and_counted(receiver, wire):
    wire.send(b"\x16\x03\x01 hello\r\n\r\n")
    assert (await wire.answer())[0] == 400
    assert await wire.closed()
    assert receiver.stats.malformed == 1


async def test_requests_sent_without_waiting_are_answered_in_order(receiver, wire):
    receiver.use([{"when": {"first": 1}, "delay_seconds": 0.1, "answer": 500}])
    wire.post("a")
    wire.post("a")
    assert [(await wire.answer())[0] for _ in range(2)] == [500, 200]
    assert receiver.stats.of("a").peak_in_flight == 2


async def test_a_body_may_come_in_chunks_after_100_continue(receiver, wire):
    wire.send(b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
    assert (await wire.answer())[0] == 100
    wire.send(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert (await wire.answer())[0] == 200
    assert receiver.received[0].body == b"abcde"


async def test_a_sender_that_does_not_keep_alive_is_closed_after_the_answer(wire):
    assert (await wire.ask("a", connection="close"))[1]["connection"] == "close"
    assert await wire.closed()
