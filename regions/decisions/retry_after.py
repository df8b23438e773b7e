"""What a subscriber's ``Retry-After`` asks for, in seconds (RFC 9110, 10.2.3, read strictly but for decimals)."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

CAP_SECONDS = 86_400.0
"""The default cap (``delivery.retry_after_cap_seconds``). The caller applies it: the ledger records what was asked for."""

_FOREVER_SECONDS = 1e12
"""Larger requests count as this, so that the result is always finite."""

_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = "(?P<month>" + "|".join(_MONTHS) + ")"
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_DATES = tuple(
    re.compile(pattern, re.ASCII | re.IGNORECASE)
    for pattern in (
        rf"(?:mon|tue|wed|thu|fri|sat|sun), (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT",
        rf"(?:mon|tues|wednes|thurs|fri|satur|sun)day, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT",
        rf"(?:mon|tue|wed|thu|fri|sat|sun) {_MONTH} (?P<day>[ 0-9][0-9]) {_TIME} (?P<year>[0-9]{{4}})",
    )
)
"""IMF-fixdate, RFC 850, asctime. The weekday must be one but need not fit the date: servers get it wrong, and the rest
says what they mean."""

_CENTURY = 100
_YEARS_AHEAD_MAX = 50
_LEAP_SECOND = 60


def parse_retry_after(values: Sequence[str], date: str | None, now: datetime) -> float | None:
    """Seconds to wait, rounded up, or None if no value can be read, or all lie in the past. Never negative, never NaN.

    ``values`` are the ``Retry-After`` fields of one response: of several the one that asks for the longest wait counts.
    Dates are taken relative to the response's ``Date`` if that can be read, so a wrong clock at the subscriber does no
    harm, else relative to ``now`` (aware).
    """
    waits = [wait for value in values if (wait := _wait(value.strip(" \t"), date, now)) is not None]
    return max(waits, default=None)


def parse_http_date(value: str, now: datetime) -> datetime | None:
    """One of the three date forms of RFC 9110, 5.6.7, or None. A two-digit year is at most 50 years after ``now``."""
    found = next((match for pattern in _DATES if (match := pattern.fullmatch(value))), None)
    if found is None:
        return None
    year, second = int(found["year"]), int(found["second"])
    if len(found["year"]) == 2:  # noqa: PLR2004 - the RFC 850 form
        year += now.year // _CENTURY * _CENTURY
        if year > now.year + _YEARS_AHEAD_MAX:
            year -= _CENTURY
    leap = timedelta(seconds=1 if second == _LEAP_SECOND else 0)
    try:
        month = _MONTHS.index(found["month"].lower()) + 1
        at = datetime(year, month, int(found["day"]), int(found["hour"]), int(found["minute"]), tzinfo=UTC)
        return at.replace(second=second - leap.seconds) + leap
    except (ValueError, OverflowError):
        return None


def _wait(value: str, date: str | None, now: datetime) -> float | None:
    if _SECONDS.fullmatch(value):
        # float() reads any number of digits; int() refuses very long ones.
        return float(math.ceil(min(float(value), _FOREVER_SECONDS)))
    until = parse_http_date(value, now)
    if until is None:
        return None
    since = (parse_http_date(date.strip(" \t"), now) if date else None) or now
    seconds = (until - since).total_seconds()
    return float(math.ceil(seconds)) if seconds >= 0 else None
