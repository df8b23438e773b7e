"""A destination that holds requests and answers none is known after two seconds, however many requests it holds."""

from regions.consumer.silence import SILENT_SECONDS, Silence


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_one_that_answers_is_never_silent_and_one_that_does_not_is_after_two_seconds():
    clock = Clock()
    silence = Silence(clock)
    for destination in (1, 1, 2, 2):
        silence.begun(destination)
    assert not silence.of(1)
    clock.now += SILENT_SECONDS
    silence.ended(2, answered=True)
    clock.now += 0.5
    assert (silence.of(1), silence.of(2), silence.held()) == (True, False, 2)


def test_a_timeout_is_no_answer_and_the_last_of_ours_ends_the_silence():
    clock = Clock()
    silence = Silence(clock)
    silence.begun(1)
    silence.begun(1)
    clock.now += SILENT_SECONDS + 0.5
    silence.ended(1, answered=False)
    assert (silence.of(1), silence.held()) == (True, 1)
    silence.ended(1, answered=False)
    assert (silence.of(1), silence.held()) == (False, 0)
    silence.begun(1)
    assert not silence.of(1), "it is asked again, and has its time again"


def test_an_answer_after_all_ends_the_silence():
    clock = Clock()
    silence = Silence(clock)
    silence.begun(1)
    silence.begun(1)
    clock.now += SILENT_SECONDS + 0.5
    silence.ended(1, answered=True)
    assert (silence.of(1), silence.held()) == (False, 0)


def test_who_has_no_request_of_ours_is_not_silent():
    assert not Silence(Clock()).of(1)
