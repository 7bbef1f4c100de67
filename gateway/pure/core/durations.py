"""Durations in Go's notation, as Kubernetes writes them in URLs and in configuration.

Source: Go standard library, time.ParseDuration and time.Duration.String. Unlike the latter,
``format_duration`` leaves out parts that are zero (``1h``, not ``1h0m0s``) and stays within ASCII.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

_NS = {
    "ns": 1,
    "us": 1_000,
    "\N{MICRO SIGN}s": 1_000,
    "\N{GREEK SMALL LETTER MU}s": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(" + "|".join(sorted(_NS, key=len, reverse=True)) + ")")
_LARGEST_NS = 2**63 - 1
"""Go counts nanoseconds in a signed 64-bit integer; some 292 years."""


def parse_duration(text: str) -> float:
    """Return the seconds of *text*: ``1m30s``, ``1.5h``, ``100ms``, ``0``, with an optional sign.

    Digits below a nanosecond are cut off.

    Raises:
        ValueError: *text* is not a Go duration, or is one of more than about 292 years.
    """
    unsigned = text[1:] if text[:1] in {"+", "-"} else text
    total_ns = 0 if unsigned == "0" else _sum_parts(unsigned, text)
    return (-total_ns if text.startswith("-") else total_ns) / 1_000_000_000


def _sum_parts(unsigned: str, text: str) -> int:
    total_ns = end = 0
    # Go's numbers have up to 19 digits; this bound stays below Python's own limit for int().
    if not unsigned or len(unsigned) > 1_000:
        raise _not_a_duration(text)
    while end < len(unsigned):
        part = _PART.match(unsigned, end)
        if part is None or not (part[1] or part[2]):
            raise _not_a_duration(text)
        fraction = part[2] or ""
        unit_ns = _NS[part[3]]
        total_ns += int(part[1] or "0") * unit_ns + int(fraction or "0") * unit_ns // 10 ** len(fraction)
        end = part.end()
    if total_ns > _LARGEST_NS:
        raise ValueError(f'"{text[:40]}" is longer than a duration can be, about 292 years')
    return total_ns


def _not_a_duration(text: str) -> ValueError:
    return ValueError(f'"{text[:40]}" is not a duration such as 100ms, 2s or 1m30s')


def format_duration(seconds: float) -> str:
    """Return *seconds*, to the nanosecond, in its shortest form: ``2s``, ``9.9s``, ``100ms``, ``1m30s``.

    Raises:
        ValueError: *seconds* is NaN, or more than about 292 years.
    """
    # A multiplication of floats would be a nanosecond off for some values.
    total_ns = round(Fraction(abs(seconds)) * 1_000_000_000) if math.isfinite(seconds) else _LARGEST_NS + 1
    if total_ns > _LARGEST_NS:
        raise ValueError(f"{seconds} seconds cannot be written as a duration")
    if total_ns == 0:
        return "0s"
    sign = "-" if seconds < 0 else ""
    if total_ns < _NS["s"]:
        unit = next(unit for unit in ("ms", "us", "ns") if total_ns >= _NS[unit])
        return sign + _decimal(total_ns, _NS[unit]) + unit
    hours, below_hour = divmod(total_ns, _NS["h"])
    minutes, below_minute = divmod(below_hour, _NS["m"])
    parts = (
        f"{hours}h" if hours else "",
        f"{minutes}m" if minutes else "",
        f"{_decimal(below_minute, _NS['s'])}s" if below_minute else "",
    )
    return sign + "".join(parts)


def _decimal(total_ns: int, unit_ns: int) -> str:
    whole, rest = divmod(total_ns, unit_ns)
    digits = f"{rest:0{len(str(unit_ns)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)
