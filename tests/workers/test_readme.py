"""The examples of the worker's README, as they are there."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from admission_gateway_worker import PolicyServer, Review
from admission_gateway_worker.invoke import run
from admission_gateway_worker.pb import worker_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n# (?P<name>\w+)\.py\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The README's modules by name, imported in order."""
    found = {}
    for block in BLOCK.finditer((ROOT / "workers" / "python" / "README.md").read_text()):
        name = block["name"]
        module = found[name] = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(block["code"], f"{name}.py", "exec"), module.__dict__)
    return found


def test_the_tests_in_the_readme_pass(modules: dict[str, ModuleType]) -> None:
    tests: list[Callable[[], None]] = [
        value for name, value in vars(modules["test_policies"]).items() if name.startswith("test_")
    ]
    assert len(tests) == 3
    for test in tests:
        test()


def test_the_worker_in_the_readme_is_short_and_answers(
    modules: dict[str, ModuleType], recorded: Callable[[str], Review]
) -> None:
    server = modules["policies"].server
    assert isinstance(server, PolicyServer)
    assert list(server.policies) == ["require-team-label", "always-pull-images"]
    for name in ("pod-create-6kb", "pod-delete-validate"):
        for policy in server.policies.values():
            assert isinstance(run(policy, recorded(name)), pb.ReviewResponse)


def test_the_documented_bounds_are_those_of_the_code() -> None:
    text = (ROOT / "workers" / "python" / "README.md").read_text()
    rows = re.findall(r"\| ([\d,]+)( MiB)? \| `([\w.]+)\.(\w+)` \|", text)
    assert len(rows) == 6
    for number, unit, module, name in rows:
        found = getattr(importlib.import_module(f"admission_gateway_worker.{module}"), name)
        assert found == int(number.replace(",", "")) * (2**20 if unit else 1), name


def test_every_status_has_a_row_in_the_contract() -> None:
    import grpc

    text = (ROOT / "protos" / "README.md").read_text()
    rows = re.findall(r"^\| ([A-Z_]+) \((\d+)\) \|", text, re.MULTILINE)
    assert rows == [
        (code.name, str(code.value[0])) for code in sorted(grpc.StatusCode, key=lambda code: code.value[0])
    ]
