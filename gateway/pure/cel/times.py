"""Timestamps and durations: parsing, formatting, and their parts.

Source: cel-go common/types/timestamp.go, duration.go; Go time.ParseDuration, time.Parse (RFC 3339).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.meter import count_reading, count_steps, count_text
from gateway.pure.cel.operators import checked_timestamp
from gateway.pure.cel.values import Duration, Timestamp, plain_double, quoted

SECOND: Final = 1_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_LONGEST: Final = 64
"""Digits of a fraction that can make a difference, and characters of the name of a time zone."""
_RFC3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(?:(Z)|([+-])(\d\d):(\d\d))", re.ASCII
)
_OFFSET: Final = re.compile(r"([+-]?[0-9]{1,4}):([+-]?[0-9]{1,4})", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DIGITS: Final = 18
"""Digits of an integer that always fits 64 bits."""
_PART_READINGS: Final = 40
"""The readings of a text that take as long as to parse the parts of a duration."""
_LOOK_UP: Final = 100_000
"""Steps to look for a time zone in the file system."""
_CYCLE: Final = timedelta(days=146_097)
"""400 years, after which the calendar repeats itself, days of the week included."""


def parse_duration(text: str) -> Duration:
    """Return the duration *text*, in Go's notation. Raises EvaluationError: it is not a duration."""
    error = EvaluationError("type conversion error from 'string' to 'google.protobuf.Duration'")
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if not unsigned or len(text) > 1000:
        raise error
    count_reading(text, _PART_READINGS)
    total = end = 0
    while end < len(unsigned) and unsigned != "0":
        part = _PART.match(unsigned, end)
        if part is None or not (part[1] or part[2]):
            raise error
        fraction = (part[2] or "")[:_LONGEST]
        unit = _UNITS[part[3]]
        total += int(part[1] or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)
        end = part.end()
    negative = text[0] == "-"
    if total > (1 << 63) - (not negative):
        raise error
    return Duration(-total if negative else total)


def parse_timestamp(text: str) -> Timestamp:
    """Return the instant *text*, in RFC 3339. Raises EvaluationError: it is not an instant."""
    match = _RFC3339.fullmatch(text) if len(text) <= 1000 else None
    if match is None:
        raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    *date, fraction, _, sign, hours, minutes = match.groups()
    try:
        whole = datetime(*map(int, date), tzinfo=UTC)  # type: ignore[arg-type,misc]
        if hours is not None and (int(hours) > 24 or int(minutes) > 60):
            raise ValueError
    except ValueError:
        raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Timestamp'") from None
    offset = (int(hours) * 3600 + int(minutes) * 60) * (-1 if sign == "-" else 1) if hours else 0
    since = whole - _EPOCH
    ns = int((fraction or "")[:9].ljust(9, "0"))
    return checked_timestamp((since.days * 86400 + since.seconds - offset) * SECOND + ns)


def format_timestamp(value: Timestamp) -> str:
    """Return *value* in RFC 3339, with as many decimals as it needs."""
    seconds, ns = divmod(value.ns, SECOND)
    moment = _EPOCH + timedelta(seconds=seconds)
    decimals = f".{ns:09}".rstrip("0") if ns else ""
    return f"{moment.year:04}-{moment:%m-%dT%H:%M:%S}{decimals}Z"


def format_duration(value: Duration) -> str:
    """Return *value* in seconds. Like cel-go, by way of a double."""
    whole, ns = divmod(abs(value.ns), SECOND)
    seconds = whole + ns / 1e9
    return plain_double(-seconds if value.ns < 0 else seconds) + "s"


def _local(value: Timestamp, zone: str) -> tuple[datetime, int]:
    """Return *value* in *zone*, and the years to add to it: a datetime has only the years 1 to 9999.

    *zone* is a name of the time zone database, or an offset from UTC such as ``-08:00``.
    """
    count_text(len(zone))
    since = timedelta(microseconds=value.ns // 1000)
    if match := _OFFSET.fullmatch(zone):
        minutes = int(match[2])
        since += timedelta(hours=int(match[1]), minutes=-minutes if zone[0] == "-" else minutes)
        zone = "UTC"
    elif ":" in zone:
        raise EvaluationError(_offset_problem(zone))
    found = _zone(zone)
    if found is None:
        raise EvaluationError(f"unknown time zone {zone}")
    for cycles in (0, 1, -1):
        try:
            return (_EPOCH + (since - cycles * _CYCLE)).astimezone(found), cycles * 400
        except OverflowError:
            continue
    raise EvaluationError("timestamp overflow")


def _offset_problem(zone: str) -> str:
    """Return Go's message for an offset from UTC that is not two integers."""
    hours, _, minutes = zone.partition(":")
    wrong = hours if not _INTEGER.fullmatch(hours) or len(hours) > _DIGITS else minutes
    problem = "value out of range" if _INTEGER.fullmatch(wrong) else "invalid syntax"
    return f"strconv.Atoi: parsing {quoted(wrong)}: {problem}"


@lru_cache(maxsize=128)
def _zone(name: str) -> tzinfo | None:
    """Return the time zone *name*, or None if it does not exist. Either result is kept."""
    if name in ("", "UTC", "Local"):
        return UTC
    if ".." in name or name[:1] in ("/", "\\") or "\\" in name:
        raise EvaluationError("time: invalid location name")
    if len(name) > _LONGEST:
        return None
    count_steps(_LOOK_UP)
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return None


def timestamp_part(name: str, value: Timestamp, zone: str = "UTC") -> int:
    """Return the part *name* of *value* in *zone*, such as ``getFullYear``.

    Raises:
        EvaluationError: there is no such zone.
    """
    moment, years = _local(value, zone)
    match name:
        case "getFullYear":
            return moment.year + years
        case "getMonth":
            return moment.month - 1
        case "getDate":
            return moment.day
        case "getDayOfMonth":
            return moment.day - 1
        case "getDayOfYear":
            return moment.timetuple().tm_yday - 1
        case "getDayOfWeek":
            return moment.isoweekday() % 7
        case "getHours":
            return moment.hour
        case "getMinutes":
            return moment.minute
        case "getSeconds":
            return moment.second
    return moment.microsecond // 1000


def duration_part(name: str, value: Duration) -> int:
    """Return the whole *value* in the unit of *name*, rounded towards zero."""
    unit = {
        "getHours": 3600 * SECOND,
        "getMinutes": 60 * SECOND,
        "getSeconds": SECOND,
        "getMilliseconds": 10**6,
    }[name]
    whole = abs(value.ns) // unit
    return -whole if value.ns < 0 else whole
