"""P7 and the table of outcomes, seen from the subscriber's end."""

from services.deployment import versions
from services.waiting import eventually


async def test_429_stops_the_destination_costs_no_attempt_and_frees_the_slot(deployment):
    await deployment.subscriber("a", concurrency=4)
    await deployment.subscriber("b", concurrency=4)
    deployment.receiver.use([{"subscriber": "a", "when": {"first": 1}, "answer": 429, "retry_after": 3}])
    deployment.start("publisher", "scheduler", "consumer", "consumer")
    await deployment.publish(*versions(20))
    await deployment.delivered(40)
    stats = deployment.receiver.stats.of("a")
    assert stats.answers[429] >= 1
    assert stats.early == 0, "nothing came before the time that was asked for"
    used = await deployment.region.value(
        "SELECT max(budget_used) FROM {schema}.delivery y JOIN {schema}.subscriber s ON s.id = y.destination_id WHERE s.subscriber_id = 'a'"
    )
    assert used == 1, "the delivery itself, and nothing for the wait"
    times = await deployment.region.rows(
        "SELECT s.subscriber_id AS who, max(y.finished_at) AS last FROM {schema}.delivery y "
        "JOIN {schema}.subscriber s ON s.id = y.destination_id GROUP BY 1 ORDER BY 1"
    )
    assert (times[0]["last"] - times[1]["last"]).total_seconds() > 1.5, "the neighbour did not wait"


async def test_410_disables_the_destination_and_ends_its_deliveries(deployment):
    await deployment.subscriber("a", concurrency=1)
    deployment.receiver.use([{"when": {"first": 1}, "answer": 410}])
    deployment.start()
    await deployment.publish(*versions(30))
    sums = await deployment.settled()
    assert (sums["delivered"], sums["dead"], sums["accepted"]) == (0, 30, 30)
    reasons = await deployment.region.rows("SELECT DISTINCT reason FROM {schema}.delivery")
    assert [row["reason"] for row in reasons] in (["gone"], ["disabled", "gone"], ["gone", "disabled"])
    assert deployment.receiver.stats.of("a").requests == 1
    [event] = await deployment.region.rows("SELECT kind FROM {schema}.operator_event")
    assert event["kind"] == "destination_disabled"


async def test_each_answer_has_its_outcome(deployment):
    wanted = {
        "ok": ([{"answer": 204}], [(1, "delivered")], None),
        "redirect": (
            [{"answer": 302, "headers": {"Location": "http://127.0.0.1:1/x"}}],
            [(1, "redirected")],
            "redirected",
        ),
        "rejected": ([{"answer": 422}], [(1, "rejected")], "rejected"),
        "once-500": ([{"when": {"first": 1}, "answer": 500}], [(1, "failed"), (2, "delivered")], None),
        "key": ([{"answer": 401}], [(1, "unauthorized"), (2, "unauthorized"), (3, "unauthorized")], "unauthorized"),
        "key-rotated": (
            [{"when": {"first": 2}, "answer": 403}],
            [(1, "unauthorized"), (2, "unauthorized"), (3, "delivered")],
            None,
        ),
        "hangs-once": ([{"when": {"first": 1}, "hang_seconds": 20}], [(1, "unknown"), (2, "delivered")], None),
        "closes": ([{"when": {"first": 1}, "close": True}], [(1, "unknown"), (2, "delivered")], None),
    }
    for subscriber_id in wanted:
        await deployment.subscriber(subscriber_id, timeout_seconds=1)
    deployment.receiver.use([{"subscriber": who} | rule for who, (rules, _, _) in wanted.items() for rule in rules])
    deployment.start()
    await deployment.publish(*versions(1))
    await deployment.settled()
    rows = await deployment.region.rows(
        "SELECT s.subscriber_id, y.reason, array_agg((a.n, a.outcome::text) ORDER BY a.n) AS attempts "
        "FROM {schema}.delivery y JOIN {schema}.subscriber s ON s.id = y.destination_id "
        "JOIN {schema}.attempt a ON a.delivery_id = y.id GROUP BY 1, 2"
    )
    seen = {row["subscriber_id"]: ([tuple(each) for each in row["attempts"]], row["reason"]) for row in rows}
    assert seen == {who: (attempts, reason) for who, (_, attempts, reason) in wanted.items()}


async def test_an_endpoint_at_a_forbidden_address_is_never_connected_to(deployment):
    await deployment.region.subscriber("inside", endpoint="http://169.254.169.254/latest/meta-data")
    deployment.start()
    await deployment.publish(*versions(1))
    await deployment.settled()
    [row] = await deployment.region.rows("SELECT state, reason FROM {schema}.delivery")
    assert (row["state"], row["reason"]) == ("dead", "forbidden_destination")


async def test_a_hanging_destination_does_not_slow_its_neighbours(deployment):
    for number in range(5):
        await deployment.subscriber(f"hangs-{number}", concurrency=8, timeout_seconds=15)
    await deployment.subscriber("healthy", concurrency=4)
    deployment.receiver.use([{"subscriber": "hangs-*", "hang_seconds": 60}])
    deployment.start()
    await deployment.publish(*versions(100))
    await eventually(lambda: deployment.receiver.stats.of("healthy").delivered == 100, 12, "the healthy one's hundred")


async def test_many_that_begin_to_hang_at_once_do_not_fill_a_consumer(deployment):
    """Sixty permits of destinations that hang, in a consumer that sends thirty at once, long before the first timeout."""
    for number in range(12):
        await deployment.subscriber(f"hangs-{number:02}", concurrency=5, timeout_seconds=30)
    await deployment.subscriber("healthy", concurrency=4)
    deployment.receiver.use([{"subscriber": "hangs-*", "hang_seconds": 60}])
    deployment.start(FANOUT__DELIVERY__IN_FLIGHT="30")
    await deployment.publish(*versions(60))
    await eventually(lambda: deployment.receiver.stats.of("healthy").delivered == 60, 15, "the healthy one's sixty")
