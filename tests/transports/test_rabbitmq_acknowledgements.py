"""Which tags are told to the broker, whatever the order in which messages end."""

from hypothesis import given
from hypothesis import strategies as st

from fanout.transports.rabbitmq.acknowledgements import Ack, Acknowledgements


def test_a_full_prefix_is_one_word():
    tags = Acknowledgements()
    for tag in (3, 1, 2):
        tags.over(tag)
    assert tags.due() == [Ack(3, multiple=True)]


def test_one_that_takes_long_delays_nobody_and_is_not_acknowledged_by_others():
    tags = Acknowledgements()
    tags.over(2)
    tags.over(3)
    assert tags.due() == [Ack(2), Ack(3)]
    tags.over(1)
    assert tags.due() == [Ack(1)]
    tags.over(4)
    assert tags.due() == [Ack(4)]


class Broker:
    """Holds the tags of a channel as RabbitMQ does: an unknown tag closes the channel."""

    def __init__(self, count):
        self.unacked = set(range(1, count + 1))
        self.acked = set()

    def hear(self, ack):
        assert ack.tag in self.unacked, f"unknown delivery tag {ack.tag}"
        now = {tag for tag in self.unacked if tag <= ack.tag} if ack.multiple else {ack.tag}
        self.unacked -= now
        self.acked |= now


@given(st.permutations(range(1, 13)), st.sets(st.integers(0, 11)), st.sets(st.integers(1, 12)))
def test_every_tag_is_told_once_and_only_after_it_is_over(order, flushes, rejected):
    tags, broker, over = Acknowledgements(), Broker(12), set()
    for place, tag in enumerate(order):
        if tag in rejected:
            tags.rejected(tag)
            broker.unacked.discard(tag)
        else:
            tags.over(tag)
            over.add(tag)
        if place in flushes:
            for ack in tags.due():
                broker.hear(ack)
            assert broker.acked == over
    for ack in tags.due():
        broker.hear(ack)
    assert broker.acked == over
    assert not broker.unacked
