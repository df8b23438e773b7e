"""Destinations on probation share a few places, and what waits for one of these stands in nobody's way."""

from fanout.model.states import Outcome, State
from services.region import result


async def on_probation(region, count):
    numbers = [await region.subscriber(f"broken-{n}", event_types=["shipment.broken"]) for n in range(count)]
    await region.execute("UPDATE {schema}.destination SET probation = true, send_window = 1")
    await region.arrive(region.announcement("b-1", event_type="shipment.broken"))
    return numbers


async def test_so_many_at_once_in_the_order_in_which_they_wait(region):
    broken = await on_probation(region, 5)
    healthy = await region.subscriber("healthy", event_types=["shipment.booked"])
    await region.arrive(region.announcement("h-1"))
    for place, number in enumerate(reversed(broken)):
        await region.execute(
            "UPDATE {schema}.destination SET wake_at = now() - interval '1 hour' + make_interval(secs => $2) WHERE id = $1",
            number,
            float(place),
        )
    references = await region.promote(probes=2)
    assert {each.destination_id for each in references} == {healthy, broken[-1], broken[-2]}
    assert {each.destination_id for each in references if each.probation} == {broken[-1], broken[-2]}
    assert await region.promote(probes=2) == []
    assert await region.next_wake(2) is None, "nothing can be done now"

    probe = next(each for each in references if each.destination_id == broken[-1])
    [lease] = await region.claim([probe])
    assert await region.promote(probes=2) == [], "being sent counts too"
    await region.settle(result(lease, Outcome.UNKNOWN, state=State.WAITING, delay_seconds=60.0))
    assert await region.next_wake(2) < 0
    assert [each.destination_id for each in await region.promote(probes=2)] == [broken[-3]]


async def test_those_that_wait_for_a_place_hide_no_healthy_one(region):
    """More of them are due, and have been for longer, than one step looks at."""
    await on_probation(region, 10)
    await region.execute("UPDATE {schema}.destination SET wake_at = now() - interval '1 day'")
    healthy = await region.subscriber("healthy", event_types=["shipment.booked"])
    await region.arrive(region.announcement("h-1"))
    references = await region.promote(most=4, probes=1)
    assert [each.destination_id for each in references if not each.probation] == [healthy]


async def test_an_answer_of_2xx_frees_the_place_at_once(region):
    await on_probation(region, 2)
    [first] = await region.promote(probes=1)
    [lease] = await region.claim([first])
    await region.settle(result(lease))
    assert not (await region.destination(first.destination_id))["probation"]
    assert len(await region.promote(probes=1)) == 1
