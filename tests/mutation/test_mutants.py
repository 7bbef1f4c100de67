"""The driver of mutation tests: which changes it makes, and which tests it runs for them."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING

import pytest

from tests.mutation.__main__ import Recording, table
from tests.mutation.mutants import Mutant, mutants_of, mutated

if TYPE_CHECKING:
    from pathlib import Path

CHANGES = [
    ("a < b <= c", ["a < b <= c -> a <= b <= c", "a < b <= c -> a < b < c"]),
    ("a in b", ["a in b -> a not in b"]),
    ("a and b", ["a and b -> a or b"]),
    ("a + 1", ["a + 1 -> a - 1", "1 -> 2"]),
    ("not a", ["not a -> a"]),
    ("-a", ["-a -> a"]),
    ("x = True", ["True -> False"]),
    ("x = 'a'", ["'a' -> 'aXX'"]),
    ("x = f'text {1}'", ["1 -> 2"]),
    ("x.y = z", ["x.y = z -> pass"]),
    ("x += y", ["x += y -> pass"]),
    ("a()", ["a() -> pass"]),
    ("raise A", ["raise A -> pass"]),
    ("if a: b", ["if a -> if not a"]),
    ("while a: break", ["if a -> if not a", "break -> continue"]),
    ("def f(): return a", ["return a -> return None"]),
    ("def f(): return None", []),
    ("if TYPE_CHECKING: a()", []),
    ("'text'", []),
    ("assert a < b", []),
    ("x: Literal['a'] = cast('A', y)", []),
    ("@a(1)\ndef f(x: 1) -> 1: pass", []),
]


@pytest.mark.parametrize(("source", "changes"), CHANGES)
def test_changes_of_a_statement(source: str, changes: list[str]) -> None:
    mutants = mutants_of("module.py", source)
    assert [mutant.change for mutant in mutants] == changes
    for mutant in mutants:
        assert ast.unparse(mutated(mutant, source)) != ast.unparse(ast.parse(source))


SOURCE = """
class A:
    def f(self):
        return (1,
                1)
"""


def test_equal_changes_of_a_function_are_numbered() -> None:
    _, first, second = mutants_of("module.py", SOURCE)
    assert (first.function, first.number, first.line, first.first_line) == ("A.f", 0, 4, 4)
    assert (second.function, second.number, second.line, second.first_line) == ("A.f", 1, 5, 4)
    assert "return (1, 2)" in ast.unparse(mutated(second, SOURCE))


def test_a_mutant_is_found_again_at_another_line_but_not_after_its_statement_changed() -> None:
    _, _, second = mutants_of("module.py", SOURCE)
    assert "return (1, 2)" in ast.unparse(mutated(second, f"import a\n{SOURCE}"))
    with pytest.raises(LookupError, match=r"module.py no longer has: A.f: 1 -> 2"):
        mutated(second, SOURCE.replace("(1,", "(3,"))


LINES = {"module.py": {"1": [-1], "4": [1], "9": [0, 2]}, "table.py": {"1": [-1]}}
RECORDING = Recording({"slow": 2.0, "fast": 0.001, "fast_too": 0.002}, LINES, [], [])


@pytest.mark.parametrize(
    ("line", "first_line", "tests"),
    [
        (9, 9, ["fast_too", "slow"]),
        (5, 4, ["fast"]),  # a constant in a statement of several lines
        (1, 1, ["fast", "fast_too", "slow"]),  # runs at import: all tests of the module
        (7, 7, []),
    ],
)
def test_a_mutant_is_run_by_the_tests_of_its_line(line: int, first_line: int, tests: list[str]) -> None:
    assert RECORDING.tests_of(Mutant("module.py", "f", "a -> b", 0, line, first_line)) == tests


def test_a_module_that_runs_only_at_import_is_for_all_tests_of_the_folder() -> None:
    assert RECORDING.tests_of(Mutant("table.py", "", "1 -> 2", 0, 1, 1)) == ["fast", "fast_too", "slow"]


def test_the_table_compares_reports(tmp_path: Path) -> None:
    kept, lost = (str(Mutant("gateway/pure/core/a.py", "f", change, 0, 1, 1)) for change in ("a", "b"))
    for name, states in (("before", ("killed", "killed")), ("after", ("killed", "survived"))):
        results = [
            {"mutant": mutant, "state": state, "by": "test"}
            for mutant, state in zip((kept, lost), states, strict=True)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(result)}\n" for result in results))
    lines = table([tmp_path / "before.jsonl", tmp_path / "after.jsonl"]).splitlines()
    assert lines[0] == "| module | mutants | before | after |"
    assert "| gateway/pure/core | 2 | 2 | 1 |" in lines
    assert lines[-1] == f"no longer killed: {lost} (by test)"
