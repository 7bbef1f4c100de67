"""The core and rollout plans are pure: no await, no clock, no randomness, no file, no global state."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JSON_PATCH = ROOT / "workers" / "python" / "admission_gateway_worker" / "json_patch"
PURE = ROOT / "gateway" / "pure"
CORE = sorted(
    [*(PURE / "core").glob("*.py"), *(PURE / "rollout_plan").glob("*.py"), *JSON_PATCH.glob("*.py")]
)

IMPURE_NODES = (
    ast.AsyncFunctionDef,
    ast.Await,
    ast.AsyncFor,
    ast.AsyncWith,
    ast.Global,
)
IMPURE_MODULES = {
    "asyncio",
    "datetime",
    "os",
    "random",
    "secrets",
    "socket",
    "sys",
    "time",
    "threading",
    "uuid",
}
# hash() and id() differ between processes, and so would any order that depends on them. An identity may be
# looked up in a set, and added to one.
IMPURE_FUNCTIONS = {"breakpoint", "exec", "eval", "hash", "id", "input", "open", "print", "__import__"}
CLOCKS_AND_RANDOMNESS = {
    "choice",
    "monotonic",
    "now",
    "perf_counter",
    "randint",
    "shuffle",
    "sleep",
    "time",
    "today",
    "urandom",
    "utcnow",
    "uuid4",
}


def impurities(source: str) -> list[str]:
    """Return the impure expressions in *source*, each with its line."""
    found = []
    tree = ast.parse(source)
    members = {id(member) for node in ast.walk(tree) for member in members_of_sets(node)}
    for node in ast.walk(tree):
        what = None
        if isinstance(node, IMPURE_NODES):
            what = type(node).__name__
        elif isinstance(node, ast.comprehension) and node.is_async:
            what = "async comprehension"
        elif isinstance(node, ast.Import):
            what = next((a.name for a in node.names if a.name.partition(".")[0] in IMPURE_MODULES), None)
        elif isinstance(node, ast.ImportFrom):
            what = node.module if (node.module or "").partition(".")[0] in IMPURE_MODULES else None
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            is_impure = name in IMPURE_FUNCTIONS | CLOCKS_AND_RANDOMNESS
            what = name if is_impure and not (name == "id" and id(node) in members) else None
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            what = node.func.attr if node.func.attr in CLOCKS_AND_RANDOMNESS else None
        if what is not None:
            found.append(f"line {getattr(node, 'lineno', '?')}: {what}")
    return found


def members_of_sets(node: ast.AST) -> list[ast.expr]:
    """Return what *node* looks up in a set, or adds to one."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return [node.left]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add":
        return node.args
    return []


def test_the_core_is_there() -> None:
    assert len(CORE) > 10


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_a_core_module_is_pure(path: Path) -> None:
    assert impurities(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "async def f(): pass",
        "async def f():\n    await g()",
        "async def f():\n    async with g(): pass",
        "async def f():\n    async for x in g(): pass",
        "async def f():\n    return [x async for x in g()]",
        "def f():\n    global x\n    x = 1",
        "import time",
        "import os.path",
        "from random import choice",
        "from asyncio import tasks",
        "monotonic()",
        "datetime.now()",
        "clock.perf_counter()",
        "uuid.uuid4()",
        "print('x')",
        "open('x')",
        "sorted(x, key=lambda y: id(y))",
        "hash(x) in y",
        "x in id(y)",
    ],
)
def test_an_impure_source_is_found(source: str) -> None:
    assert impurities(source)


@pytest.mark.parametrize(
    "source",
    [
        "def f(now: float) -> float:\n    return now",
        "timeouts.append(1)",
        "import re",
        "timestamp = 1",
        "if id(x) not in y:\n    y.add(id(x))",
    ],
)
def test_a_pure_source_passes(source: str) -> None:
    assert impurities(source) == []
