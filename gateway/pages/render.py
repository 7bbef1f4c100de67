"""Pages as HTML: a name and the JSON of a page in, bytes out.

Every value passes through ``printable`` and is then escaped: no text can become markup, end a line, reorder
its neighbours or hide. A page has no script and loads nothing; the policy in ``HEADERS`` allows its own style
sheet only. Links are relative, so that pages work behind a proxy that adds a prefix to the path.

Source: W3C Content Security Policy Level 3; WCAG 2.2.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gateway.text import printable

if TYPE_CHECKING:
    from gateway.pages.state import Json

_FOLDER: Final = Path(__file__).with_name("templates")
_STYLE: Final = (_FOLDER / "style.css").read_text()
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS: Final = (
    f"Content-Security-Policy: default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "X-Frame-Options: DENY\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Cache-Control: no-store\r\n"
).encode()
"""Header lines of every page."""

NAVIGATION: Final = (
    ("", "overview", "Overview"),
    ("decisions", "decisions", "Decisions"),
    ("namespaces", "namespaces", "Namespaces"),
    ("explain", "explain", "Explain"),
    ("configz", "configz", "Configuration"),
)
"""Path, name and title of each page."""

_SHOWN_CHARS: Final = 4096
"""Of one value."""
_EXPIRES_SOON_S: Final = 30 * 86_400.0
_UNITS: Final = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))


def render(page: str, data: Json, *, root: str = "./", json_link: str = "?format=json") -> bytes:
    """Return the page called *page* with *data*, its JSON.

    *root* is the relative link to the overview, *json_link* that to the JSON.
    """
    template = _environment().get_template(f"{page}.html")
    return template.render(
        page=page,
        data=data,
        root=root,
        json_link=json_link,
        navigation=NAVIGATION,
        style=Markup(_STYLE),  # noqa: S704 - a file of this package
        notices=notices(data) if page == "overview" else [],
    ).encode(errors="replace")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        cut=lambda text, limit: printable(text, limit),
        duration=duration,
        expiry=expiry,
        grouped=lambda number: f"{number:,}",
        milliseconds=milliseconds,
        rate=lambda rate: f"{rate:,.0f}" if rate >= 10 else f"{rate:.3g}",
    )
    return environment


def _shown(value: object) -> object:
    """Return *value* as it is shown; markup of the templates stays."""
    return value if isinstance(value, Markup | int) else printable(value, _SHOWN_CHARS)


def duration(seconds: float) -> str:
    """Return *seconds* in the largest unit of which there are two or more."""
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def expiry(seconds: float) -> Markup:
    """Return when something expires, *seconds* from now, marked if that is soon."""
    if seconds < 0:
        return Markup('<span class="tag bad">expired</span> {} ago').format(duration(-seconds))
    text = f"in {duration(seconds)}"
    return Markup('<span class="tag warn">soon</span> {}').format(text) if _is_soon(seconds) else Markup(text)


def _is_soon(seconds: float) -> bool:
    return seconds < _EXPIRES_SOON_S


def milliseconds(value: float | None) -> Markup:
    """Return a time in milliseconds with its unit; None: no time."""
    if value is None:
        return Markup('<span class="zero">none</span>')
    if value >= 10_000:
        return Markup('{:.1f} <span class="unit">s</span>').format(value / 1000)
    return Markup('{} <span class="unit">ms</span>').format(f"{value:.0f}" if value >= 10 else f"{value:.2g}")


def notices(overview: Json) -> list[dict[str, Any]]:
    """Return what needs attention in *overview*, the worst first: level, title and lines."""
    bad: list[dict[str, Any]] = []
    warn: list[dict[str, Any]] = []

    def add(found: list[dict[str, Any]], title: str, lines: list[str]) -> None:
        level = "bad" if found is bad else "warn"
        found.append({"level": level, "title": title, "lines": lines})

    configuration = overview["configuration"]
    refused = configuration["refused"]
    if refused is not None:
        lines = _problem_lines(refused["problems"], refused["problemsLeftOut"])
        add(bad, f"the configuration of {refused['time']} was refused, the one in force stays", lines)
    if configuration["refusedResources"]:
        add(bad, f"custom resources that were refused: {configuration['refusedResources']}", [])
    if not configuration["isSameInAllProcesses"]:
        add(warn, "the processes have different configurations", [])
    reasons = [f"process {one['pid']}: {one['reason']}" for one in overview["processes"] if not one["ready"]]
    scope = overview["scope"]
    missing = scope["processes"] - scope["answered"]
    if missing:
        reasons.append(f"no answer from {missing} of {scope['processes']} processes")
    if reasons:
        add(bad, "not ready", reasons)
    dead = [pool["name"] for pool in overview["pools"] if not pool["ready"]]
    if dead:
        add(bad, "pools without a ready endpoint; their webhooks fail by failurePolicy", dead)
    partly = [pool["name"] for pool in overview["pools"] if 0 < pool["ready"] < len(pool["endpoints"])]
    if partly:
        add(warn, "pools with an endpoint that is not ready", partly)
    for member, title in (("failedClosed", "webhooks failed closed"), ("failedOpen", "webhooks failed open")):
        names = [
            f"{one['name']}: {one['recent'][member]:,}"
            for one in overview["webhooks"]
            if one["recent"][member]
        ]
        if names:
            add(bad, f"{title} in the last {duration(overview['windowSeconds'])}", names[:20])
    certificates = overview["certificates"]
    gone = [one["use"] for one in certificates if one["problem"] or one["remainingSeconds"] < 0]
    if gone:
        add(bad, "certificates that have expired, or cannot be read", gone)
    soon = [
        f"{one['use']}: {duration(one['remainingSeconds'])}"
        for one in certificates
        if not one["problem"] and one["remainingSeconds"] >= 0 and _is_soon(one["remainingSeconds"])
    ]
    if soon:
        add(warn, "certificates that expire within 30 days", soon)
    if configuration["warnings"]:
        lines = _problem_lines(configuration["warnings"], configuration["warningsLeftOut"])
        add(warn, "the configuration has warnings", lines)
    return bad + warn


def _problem_lines(problems: list[Json], left_out: int) -> list[str]:
    lines = [
        ": ".join(filter(None, (one["where"], one["field"], one["message"]))) for one in problems
    ]
    return [*lines, f"and {left_out} more"] if left_out else lines
