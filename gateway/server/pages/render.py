"""Pages as HTML: a name and the JSON of a page in, bytes out.

Every value passes through ``printable`` and is then escaped: no text can become markup, end a line, reorder
its neighbours or hide. Messages alone keep their line breaks, since a status has a line for each denial. A
page has no script and loads nothing; its policy allows its own style sheet only. Links are relative, so that
pages work behind a proxy that adds a prefix to the path.

Source: W3C Content Security Policy Level 3; WCAG 2.2.
"""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from admission_gateway_worker.text import printable
from gateway.base.text import endpoint_text
from gateway.observe.decisions.document import names_with_modes, not_enforced
from gateway.server.pages.decision_view import view
from gateway.server.pages.documents import asks_all_for
from gateway.server.pages.explain import MAX_JSON_BYTES
from gateway.server.pages.namespaces import table
from gateway.server.pages.notices import duration, in_rollout, is_soon, notices
from gateway.server.pages.refresh import refresh_of, refresh_s
from gateway.server.pages.sparkline import sparkline
from gateway.server.pages.webhook_list import SIZE, STATES, listed
from gateway.server.pages.yaml_text import sections

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.server.pages.state import Json

_FOLDER: Final = Path(__file__).with_name("templates")
_STYLE: Final = (_FOLDER / "style.css").read_text()
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)

NAVIGATION: Final = (
    ("", "overview", "Overview"),
    ("decisions", "decisions", "Decisions"),
    ("differences", "differences", "Differences"),
    ("namespaces", "namespaces", "Namespaces"),
    ("rollouts", "rollouts", "Rollout plans"),
    ("explain", "explain", "Explain"),
    ("configz", "configz", "Configuration"),
)
"""Path, name and title of each page."""
_SECTIONS: Final = {
    "webhook": "overview",
    "decision": "decisions",
    "missing": "decisions",
    "rollout": "rollouts",
    "act": "rollouts",
    "acted": "rollouts",
}
"""Pages that belong to another one in the navigation."""

_SHOWN_CHARS: Final = 4096
"""Characters of one value that are shown."""


_SIGNS: Final = {"denied": "✗ ", "failed": "! ", "open": "△ ", "warned": "◇ "}
"""Outcomes differ by their signs as well as by their colours, whose classes these are."""
_TITLES: Final = {
    "denied": "Denied",
    "failed": "Failed closed",
    "open": "Failed open",
    "warned": "Would be refused",
}


def headers_of(page: str, query: Mapping[str, str]) -> bytes:
    """Return the header lines of the page called *page* for a request with *query*."""
    # A form's request has no usable Origin under no-referrer; other sites get no referrer from either.
    referrer = "same-origin" if page in ("explain", "act") else "no-referrer"
    seconds = refresh_s(page, query)
    refresh = f"Refresh: {seconds}\r\n" if seconds else ""
    return (
        f"{refresh}Content-Security-Policy: {_POLICY}\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "X-Frame-Options: DENY\r\n"
        f"Referrer-Policy: {referrer}\r\n"
        "Cross-Origin-Opener-Policy: same-origin\r\n"
        "Cross-Origin-Resource-Policy: same-origin\r\n"
        "Cache-Control: no-store\r\n"
    ).encode()


def render(
    page: str, data: Json, query: Mapping[str, str], *, root: str, json_link: str, review: str = ""
) -> bytes:
    """Return the page called *page* with *data*, its JSON, for a request with *query*.

    *root* is the relative link to the overview, *json_link* that to the JSON. *review* is the text of the
    form, which stays there.
    """
    context = {
        "page": _SECTIONS.get(page, page),
        "data": data,
        "query": query,
        "review": review if len(review) <= MAX_JSON_BYTES else "",
        "root": root,
        "json_link": json_link,
        "navigation": NAVIGATION,
        "refresh": refresh_of(page, query),
        "style": Markup(_STYLE),  # noqa: S704 - a file of this package
        **_derived(page, data, query),
    }
    return _environment().get_template(f"{page}.html").render(context).encode(errors="replace")


def render_file(template: str, data: Json, **context: object) -> bytes:
    """Return *data* as a self-contained page that is opened as a file, by *template*."""
    found = (
        _environment()
        .get_template(f"{template}.html")
        .render(
            data=data,
            style=Markup(_STYLE),  # noqa: S704 - a file of this package
            policy=f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'",
            **context,
        )
    )
    return found.encode(errors="replace")


def _derived(page: str, data: Json, query: Mapping[str, str]) -> Json:
    """Return the values of *page* that are derived from *data* and *query*."""
    match page:
        case "overview":
            rollouts = in_rollout(data["webhooks"])
            return {
                "notices": notices(data),
                "rollouts": rollouts[:SIZE],
                "rolloutsLeftOut": max(len(rollouts) - SIZE, 0),
                "listed": listed(data, query),
                "states": STATES,
            }
        case "decisions":
            return {"command": asks_all_for(query.get("uid", ""))}
        case "decision":
            return {"view": view(data["decision"])}
        case "explain":
            return {"views": list(map(view, data["decisions"]))}
        case "namespaces" | "webhook":
            return {"table": table(data["cells"])}
        case "configz":
            return {"sections": sections(data)}
    return {}


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
        cut=printable,
        duration=duration,
        expiry=expiry,
        lines=lines,
        grouped=lambda number: f"{number:,}",
        milliseconds=milliseconds,
        identity=identity,
        place=endpoint_text,
        singles=singles,
        not_enforced=not_enforced,
        path_part=lambda text: quote(text, safe="", errors="replace"),
        query=lambda fields: urlencode(fields, errors="replace"),
        sparkline=sparkline,
        typed=typed,
        with_modes=names_with_modes,
        rate=lambda rate: f"{rate:,.0f}" if rate >= 10 else f"{rate:.3g}",
    )
    environment.globals.update(
        doc_link=lambda page: Markup("<code>docs/{}</code>").format(page), signs=_SIGNS, titles=_TITLES
    )
    return environment


def identity(one: Json) -> dict[str, str]:
    """Return the query of the page of the webhook of *one*, which is a webhook or names it."""
    name = one["webhook"] if "webhook" in one else one["name"]
    return {"phase": one["phase"], "configuration": one["configuration"], "name": name}


def singles(group: Json) -> dict[str, str]:
    """Return the query of the single decisions in *group*."""
    found = {"namespace": group["namespace"], "view": "single"}
    if group["webhook"]:
        found["webhook"] = f"{group['configuration']}/{group['webhook']}"
        outcome = group.get("outcome", "")
        # The filter is for outcomes of webhooks: this one did not allow the request.
        found["outcome"] = not_enforced(group["latest"])[0]["outcome"] if outcome == "Allowed" else outcome
    return {name: value for name, value in found.items() if value}


def _shown(value: object) -> object:
    """Return *value* as it is shown; markup of the templates stays."""
    return value if isinstance(value, Markup | int) else printable(value, _SHOWN_CHARS)


def lines(text: str, max_chars: int = _SHOWN_CHARS) -> Markup:
    """Return the message *text*, cut to *max_chars*, with its line breaks."""
    shown = text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"
    return Markup("\n").join(printable(line, None) for line in shown.split("\n"))


def typed(text: str) -> Markup:
    """Return *text* as the content of a textarea, which sends the same text again.

    Invisible characters are character references. Control characters that no reference can stand for become
    U+FFFD.

    Source: HTML Living Standard, sections 4.10.11 (a first newline is dropped) and 13.2.5.80 (references).
    """
    found = str(escape(re.sub("\r\n?", "\n", text)))
    if not found.isprintable():
        found = "".join(one if one == "\n" or one.isprintable() else _reference(one) for one in found)
    return Markup(f"\n{found}")  # noqa: S704 - escaped above


def _reference(character: str) -> str:
    is_lost = unicodedata.category(character) in ("Cc", "Cs") and character != "\t"
    return "\ufffd" if is_lost else f"&#{ord(character)};"


def expiry(seconds: float) -> Markup:
    """Return when something expires, *seconds* from now, marked if that is soon."""
    if seconds < 0:
        return Markup('<span class="tag bad">expired</span> {} ago').format(duration(-seconds))
    text = Markup("in {}").format(duration(seconds))
    return Markup('<span class="tag warn">soon</span> {}').format(text) if is_soon(seconds) else text


def milliseconds(value: float | None) -> Markup:
    """Return a time in milliseconds with its unit, or that there is none."""
    if value is None:
        return Markup('<span class="zero">none</span>')
    if value >= 10_000:
        return Markup('{:.1f} <span class="unit">s</span>').format(value / 1000)
    return Markup('{} <span class="unit">ms</span>').format(f"{value:.0f}" if value >= 10 else f"{value:.2g}")
