"""How processes are started, waited for and stopped."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from loadtest import launch
from loadtest.launch import BenchError, launched

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

SERVES = "import time; print('serving on here:1', flush=True); time.sleep(60)"


def test_what_it_says_is_found_and_it_is_gone_afterwards(tmp_path: Path) -> None:
    with launched("it", [sys.executable, "-c", SERVES], tmp_path / "log") as child:
        assert child.says(r"serving on (\S+)") == "here:1"
        os.kill(child.pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


def test_one_that_ends_is_told_with_its_status_and_its_own_words(tmp_path: Path) -> None:
    with (
        launched(
            "it", [sys.executable, "-c", "import sys; sys.exit('no such thing')"], tmp_path / "log"
        ) as child,
        pytest.raises(BenchError, match="it ended with status 1:\nno such thing"),
    ):
        child.says("serving on (.+)")


def test_one_that_does_not_serve_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "START_WITHIN_S", 0.1)
    with (
        launched("it", [sys.executable, "-c", SERVES], tmp_path / "log") as child,
        pytest.raises(BenchError, match=r"it does not serve after 0\.1 s"),
    ):
        child.until(lambda _: None)


def test_one_that_does_not_listen_to_reason_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "STOP_WITHIN_S", 0.1)
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SERVES}"
    with launched("it", [sys.executable, "-c", deaf], tmp_path / "log") as child:
        child.says("serving on (.+)")
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)
