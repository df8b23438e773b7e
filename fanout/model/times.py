"""Points in time as text: RFC 3339 in, UTC with ``Z`` out. Inside the program every time is an aware UTC ``datetime``."""

import re
from datetime import UTC, datetime, timedelta, timezone

from fanout.model.problems import Invalid

TIME_RIGHT = "write an RFC 3339 time with its offset, as 2026-03-01T09:30:00Z or 2026-03-01T16:30:00+07:00"

_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,12}))?"
    r"(?:([Zz])|([+\- ])([0-9]{2}):([0-9]{2}))"  # a '+' in a query string arrives as a blank
)
_WITHOUT_OFFSET = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9:.]+")
_LEAP_SECOND = 60
_MINUTES_IN_HOUR = 60
_HOURS_IN_DAY = 24
YEAR_MIN, YEAR_MAX = 1900, 2999
"""Drivers write the ends of their calendars as "infinity", and adding an hour to them leaves every calendar: nobody means them."""


def parse_time(field: str, text: object) -> datetime:
    """Read an RFC 3339 time; the result is in UTC. Fractions beyond the microsecond are cut off, not rounded.

    Refused with a reason of their own: a time without offset (whose clock?), a leap second (neither Python nor PostgreSQL
    can hold one) and what lies outside the years 1900 to 2999 in UTC.
    """
    if not isinstance(text, str):
        raise Invalid.field(field, f"a time is text, not {type(text).__name__}", TIME_RIGHT)
    parts = _RFC3339.fullmatch(text)
    if parts is None:
        why = "has no offset" if _WITHOUT_OFFSET.fullmatch(text) else f"{text[:40]!a} is not a time"
        raise Invalid.field(field, why, TIME_RIGHT)
    year, month, day, hour, minute, second = (int(part) for part in parts.groups()[:6])
    if second == _LEAP_SECOND:
        raise Invalid.field(field, "is a leap second, which cannot be stored", "write the second before or after it")
    microsecond = int((parts[7] or "0")[:6].ljust(6, "0"))
    try:
        local = datetime(year, month, day, hour, minute, second, microsecond, tzinfo=_offset(*parts.groups()[7:]))
        moment = local.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid.field(field, f"'{text}' is on no calendar", TIME_RIGHT) from None
    return check_years(field, moment)


def check_years(field: str, moment: datetime) -> datetime:
    """``moment``, if it lies in a year that somebody can mean."""
    if not YEAR_MIN <= moment.year <= YEAR_MAX:
        raise Invalid.field(
            field, f"lies outside the years {YEAR_MIN} to {YEAR_MAX}", "leave it out for never or unknown"
        )
    return moment


def _offset(zulu: str | None, sign: str | None, hours: str | None, minutes: str | None) -> timezone:
    if zulu or hours is None or minutes is None:
        return UTC
    if int(hours) >= _HOURS_IN_DAY or int(minutes) >= _MINUTES_IN_HOUR:
        raise ValueError(hours, minutes)
    distance = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-distance if sign == "-" else distance)


def format_utc(moment: datetime) -> str:
    """Write an aware time in UTC with ``Z``; microseconds only where there are any."""
    assert moment.tzinfo is not None, "a naive time would be written in whatever zone this machine is in"
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def span(seconds: float) -> str:
    """How long, for people: ``0.4 s``, ``42 s``, ``3 min``, ``5 h``, ``2 d``."""
    if seconds < 1:
        return f"{max(0.0, seconds):.1f} s"
    for size, unit, most in ((1, "s", 120), (60, "min", 7_200), (3_600, "h", 172_800)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"
