"""The calls of the last fifteen minutes as a small picture: bars of calls, denials and failures.

Calls are above. Below them, each in a row of its own, are the part that was denied and the part that failed,
closed or open. The title has the same numbers as text.
"""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from gateway.observe.telemetry.timeline import BUCKET_S, BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_STEP: Final = 4
"""The width of a bar with the gap after it. All lengths are in units of the picture."""
_CALLS_HEIGHT: Final = 18
_ROW_HEIGHT: Final = 7
_LOWEST: Final = 1.5
"""The height of the smallest bar."""
_MINUTES: Final = round(BUCKET_S * BUCKETS / 60)
HEIGHT: Final = _CALLS_HEIGHT + 2 * (_ROW_HEIGHT + 2)
_SVG: Final = Markup(
    '<svg class="spark" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img">'
    '<title>{title}</title><path class="s-base" d="M0 {base}h{width}"/>{paths}</svg>'
)


def sparkline(timeline: dict[str, list[int]] | None, what: str) -> Markup:
    """Return the picture of *timeline*, as in the JSON; *what* is ``Calls`` or ``Reviews``.

    The failures of a webhook are not failures of reviews, so that pictures of reviews have none.
    """
    if timeline is None:
        return Markup('<span class="zero">none in {} min</span>').format(_MINUTES)
    calls, denied, closed, opened = timeline.values()
    highest = max(calls) or 1
    failed = _parts(map(add, closed, opened), calls)
    rows = (
        ("s-calls", _CALLS_HEIGHT, _CALLS_HEIGHT, [number / highest for number in calls]),
        ("s-denied", _CALLS_HEIGHT + 2 + _ROW_HEIGHT, _ROW_HEIGHT, _parts(denied, calls)),
        ("s-failed", HEIGHT, _ROW_HEIGHT, failed),
        ("s-open", HEIGHT, _ROW_HEIGHT, _parts(opened, calls)),
    )
    most = f"at most {highest:,} in {BUCKET_S:.0f} s"
    title = f"{what} of the last {_MINUTES} minutes: {sum(calls):,}, {most}. Denied: {_sum(denied)}."
    if what == "Calls":
        title += f" Failed closed: {_sum(closed)}. Failed open: {_sum(opened)}."
    paths = Markup("").join(
        Markup('<path class="{}" d="{}"/>').format(name, bars)
        for name, base, height, parts in rows
        if (bars := _bars(parts, base, height))
    )
    sizes = {"width": _STEP * BUCKETS, "height": HEIGHT, "base": _CALLS_HEIGHT}
    return _SVG.format(**sizes, title=title, paths=paths)


def _parts(numbers: Iterable[int], calls: Sequence[int]) -> list[float]:
    # A call may be counted in the half minute after that of its denial.
    return [min(number / max(of, 1), 1.0) for number, of in zip(numbers, calls, strict=True)]


def _bars(parts: Iterable[float], base: int, height: int) -> str:
    """Return the path of a bar for each of *parts*, from 0 to 1, that stands on *base*."""
    tall = [max(round(part * height, 1), _LOWEST) if part else 0 for part in parts]
    return "".join(
        f"M{_STEP * number} {base}v-{size:g}h{_STEP - 1}v{size:g}z"
        for number, size in enumerate(tall)
        if size
    )


def _sum(numbers: Sequence[int]) -> str:
    """Return the sum of *numbers* and when the last of them was."""
    last = next((age for age, number in enumerate(reversed(numbers)) if number), None)
    if last is None:
        return "none"
    ago = "in this half minute" if not last else f"the last {last * BUCKET_S / 60:g} min ago"
    return f"{sum(numbers):,}, {ago}"
