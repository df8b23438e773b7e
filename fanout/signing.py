"""Standard Webhooks signatures (https://www.standardwebhooks.com), in bytes: the payload is never decoded or copied as text.

What is signed is ``{webhook_id}.{timestamp}.`` followed by the payload, with HMAC-SHA256; a signature is ``v1,<base64>`` and
a header carries one for each valid secret, so that a secret can be replaced without a gap.
"""

import binascii
import functools
import hashlib
import hmac
import re
import struct
from collections.abc import Sequence

from fanout.model.signing_secret import Secret

TOLERANCE_SECONDS = 300

_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_TWO_DIGITS = [first + second for first in _BASE32 for second in _BASE32]
"""Ten bits at a time: the general encoder of the standard library is written in Python, and costs more than the signature."""

_FIRST_17_BYTES = struct.Struct(">QQB").unpack_from
_TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)


def webhook_id(key: str) -> str:
    """The ``webhook-id`` of a delivery: the same for every attempt, and short enough for receivers that index it.

    ``msg_`` and the first 26 characters (130 bits) of the lower-case RFC 4648 base32 of the key's SHA-256.
    """
    high, middle, low = _FIRST_17_BYTES(hashlib.sha256(key.encode()).digest())
    two = _TWO_DIGITS
    rest = (high & 15) << 66 | middle << 2 | low >> 6  # 60 bits are in `high` alone, these are the other 70
    left, right = rest >> 40, rest & 0xFF_FFFF_FFFF
    return (
        f"msg_{two[high >> 54]}{two[high >> 44 & 1023]}{two[high >> 34 & 1023]}{two[high >> 24 & 1023]}"
        f"{two[high >> 14 & 1023]}{two[high >> 4 & 1023]}{two[left >> 20]}{two[left >> 10 & 1023]}{two[left & 1023]}"
        f"{two[right >> 30]}{two[right >> 20 & 1023]}{two[right >> 10 & 1023]}{two[right & 1023]}"
    )


def sign(secrets: Sequence[bytes], webhook_id: str, timestamp: int, payload: bytes) -> str:
    """The ``webhook-signature`` header: one signature per secret, in the order given (newest first), separated by blanks.

    ``timestamp`` is the time of this attempt in whole seconds since 1970; receivers refuse what is older than five minutes.
    """
    message = b"%b.%d.%b" % (webhook_id.encode(), timestamp, payload)
    return " ".join([_signature(secret, message) for secret in secrets])


def verify(
    secrets: Sequence[bytes],
    webhook_id: str,
    timestamp: str,
    signatures: str,
    payload: bytes,
    *,
    now: float,
    tolerance_seconds: int = TOLERANCE_SECONDS,
) -> bool:
    """Whether any signature in the header fits any of the secrets, for a timestamp within the tolerance of ``now``.

    Takes the three headers as they came. Every pair is compared in constant time and none is skipped, so the time
    tells nothing about which secret or signature fitted.
    """
    if not _TIMESTAMP.fullmatch(timestamp) or abs(now - int(timestamp)) > tolerance_seconds:
        return False
    message = b"%b.%b.%b" % (webhook_id.encode(errors="replace"), timestamp.encode(), payload)
    expected = [_signature(secret, message).encode() for secret in secrets]
    given = [each.encode(errors="replace") for each in signatures.split(" ")]
    fits = [hmac.compare_digest(ours, theirs) for ours in expected for theirs in given]
    return any(fits)


def generate_secret() -> str:
    """A new secret as subscribers get it: ``whsec_`` and the base64 of 32 random bytes."""
    return Secret.new().reveal()


def decode_secret(secret: str) -> bytes:
    """The key bytes of a ``whsec_…`` secret. Raises ``Invalid``, which never shows the secret."""
    return Secret.parse("secrets", secret).key


def _signature(secret: bytes, message: bytes) -> str:
    keyed = _keyed(secret).copy()
    keyed.update(message)
    return "v1," + binascii.b2a_base64(keyed.digest(), newline=False).decode()


@functools.lru_cache(maxsize=16_384)
def _keyed(secret: bytes) -> hmac.HMAC:
    """HMAC with its key taken in: to copy that costs a quarter of taking it in again."""
    return hmac.new(secret, digestmod="sha256")
