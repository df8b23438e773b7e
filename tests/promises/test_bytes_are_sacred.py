"""P9: what arrives has the bytes, the type and the signature of what was published."""

import hashlib

from standardwebhooks import Webhook

from fanout.model.shipment import PAYLOAD_BYTES_MAX, ShipmentVersion
from services.region import SECRET

PAYLOADS = {
    "nul": b'{"a":"x\x00y"}',
    "escaped-nul": b'{"a":"x\\u0000y"}',
    "lone-surrogate": b'{"a":"\\ud800"}',
    "duplicate-keys": b'{"a":1,"a":2}',
    "huge-number": b'{"a":1e400,"b":123456789012345678901234567890}',
    "key-order": b'{"z":1,"a":2, "m" : 0.1000}',
    "bom": b"\xef\xbb\xbf{}",
    "binary": bytes(range(256)) * 3,
    "not-utf-8": b"\xff\xfe\x00",
    "empty": b"",
    "newline": b'{"a":1}\r\n',
    "exactly-1-mib": b"\xab" * PAYLOAD_BYTES_MAX,
}


async def test_payloads_arrive_with_the_same_sha_256_also_on_a_retry_and_their_signatures_verify(deployment):
    await deployment.subscriber("a", concurrency=8)
    deployment.receiver.use([{"when": {"every": 2}, "answer": 500}])
    deployment.start()
    await deployment.publish(
        *(
            ShipmentVersion(name, 1, "shipment.booked", payload, f"application/x-{name}")
            for name, payload in PAYLOADS.items()
        )
    )
    await deployment.delivered(len(PAYLOADS), 40)
    seen = set()
    for request in deployment.receiver.received:
        name = request.header("Fanout-Shipment-Id")
        assert hashlib.sha256(request.body).hexdigest() == hashlib.sha256(PAYLOADS[name]).hexdigest(), name
        assert request.header("Content-Type") == f"application/x-{name}"
        assert request.header("Content-Length") == str(len(PAYLOADS[name]))
        verifier = Webhook(SECRET)
        headers = {each: request.header(each) for each in ("webhook-id", "webhook-timestamp", "webhook-signature")}
        if name not in ("binary", "not-utf-8", "exactly-1-mib"):  # the independent verifier reads text only
            _verified(verifier, request.body, headers)
        seen.add(name)
    assert seen == PAYLOADS.keys()
    assert len(deployment.receiver.received) > len(PAYLOADS), "some were sent twice"


def _verified(verifier: Webhook, body: bytes, headers: dict[str, str]) -> None:
    from datetime import UTC, datetime

    stamp = datetime.fromtimestamp(int(headers["webhook-timestamp"]), tz=UTC)
    assert verifier.sign(headers["webhook-id"], stamp, body.decode()) in headers["webhook-signature"].split(" ")
