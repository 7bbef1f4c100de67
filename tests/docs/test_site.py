"""The built documentation, opened from files in headless Chromium. `make docs` checks its links.

Without Chromium the tests are skipped, but not in CI.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import yaml

from tests.chromium import CHROMIUM, Chromium
from tests.docs.pages import DOCS, ROOT, section
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

TABS = ["Start", "Operate", "Write policies", "Move", "Contribute"]

QUESTIONS = re.findall(
    r"^\| (.+?) \| (`.+`) \| \[.+\]\((\S+)\.md(\S*)\) \| (\d) \|$",
    section((DOCS / "contributing.md").read_text(), "What the search has to find"),
    re.MULTILINE,
)
"""Each with the words that are typed, the page and the anchor of the answer, and the clicks up to it."""
PAGES_SHOWN = 5
"""Nobody reads more results."""
SHOWN = """
  [...document.querySelectorAll('.md-search-result__item')].slice(0, NUMBER).flatMap(item =>
    [...item.querySelectorAll('.md-search-result__link')].map(link => {
      const url = new URL(link.href);
      return [url.pathname + url.hash, link.closest('details') ? 2 : 1];
    }))
"""
"""Where results lead, and the clicks up to them."""

built = pytest.mark.skipif(CHROMIUM is None and not os.environ.get("CI"), reason="chromium is not installed")


def test_every_page_has_one_place_in_one_tab() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert [tab for row in nav for tab in row] == TABS
    placed = re.findall(r"[\w/-]+\.md", str(nav))
    assert sorted(placed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of the folder of built pages."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
        timeout=300,
    )
    return folder.as_uri()


@pytest.fixture
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


def results(browser: Chromium, words: str) -> list[str]:
    """Search the page that is open for *words*, and return where the results lead, best first."""
    browser.evaluate("document.querySelector('[data-md-component=search-query]').focus()")
    browser.type(words)
    links = "[...document.querySelectorAll('.md-search-result__link')].map(link => link.href)"
    return eventually(lambda: browser.evaluate(links), f"results for {words!r}")


def is_visible(browser: Chromium, selector: str) -> bool:
    shown = f"document.querySelector({selector!r}).checkVisibility({{visibilityProperty: true}})"
    found = browser.evaluate(shown)
    assert isinstance(found, bool)
    return found


@built
@pytest.mark.process
@pytest.mark.smoke
def test_the_search_works_from_files(site: str, browser: Chromium) -> None:
    browser.show()
    browser.open(f"{site}/index.html")
    first, *_ = results(browser, "lock-out")
    assert first == f"{site}/lock-outs.html?h=lock+out"
    requests = [event["params"]["request"]["url"] for event in browser.events if "request" in event["params"]]
    assert len(requests) > 1
    assert [url for url in requests if not url.startswith((f"{site}/", "data:"))] == []
    browser.click(".md-search-result__link")
    assert browser.evaluate("document.querySelector('article mark').textContent") == "Lock"


@built
@pytest.mark.process
@pytest.mark.parametrize(("scheme", "colours"), [("light", "default"), ("dark", "slate")])
def test_pages_have_the_colours_of_the_system_until_others_are_chosen(
    site: str, browser: Chromium, scheme: str, colours: str
) -> None:
    shown = "document.body.dataset.mdColorScheme"
    browser.show(scheme=scheme)
    browser.open(f"{site}/concepts.html")
    assert browser.evaluate(shown) == colours
    chosen = []
    for _ in range(3):
        browser.evaluate("document.querySelector('[data-md-component=palette] label:not([hidden])').click()")
        chosen.append(browser.evaluate(shown))
    assert chosen == ["default", "slate", colours]


@built
@pytest.mark.process
def test_long_lists_of_pages_are_collapsed_and_pages_lead_to_the_next(site: str, browser: Chromium) -> None:
    browser.show()
    browser.open(f"{site}/operate.html")
    runbook = '.md-nav__link[href="runbooks/down.html"]'
    assert is_visible(browser, '.md-nav__link[href="runbooks/index.html"]')
    assert not is_visible(browser, runbook)
    assert not is_visible(browser, '.md-nav__link[href="catalogue/pod-security.html"]')
    tabs = "[...document.querySelectorAll('.md-tabs__link')].map(tab => tab.textContent.trim())"
    assert browser.evaluate(tabs) == TABS
    browser.open(f"{site}/runbooks/index.html")
    assert is_visible(browser, '.md-nav__link[href="down.html"]')
    browser.click(".md-footer__link--next")
    assert browser.evaluate("location.href") == f"{site}/runbooks/down.html"


def clicks(browser: Chromium, site: str, words: str, answer: str) -> int:
    """Search the pages at *site* for *words*, go to *answer* by the results, and return the clicks."""
    browser.open(f"{site}/index.html")
    results(browser, words)
    shown = browser.evaluate(SHOWN.replace("NUMBER", str(PAGES_SHOWN)))
    wanted = urlsplit(f"{site}/{answer}")
    target = f"{wanted.path}#{wanted.fragment}".rstrip("#")
    number: int = min((count for place, count in shown if place == target), default=0)
    assert number, (words, answer, shown)
    (at,) = (index for index, (place, count) in enumerate(shown) if [place, count] == [target, number])
    link = f"document.querySelectorAll('.md-search-result__link')[{at}]"
    if number > 1:
        browser.evaluate(f"{link}.closest('details').querySelector('summary').click()")
    browser.follow(link)
    assert browser.evaluate("location.pathname + location.hash") == target
    return number


def test_questions_are_read() -> None:
    assert len(QUESTIONS) == 10


@built
@pytest.mark.process
@pytest.mark.parametrize(("question", "typed", "page", "anchor", "most"), QUESTIONS)
def test_the_search_answers_a_question(
    site: str, browser: Chromium, question: str, typed: str, page: str, anchor: str, most: str
) -> None:
    browser.show()
    answer = f"{page}.html{anchor}"
    found = {words: clicks(browser, site, words, answer) for words in re.findall(r"`(.+?)`", typed)}
    assert max(found.values()) <= int(most) <= 2, (question, found)
