"""Headless Chromium, driven by the Chrome DevTools Protocol over a pipe.

Source: chromedevtools.github.io/devtools-protocol; messages are JSON texts that end in NUL, on file
descriptors 3 and 4 of the browser (``--remote-debugging-pipe``).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
"""The program; None if it is not installed."""

_FLAGS = (
    *("--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--hide-scrollbars", "--disable-extensions", "--disable-background-networking", "--no-sandbox"),
)


_EXEC = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for pipe, wanted in zip(pipes, (3, 4)):
    os.dup2(pipe, wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Starts the browser with the pipes as descriptors 3, which it reads, and 4."""


class Chromium:
    """A browser with one page. Use it as a context manager."""

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-")
        from_us, self._to_browser = os.pipe()
        self._from_browser, to_us = os.pipe()
        browser = [CHROMIUM, *_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._child = subprocess.Popen(
            [sys.executable, "-c", _EXEC, str(from_us), str(to_us), *browser],
            pass_fds=(from_us, to_us),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(from_us)
        os.close(to_us)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        """What the page reported: console messages, violations of its policy, requests."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "DOM", "Runtime", "Accessibility", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._to_browser)
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        os.close(self._from_browser)
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call *method* of the protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        while True:
            found = self._read()
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._from_browser, 1 << 16)
            assert piece, "the browser has ended"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, url: str) -> None:
        """Load *url*, and wait until it is loaded."""
        self.events.clear()
        self._wait_until_loaded(self.call("Page.navigate", url=url)["loaderId"])

    def _wait_until_loaded(self, loader: str) -> None:
        """Wait until the page of *loader* is loaded; another page may still be loading before it."""
        loaded = {"loaderId": loader, "name": "load"}
        self._wait_for("Page.lifecycleEvent", lambda found: loaded.items() <= found.items())

    def _wait_for(self, method: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the parameters of the first event *method* that is *wanted*, since the last navigation."""
        read = 0
        while True:
            for event in self.events[read:]:
                if event.get("method") == method and wanted(event["params"]):
                    params: dict[str, Any] = event["params"]
                    return params
            read = len(self.events)
            self.events.append(self._read())

    def show(self, *, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Set the size of the page, and the preferred colours: ``light`` or ``dark``."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, expression: str) -> Any:
        """Return the value of the JavaScript *expression*; the page's policy does not apply to it."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def submit(self, selector: str) -> None:
        """Submit the form at *selector*, and wait until its answer is loaded."""
        self._leave(f"document.querySelector({json.dumps(selector)}).requestSubmit()")

    def click(self, selector: str) -> None:
        """Click on the link at *selector*, and wait until its page is loaded."""
        self.follow(f"document.querySelector({json.dumps(selector)})")

    def follow(self, link: str) -> None:
        """Click on what the JavaScript *link* is, and wait until its page is loaded."""
        self._leave(f"{link}.click()")

    def _leave(self, expression: str) -> None:
        """Evaluate *expression*, and wait until the page that it leads to is loaded.

        Nothing may be evaluated meanwhile: that fails when the new page takes the place of the old one.
        """
        self.events.clear()
        self.evaluate(expression)
        moved = self._wait_for("Page.frameNavigated", lambda found: "parentId" not in found["frame"])
        self._wait_until_loaded(moved["frame"]["loaderId"])

    def accessibility_tree(self) -> list[tuple[str, str]]:
        """Return role and name of each node that a screen reader reads."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored")
        ]

    def press(self, key: str) -> None:
        """Press and release *key*, such as Tab."""
        codes = {"Tab": 9, "Enter": 13}
        for kind in ("rawKeyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key]
            )

    def type(self, text: str) -> None:
        """Insert *text* into the element that has the focus, as a keyboard does with its last letter."""
        self.call("Input.insertText", text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=text[-1])

    def screenshot(self, file: Path) -> None:
        """Write a PNG of the whole page."""
        file.write_bytes(self.view(captureBeyondViewport=True))

    def view(self, **parameters: Any) -> bytes:
        """Return a PNG of what fits into the size of the page; *parameters* are the protocol's."""
        return base64.b64decode(self.call("Page.captureScreenshot", **parameters)["data"])
