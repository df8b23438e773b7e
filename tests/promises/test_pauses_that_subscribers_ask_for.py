"""P7 over many cases: whatever a Retry-After asks for, nothing comes before; then traffic begins slowly.

FANOUT_TEST_RETRY_AFTER_CASES sets how many subscribers ask, each for another time in another form.
A hundred at a time: where a thousand begin at once, the receiver reads some requests half a second after they were sent, and takes
them for early.
"""

import os
import random

import pytest

from services.deployment import versions

CASES = int(os.environ.get("FANOUT_TEST_RETRY_AFTER_CASES", "15"))
AT_ONCE = 100
PER_SUBSCRIBER = 3


@pytest.mark.parametrize("start", range(0, CASES, AT_ONCE))
async def test_nothing_comes_before_the_time_that_was_asked_for(deployment, start):
    """Seconds whole and broken, dates; on 429 and 503; one request or several at once."""
    cases = min(AT_ONCE, CASES - start)
    chance = random.Random(11 + start)
    rules = []
    for n in range(cases):
        await deployment.subscriber(f"s-{n}", concurrency=chance.choice([1, 2, 4]))
        seconds = chance.choice([1, 2, round(chance.uniform(0.1, 2.5), 2)])
        asked = seconds if chance.random() < 0.6 else {"date_in_seconds": 1 + round(seconds)}
        first = chance.choice([1, 1, 2, 4])
        rules.append(
            {
                "subscriber": f"s-{n}",
                "when": {"first": first},
                "answer": chance.choice([429, 503]),
                "retry_after": asked,
            }
        )
    deployment.receiver.use(rules)
    deployment.start("publisher", "scheduler", "scheduler", "consumer", "consumer")
    await deployment.publish(*versions(PER_SUBSCRIBER))
    sums = await deployment.settled(90)
    assert (sums["delivered"], sums["dead"]) == (cases * PER_SUBSCRIBER, 0)
    stats = deployment.receiver.stats
    asked_to_wait = sum(each.answers[429] + each.answers[503] for each in stats.subscribers.values())
    assert asked_to_wait >= cases
    assert stats.total("early") == 0
    used = await deployment.region.value("SELECT max(budget_used) FROM {schema}.delivery")
    assert used == 1, "a pause costs no attempt of anyone's budget"
    print(f"{cases} subscribers asked {asked_to_wait} times for a pause: {stats.total('early')} requests came early")


async def test_after_the_pause_one_request_goes_first_and_then_more(deployment):
    await deployment.subscriber("a", concurrency=8)
    deployment.receiver.use(
        [{"when": {"first": 1}, "answer": 429, "retry_after": 1}, {"answer": 200, "delay_seconds": 0.2}]
    )
    deployment.start("publisher", "scheduler", "consumer")
    await deployment.publish(*versions(40))
    await deployment.settled()
    rows = await deployment.region.rows(
        "SELECT extract(epoch FROM started_at)::float8 AS began, duration_ms / 1000.0::float8 AS took FROM {schema}.attempt "
        "WHERE outcome = 'delivered' ORDER BY started_at"
    )
    held_until = await deployment.region.value(
        "SELECT extract(epoch FROM cut_at)::float8 + 1 FROM {schema}.destination"
    )
    after = [(row["began"], row["began"] + row["took"]) for row in rows if row["began"] >= held_until]
    probe_began, probe_ended = after[0]
    assert [began for began, _ in after[1:] if began < probe_ended] == [], "the probe goes alone"
    second_wave = [ended for began, ended in after[1:] if began < probe_ended + 0.2]
    assert 1 <= len(second_wave) <= 3, "then two, and one more for each 2xx"
    assert probe_began >= held_until
