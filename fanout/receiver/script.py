"""What the receiver shall answer: rules as JSON, checked when they are read, the same for the same seed.

    {"seed": 7, "rules": [
        {"subscriber": "carrier-*", "when": {"every": 10}, "answer": 429, "retry_after": 2},
        {"subscriber": "bank-001", "when": {"from_seconds": 5, "until_seconds": 15}, "hang_seconds": 30}]}

A bare list of rules will do. The first rule that fits a request decides; without one the answer is 200. All conditions
in ``when`` must hold; requests are counted per subscriber, from 1, since the script was set.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from fnmatch import fnmatchcase
from http import HTTPStatus


@dataclass(frozen=True, slots=True)
class When:
    """Conditions on one request of a subscriber; what is not given always holds."""

    every: int | None = None
    first: int | None = None
    from_seconds: float = 0.0
    until_seconds: float = float("inf")
    probability: float = 1.0
    seed: int | None = None

    def holds(self, count: int, seconds: float, chance: float) -> bool:
        """``count``: requests of this subscriber, with this one; ``seconds`` since the script was set; ``chance`` from
        0 to below 1.
        """
        return (
            (self.every is None or count % self.every == 0)
            and (self.first is None or count <= self.first)
            and self.from_seconds <= seconds < self.until_seconds
            and chance < self.probability
        )


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """The header as it is sent: seconds, an HTTP date that many seconds ahead, or a text as it stands."""

    seconds: float | None = None
    date_in_seconds: float | None = None
    text: str = ""

    def header(self, now: float) -> str:
        if self.date_in_seconds is not None:
            return formatdate(now + self.date_in_seconds, usegmt=True)
        if self.seconds is None:
            return self.text
        return str(int(self.seconds)) if self.seconds.is_integer() else str(self.seconds)

    def asks_seconds(self, now: float) -> float:
        """How long the sender is asked to stay away; 0 where the text is no time."""
        if self.seconds is not None:
            return self.seconds
        header = self.header(now)
        try:
            return max(0.0, float(header) if header.isdecimal() else parsedate_to_datetime(header).timestamp() - now)
        except ValueError:
            return 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What happens to one request: wait, then close the connection or send a response."""

    status: int = HTTPStatus.OK
    retry_after: RetryAfter | None = None
    wait_seconds: float = 0.0
    close: bool = False
    body: bytes = b"ok\n"
    headers: tuple[tuple[str, str], ...] = ()

    def response(self, now: float, *, keep_alive: bool) -> bytes:
        """The response on the wire. A header of the script replaces ours of the same name."""
        body = b"" if self.status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED) else self.body
        lines = {"content-type": "Content-Type: text/plain", "date": f"Date: {formatdate(now, usegmt=True)}"}
        if self.status != HTTPStatus.NO_CONTENT:
            lines["content-length"] = f"Content-Length: {len(body)}"
        if self.retry_after is not None:
            lines["retry-after"] = f"Retry-After: {self.retry_after.header(now)}"
        if not keep_alive:
            lines["connection"] = "Connection: close"
        for name, _ in self.headers:
            lines.pop(name.lower(), None)
        head = [
            f"HTTP/1.1 {self.status} {_phrase(self.status)}",
            *lines.values(),
            *(f"{n}: {v}" for n, v in self.headers),
        ]
        return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


OK = Answer()


@dataclass(frozen=True, slots=True)
class Rule:
    subscriber: str = "*"
    when: When = field(default_factory=When)
    answer: Answer = OK


@dataclass(frozen=True, slots=True)
class Script:
    rules: tuple[Rule, ...] = ()
    seed: int = 0


class Playback:
    """A script being played: counts the requests of each subscriber since it was set, at ``started`` (monotonic).

    Chances depend on the seed, the rule, the subscriber and the count alone, so the same requests get the same answers
    in whatever order the subscribers come.
    """

    def __init__(self, script: Script, started: float) -> None:
        self.script = script
        self.started = started
        self._counts: dict[str, int] = {}
        self._rules: dict[str, tuple[tuple[int, Rule], ...]] = {}

    def answer(self, subscriber: str, now: float) -> Answer:
        """To the next request of ``subscriber``. ``now`` is monotonic."""
        rules = self._rules.get(subscriber)
        if rules is None:
            rules = tuple(
                (n, rule) for n, rule in enumerate(self.script.rules) if fnmatchcase(subscriber, rule.subscriber)
            )
            self._rules[subscriber] = rules
        if not rules:
            return OK
        count = self._counts[subscriber] = self._counts.get(subscriber, 0) + 1
        seconds = now - self.started
        for n, rule in rules:
            chance = 0.0 if rule.when.probability >= 1 else self._chance(n, rule, subscriber, count)
            if rule.when.holds(count, seconds, chance):
                return rule.answer
        return OK

    def _chance(self, n: int, rule: Rule, subscriber: str, count: int) -> float:
        seed = self.script.seed if rule.when.seed is None else rule.when.seed
        drawn = hashlib.blake2b(f"{seed}:{n}:{subscriber}:{count}".encode(), digest_size=7).digest()
        return int.from_bytes(drawn) / 2.0**56


def _phrase(status: int) -> str:
    return _PHRASES.get(status, "Scripted")


_PHRASES: Mapping[int, str] = {status.value: status.phrase for status in HTTPStatus}
