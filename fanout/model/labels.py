"""Labels of a shipment version: short names and values by which subscribers choose."""

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote_to_bytes

from fanout.model.documents import check_object, json_kind
from fanout.model.problems import Invalid, Problem

LABELS_MAX = 32
LABEL_LENGTH_MAX = 256
LABEL_RIGHT = f"write 1 to {LABEL_LENGTH_MAX} characters of text without control characters"
HEADER_RIGHT = "write NAME=VALUE, NAME=VALUE with everything but A-Z a-z 0-9 . _ - ~ percent-encoded as UTF-8"

_UNSENDABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ENCODED = re.compile(r"(?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})*")


def check_label_text(field: str, text: object) -> str:
    """One name or value. Control characters (NUL with them) and lone surrogates cannot be stored as text or shown."""
    if not isinstance(text, str):
        raise Invalid.field(field, f"is {json_kind(text)}", LABEL_RIGHT)
    if not text:
        raise Invalid.field(field, "is empty", LABEL_RIGHT)
    if len(text) > LABEL_LENGTH_MAX:
        raise Invalid.field(field, f"is {len(text)} characters long", LABEL_RIGHT)
    if strange := _UNSENDABLE.search(text):
        raise Invalid.field(field, f"holds {strange[0]!a}", LABEL_RIGHT)
    return text


def check_labels(field: str, labels: object) -> dict[str, str]:
    """Labels as an object of text; a copy comes back, so that nobody changes a version later."""
    given: Mapping[str, object] = check_object(field, labels)
    if len(given) > LABELS_MAX:
        raise Invalid.field(field, f"there are {len(given)} labels", f"write at most {LABELS_MAX}")
    problems: list[Problem] = []
    for name, value in given.items():
        try:
            check_label_text(f"{field} (a name)", name)
            check_label_text(f"{field}.{name}", value)
        except Invalid as error:
            problems.extend(error.problems)
    if problems:
        raise Invalid(*problems)
    return {name: str(value) for name, value in given.items()}


def parse_labels_header(text: str, field: str = "Fanout-Labels") -> dict[str, str]:
    """Read ``carrier=UA, destination=ORD``. Blanks around names and values mean nothing; an empty header has no labels."""
    labels: dict[str, str] = {}
    if not text.strip(" \t"):
        return labels
    for number, piece in enumerate(text.split(","), start=1):
        name, equals, value = piece.partition("=")
        if not equals:
            raise Invalid.field(field, f"label {number} has no '='", HEADER_RIGHT, malformed=True)
        name, value = (_decode(field, number, part.strip(" \t")) for part in (name, value))
        if name in labels:
            raise Invalid.field(
                field, f"label {number} has the name of an earlier one", "write each name once", malformed=True
            )
        labels[name] = value
    return check_labels(field, labels)


def format_labels_header(labels: Mapping[str, str]) -> str:
    """Write labels as the header that ``parse_labels_header`` reads back."""
    return ", ".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in labels.items())


def _decode(field: str, number: int, text: str) -> str:
    if not _ENCODED.fullmatch(text):
        raise Invalid.field(
            field, f"label {number} holds a character that is not encoded", HEADER_RIGHT, malformed=True
        )
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise Invalid.field(field, f"label {number} does not decode to UTF-8", HEADER_RIGHT, malformed=True) from None
