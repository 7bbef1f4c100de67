"""What a landing runs of the end-to-end tests: every file's main case, and all that the change touches."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.conftest import is_left_out
from tests.e2e import landing
from tests.e2e.seconds import merged
from tests.kit import ROOT
from tests.languages.__main__ import of_landing
from tests.minutes import rows

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ALL = sorted(landing.FOLDER.glob("test_*.py"))
MAIN_OF_AUDIT = f"test_{landing.MAIN['audit'][0]}"
FILES = [file for file in ALL if file.stem.removeprefix("test_") not in landing.WHOLE_ONLY]


@dataclass(frozen=True)
class Item:
    """The part of a test item that the selection reads."""

    path: Path
    name: str


def selected(items: Iterable[Item], *changed: str) -> list[Item]:
    return choice(items, *changed)[0]


def choice(items: Iterable[Item], *changed: str) -> tuple[list[Item], list[Item]]:
    return cast("tuple[list[Item], list[Item]]", landing.select(cast("Any", list(items)), changed))


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


def test_a_change_touches_a_file_and_those_that_use_a_module() -> None:
    assert landing.touched(["tests/e2e/test_audit.py"]) == {"test_audit"}
    assert landing.touched(["tests/e2e/kubelet/run.py", "CHANGELOG.md", "test_audit.py"]) == set()
    by_module = landing.touched(["tests/e2e/helm_release.py"])
    assert "test_helm" in by_module
    assert "test_audit" not in by_module
    assert landing.touched(["tests/e2e/cluster.py"]) >= {"test_audit", "test_helm"}


def cases(chosen: Iterable[Item], name: str) -> set[str]:
    return {item.name for item in chosen if item.path.stem == f"test_{name}"}


@pytest.fixture
def items(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Item]:
    """Twenty cases of each test of each file; each takes a second."""
    every = [item for file in FILES for item in items_of(file)]
    tests = {(item.path.stem, item.name.partition("[")[0]) for item in every}
    (tmp_path / "seconds.txt").write_text("".join(f"{file} {test} 1 1\n" for file, test in tests))
    monkeypatch.setattr(landing, "SECONDS", tmp_path / "seconds.txt")
    return every


def limit(monkeypatch: pytest.MonkeyPatch, items: Iterable[Item], more: int) -> None:
    """Let a landing take *more* seconds than the main cases of *items*."""
    monkeypatch.setattr(landing, "LIMIT_S", len(selected(items)) + more)


def test_a_changed_file_is_run_whole_if_the_limit_allows(
    monkeypatch: pytest.MonkeyPatch, items: list[Item]
) -> None:
    limit(monkeypatch, items, 1_000)
    chosen, left_out = choice(items, "tests/e2e/test_audit.py")
    assert cases(chosen, "audit") == cases(items, "audit")
    assert not left_out
    assert [item for item in items if item in chosen] == chosen


def test_within_the_limit_changed_files_come_first_then_each_touched_one_in_turn(
    monkeypatch: pytest.MonkeyPatch, items: list[Item]
) -> None:
    limit(monkeypatch, items, len(cases(items, "audit") - cases(selected(items), "audit")) + 20)
    chosen, left_out = choice(items, "tests/e2e/test_audit.py", "deploy/chart/values.yaml")
    assert cases(chosen, "audit") == cases(items, "audit")
    more = set(chosen) - set(selected(items)) - {item for item in items if item.path.stem == "test_audit"}
    touched = {"test_chart", "test_default_installation", "test_helm"}
    assert {item.path.stem for item in left_out} == {item.path.stem for item in more} == touched
    assert len(more) == 20
    assert not set(left_out) & set(chosen)


def test_of_a_test_with_many_cases_the_sample_comes_first(
    monkeypatch: pytest.MonkeyPatch, items: list[Item]
) -> None:
    tests = len(cases(items, "chart")) // 20
    limit(monkeypatch, items, landing.SAMPLE * (tests - 1))
    counts = Counter(
        name.partition("[")[0] for name in cases(selected(items, "tests/e2e/test_chart.py"), "chart")
    )
    # 20 cases have an even sample of seven.
    assert min(counts.values()) == 7
    assert len(counts) == tests


def test_the_main_cases_run_whatever_they_take(monkeypatch: pytest.MonkeyPatch, items: list[Item]) -> None:
    limit(monkeypatch, items, -100)
    chosen, left_out = choice(items, "tests/e2e/test_audit.py")
    assert chosen == selected(items)
    assert cases(left_out, "audit") == cases(items, "audit") - cases(chosen, "audit")


def test_a_file_with_one_long_set_up_takes_little_more_for_further_cases(
    monkeypatch: pytest.MonkeyPatch, items: list[Item]
) -> None:
    limit(monkeypatch, items, 100)
    text = landing.SECONDS.read_text()
    landing.SECONDS.write_text(
        text.replace(f"test_audit {MAIN_OF_AUDIT} 1 1", f"test_audit {MAIN_OF_AUDIT} 90 0.5")
    )
    audit = [item for item in items if item.path.stem == "test_audit" and MAIN_OF_AUDIT in item.name]
    chosen, left_out = choice(audit, "tests/e2e/test_audit.py")
    assert (chosen, left_out) == (audit, [])


def test_of_the_cases_of_a_test_the_longest_has_the_set_up_and_what_was_not_run_stays() -> None:
    case = '<testcase classname="tests.e2e.test_{}" name="{}" time="{}">{}</testcase>'
    written = [
        *(case.format("audit", f"{MAIN_OF_AUDIT}[{time}]", time, "") for time in (0.5, 0.71, 6.54, 2)),
        case.format("kubelet", "test_a_job_runs_to_its_completion", 0.01, "<skipped/>"),
        case.format("audit", "test_that_is_no_more", 1, ""),
        "<testcase/>",
    ]
    kubelet = {("test_kubelet", "test_a_job_runs_to_its_completion"): landing.Seconds(7.0, 7.0)}
    known = {**kubelet, ("test_gone", "test_x"): landing.Seconds(1.0, 1.0)}
    found = merged(known, f"<testsuites>{''.join(written)}</testsuites>")
    assert found == {("test_audit", MAIN_OF_AUDIT): (6.5, 0.7), **kubelet}
    assert [*found] == sorted(found)


def test_the_seconds_are_those_of_tests() -> None:
    known = landing.read_seconds()
    assert merged(known, "<testsuites/>") == known


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
