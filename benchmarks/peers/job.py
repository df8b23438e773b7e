"""The job that every peer does, standard library only: POST each message with its idempotency key, signed by Standard Webhooks.

The peers do less than the job of the day asks for: they record no attempts, count no limits, keep no metrics, write no traces.
"""

import base64
import gzip
import hashlib
import hmac
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

SUBSCRIBERS = 200
TIMEOUT_SECONDS = 15
_KEY = b"a key of benchmarks, 32 bytes..."
_DAY = Path(__file__).resolve().parents[2] / "fanout" / "demo" / "data" / "air-cargo-day.jsonl.gz"

Message = dict[str, str]
"""``url``, ``key``, ``event_type`` and ``body``, which is sent as it stands."""


def messages(count: int, url: str) -> Iterator[Message]:
    """Payloads of a real day, each to 200 subscribers, until there are so many."""
    with gzip.open(_DAY) as lines:
        day = [json.loads(line) for line in lines]
    made = 0
    for number, line in enumerate(itertools.cycle(day)):
        body = json.dumps(line["payload"], separators=(",", ":"))
        for subscriber in range(SUBSCRIBERS):
            if made == count:
                return
            made += 1
            yield {
                "url": f"{url}/s-{subscriber}",
                "key": f"shipment:B-{number}:subscriber:s-{subscriber}:version:1",
                "event_type": line["event_type"],
                "body": body,
            }


def headers(message: Message) -> dict[str, str]:
    """With a signature of this moment."""
    now = str(int(time.time()))
    signed = f"{message['key']}.{now}.{message['body']}".encode()
    signature = base64.b64encode(hmac.digest(_KEY, signed, hashlib.sha256)).decode()
    return {
        "Content-Type": "application/json",
        "Idempotency-Key": message["key"],
        "Fanout-Event-Type": message["event_type"],
        "webhook-id": message["key"],
        "webhook-timestamp": now,
        "webhook-signature": f"v1,{signature}",
    }
