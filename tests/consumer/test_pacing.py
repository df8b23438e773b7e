"""Requests of one process keep their distance also where the process was late for several slots."""

from itertools import pairwise

from regions.consumer.pacing import Pacing


def went_at(pacing: Pacing, slot_at: float, interval: float, now: float) -> float:
    """When a request goes that asks again each time it is told to."""
    for _ in range(100):
        later = pacing.turn(1, slot_at, interval, now)
        if later is None:
            return now
        assert later > now
        now = later
    raise AssertionError("asked a hundred times")


def test_those_that_are_late_together_do_not_go_together():
    pacing = Pacing()
    went = [went_at(pacing, 90 + n / 64, 1 / 64, now=100.0) for n in range(6)]
    assert [later - earlier for earlier, later in pairwise(went)] == [1 / 64] * 5


def test_those_that_wait_together_go_one_by_one():
    pacing = Pacing()
    assert pacing.turn(1, 0.0, 0.5, 100.0) is None
    assert [pacing.turn(1, 0.0, 0.5, 100.0) for _ in range(3)] == [100.5] * 3
    assert [pacing.turn(1, 0.0, 0.5, 100.5) for _ in range(3)] == [None, 101.0, 101.0]


def test_nobody_goes_before_its_slot_or_waits_for_another_destination():
    pacing = Pacing()
    assert pacing.turn(1, 100.05, 10.0, 100.0) == 100.05
    assert pacing.turn(1, 100.05, 10.0, 100.05) is None
    assert pacing.turn(2, 100.0, 10.0, 100.05) is None


def test_a_connection_that_took_its_time_pushes_the_next():
    pacing = Pacing()
    assert pacing.turn(1, 0.0, 0.5, 100.0) is None
    pacing.written(1, 100.25)
    assert pacing.turn(1, 0.0, 0.5, 100.5) == 100.75
