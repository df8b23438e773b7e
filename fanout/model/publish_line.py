"""One line of a file of versions: a JSON object whose ``payload`` is published byte for byte as it stands in the line."""

from collections.abc import Callable
from typing import TypeVar

from fanout.model.documents import Form, decode_utf8, read_json_text, split_object
from fanout.model.identity import check_id, parse_version
from fanout.model.labels import check_labels
from fanout.model.patterns import check_event_type
from fanout.model.problems import Invalid
from fanout.model.shipment import PAYLOAD_BYTES_MAX, ShipmentVersion, check_content_type, check_payload
from fanout.model.times import parse_time

Value = TypeVar("Value")

LINE_BYTES_MAX = PAYLOAD_BYTES_MAX + 256 * 1024
"""The payload and, with much to spare, the fullest other fields."""

LINE_CONTENT_TYPE = "application/json"


def parse_publish_line(line: bytes, line_number: int) -> ShipmentVersion:
    """Read one line (counted from 1; its line end may still be there). Raises ``Invalid`` with every problem, each field
    named as ``line 17, labels.carrier``.

    Fields: ``shipment_id``, ``version``, ``event_type``, ``payload``; and, absent or ``null`` for none, ``labels``,
    ``residency``, ``occurred_at``, ``eligible_at``, ``content_type``, ``traceparent``, ``tracestate``.
    """
    here = f"line {line_number}"
    if len(line) > LINE_BYTES_MAX:
        raise Invalid.field(here, f"is longer than {LINE_BYTES_MAX} bytes", "publish big payloads over HTTP")
    pieces = split_object(here, decode_utf8(here, line))
    sources = {name: None if source == "null" and name != "payload" else source for name, source in pieces.items()}
    form = Form(sources, at=f"{here}, ")
    version = {
        "shipment_id": form.required("shipment_id", _value(check_id)),
        "version": form.required("version", _value(parse_version)),
        "event_type": form.required("event_type", _value(check_event_type)),
        "payload": form.required("payload", _source_bytes),
        "content_type": form.optional("content_type", _value(check_content_type), LINE_CONTENT_TYPE),
        "labels": form.optional("labels", _value(check_labels), dict[str, str]()),
        "residency": form.optional("residency", _value(check_id), None),
        "occurred_at": form.optional("occurred_at", _value(parse_time), None),
        "eligible_at": form.optional("eligible_at", _value(parse_time), None),
        "traceparent": form.optional("traceparent", _value(_as_it_is), None),
        "tracestate": form.optional("tracestate", _value(_as_it_is), None),
    }
    form.finish()
    return ShipmentVersion(**version)  # type: ignore[arg-type]  # each value was read by the check of its field


def _value(check: Callable[[str, object], Value]) -> Callable[[str, object], Value]:
    """Checks work on values; a line is cut into source texts."""
    return lambda field, source: check(field, read_json_text(field, str(source)))


def _source_bytes(field: str, source: object) -> bytes:
    return check_payload(field, str(source).encode())


def _as_it_is(_field: str, value: object) -> object:
    return value
