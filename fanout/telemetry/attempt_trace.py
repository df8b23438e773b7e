"""Where an attempt stands among traces. It follows from the delivery, so nobody has to remember it: every worker, and the one
that links back to the attempt before, comes to the same ids.
"""

import hashlib
import secrets
from dataclasses import dataclass

from fanout.model.trace_context import TraceParent


@dataclass(slots=True)
class AttemptTrace:
    """The spans of one attempt. ``traceparent`` is what the subscriber gets: the place of ``post``."""

    published: TraceParent | None
    key: str
    attempt: int
    sampled: bool
    trace_id: str
    deliver_id: str
    post_id: str

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.post_id}-{'01' if self.sampled else '00'}"

    @property
    def deliver(self) -> TraceParent:
        return TraceParent(self.trace_id, self.deliver_id, self.sampled)

    @property
    def post(self) -> TraceParent:
        return TraceParent(self.trace_id, self.post_id, self.sampled)

    @property
    def before(self) -> TraceParent | None:
        """The ``deliver`` span of the attempt before this one."""
        if self.published is None or self.attempt == 1:
            return None
        return trace_of_attempt(self.published, self.key, self.attempt - 1, sampled=self.sampled).deliver


def trace_of_attempt(published: TraceParent | None, key: str, attempt: int, *, sampled: bool) -> AttemptTrace:
    """The first attempt belongs to the trace of the publish; each later one is a trace of its own, days later perhaps.

    Costs about two microseconds. Where the publisher's context is not known the trace begins here, with random ids.
    """
    if published is None:
        digits = secrets.token_hex(32)
        return AttemptTrace(None, key, attempt, sampled, digits[:32], digits[32:48], digits[48:])
    seed = f"{published.trace_id}-{published.span_id}/{key}/{attempt}"
    digits = hashlib.sha256(seed.encode()).hexdigest()
    trace_id = published.trace_id if attempt == 1 else digits[:32]
    return AttemptTrace(published, key, attempt, sampled, trace_id, digits[32:48], digits[48:])
