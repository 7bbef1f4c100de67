"""What a landing runs of the end-to-end tests: every file's main case, and all that the change touches."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.conftest import is_left_out
from tests.e2e import landing
from tests.kit import ROOT
from tests.languages.__main__ import of_landing
from tests.minutes import rows

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ALL = sorted(landing.FOLDER.glob("test_*.py"))
FILES = [file for file in ALL if file.stem.removeprefix("test_") not in landing.WHOLE_ONLY]


@dataclass(frozen=True)
class Item:
    """The part of a test item that the selection reads."""

    path: Path
    name: str


def selected(items: Iterable[Item], *changed: str) -> list[Item]:
    return cast("list[Item]", landing.select(cast("Any", list(items)), changed))


def items_of(file: Path) -> list[Item]:
    tests = re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text(), re.MULTILINE)
    return [Item(file, f"{test}[{number}]") for test in tests for number in range(20)]


def test_every_file_has_a_main_case_and_every_main_case_a_file() -> None:
    assert {file.stem for file in FILES} == {f"test_{name}" for name in landing.MAIN}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_landing_runs_some_of_the_main_case_of_each_file(file: Path) -> None:
    chosen = selected(items_of(file))
    main, *_ = landing.MAIN[file.stem.removeprefix("test_")]
    assert {item.name.partition("[")[0] for item in chosen} == {f"test_{main}"}
    assert 1 <= len(chosen) <= landing.SAMPLE


@pytest.mark.parametrize("name", landing.MAIN)
def test_the_parts_that_a_file_stands_for_exist(name: str) -> None:
    _, *parts = landing.MAIN[name]
    assert all((ROOT / part).exists() for part in parts)


@pytest.mark.parametrize("name", landing.WHOLE_ONLY)
def test_a_landing_runs_nothing_of_a_file_that_takes_too_long(name: str) -> None:
    (file,) = (one for one in set(ALL) - set(FILES) if one.stem == f"test_{name}")
    assert selected(items_of(file), f"tests/e2e/{file.name}") == []


def test_a_changed_file_is_run_whole_and_so_are_those_that_use_a_changed_module() -> None:
    assert landing.touched(["tests/e2e/test_audit.py"]) == {"test_audit"}
    assert landing.touched(["tests/e2e/kubelet/run.py", "docs/audit.md", "test_audit.py"]) == set()
    by_module = landing.touched(["tests/e2e/helm_release.py"])
    assert "test_helm" in by_module
    assert "test_audit" not in by_module
    assert landing.touched(["tests/e2e/cluster.py"]) >= {"test_audit", "test_helm"}
    items = [item for file in FILES for item in items_of(file)]
    chosen = selected(items, "tests/e2e/test_audit.py")
    assert [item for item in items if item.path.stem == "test_audit"] == [
        item for item in chosen if item.path.stem == "test_audit"
    ]


def test_a_changed_part_of_the_product_runs_the_files_that_stand_for_it() -> None:
    assert "test_registration" in landing.touched(["gateway/tools/registration/plan.py"])
    assert "test_registration" not in landing.touched(["gateway/base/text.py"])


def test_a_landing_tests_go_and_the_languages_that_the_change_touches() -> None:
    assert of_landing(["workers/python/pyproject.toml", "gateway/base/text.py"]) == ["go"]
    assert of_landing(["workers/rust/src/lib.rs"]) == ["go", "rust"]
    assert of_landing(["workers/gatekeeper/main.go"]) == ["go", "gatekeeper"]
    assert of_landing(["workers/wasm/src/main.rs"]) == ["go", "kubewarden"]
    assert {"go", "java", "rust", "typescript"} <= set(of_landing(["protos/worker.proto"]))


def test_of_touched_files_the_tests_run_that_the_others_have_not() -> None:
    assert is_left_out({"process", "parametrize"})
    assert is_left_out({"slow"})
    assert not is_left_out({"process", "smoke"})
    assert not is_left_out({"parametrize"})


def test_minutes_are_shown_by_folder_and_small_ones_together() -> None:
    cases = {"tests.core.test_a": 60.25, "tests.cel.test_b.TestC": 39.5, "tests.docs.test_d": 0.25}
    each = "".join(f'<testcase classname="{name}" time="{seconds}"/>' for name, seconds in cases.items())
    assert rows(f"<testsuites><testsuite>{each}{each}</testsuite></testsuites>") == [
        ("`tests/core`", "2", "120", "60%"),
        ("`tests/cel`", "2", "79", "40%"),
        ("others", "2", "0", "0%"),
        ("all", "6", "200", "100%"),
    ]


def test_a_disturbed_command_ends_with_its_own_status() -> None:
    command = [sys.executable, "-m", "tests.disturbed", sys.executable, "-c", "raise SystemExit(3)"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "exit status 3 after " in done.stdout
