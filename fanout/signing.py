"""Standard Webhooks signatures (https://www.standardwebhooks.com), in bytes: the payload is never decoded or copied as text.

What is signed is ``{webhook_id}.{timestamp}.`` followed by the payload, with HMAC-SHA256; a signature is ``v1,<base64>`` and
a header carries one for each valid secret, so that a secret can be replaced without a gap.
"""

import binascii
import hashlib
import hmac
import re
from collections.abc import Sequence

from fanout.model.signing_secret import Secret

TOLERANCE_SECONDS = 300

_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_TWO_DIGITS = [first + second for first in _BASE32 for second in _BASE32]
"""Ten bits at a time: the general encoder of the standard library is written in Python, and costs more than the signature."""

_TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)


def webhook_id(key: str) -> str:
    """The ``webhook-id`` of a delivery: the same for every attempt, and short enough for receivers that index it.

    ``msg_`` and the first 26 characters (130 bits) of the lower-case RFC 4648 base32 of the key's SHA-256.
    """
    bits = (
        int.from_bytes(hashlib.sha256(key.encode()).digest()[:17], "big") >> 6
    )  # 17 bytes are 136 bits: the first 130
    return "msg_" + "".join([_TWO_DIGITS[bits >> shift & 1023] for shift in range(120, -1, -10)])


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
    return "v1," + binascii.b2a_base64(hmac.digest(secret, message, "sha256"), newline=False).decode()
