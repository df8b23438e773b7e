"""A shipment version: one immutable state of one shipment, with the payload as it came in."""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fanout.model.documents import Form
from fanout.model.identity import check_id, parse_version
from fanout.model.labels import check_labels
from fanout.model.patterns import check_event_type
from fanout.model.problems import Invalid
from fanout.model.times import check_years
from fanout.model.trace_context import TraceParent, usable_tracestate

PAYLOAD_BYTES_MAX = 1024 * 1024
CONTENT_TYPE_DEFAULT = "application/octet-stream"
CONTENT_TYPE_RIGHT = "write 1 to 255 printable ASCII characters without a blank at either end, as application/json"

_CONTENT_TYPE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class ShipmentVersion:
    """What a publisher hands over. Construction checks every field and raises ``Invalid`` with all that is wrong.

    The payload is never looked into. ``occurred_at`` and ``eligible_at`` (not before then; ``None`` or the past: now) are
    in UTC. A trace context that cannot be read counts as absent.
    """

    shipment_id: str
    version: int
    event_type: str
    payload: bytes = field(repr=False)
    content_type: str = CONTENT_TYPE_DEFAULT
    labels: dict[str, str] = field(default_factory=dict)
    residency: str | None = None
    occurred_at: datetime | None = None
    eligible_at: datetime | None = None
    traceparent: str | None = None
    tracestate: str | None = None

    def __post_init__(self) -> None:
        form = Form({name: getattr(self, name) for name in self.__slots__})
        trace = TraceParent.parse(self.traceparent)
        checked = {
            "shipment_id": form.required("shipment_id", check_id),
            "version": form.required("version", parse_version),
            "event_type": form.required("event_type", check_event_type),
            "payload": form.required("payload", check_payload),
            "content_type": form.required("content_type", check_content_type),
            "labels": form.optional("labels", check_labels, dict[str, str]()),
            "residency": form.optional("residency", check_id, None),
            "occurred_at": form.optional("occurred_at", _in_utc, None),
            "eligible_at": form.optional("eligible_at", _in_utc, None),
            "traceparent": form.optional("traceparent", lambda *_: trace and str(trace), None),
            "tracestate": form.optional(
                "tracestate", lambda *_: usable_tracestate(self.tracestate) if trace else None, None
            ),
        }
        form.finish()
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def same_content(self, other: "ShipmentVersion") -> bool:
        """Whether ``other`` under the same identity is a duplicate (else a conflict). Times and traces do not count."""
        return (
            (self.payload, self.content_type, self.event_type, self.labels, self.residency)
            == (other.payload, other.content_type, other.event_type, other.labels, other.residency)
        )  # fmt: skip


def check_payload(field: str, payload: object) -> bytes:
    """Any bytes, none included, up to 1 MiB."""
    if not isinstance(payload, bytes):
        raise Invalid.field(field, f"a payload is bytes, not {type(payload).__name__}", "encode it before publishing")
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise Invalid.field(field, f"is {len(payload)} bytes", f"send at most {PAYLOAD_BYTES_MAX} bytes (1 MiB)")
    return payload


def check_content_type(field: str, text: object) -> str:
    """Kept and sent as it stands, so it must be sendable as a header value; it need not be a media type we know."""
    if not isinstance(text, str) or not _CONTENT_TYPE.fullmatch(text):
        raise Invalid.field(field, "cannot be sent as a header", CONTENT_TYPE_RIGHT)
    return text


def _in_utc(field: str, moment: object) -> datetime:
    if not isinstance(moment, datetime):
        raise Invalid.field(field, f"a time is a datetime, not {type(moment).__name__}", "parse it with its offset")
    if moment.tzinfo is None:
        raise Invalid.field(field, "has no offset", "give an aware datetime, as datetime.now(UTC)")
    try:
        return check_years(field, moment.astimezone(UTC))
    except OverflowError:
        raise Invalid.field(field, "lies outside every calendar in UTC", "leave it out for never") from None
