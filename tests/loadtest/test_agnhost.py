"""agnhost as a thing to compare with: found where it was built, and asked for real if it is there."""

from __future__ import annotations

import http.client
import os
import shutil
import ssl
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from loadtest import agnhost
from loadtest.launch import BenchError
from tests.e2e.golang import CannotBuild
from tests.kit import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    import trustme

ROOT = Path(__file__).parents[2]
REVIEW = ROOT / "loadtest" / "corpus" / "pod-create-6kb.json"

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="without Go there is no release to look for")


@pytest.fixture
def no_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A PATH without Go."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where programs are kept, and none is."""
    monkeypatch.setenv("ADMISSION_GATEWAY_E2E_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_without_being_asked_nothing_is_built(empty_cache: Path) -> None:
    assert agnhost.obtain() is None
    assert not empty_cache.exists()


@needs_go
def test_what_a_build_left_is_found(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(agnhost, "_make", lambda programs: (programs / "agnhost").write_bytes(b""))
        built = agnhost.obtain(build=True)
    assert built is not None
    assert built.is_relative_to(empty_cache)
    assert agnhost.obtain() == built


@pytest.mark.usefixtures("no_go")
def test_without_go_there_is_none_and_a_build_says_why() -> None:
    assert agnhost.obtain() is None
    with pytest.raises(CannotBuild, match="Go, which is not on PATH"):
        agnhost.obtain(build=True)


@pytest.mark.slow
@pytest.mark.usefixtures("no_go")
def test_the_command_line_says_why_it_cannot_build() -> None:
    command = [sys.executable, "-m", "loadtest.agnhost"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("loadtest.agnhost: ")
    assert "Go, which is not on PATH" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def program() -> Path:
    """agnhost, if somebody built it."""
    found = agnhost.obtain()
    if found is None:
        pytest.skip("not built: python -m loadtest.agnhost")
    return found


@pytest.fixture(scope="module")
def running(
    program: Path, certificate: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[agnhost.Serving]:
    with agnhost.serving(program, *certificate, tmp_path_factory.mktemp("agnhost") / "log") as serving:
        yield serving


def ask(serving: agnhost.Serving, authority: trustme.CA, path: str, review: bytes) -> dict[str, Any]:
    """The response to *review*, over a connection that trusts *authority* alone."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(tls)
    host = serving.address.removeprefix("https://")
    client = http.client.HTTPSConnection(host, context=tls, timeout=PATIENCE_S)
    with closing(client):
        client.request("POST", path, review, {"Content-Type": "application/json"})
        answer = client.getresponse()
        assert answer.status == 200
        response: dict[str, Any] = orjson.loads(answer.read())["response"]
        return response


def labelled(label: str) -> bytes:
    """The review of a Pod with a label that agnhost's policy knows."""
    review: dict[str, Any] = orjson.loads(REVIEW.read_bytes())
    review["request"]["object"]["metadata"]["labels"]["webhook-e2e-test"] = label
    return orjson.dumps(review)


@pytest.mark.slow
@pytest.mark.parametrize(("label", "allowed"), [("webhook-disallow", False), ("anything-else", True)])
def test_it_judges_the_pod(
    running: agnhost.Serving, authority: trustme.CA, label: str, allowed: bool
) -> None:
    assert ask(running, authority, agnhost.PATH, labelled(label))["allowed"] is allowed


@pytest.mark.slow
def test_the_load_generator_finds_its_answers_right_and_measures_its_cpu(running: agnhost.Serving) -> None:
    command = [sys.executable, "-m", "loadtest.load", running.address + agnhost.PATH, str(REVIEW)]
    options = ["--connections", "8", "--warmup", "0", "--window", "0.2", "--watch", str(running.pid)]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    found = orjson.loads(done.stdout)
    assert found["errors"] == {}
    assert found["reviews"] > 0
    assert found["cpu_s"][str(running.pid)] > 0


@pytest.mark.slow
def test_one_that_cannot_serve_is_told_with_its_own_words(program: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.crt"
    with (
        pytest.raises(BenchError, match=r"missing\.crt: no such file"),
        agnhost.serving(program, missing, missing, tmp_path / "log"),
    ):
        pass


@pytest.mark.slow
def test_it_is_gone_afterwards(program: Path, certificate: tuple[Path, Path], tmp_path: Path) -> None:
    with agnhost.serving(program, *certificate, tmp_path / "log") as serving:
        os.kill(serving.pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(serving.pid, 0)
