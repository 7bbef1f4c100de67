"""The options of ``admission-gateway watchdog``, its pages, and what the documentation says of both."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from typing import TYPE_CHECKING

import pytest

from gateway.tools.watchdog.pages import pages
from gateway.tools.watchdog.probe import read_probe
from gateway.tools.watchdog.run import Counters, exposition
from tests.docs.pages import DOCS
from tests.kit import call_command

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (DOCS / "lock-outs.md").read_text()
METRIC = re.compile(r"admission_gateway_watchdog_\w+")


@pytest.fixture
def probe(tmp_path: Path) -> Path:
    """The probe of the page."""
    (block,) = re.findall(r"^```yaml\n# probe.yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    file = tmp_path / "probe.yaml"
    file.write_text(block)
    return file


def test_the_probe_of_the_page_is_one(probe: Path) -> None:
    assert read_probe(probe).path == "/api/v1/namespaces/default/pods?dryRun=All"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--mode", "Exempt"), "--mode Exempt needs --probe"),
        (("--after", "-1"), "argument --after: found -1, expected 0 to 86400 seconds"),
        (("--interval", "nan"), "argument --interval: found nan, expected 0.1 to 86400 seconds"),
        (("--failures", "0"), "argument --failures: found 0, expected a number from 1 to 1000"),
        (("--exempt-namespace", "A"), "argument --exempt-namespace: "),
        (("--listen", "9095"), "argument --listen: found '9095', expected HOST:PORT"),
        (("--probe", "PROBE", "--exempt-namespace", "default"), "--probe is in default, which"),
    ],
)
def test_wrong_options_are_refused_with_a_sentence(
    arguments: tuple[str, ...], message: str, probe: Path
) -> None:
    done = call_command("watchdog", *(str(probe) if one == "PROBE" else one for one in arguments))
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize("text", ["a: [", "kind: Pod", "\0"])
def test_a_probe_that_cannot_be_read_is_one_line(text: str, probe: Path) -> None:
    probe.write_text(text)
    done = call_command("watchdog", "--probe", probe)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "--probe: " in done.stderr


def test_the_page_names_the_metrics_that_there_are() -> None:
    known = set(METRIC.findall(exposition(Counters())))
    assert set(METRIC.findall(PAGE)) == known


async def test_the_pages_answer_once_and_refuse_everything_else() -> None:
    health = [True]

    async def ask(request: bytes, port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer

    async with pages("127.0.0.1", 0, lambda: exposition(Counters()), lambda: health[0]) as port:
        found = await asyncio.to_thread(
            lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()
        )
        assert found.decode() == exposition(Counters())
        assert (await ask(b"GET /healthz HTTP/1.1\r\n\r\n", port)).endswith(b"\r\n\r\nok\n")
        health[0] = False
        assert b" 503 " in await ask(b"GET /healthz HTTP/1.1\r\n\r\n", port)
        assert b" 404 " in await ask(b"GET / HTTP/1.1\r\n\r\n", port)
        assert b" 405 " in await ask(b"POST /metrics HTTP/1.1\r\n\r\n", port)
        assert (await ask(b"HEAD /metrics HTTP/1.1\r\n\r\n", port)).endswith(b"close\r\n\r\n")
        # A head that is too long gets no answer.
        assert await ask(b"GET /" + b"a" * 20_000 + b"\r\n\r\n", port) == b""
