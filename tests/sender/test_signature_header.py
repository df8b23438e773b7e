"""Signatures verify with the independent reference package, for any bytes and any of the valid secrets."""

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from fanout.model.problems import Invalid
from fanout.signing import decode_secret, generate_secret, sign, verify, webhook_id

PAYLOADS = [b"", b"x", "🚢 naïve\u2028".encode(), b"a\r\nb\r\n", b'{"a":1,"a":2}', b"m" * (1 << 20)]
WEBHOOK_ID = webhook_id("shipment:S-1:subscriber:acme:version:3")


def headers(webhook_id: str, timestamp: int, signature: str) -> dict[str, str]:
    return {"webhook-id": webhook_id, "webhook-timestamp": str(timestamp), "webhook-signature": signature}


@pytest.mark.parametrize("payload", PAYLOADS, ids=len)
@pytest.mark.parametrize("identity", [WEBHOOK_ID, "msg.with-dots_and~tildes"])
def test_the_reference_package_accepts_our_signature(payload: bytes, identity: str) -> None:
    secrets = [generate_secret() for _ in range(3)]
    now = int(time.time())
    signature = sign([decode_secret(secret) for secret in secrets], identity, now, payload)
    assert len(signature.split(" ")) == 3
    for secret in secrets:
        Webhook(secret).verify(payload, headers(identity, now, signature), json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(generate_secret()).verify(payload, headers(identity, now, signature), json_parse=False)


@given(st.binary(min_size=1, max_size=200), st.data())
def test_any_changed_bit_is_noticed(payload: bytes, data: st.DataObject) -> None:
    secret = b"k" * 32
    signature = sign([secret], WEBHOOK_ID, 1000, payload)
    assert verify([secret], WEBHOOK_ID, "1000", signature, payload, now=1000)
    bit = data.draw(st.integers(0, len(payload) * 8 - 1))
    changed = bytearray(payload)
    changed[bit // 8] ^= 1 << bit % 8
    assert not verify([secret], WEBHOOK_ID, "1000", signature, bytes(changed), now=1000)
    assert not verify([secret], WEBHOOK_ID + "x", "1000", signature, payload, now=1000)
    assert not verify([secret], WEBHOOK_ID, "1001", signature, payload, now=1000)
    assert not verify([b"j" * 32], WEBHOOK_ID, "1000", signature, payload, now=1000)


def test_any_of_several_secrets_and_signatures_may_fit() -> None:
    old, new = b"o" * 32, b"n" * 32
    both = sign([new, old], WEBHOOK_ID, 1000, b"x")
    assert both == f"{sign([new], WEBHOOK_ID, 1000, b'x')} {sign([old], WEBHOOK_ID, 1000, b'x')}", "newest first"
    for known in ([old], [new], [b"z" * 32, old]):
        assert verify(known, WEBHOOK_ID, "1000", both, b"x", now=1000)


@pytest.mark.parametrize(
    ("timestamp", "fits"),
    [("700", True), ("1300", True), ("699", False), ("1301", False), ("", False), ("1e3", False), ("-1", False),
     ("１０００", False), ("1000.0", False), (" 1000", False), ("9" * 5000, False)],
)  # fmt: skip
def test_only_timestamps_within_five_minutes_are_accepted(timestamp: str, fits: bool) -> None:
    number = int(timestamp) if timestamp in ("700", "1300", "699", "1301") else 1000
    signature = sign([b"k" * 32], WEBHOOK_ID, number, b"x")
    assert verify([b"k" * 32], WEBHOOK_ID, timestamp, signature, b"x", now=1000) is fits


@pytest.mark.parametrize("signatures", ["", " ", "v1,", "v1", "v1,é", "v1,\ud800", "v1a,abc v2,def", "🚢"])
def test_a_malformed_signature_header_fits_nothing(signatures: str) -> None:
    assert not verify([b"k" * 32], WEBHOOK_ID, "1000", signatures, b"x", now=1000)


def test_the_webhook_id_is_the_beginning_of_the_keys_sha256_in_base32() -> None:
    assert WEBHOOK_ID == "msg_c6y7p45xkk34xu5ert7qvhp3it"


def test_a_generated_secret_is_accepted_everywhere() -> None:
    secret = generate_secret()
    assert len(decode_secret(secret)) == 32
    assert secret != generate_secret()
    assert Webhook(secret)


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        ("", "begin"),
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "begin"),
        ("whsec_", "0 bytes"),
        ("whsec_" + base64.b64encode(b"s" * 23).decode(), "23 bytes"),
        ("whsec_" + base64.b64encode(b"s" * 65).decode(), "65 bytes"),
        ("whsec_!!" + base64.b64encode(b"s" * 30).decode(), "not base64"),
        ("whsec_" + base64.b64encode(b"s" * 31).decode().rstrip("="), "not base64"),
        ("whsec_é", "not base64"),
    ],
)
def test_a_secret_that_is_none_is_refused_without_showing_it(secret: str, why: str) -> None:
    with pytest.raises(Invalid, match=why) as refused:
        decode_secret(secret)
    shown = repr(refused.value) + str(refused.value)
    assert len(secret) < 8 or secret.removeprefix("whsec_") not in shown
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.parametrize("length", [24, 64])
def test_the_shortest_and_longest_secrets_are_accepted(length: int) -> None:
    assert decode_secret("whsec_" + base64.b64encode(b"s" * length).decode()) == b"s" * length
