"""References of a full destination wait here for one of our own requests to end, and never for long."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fanout.transports.transport import Reference
from regions.consumer.parking import PARK_SECONDS_MAX, Parking, Ticket


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def still():
    """A parking where no time passes, and everybody answers."""
    return Parking(Clock(), lambda _: False)


def ticket(destination=1, delivery=1):
    return Ticket(Reference(delivery, 1, destination), message=None)


def test_the_first_of_a_destination_is_claimed_without_question():
    assert still().admit(ticket())


def test_beyond_what_the_ledger_said_is_left_a_reference_is_parked():
    parking = still()
    assert parking.admit(ticket())
    parking.answered(1)
    parking.learn(1, 1)
    assert parking.admit(ticket())
    assert not parking.admit(ticket())
    assert parking.admit(ticket(destination=2)), "another destination is not concerned"
    assert len(parking) == 1


def test_a_permit_that_becomes_free_goes_to_the_oldest_parked():
    parking = still()
    parking.admit(ticket())
    parking.answered(1)
    parking.learn(1, 0)
    first, second = ticket(delivery=2), ticket(delivery=3)
    assert not parking.admit(first)
    assert not parking.admit(second)
    assert parking.left(1, permits_left=1) == [first]
    parking.answered(1)
    assert parking.left(1) == [second], "the last of ours has left: nothing would wake it"
    assert len(parking) == 0


def test_what_was_delivered_is_followed_by_the_oldest_parked_before_the_ledger_has_heard_of_it():
    parking = still()
    parking.admit(ticket())
    parking.answered(1)
    parking.learn(1, 0)
    first, second = ticket(delivery=2), ticket(delivery=3)
    parking.admit(first)
    parking.admit(second)
    assert parking.follow(1) is first
    assert parking.left(1, permits_left=1) == [], "the permit that became free is the follower's"
    assert parking.follow(2) is None


def test_what_a_destination_could_take_is_remembered_while_nothing_is_in_flight():
    parking = still()
    parking.admit(ticket())
    parking.answered(1)
    parking.learn(1, 1)  # one leased, one permit left
    assert parking.left(1, permits_left=2) == []
    assert [parking.admit(ticket()) for _ in range(3)] == [True, True, False]


def test_an_answer_does_not_count_what_is_still_on_the_way_to_a_claim():
    parking = still()
    parking.admit(ticket())
    parking.answered(1)
    parking.learn(1, 1)
    assert parking.admit(ticket())
    parking.learn(1, 1)  # a settlement, from before that claim
    assert not parking.admit(ticket())


def test_nobody_is_parked_for_long():
    clock = Clock()
    parking = Parking(clock, lambda _: False)
    parking.admit(ticket())
    parking.learn(1, 0)
    clock.now = 5.0
    waits = ticket()
    parking.admit(waits)
    clock.now += PARK_SECONDS_MAX / 2
    assert parking.overdue() == ([], [])
    clock.now += PARK_SECONDS_MAX / 2
    assert parking.overdue() == ([waits], [])
    clock.now += 100
    assert parking.overdue() == ([], [])


def test_a_destination_that_is_silent_gets_no_more_until_it_answers_or_ours_have_ended():
    silent = {1}
    parking = Parking(Clock(), silent.__contains__)
    assert parking.admit(ticket()), "nothing is in flight that could be heard of"
    first, second = ticket(), ticket()
    assert not parking.admit(first)
    assert not parking.admit(second)
    assert parking.admit(ticket(destination=2)), "another destination is not concerned"
    silent.clear()
    parking.admit(ticket(destination=3))
    assert parking.left(1, permits_left=8) == [first, second]


def test_what_waits_for_a_silent_destination_goes_back_and_is_not_claimed():
    clock = Clock()
    parking = Parking(clock, {1}.__contains__)
    parking.admit(ticket())
    waits, more = ticket(), ticket()
    parking.admit(waits)
    clock.now += PARK_SECONDS_MAX
    parking.admit(more)
    assert parking.overdue() == ([], [waits])
    assert parking.shed(0) == ([], [more])
    assert len(parking) == 0
    assert parking.left(1) == []
    assert parking.admit(ticket()), "all of ours have ended: it is asked again"


class AnyOrder(RuleBasedStateMachine):
    """Whatever arrives and leaves in whatever order: nothing is lost, and nothing is parked that nothing would wake."""

    def __init__(self):
        super().__init__()
        self.clock = Clock()
        self.silent: set[int] = set()
        self.parking = Parking(self.clock, self.silent.__contains__)
        self.flying: list[int] = []
        self.parked = 0

    def claim(self, tickets):
        self.flying += [each.reference.destination_id for each in tickets]
        self.parked -= len(tickets)

    @rule(destination=st.integers(1, 3))
    def arrives(self, destination):
        self.clock.now += 0.01
        self.parked += 1
        new = ticket(destination)
        if self.parking.admit(new):
            self.claim([new])

    @precondition(lambda self: self.flying)
    @rule(permits=st.integers(0, 3), data=st.data())
    def the_ledger_says(self, permits, data):
        self.parking.learn(data.draw(st.sampled_from(self.flying)), permits)

    @rule(destination=st.integers(1, 3))
    def a_claim_is_answered(self, destination):
        self.parking.answered(destination)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def one_leaves(self, data):
        destination = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        self.claim(self.parking.left(destination, permits_left=data.draw(st.none() | st.integers(0, 3))))

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def one_is_delivered(self, data):
        if follower := self.parking.follow(data.draw(st.sampled_from(self.flying))):
            self.claim([follower])

    @rule(seconds=st.floats(0, 2))
    def time_passes(self, seconds):
        self.clock.now += seconds
        claims, returns = self.parking.overdue()
        self.claim(claims)
        self.parked -= len(returns)

    @rule(destination=st.integers(1, 3), silent=st.booleans())
    def falls_silent_or_answers(self, destination, silent):
        (self.silent.add if silent else self.silent.discard)(destination)

    @invariant()
    def nothing_is_lost(self):
        assert len(self.parking) == self.parked >= 0

    @invariant()
    def whatever_is_parked_has_someone_in_flight_to_wake_it(self):
        assert set(self.parking._parked) <= set(self.flying)

    def teardown(self):
        while self.flying:
            self.claim(self.parking.left(self.flying.pop()))
        assert len(self.parking) == 0


TestAnyOrder = AnyOrder.TestCase
