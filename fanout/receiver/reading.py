"""Reading a script and a secrets file. Every problem is found and named by rule and field before anything is used."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fanout.model.problems import Invalid, Problem
from fanout.receiver.script import Answer, RetryAfter, Rule, Script, When
from fanout.signing import decode_secret

STATUS_MIN = 100
STATUS_MAX = 999
RULE_FIELDS = (
    "subscriber",
    "when",
    "answer",
    "retry_after",
    "delay_seconds",
    "hang_seconds",
    "close",
    "body",
    "headers",
)
WHEN_FIELDS = ("every", "first", "from_seconds", "until_seconds", "probability", "seed")

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")  # RFC 9110, 5.5: no CR, LF, NUL


def read_script(path: Path) -> Script:
    return parse_script(_read_json(path, "the script"))


def parse_script(document: object) -> Script:
    """A list of rules, or an object with ``rules`` and ``seed``. Raises ``Invalid`` with all problems."""
    seed: object = 0
    if isinstance(document, dict):
        if unknown := sorted(set(document) - {"rules", "seed"}):
            raise Invalid.field(unknown[0], "not a field of a script", "a script has rules and seed")
        seed = document.get("seed", 0)
    listed = document.get("rules", []) if isinstance(document, dict) else document
    if not isinstance(listed, list):
        raise Invalid.field("rules", f"{_kind(listed)} is not a list of rules", 'write [{"answer": 429}]')
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise Invalid.field("seed", f"{seed!r} is not a whole number")
    problems: list[Problem] = []
    rules = [_Reader(f"rule {n}", rule, problems).rule() for n, rule in enumerate(listed, 1)]
    if problems:
        raise Invalid(*problems)
    return Script(tuple(rules), seed)


def read_secrets(path: Path) -> dict[str, list[bytes]]:
    return parse_secrets(_read_json(path, "the secrets file"))


def parse_secrets(document: object) -> dict[str, list[bytes]]:
    """One object, subscriber id to list of ``whsec_`` secrets, as ``fanout subscribers apply --secrets-out`` writes it.
    Raises ``Invalid``, which names the subscriber and shows no secret.
    """
    right = 'one JSON object: {"subscriber-id": ["whsec_…"]}'
    if not isinstance(document, Mapping):
        raise Invalid.field("secrets", f"{_kind(document)} is not an object", right)
    found: dict[str, list[bytes]] = {}
    for subscriber, texts in document.items():
        if not isinstance(texts, Sequence) or isinstance(texts, str) or not all(isinstance(t, str) for t in texts):
            raise Invalid.field(f"secrets of {subscriber}", "not a list of texts", right)
        try:
            found[subscriber] = [decode_secret(text) for text in texts]
        except Invalid as invalid:
            raise Invalid.field(
                f"secrets of {subscriber}", invalid.problems[0].why, invalid.problems[0].right
            ) from None
    return found


def _read_json(path: Path, what: str) -> object:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise Invalid.field(str(path), f"cannot read {what}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Invalid.field(str(path), f"{what} is not JSON: {error.msg} at {where}", malformed=True) from None
    except UnicodeDecodeError:
        raise Invalid.field(str(path), f"{what} is not UTF-8", malformed=True) from None


class _Reader:
    """Takes the fields of one rule and notes what is wrong with each."""

    def __init__(self, name: str, rule: object, problems: list[Problem]) -> None:
        self._name = name
        self._problems = problems
        self._fields: dict[str, Any] = self._object("", rule, RULE_FIELDS)

    def rule(self) -> Rule:
        hang = self._number(self._fields, "hang_seconds")
        delay = self._number(self._fields, "delay_seconds") or 0.0
        close = self._fields.get("close", False)
        if not isinstance(close, bool):
            self._wrong("close", f"{close!r} is neither true nor false")
        if close and "answer" in self._fields:
            self._wrong("close", "a rule that closes the connection cannot answer as well", "leave one of them out")
        closes = bool(close) or (hang is not None and "answer" not in self._fields)
        answer = Answer(
            status=self._whole(self._fields, "answer", STATUS_MIN, STATUS_MAX) or HTTPStatus.OK,
            retry_after=self._retry_after(),
            wait_seconds=delay + (hang or 0.0),
            close=closes,
            body=self._text("body", "ok\n").encode(),
            headers=self._headers(),
        )
        return Rule(self._text("subscriber", "*"), self._when(), answer)

    def _when(self) -> When:
        fields = self._object("when", self._fields.get("when", {}), WHEN_FIELDS)
        until = self._number(fields, "until_seconds", "when.")
        probability = self._number(fields, "probability", "when.")
        if probability is not None and probability > 1:
            self._wrong("when.probability", f"{probability:g} is more than 1", "a number from 0 to 1")
        return When(
            every=self._whole(fields, "every", 1, None, "when."),
            first=self._whole(fields, "first", 1, None, "when."),
            from_seconds=self._number(fields, "from_seconds", "when.") or 0.0,
            until_seconds=math.inf if until is None else until,
            probability=1.0 if probability is None else probability,
            seed=self._whole(fields, "seed", None, None, "when."),
        )

    def _retry_after(self) -> RetryAfter | None:
        value = self._fields.get("retry_after")
        if value is None or isinstance(value, str):
            if value is not None and not _VALUE.fullmatch(value):
                self._wrong("retry_after", "has characters that no header can carry")
            return None if value is None else RetryAfter(text=value)
        if isinstance(value, dict) and set(value) == {"date_in_seconds"}:
            return RetryAfter(date_in_seconds=self._number(value, "date_in_seconds", "retry_after."))
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return RetryAfter(seconds=self._number(self._fields, "retry_after"))
        right = 'seconds, {"date_in_seconds": 30} for an HTTP date, or the text of the header'
        self._wrong("retry_after", f"{value!r} is no time", right)
        return None

    def _headers(self) -> tuple[tuple[str, str], ...]:
        pairs = []
        for name, value in self._object("headers", self._fields.get("headers", {}), None).items():
            for each in value if isinstance(value, list) else [value]:
                if not _TOKEN.fullmatch(name):
                    self._wrong("headers", f"{name!r} is not a header name")
                elif not isinstance(each, str) or not _VALUE.fullmatch(each):
                    self._wrong(f"headers.{name}", f"{each!r} is not a header value", "a text without line breaks")
                else:
                    pairs.append((name, each))
        return tuple(pairs)

    def _text(self, field: str, default: str) -> str:
        value = self._fields.get(field, default)
        if isinstance(value, str):
            return value
        self._wrong(field, f"{_kind(value)} is not a text")
        return default

    def _number(self, fields: Mapping[str, Any], field: str, prefix: str = "") -> float | None:
        value = fields.get(field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            self._wrong(prefix + field, f"{value!r} is not a number from 0 upwards")
            return None
        return float(value)

    def _whole(
        self, fields: Mapping[str, Any], field: str, least: int | None, most: int | None, prefix: str = ""
    ) -> int | None:
        value = fields.get(field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self._wrong(prefix + field, f"{value!r} is not a whole number")
        elif (least is not None and value < least) or (most is not None and value > most):
            self._wrong(prefix + field, f"{value} is out of range", f"from {least}" + (f" to {most}" if most else ""))
        else:
            return value
        return None

    def _object(self, field: str, value: object, known: Sequence[str] | None) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._wrong(field, f"{_kind(value)} is not an object")
            return {}
        for name in value:
            if known is not None and name not in known:
                where = f"{field}.{name}" if field else name
                self._wrong(where, "no such field", f"known are {', '.join(known)}")
        return value

    def _wrong(self, field: str, why: str, right: str = "") -> None:
        self._problems.append(Problem(f"{self._name}: {field}" if field else self._name, why, right))


def _kind(value: object) -> str:
    names = {str: "a text", list: "a list", dict: "an object", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
