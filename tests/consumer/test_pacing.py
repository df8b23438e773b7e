"""Requests of one process keep their distance also where the process was late for several slots."""

import asyncio
from itertools import pairwise

from regions.consumer.pacing import Pacing


async def test_those_that_are_late_together_do_not_go_together():
    pacing, loop = Pacing(), asyncio.get_running_loop()
    went: list[float] = []

    async def go(slot_at: float) -> None:
        await pacing.turn(1, slot_at, 0.02)
        went.append(loop.time())

    past = loop.time() - 10
    await asyncio.gather(*(go(past + n * 0.02) for n in range(6)))
    assert len(went) == 6
    assert min(later - earlier for earlier, later in pairwise(went)) >= 0.02


async def test_nobody_goes_before_its_slot_or_waits_for_another_destination():
    pacing, loop = Pacing(), asyncio.get_running_loop()
    began = loop.time()
    await pacing.turn(1, began + 0.05, 10.0)
    assert loop.time() >= began + 0.05
    async with asyncio.timeout(5):
        await pacing.turn(2, began, 10.0)


async def test_a_connection_that_took_its_time_pushes_the_next():
    pacing, loop = Pacing(), asyncio.get_running_loop()
    await pacing.turn(1, 0.0, 0.05)
    await asyncio.sleep(0.03)
    written = loop.time()
    pacing.written(1, written)
    await pacing.turn(1, 0.0, 0.05)
    assert loop.time() >= written + 0.05
