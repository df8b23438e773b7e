"""How the demo's receivers misbehave, so that the day has something to tell. The same each time.

Requests are counted per subscriber, so most of it depends on no clock; the smallest counts are met by a short day as well.
"""

from collections.abc import Mapping
from typing import Any

Rule = Mapping[str, Any]

ANSWER: Rule = {"delay_seconds": 0.01}
"""What a subscriber of the usual kind does: 200, after as long as a nearby server takes. So limits are really reached."""

HANGING = "merchant-087"
TIMEOUTS: Mapping[str, float] = {HANGING: 3}
"""The one that hangs is not waited for as long as usual: the demo shall end soon."""

SCRIPTS: Mapping[str, tuple[Rule, ...]] = {
    "eu": (
        # A forwarder closes its account in the middle of the day.
        {"subscriber": "forwarder-039", "when": {"first": 15}, **ANSWER},
        {"subscriber": "forwarder-039", "answer": 410, "body": "this account was closed\n"},
        # Busy ones ask for a pause: at first, and every now and then.
        {"subscriber": "forwarder-020", "when": {"first": 1}, "answer": 429, "retry_after": 2},
        {"subscriber": "forwarder-020", "when": {"every": 120}, "answer": 429, "retry_after": 2},
        {"subscriber": "bank-004", "when": {"every": 900}, "answer": 429, "retry_after": {"date_in_seconds": 2}},
        # Errors of the ordinary kind.
        {"subscriber": "forwarder-026", "when": {"every": 40}, "answer": 500, "body": "something broke\n"},
        {"subscriber": "merchant-1?2", "when": {"every": 25}, "answer": 502, "body": "no upstream\n"},
        ANSWER,
    ),
    "us": (
        # Hangs for its first seconds, longer than anyone waits.
        {"subscriber": HANGING, "when": {"until_seconds": 6}, "hang_seconds": 30},
        {"subscriber": "forwarder-043", "when": {"first": 1}, "answer": 429, "retry_after": 2},
        {"subscriber": "forwarder-043", "when": {"every": 150}, "answer": 429, "retry_after": 2},
        {"subscriber": "merchant-070", "when": {"every": 110}, "answer": 503, "retry_after": 2},
        {"subscriber": "merchant-110", "when": {"every": 30}, "answer": 500, "body": "something broke\n"},
        {"subscriber": "warehouse-19?", "when": {"every": 60}, "answer": 500, "body": "something broke\n"},
        ANSWER,
    ),
}
"""By region. The first rule that fits a request decides."""
