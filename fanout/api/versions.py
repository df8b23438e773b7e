"""Shipment versions: published, and how far they have come."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from fanout.api.answers import Answer, document
from fanout.api.call import Call
from fanout.api.naming import named
from fanout.api.places import Places
from fanout.api.problems import Refused
from fanout.home.publishing import Receipt, Verdict, publish
from fanout.model.documents import Form
from fanout.model.identity import check_id, parse_version
from fanout.model.labels import parse_labels_header
from fanout.model.patterns import EVENT_TYPE_RIGHT, check_event_type
from fanout.model.problems import Invalid, Problem
from fanout.model.shipment import CONTENT_TYPE_DEFAULT, PAYLOAD_BYTES_MAX, ShipmentVersion, check_content_type
from fanout.model.times import format_utc, parse_time

_OURS = (
    "Fanout-Event-Type",
    "Fanout-Labels",
    "Fanout-Occurred-At",
    "Fanout-Eligible-At",
    "Fanout-Residency",
)
_OURS_LOWER = frozenset(name.lower() for name in _OURS)
_STATUS = {Verdict.ACCEPTED: 202, Verdict.DUPLICATE: 200}

Value = TypeVar("Value")


class Versions:
    def __init__(self, places: Places, residency_classes: Iterable[str]) -> None:
        self._places = places
        self._home = places.home
        self._residency_classes = tuple(residency_classes)

    async def put(self, call: Call) -> Answer:
        """Everything about the version is checked before its body is read; 202 and 200 mean that it is on disk."""
        call.query()
        fields = self._fields(call)
        call.refuse_encoding()
        payload = await call.body(PAYLOAD_BYTES_MAX)
        version = ShipmentVersion(payload=payload, **fields)  # type: ignore[arg-type]  # each was read by the check of its field
        await self._places.check_home_knows_regions()
        receipt = await publish(self._home.connections, version, schema=self._home.schema)
        if receipt.verdict is Verdict.CONFLICT:
            raise Refused(
                409,
                f"version {receipt.version} of shipment {receipt.shipment_id} is there since {format_utc(receipt.accepted_at)} "
                "with other content (payload, content type, event type, labels or residency); publish a change as a higher version",
                members=_members(receipt),
            )
        if receipt.verdict is Verdict.ACCEPTED:
            self._home.bell.ring()
        return document(_STATUS[receipt.verdict], _members(receipt))

    def _fields(self, call: Call) -> dict[str, object]:
        form = Form({})
        shipment_id, version_text = call.names
        fields = {
            "shipment_id": form.attempt(lambda: named("shipment_id", shipment_id, check_id)),
            "version": form.attempt(lambda: named("version", version_text, parse_version)),
            "event_type": form.attempt(
                lambda: _required(call, "Fanout-Event-Type", check_event_type, EVENT_TYPE_RIGHT)
            ),
            "labels": form.attempt(lambda: parse_labels_header(", ".join(call.header_lines("Fanout-Labels")))),
            "occurred_at": form.attempt(lambda: _optional(call, "Fanout-Occurred-At", parse_time, None)),
            "eligible_at": form.attempt(lambda: _optional(call, "Fanout-Eligible-At", parse_time, None)),
            "residency": form.attempt(lambda: _optional(call, "Fanout-Residency", self._check_residency, None)),
            "content_type": form.attempt(
                lambda: _optional(call, "Content-Type", check_content_type, CONTENT_TYPE_DEFAULT)
            ),
            "traceparent": _one_or_none(call.header_lines("traceparent")),
            "tracestate": ",".join(call.header_lines("tracestate")) or None,
        }
        # A misspelt Fanout-Residency that counted as absent would send a payload where it must not go.
        form.problems.extend(
            Problem(name, "is not a header of this call", f"the headers are {', '.join(_OURS)}")
            for name in sorted(call.headers_beginning(b"fanout-") - _OURS_LOWER)
        )
        form.finish()
        return fields

    def _check_residency(self, field: str, text: object) -> str:
        if not isinstance(text, str) or text not in self._residency_classes:
            classes = ", ".join(self._residency_classes)
            right = f"the classes are {classes}" if classes else "none is configured: leave the header out"
            raise Invalid.field(field, f"there is no residency class {str(text)[:40]!a}", right)
        return text


def _members(receipt: Receipt) -> dict[str, object]:
    return {
        "shipment_id": receipt.shipment_id,
        "version": receipt.version,
        "accepted_at": receipt.accepted_at,
        "verdict": receipt.verdict.value,
    }


def _required(call: Call, name: str, read: Callable[[str, object], Value], right: str) -> Value:
    if (text := call.header(name)) is None:
        raise Invalid.field(name, "is missing", right)
    return read(name, text)


def _optional(call: Call, name: str, read: Callable[[str, object], Value], default: Value) -> Value:
    text = call.header(name)
    return default if text is None else read(name, text)


def _one_or_none(lines: list[str]) -> str | None:
    """W3C Trace Context, section 3.2: a ``traceparent`` that is there twice counts as none."""
    return lines[0] if len(lines) == 1 else None
