"""The spans of a version's way: publish → expand → promote → deliver → POST, by the conventions for messaging and HTTP clients.

``publish``, ``expand``, ``deliver`` and ``POST`` of the first attempt stand in one trace. Work on a batch is a span of its own that
links to the versions in it. Keys are attributes here, and never of a metric.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from fanout.model.trace_context import TraceParent
from fanout.telemetry.attempt_trace import AttemptTrace
from fanout.telemetry.tracing import Put

LINKS_MAX = 128
"""As many as the specification gives a span by default."""

Attributes = dict[str, str | int | float | bool | None]
"""None: not known, and left out."""

OUTBOX_SYSTEM = "fanout_ledger"

_SCOPE = InstrumentationScope("fanout")
_FINE = frozenset({"delivered", "throttled"})
"""Outcomes in which nothing is wrong: being asked for patience is part of the deal."""


@dataclass(frozen=True, slots=True)
class Attempted:
    """One send, over and settled. Times in nanoseconds since 1970."""

    key: str
    attempt: int
    outcome: str
    trace: AttemptTrace
    promote: TraceParent | None
    """The span that queued it; None where the transport carries none."""
    claimed_ns: int
    sent_ns: int
    answered_ns: int
    worker: str
    late: bool
    scheme: str | None
    """None, like all of the next: there is no usable endpoint."""
    host: str | None
    port: int | None
    path: str | None
    peer: str | None
    status: int | None
    error: str | None


class Tracing:
    """Decides which versions are followed, and makes spans of what has happened to them.

    ``sampler`` decides by trace id alone, and it has a say also where a publisher has set the sampled flag: with ``honours_flag``
    the flag can keep a version out, and never force it in. As the decision follows from the trace id, every process with the same
    settings comes to the same one, and the retries of a version are followed where its publish is.
    """

    def __init__(self, put: Put, sampler: Sampler, resource: Resource, *, honours_flag: bool = True) -> None:
        self._put = put
        self._sampler = sampler
        self._honours_flag = honours_flag
        self._resource = resource

    def samples(self, published: TraceParent) -> bool:
        """Whether what happens to a version that was published there is recorded."""
        if self._honours_flag and not published.sampled:
            return False
        result = self._sampler.should_sample(None, int(published.trace_id, 16), "")
        return result.decision is Decision.RECORD_AND_SAMPLE

    def place_of_publish(self, parent: TraceParent | None) -> TraceParent:
        """Where the span of a publish will stand. Without one, everything later is a part of what the publish was a part of."""
        place = TraceParent.new(trace_id=parent.trace_id) if parent else TraceParent.new()
        if self.samples(parent or place):
            return place
        return TraceParent(place.trace_id, (parent or place).span_id, sampled=False)

    def published(
        self,
        outbox: str,
        began_ns: int,
        at: TraceParent,
        parent: TraceParent | None,
        shipment_id: str,
        version: int,
        verdict: str,
        payload_bytes: int,
    ) -> None:
        """A conflict is the publisher's error; a duplicate is none."""
        if not at.sampled:
            return
        attributes: Attributes = {
            "fanout.shipment_id": shipment_id,
            "fanout.version": version,
            "fanout.outcome": verdict,
            "messaging.message.body.size": payload_bytes,
        }
        self._record(
            "publish",
            "create",
            SpanKind.PRODUCER,
            at,
            parent,
            began_ns,
            _messaging(OUTBOX_SYSTEM, outbox) | attributes,
            error=verdict if verdict == "conflict" else None,
        )

    def expanded(self, outbox: str, region: str, began_ns: int, created: Sequence[tuple[TraceParent, int]]) -> None:
        """Versions that were expanded into a region together: where each was published, and how many deliveries it made."""
        followed = [(place, count) for place, count in created if self.samples(place)]
        if not followed:
            return
        attributes: Attributes = _messaging(OUTBOX_SYSTEM, outbox) | {"fanout.region": region}
        batch: list[TraceParent] = []
        if len(created) > 1:
            batch = [TraceParent.new()]
            self._record(
                "expand",
                "process",
                SpanKind.CONSUMER,
                batch[0],
                None,
                began_ns,
                attributes | {"messaging.batch.message_count": len(created)},
                links=[place for place, _ in followed],
            )
        for place, count in followed:
            at = TraceParent.new(trace_id=place.trace_id)
            own: Attributes = attributes | {"fanout.deliveries": count}
            self._record("expand", "process", SpanKind.CONSUMER, at, place, began_ns, own, links=batch)

    def promoted(
        self,
        system: str,
        queue: str,
        region: str,
        at: TraceParent,
        began_ns: int,
        count: int,
        published: Sequence[TraceParent],
    ) -> None:
        """``count`` references put into a region's queue, each message with ``at``; ``published``: where their versions were.

        Recorded wherever a version in it is followed: a ``deliver`` that is recorded links to nothing that is not.
        """
        followed = [place for place in published if self.samples(place)]
        if followed:
            self._record(
                "promote",
                "send",
                SpanKind.PRODUCER,
                at,
                None,
                began_ns,
                _messaging(system, queue) | {"fanout.region": region, "messaging.batch.message_count": count},
                links=followed,
            )

    def attempted(self, system: str, queue: str, region: str, done: Attempted) -> None:
        """``deliver``, from the claim to this moment, and ``POST`` within it, if the sampled flag went out with the request."""
        trace = done.trace
        if not trace.deliver.sampled:
            return
        first = done.attempt == 1
        error = None if done.outcome in _FINE else done.outcome
        marks: Attributes = {"fanout.region": region, "fanout.outcome": done.outcome, "fanout.attempt": done.attempt}
        self._record(
            "deliver",
            "process",
            SpanKind.CONSUMER,
            trace.deliver,
            trace.published if first else None,
            done.claimed_ns,
            _messaging(system, queue)
            | marks
            | {"fanout.key": done.key, "fanout.worker": done.worker, "fanout.late": done.late},
            links=[place for place in (done.promote, None if first else trace.published, trace.before) if place],
            error=error,
        )
        if done.host is not None:
            self._put(
                self._span(
                    "POST",
                    SpanKind.CLIENT,
                    trace.post,
                    trace.deliver,
                    done.sent_ns,
                    done.answered_ns,
                    _http(done) | marks,
                    error=error and (done.error or error),
                )
            )

    def _record(
        self,
        operation: str,
        kind_of_operation: str,
        kind: SpanKind,
        at: TraceParent,
        parent: TraceParent | None,
        began_ns: int,
        attributes: Attributes,
        *,
        links: Sequence[TraceParent] = (),
        error: str | None = None,
    ) -> None:
        """A messaging step that ends now."""
        named: Attributes = {
            "messaging.operation.name": operation,
            "messaging.operation.type": kind_of_operation,
            **attributes,
        }
        name = f"{operation} {attributes['messaging.destination.name']}"
        self._put(self._span(name, kind, at, parent, began_ns, time.time_ns(), named, links=links, error=error))

    def _span(
        self,
        name: str,
        kind: SpanKind,
        at: TraceParent,
        parent: TraceParent | None,
        began_ns: int,
        ended_ns: int,
        attributes: Attributes,
        *,
        links: Sequence[TraceParent] = (),
        error: str | None = None,
    ) -> ReadableSpan:
        return ReadableSpan(
            name,
            context=_context(at, is_remote=False),
            parent=None if parent is None else _context(parent, is_remote=True),
            resource=self._resource,
            attributes={key: value for key, value in attributes.items() if value is not None},
            links=[Link(_context(place, is_remote=True)) for place in links[:LINKS_MAX]],
            kind=kind,
            status=Status() if error is None else Status(StatusCode.ERROR, error),
            start_time=began_ns,
            end_time=max(began_ns, ended_ns),
            instrumentation_scope=_SCOPE,
        )


def _context(place: TraceParent, *, is_remote: bool) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if place.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(place.trace_id, 16), int(place.span_id, 16), is_remote, flags)


def _messaging(system: str, destination: str) -> Attributes:
    return {"messaging.system": system, "messaging.destination.name": destination}


def _http(done: Attempted) -> Attributes:
    """HTTP client conventions. A URL is shown without userinfo, query and fragment: tokens travel there."""
    failed = done.status is None or done.status >= 400  # noqa: PLR2004 - RFC 9110
    return {
        "http.request.method": "POST",
        "url.full": f"{done.scheme}://{_shown(done.host)}:{done.port}{done.path}",
        "server.address": done.host,
        "server.port": done.port,
        "network.peer.address": done.peer,
        "http.response.status_code": done.status,
        "error.type": str(done.status or done.outcome) if failed else None,
    }


def _shown(host: str | None) -> str:
    return f"[{host}]" if host and ":" in host else str(host)
