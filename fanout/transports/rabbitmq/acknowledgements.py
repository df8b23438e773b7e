"""Which delivery tags of one channel are over. Pure bookkeeping; tags belong to a channel and die with it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ack:
    tag: int
    multiple: bool = False


class Acknowledgements:
    """The tags of one channel, which the broker counts from 1 without gaps.

    ``multiple`` acknowledges everything up to a tag, so it is used only where everything up to it is over; a message that takes
    long delays nobody: those after it are acknowledged one by one.
    """

    def __init__(self) -> None:
        self._prefix = 0
        self._over: set[int] = set()
        self._told: set[int] = set()
        self._fresh: list[int] = []

    def over(self, tag: int) -> None:
        """Nothing is left to wait for: the message of this tag is to be acknowledged."""
        self._over.add(tag)
        self._fresh.append(tag)

    def rejected(self, tag: int) -> None:
        """The broker has it back already; there is nothing to acknowledge."""
        self._over.add(tag)
        self._told.add(tag)

    def due(self) -> list[Ack]:
        """What to tell the broker now, in order; each tag once."""
        start = self._prefix
        while self._prefix + 1 in self._over:
            self._prefix += 1
            self._over.discard(self._prefix)
        covered = [tag for tag in range(start + 1, self._prefix + 1) if tag not in self._told]
        self._told.difference_update(range(start + 1, self._prefix + 1))
        acks = [Ack(covered[-1], multiple=len(covered) > 1)] if covered else []
        for tag in sorted(tag for tag in self._fresh if tag > self._prefix):
            self._told.add(tag)
            acks.append(Ack(tag))
        self._fresh.clear()
        return acks
