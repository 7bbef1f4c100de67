"""The pages in headless Chromium: for keyboards, screen readers and phones, in light and dark.

Screenshots are written to the folder in PAGES_SHOTS, if that is set. Without Chromium the tests are skipped,
but not in CI.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from gateway.server.pages.render import render
from tests.chromium import CHROMIUM, Chromium
from tests.kit import pool_document, run_command, webhook_document
from tests.pages.kit import documents
from tests.pages.test_pages import found, review
from tests.pages.test_rollouts import plan_documents, plan_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit import GatewayProcess, StartGateway
    from tests.worker.server import StartWorker

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(CHROMIUM is None and not os.environ.get("CI"), reason="chromium is not installed"),
]

PATHS = (
    *("/", "/decisions", "/decisions/m-0", "/decisions/v-0", "/namespaces", "/explain", "/configz"),
    *("/webhook?phase=validate&configuration=w&name=h0.w.test", "/differences"),
    *("/rollouts", "/rollouts/PLAN", "/rollouts/PLAN?action=skip"),
)
SCHEMES = ("light", "dark")
LOWEST_CONTRAST = 4.5
"""WCAG 2.2, success criterion 1.4.3, for text of ordinary size."""

CONTRASTS = """
(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const rgba = color => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const luminance = color => {
    const [r, g, b] = [...rgba(color)].slice(0, 3).map(v => v / 255).map(
      v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const background = element => {
    for (let e = element; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (rgba(color)[3] > 0) return color;
    }
    return 'white';
  };
  const worst = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    const a = luminance(getComputedStyle(element).color), b = luminance(background(element));
    const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    worst.push([contrast, walker.currentNode.data.trim().slice(0, 40)]);
  }
  return worst.sort((a, b) => a[0] - b[0])[0];
})()
"""


NOT_READABLE = """
(() => {
  const found = [], note = (what, text) => found.push(`${what}: ${text.trim().slice(0, 60)}`);
  if (document.documentElement.scrollWidth > innerWidth) note('the page scrolls to the side', '');
  for (const e of document.querySelectorAll('body *:not(input, textarea, svg, svg *)')) {
    const hides = e.checkVisibility() && getComputedStyle(e).overflowX !== 'visible';
    if (hides && e.scrollWidth > e.clientWidth + 1) note(`${e.className} is cut or scrolls`, e.textContent);
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const text = walker.currentNode, element = text.parentElement;
    if (!element.checkVisibility() || element.closest('.skip, thead, option, svg')) continue;
    range.selectNodeContents(text);
    for (const box of range.getClientRects())
      if (text.data.trim() && (box.left < -1 || box.right > innerWidth + 1)) note('outside', text.data);
  }
  return found;
})()
"""
"""What nobody can read without scrolling to the side."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


@pytest.fixture
def gateway(tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway) -> GatewayProcess:
    """A gateway that has answered reviews with changes, a denial, failures, hostile and long texts."""
    hostile = "<script>document.title='x'</script>\u202e\x1b[2J" + "long" * 300
    patches = [
        {"patch": [{"op": "add", "path": "/metadata/annotations", "value": {"a": text}}]}
        for text in ("1", "2")
    ]
    failing = {"status": "UNAVAILABLE", "details": hostile, "webhook": {"failurePolicy": "Ignore"}}
    elsewhere = {"webhook": {"objectSelector": {"matchLabels": {"team": "none"}}}}
    warning = {"deny": {"message": hostile}, "webhook": {"rollout": {"mode": "Warn"}}}
    (tmp_path / "config").mkdir()
    (tmp_path / "config/people").write_text("ann:a password\n")
    documents = plan_documents(
        tmp_path / "plans", start_worker().target, pages={"actions": {"basicAuthFile": "people"}}
    )
    (tmp_path / "config/plans.yaml").write_text(documents)
    (tmp_path / "config/c.yaml").write_text(
        pool_document("dead", f"unix:{tmp_path}/nothing")
        + webhook_document("mutate", "m", "pool", *patches, elsewhere, warning)
        + webhook_document("validate", "w", "pool", {"deny": {"message": hostile}}, failing)
    )
    started = start_gateway(tmp_path / "config")
    started.review("/mutate", review("m-0"))
    for namespace in ("default", "shop", "shop"):
        started.review("/validate", review("v-0", namespace=namespace, name=hostile))
    eventually(lambda: len(found(started, "/decisions")["decisions"]) == 4, "all decisions")
    plan_of(started)
    paused = run_command("rollout", "pause", "--folder", tmp_path / "plans", "--reason", hostile)
    assert paused.returncode == 0, paused.stderr
    eventually(lambda: plan_of(started)["phase"] == "Paused")
    return started


def paths_of(gateway: GatewayProcess) -> list[str]:
    return [path.replace("PLAN", plan_of(gateway)["name"]) for path in PATHS]


def reported(browser: Chromium, *methods: str) -> list[dict[str, Any]]:
    return [event["params"] for event in browser.events if event.get("method") in methods]


def test_pages_in_a_browser(gateway: GatewayProcess, browser: Chromium) -> None:
    base = f"http://localhost:{gateway.admin_port}"
    for path in paths_of(gateway):
        for scheme in SCHEMES:
            browser.show(scheme=scheme)
            browser.open(base + path)
            contrast, text = browser.evaluate(CONTRASTS)
            assert contrast >= LOWEST_CONTRAST, (path, scheme, text, contrast)
            for width in (1280, 390):
                browser.show(width=width, scheme=scheme)
                assert browser.evaluate(NOT_READABLE) == [], (path, width)
                shoot(browser, path, f"{scheme}-{width}")
        # One request, for the page itself, and neither a violation of its policy nor another message.
        assert len(reported(browser, "Network.requestWillBeSent")) == 1, path
        assert reported(browser, "Log.entryAdded", "Runtime.consoleAPICalled") == []
        assert browser.evaluate("document.title").endswith("· admission-gateway")


@pytest.mark.parametrize("name", documents())
def test_a_page_fits_every_width(name: str, tmp_path: Path, browser: Chromium) -> None:
    file = tmp_path / "page.html"
    file.write_bytes(render(name, documents()[name], {}, root="./", json_link="?"))
    for width in (1400, 1000, 961, 900, 768, 610, 390, 320):
        browser.show(width=width)
        browser.open(f"file://{file}")
        assert browser.evaluate(NOT_READABLE) == [], width


@pytest.mark.parametrize("number", [3, 300])
def test_all_is_readable_without_scrolling_to_the_side(
    number: int, tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, browser: Chromium
) -> None:
    denying = {"deny": {"message": 'metadata.labels[team]: label "team" is missing: add it'}}
    failing = {"status": "UNAVAILABLE", "webhook": {"failurePolicy": "Ignore"}}
    others = [{"webhook": {"objectSelector": {"matchLabels": {"team": "none"}}}}] * (number - 2)
    (tmp_path / "c.yaml").write_text(
        pool_document("policies", start_worker().target)
        + webhook_document("validate", "w", "policies", *others, denying, failing)
    )
    gateway = start_gateway(tmp_path)
    for uid in range(40):
        gateway.review("/validate", review(f"v-{uid}", namespace="shop" if uid % 8 else f"team-{uid}"))
    eventually(lambda: found(gateway, "/decisions")["groups"][-1]["namespace"] == "team-0")
    denying_webhook = f"h{number - 2}.w.test"
    own = urlencode({"phase": "validate", "configuration": "w", "name": denying_webhook})
    for path in (
        "/",
        f"/webhook?{own}",
        "/decisions",
        "/decisions?view=single",
        "/decisions/v-1",
        "/namespaces",
    ):
        for scheme in SCHEMES:
            for width in (1400, 390):
                browser.show(width=width, scheme=scheme)
                browser.open(f"http://localhost:{gateway.admin_port}{path}")
                assert browser.evaluate(NOT_READABLE) == [], (path, scheme, width)
                shoot(browser, path, f"{number}-{scheme}-{width}")
    # The first webhooks are those that need attention, and one of many is found by its name.
    browser.open(f"http://localhost:{gateway.admin_port}/")
    names = "[...document.querySelectorAll('#webhooks ~ .scroll tbody th a')].map(e => e.textContent)"
    if number > 3:
        assert browser.evaluate(names)[:2] == [f"h{number - 1}.w.test", denying_webhook]
        assert len(browser.evaluate(names)) <= 50 + 3
        browser.evaluate("document.querySelector('#f-name').value = 'h123.'")
        browser.submit("form")
        assert browser.evaluate(names)[:1] == ["h123.w.test"]
    assert browser.evaluate("document.querySelector('svg.spark title').textContent").startswith(
        "Reviews of the"
    )


def shoot(browser: Chromium, path: str, name: str) -> None:
    """Write a screenshot of the page at *path*, if screenshots are wanted."""
    shots = os.environ.get("PAGES_SHOTS")
    if shots:
        page = re.sub("[/?=&]", "-", path.partition("?phase")[0].strip("/")) or "overview"
        browser.screenshot(Path(shots) / f"{page}-{name}.png")


def test_a_page_loads_itself_again_until_a_reader_stops_it(
    gateway: GatewayProcess, browser: Chromium
) -> None:
    browser.open(f"http://localhost:{gateway.admin_port}/decisions?namespace=shop")
    browser.click("a[href*='refresh=10']")
    assert browser.evaluate("document.querySelector('.made').textContent.includes('again every 10 s')")
    browser.click("a[href='?namespace=shop']")
    assert "refresh=" not in browser.evaluate("location.href")


def test_a_screen_reader_finds_landmarks_tables_and_names(gateway: GatewayProcess, browser: Chromium) -> None:
    base = f"http://localhost:{gateway.admin_port}"
    for path in paths_of(gateway):
        browser.open(base + path)
        tree = browser.accessibility_tree()
        roles = [role for role, _ in tree]
        for landmark in ("banner", "navigation", "main", "contentinfo"):
            assert roles.count(landmark) == 1, (path, landmark)
        headings = [name for role, name in tree if role == "heading"]
        assert all(headings), path
        for role, name in tree:
            if role in ("link", "button", "textbox", "combobox", "region", "form", "search", "navigation"):
                assert name, (path, role)
    browser.open(base + "/")
    tree = browser.accessibility_tree()
    assert ("columnheader", "Denied") in tree
    assert any(role == "image" and name.startswith("Calls of the last 15 minutes") for role, name in tree)
    browser.show(width=390)  # tables look like cards, and stay tables
    narrow = browser.accessibility_tree()
    assert [one for one in narrow if one[0] == "rowheader"] == [one for one in tree if one[0] == "rowheader"]
    assert ("columnheader", "Denied") in narrow
    assert any(role == "rowheader" and "h0.v.test" in name for role, name in tree)


def test_the_keyboard_reaches_the_content_and_all_links(gateway: GatewayProcess, browser: Chromium) -> None:
    browser.open(f"http://localhost:{gateway.admin_port}/")
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert browser.evaluate("document.activeElement.getBoundingClientRect().left >= 0") is True
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.textContent") == "Overview"
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    # What scrolls can be focused, so that arrow keys scroll it.
    unreachable = """
      [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth
        && e.tabIndex < 0 && !e.querySelector('[tabindex]')).length
    """
    browser.show(width=390)
    for path in paths_of(gateway):
        browser.open(f"http://localhost:{gateway.admin_port}{path}")
        assert browser.evaluate(unreachable) == 0, path


def test_the_forms_work_without_scripts(gateway: GatewayProcess, browser: Chromium) -> None:
    base = f"http://localhost:{gateway.admin_port}"
    browser.open(f"{base}/decisions")
    browser.evaluate("document.querySelector('#f-namespace').value = 'shop'")
    browser.submit("form")
    assert browser.evaluate("document.querySelector('h2').textContent") == "2 decisions"
    browser.evaluate("document.querySelector('#f-view').value = 'single'")
    browser.submit("form")
    browser.click("tbody a")
    assert "/decisions/" in browser.evaluate("location.pathname")
    browser.open(f"{base}/explain")
    browser.evaluate(
        "document.querySelector('#review').value = 'apiVersion: v1\\nkind: Pod\\nmetadata: {name: web}\\n'"
    )
    browser.submit("form")
    headings = browser.evaluate("[...document.querySelectorAll('h2')].map(e => e.textContent.trim())")
    assert headings[0] == "Mutating phase: ◇ allowed, would be refused by h3.m.test (mode Warn)"
    assert headings[1].startswith("Validating phase: ✗ denied")
    browser.open(f"{base}/rollouts")
    browser.click("tbody a")
    browser.click("a[href='?action=skip']")
    for field, text in (("who", "ann"), ("password", "a password"), ("why", "reviewed")):
        browser.evaluate(f"document.querySelector('#{field}').value = '{text}'")
    browser.submit("form")
    assert browser.evaluate("document.querySelector('h1').textContent") == "Done: skip"
    assert "stage 2 of 3" in browser.evaluate("document.querySelector('[role=status]').textContent")
    assert reported(browser, "Log.entryAdded") == []
