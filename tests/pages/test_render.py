"""Pages as HTML: no text of foreign origin becomes markup, hides, or reorders what is beside it."""

from __future__ import annotations

import functools
import re
import shlex
import unicodedata
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.server.pages.notices import notices
from gateway.server.pages.render import headers_of, render
from gateway.tools.cli import build_parser
from tests.docs.pages import ROOT
from tests.pages.kit import documents

if TYPE_CHECKING:
    from collections.abc import Callable

PAGES = tuple(documents())
STYLE = ROOT / "gateway/server/pages/templates/style.css"
VOID = {"meta", "input", "rect", "path", "br"}


class Outline(HTMLParser):
    """The elements of a page with the names of their attributes, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attrs)))
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page(name: str, text: Callable[[str], str] = str) -> str:
    query = {"namespace": text("shop"), "operation": "UPDATE"}
    links = {"root": "./", "json_link": f"?{text('a')}"}
    return render(name, documents(text)[name], query, **links, review=text("kind: Pod")).decode()


def outline(html: str) -> Outline:
    found = Outline()
    found.feed(html)
    found.close()
    assert found.open == []
    return found


TEXTS = st.text(st.characters(exclude_categories=()), min_size=1, max_size=40)
HOSTILE = (
    "<b>",
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</textarea></pre></style><!--",
    "{{ 7 * 7 }}{% raw %}",
    "\x1b[2J\x1b]0;title\x07",
    "a\r\nSet-Cookie: a=b\r\n\r\n<p>",
    "\u202e",
    "\u202egnp.exe\u2066\u200b\ufeff",
    "\ud800 \x00 \x85 \u2028",
    "javascript:alert(1)",
    "&lt;b&gt; &amp;",
    "../../..?a=b#c%00%2f",
)


@functools.cache
def usual_outline(name: str) -> Outline:
    return outline(page(name))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_change_no_element_of_a_page(text: str) -> None:
    for name in PAGES:
        changes_no_element(name, text)


@pytest.mark.parametrize("name", PAGES)
@settings(max_examples=20)
@given(text=TEXTS)
def test_texts_change_no_element_of_a_page(name: str, text: str) -> None:
    changes_no_element(name, text)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
@settings(max_examples=200)
@given(text=TEXTS)
def test_more_texts_change_no_element_of_a_page(name: str, text: str) -> None:
    changes_no_element(name, text)


def changes_no_element(name: str, text: str) -> None:
    usual = usual_outline(name)
    html = page(name, lambda usual: usual + text)
    found = outline(html)

    def shape(one: Outline) -> list[tuple[str, ...]]:
        # Each line of a difference is a span, and YAML breaks some texts into lines.
        return [element for element in one.elements if element[0] != "span"]

    assert shape(found) == shape(usual)
    for character in set(html) - {"\n"}:
        assert unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"), repr(character)
    for attribute, value in found.attributes:
        if attribute in ("href", "action"):
            assert re.match(r"\./|\?|#", value or ""), value


@pytest.mark.parametrize("name", PAGES)
def test_long_texts_are_cut(name: str) -> None:
    assert len(page(name, lambda usual: usual + "x" * 1_000_000)) < 2_000_000


def test_names_are_shown() -> None:
    found = outline(page("decision")).text
    for text in (
        "label team is missing",
        "w0.b.c",
        "(policies.team.svc:50051 at 10.0.0.1)",
        "no rule",
        "deprecated",
        "+  a: one",
    ):
        assert text in found
    assert "writes 1 path of another webhook" in found


class _Textarea(HTMLParser):
    """The content of the textarea of a page, as a browser reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_inside = False
        self.content = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.is_inside = tag == "textarea"

    def handle_endtag(self, tag: str) -> None:
        self.is_inside = False

    def handle_data(self, data: str) -> None:
        self.content += data if self.is_inside else ""


@given(text=st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=["Cs", "Cc"]))))
@example(text="\nspec:\r\n\tcontainers: []  \n")
def test_the_form_keeps_the_text_that_was_typed(text: str) -> None:
    found = _Textarea()
    found.feed(page("explain", lambda usual: text if usual == "kind: Pod" else usual))
    expected = re.sub("\r\n?", "\n", text)
    lost = {one for one in expected if unicodedata.category(one) in ("Cc", "Cs")} - {"\n", "\t"}
    assert found.content == "\n" + "".join("\ufffd" if one in lost else one for one in expected)


def test_a_message_of_several_denials_has_a_line_for_each() -> None:
    found = {**documents()["decision"]}
    found["decision"] = {**found["decision"], "message": "a.b.c: no\nd.e.f: <b>\u202enever"}
    html = render("decision", found, {}, root="./", json_link="?").decode()
    assert "a.b.c: no\nd.e.f: &lt;b&gt;\\u202enever</span>" in html


def test_the_overview_says_how_many_requests_a_candidate_denies() -> None:
    html = page("overview")
    for text in ("Roll-outs", ">◇ 70 <", "of 329<", ">63 newly denied<", "paused by ann: holidays"):
        assert text in html


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_nothing_and_runs_nothing(name: str) -> None:
    found = outline(page(name))
    tags = {element[0] for element in found.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "audio", "video", "use"}
    names = {attribute for attribute, _ in found.attributes}
    assert not {attribute for attribute in names if attribute.startswith("on")} | (names & {"src", "style"})
    headers = headers_of(name, {}).decode()
    policy = re.search(r"Content-Security-Policy: (.*)\r\n", headers)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert "frame-ancestors 'none'" in policy[1]
    for line in ("X-Content-Type-Options: nosniff", "Cache-Control: no-store", "Referrer-Policy: "):
        assert line in headers


def luminance(color: str) -> float:
    """Return the relative luminance of *color*, ``#rgb`` or ``#rrggbb``, by WCAG 2.2."""
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_outcomes_have_colours_of_their_own_that_can_be_read(scheme: str) -> None:
    style = STYLE.read_text()
    part = style[style.index("@media (prefers-color-scheme: dark)") :] if scheme == "dark" else style
    colors = dict(re.findall(r"--([\w-]+): (#\w+);", part[: part.index("}")]))
    outcomes = ("denied", "failed", "open", "warned", "good")
    assert len({colors[name] for name in outcomes}) == len(outcomes)
    for name in (*outcomes, "bad", "warn"):
        for back in (colors[f"{name}-back"], colors["panel"], colors["page"]):
            lighter, darker = sorted((luminance(colors[name]), luminance(back)), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (name, back)


def test_no_outcome_is_told_by_its_colour_alone() -> None:
    found = page("decision") + page("overview") + page("webhook")
    for tag in re.findall(r'<span class="tag (?:denied|failed|open|warned)">([^<]*)</span>', found):
        assert re.search(r"\w{4}", tag), tag
    for cell in re.findall(r'<(?:td|dd) class="[^"]*\b(?:denied|failed|open|warned)"[^>]*>([^<]*)', found):
        assert cell[:2] in ("✗ ", "! ", "△ ", "◇ "), cell


def test_commands_and_documents_that_pages_name_exist() -> None:
    found = "".join(file.read_text() for file in STYLE.parent.glob("*.html"))
    commands = re.findall(r"<code>admission-gateway ([^<{]+)</code>", found)
    assert len(commands) > 5
    for command in commands:
        build_parser().parse_args(shlex.split(command))
    pages = {one.page for one in notices(documents()["overview"])} | set(
        re.findall(r'doc_link\("(.*?)"\)', found)
    )
    assert len(pages) > 8
    for name in pages:
        assert (ROOT / "docs" / name).is_file(), name


EMPTY: dict[str, tuple[dict[str, Any], str]] = {
    "overview": ({"webhooks": []}, "admission-gateway import"),
    "decisions": ({"decisions": [], "groups": [], "filter": {}}, "explain"),
    "differences": ({"differences": []}, "admission-gateway replay"),
    "namespaces": ({"cells": []}, "admission-gateway audit"),
    "rollouts": ({"plans": []}, "docs/run-rollout-plans.md"),
    "webhook": ({"groups": [], "cells": []}, "It has refused nothing"),
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_page_without_anything_says_what_to_do_next(name: str) -> None:
    nothing, expected = EMPTY[name]
    html = render(name, {**documents()[name], **nothing}, {}, root="./", json_link="?").decode()
    assert expected in html
    assert name not in ("decisions", "differences", "namespaces", "rollouts") or "<table" not in html


@pytest.mark.parametrize("name", PAGES)
def test_pages_have_landmarks_one_heading_and_headers_with_scope(name: str) -> None:
    found = outline(page(name))
    tags = [element[0] for element in found.elements]
    assert [tags.count(tag) for tag in ("h1", "main", "nav", "header")] == [1] * 4
    pictures = [element for element in found.elements if element[0] == "svg" and "role" in element]
    assert tags.count("title") == 1 + len(pictures)
    assert all("scope" in element for element in found.elements if element[0] == "th")
    ids = [value for attribute, value in found.attributes if attribute == "id"]
    assert len(ids) == len(set(ids))
    labelled = {value for attribute, value in found.attributes if attribute in ("for", "aria-labelledby")}
    assert labelled <= set(ids)
    fields: list[Any] = [
        element for element in found.elements if element[0] in ("input", "select", "textarea")
    ]
    fields = [field for field in fields if field != ("input", "type", "name", "value")]  # hidden ones
    assert len(fields) == len([value for attribute, value in found.attributes if attribute == "for"])
