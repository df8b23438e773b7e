"""How shipments, subscribers, versions and deliveries are named.

Ids become URL path segments, header values and parts of keys, so their alphabet is the unreserved set of RFC 3986. It holds
no colon, which is what makes a delivery key readable in one way only.
"""

import re
from dataclasses import dataclass

from fanout.model.problems import Invalid

ID_LENGTH_MAX = 128
VERSION_MAX = 2**63 - 1

_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}")
_VERSION = re.compile(r"0|[1-9][0-9]{0,18}")
_KEY = re.compile(r"shipment:([^:]*):subscriber:([^:]*):version:([^:]*)")

ID_RIGHT = "write 1 to 128 characters of A-Z a-z 0-9 . _ - ~, but not . or .. alone"
VERSION_RIGHT = f"write a whole number from 0 to {VERSION_MAX} without sign or leading zeros"
KEY_RIGHT = "write shipment:SHIPMENT_ID:subscriber:SUBSCRIBER_ID:version:VERSION"


@dataclass(frozen=True, slots=True)
class DeliveryKey:
    """The three names in a delivery key. ``str`` gives the key."""

    shipment_id: str
    subscriber_id: str
    version: int

    def __str__(self) -> str:
        return delivery_key(self.shipment_id, self.subscriber_id, self.version)


def check_id(field: str, text: object) -> str:
    """Return ``text`` if it can be an id; raise ``Invalid`` naming ``field`` if not. Ids are compared as they stand."""
    if not isinstance(text, str):
        raise Invalid.field(field, f"an id is text, not {type(text).__name__}", ID_RIGHT)
    if not text:
        raise Invalid.field(field, "is empty", ID_RIGHT)
    if len(text) > ID_LENGTH_MAX:
        raise Invalid.field(field, f"is {len(text)} characters long", ID_RIGHT)
    if not _ID.fullmatch(text):
        strange = next(character for character in text if not _ID.fullmatch(character))
        raise Invalid.field(field, f"holds {strange!a}, which no id may", ID_RIGHT)
    if text in {".", ".."}:
        raise Invalid.field(field, f"'{text}' is a step in a path, not an id", ID_RIGHT)
    return text


def parse_version(field: str, version: object) -> int:
    """Read a version from its canonical text or from an integer; ``007``, ``+1``, ``1.0`` and ``true`` are refused.

    One number has one spelling, because the spelling is part of the delivery key.
    """
    if isinstance(version, int) and not isinstance(version, bool):
        if not 0 <= version <= VERSION_MAX:
            raise Invalid.field(field, "is out of range", VERSION_RIGHT)
        return version
    if not isinstance(version, str):
        raise Invalid.field(field, f"a version is a whole number, not {type(version).__name__}", VERSION_RIGHT)
    if not _VERSION.fullmatch(version):
        raise Invalid.field(field, f"{version[:40]!a} is not a version", VERSION_RIGHT)
    if int(version) > VERSION_MAX:
        raise Invalid.field(field, "is out of range", VERSION_RIGHT)
    return int(version)


def delivery_key(shipment_id: str, subscriber_id: str, version: int) -> str:
    """The name of a delivery for ever: over retries, redrives and republishing. The subscriber's ``Idempotency-Key``."""
    return f"shipment:{shipment_id}:subscriber:{subscriber_id}:version:{version}"


def parse_key(text: str, field: str = "key") -> DeliveryKey:
    """Read a delivery key back. ``str(parse_key(text)) == text`` for every key that is accepted."""
    parts = _KEY.fullmatch(text)
    if parts is None:
        raise Invalid.field(field, "is not a delivery key", KEY_RIGHT)
    return DeliveryKey(
        check_id(f"{field} (shipment)", parts[1]),
        check_id(f"{field} (subscriber)", parts[2]),
        parse_version(f"{field} (version)", parts[3]),
    )
