"""Shipment versions: published, and how far they have come."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from fanout.api.answers import Answer, document
from fanout.api.call import Call
from fanout.api.naming import named
from fanout.api.places import Away, Place, Places
from fanout.api.problems import Refused
from fanout.home.inspection import OutboxState, home_version
from fanout.home.publishing import Receipt, Verdict, publish
from fanout.ledger.inspection import VersionCounts, version_counts
from fanout.model.documents import Form
from fanout.model.identity import check_id, parse_version
from fanout.model.labels import parse_labels_header
from fanout.model.patterns import EVENT_TYPE_RIGHT, check_event_type
from fanout.model.problems import Invalid, Problem
from fanout.model.shipment import CONTENT_TYPE_DEFAULT, PAYLOAD_BYTES_MAX, ShipmentVersion, check_content_type
from fanout.model.states import State
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
_STATES = tuple(state.value for state in State)
_NOT_WANTED: dict[str, object] = {"expansion": "none", "accepted": 0} | dict.fromkeys(_STATES, 0)

Value = TypeVar("Value")


class Versions:
    def __init__(self, places: Places, residency_classes: Iterable[str]) -> None:
        self._places = places
        self._home = places.home
        self._residency_classes = tuple(residency_classes)
        self.published: Counter[str] = Counter()
        """Calls so far by verdict."""

    async def put(self, call: Call) -> Answer:
        """Everything about the version is checked before its body is read; 202 and 200 mean that it is on disk."""
        call.query()
        fields = self._fields(call)
        call.refuse_encoding()
        payload = await call.body(PAYLOAD_BYTES_MAX)
        version = ShipmentVersion(payload=payload, **fields)  # type: ignore[arg-type]  # each was read by the check of its field
        await self._places.check_home_knows_regions()
        receipt = await publish(self._home.connections, version, schema=self._home.schema)
        self.published[receipt.verdict.value] += 1
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

    async def get(self, call: Call) -> Answer:
        """How far a version has come in each region. A region that is away says nothing of itself, and keeps no other from it."""
        call.query()
        shipment_id, version = _named(call)
        found = await home_version(self._home.connections, self._home.schema, shipment_id, version)
        if found is None:
            raise Refused(404, f"version {version} of shipment {shipment_id} was never published")

        async def counts(_: str, place: Place) -> VersionCounts | None:
            return await version_counts(place.connections, place.schema, shipment_id, version)

        asked = [name for name, state in found.regions.items() if name in self._places.regions and state.created != 0]
        answers = await self._places.ask_regions(counts, asked)
        regions = dict.fromkeys(self._places.regions, _NOT_WANTED) | {
            name: _progress(state, answers.get(name), asked=name in answers) for name, state in found.regions.items()
        }
        members = {
            "shipment_id": shipment_id,
            "version": version,
            "accepted_at": found.accepted_at,
            "bytes": found.payload_bytes,
            "sha256": found.sha256,
        }
        return document(200, members | {"regions": regions})

    def _fields(self, call: Call) -> dict[str, object]:
        form = Form({})
        shipment_id, version = form.attempt(lambda: _named(call)) or (None, None)
        fields = {
            "shipment_id": shipment_id,
            "version": version,
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


def _named(call: Call) -> tuple[str, int]:
    form = Form({})
    shipment_id = form.attempt(lambda: named("shipment_id", call.names[0], check_id))
    version = form.attempt(lambda: named("version", call.names[1], parse_version))
    form.finish()
    return shipment_id, version


def _progress(state: OutboxState, answer: VersionCounts | Away | None, *, asked: bool) -> dict[str, object]:
    if state.created == 0:
        return _NOT_WANTED
    if isinstance(answer, Away) or not asked:
        return {"expansion": "unreachable", "accepted": state.created} | dict.fromkeys(_STATES)
    expansion = "done" if state.done or (answer is not None and answer.expanded) else "pending"
    accepted = 0 if answer is None else answer.created
    counts = {name: 0 if answer is None else getattr(answer, name) for name in _STATES}
    return {"expansion": expansion, "accepted": accepted, **counts}


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
