"""The engine is the only maker of what reviews: everything else prepares, activates and reviews by it."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENGINE = "gateway/engine/"
MADE_BY_THE_ENGINE = {
    "Admission",
    "Backends",
    "DryRuns",
    "EvaluationDriver",
    "Pool",
    "Pools",
    "ShadowCalls",
    "Snapshot",
    "StagedPools",
}
PATHS = {
    # The check compares the registration of a gateway with the paths of files that are not in force.
    "gateway/tools/inspection/registration.py",
    # Tests of paths, and of what documents become at a path. They review nothing, or by an evaluation alone.
    "tests/config/test_custom_policies.py",
    "tests/conformance/test_vectors.py",
    "tests/deploy/test_registration.py",
    "tests/fuzz/configuration.py",
    "tests/inspection/test_laws.py",
    "tests/inspection/test_namespaces.py",
    "tests/policies/documents.py",
    "tests/registration/test_laws.py",
    "tests/registration/test_paths.py",
}
"""The makers of ``Paths`` beside the engine."""
EVALUATIONS = {
    # Tests of the state machine, without workers and event loop.
    "tests/conformance",
    "tests/core",
    "tests/fuzz",
    "tests/policies",
    "tests/properties",
    # Its laws repeat evaluations one call at a time.
    "tests/simulation",
}
"""The folders that make an ``Evaluation`` beside the engine."""


def made_in(source: str) -> set[str]:
    """Return the names from ``gateway`` that *source* calls, or gives to ``partial``."""
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gateway.")
        for alias in node.names
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id == "partial" and node.args:
                called = node.args[0]
            if isinstance(called, ast.Name):
                found.add(imported.get(called.id, ""))
            elif (
                isinstance(called, ast.Attribute)
                and isinstance(called.value, ast.Name)
                and called.value.id in imported
            ):
                found.add(called.attr)
    return found


@functools.cache
def makers() -> dict[str, set[str]]:
    """Return the files outside of the engine that name a class of it, each with the classes that it makes."""
    named = re.compile(rf"\b({'|'.join([*MADE_BY_THE_ENGINE, 'Evaluation', 'Paths'])})\b")
    return {
        name: made_in(text)
        for top in ("gateway", "tests", "loadtest", "deploy")
        for path in sorted((ROOT / top).rglob("*.py"))
        if not (name := str(path.relative_to(ROOT))).startswith(ENGINE)
        # Only these are parsed, which takes long.
        and named.search(text := path.read_text())
    }


def test_only_the_engine_makes_what_reviews() -> None:
    found = {name: made & MADE_BY_THE_ENGINE for name, made in makers().items()}
    assert {name: made for name, made in found.items() if made} == {}


def test_paths_and_evaluations_are_made_by_the_engine_and_by_tests_of_them() -> None:
    found = makers()
    assert {name for name, made in found.items() if "Paths" in made} == PATHS
    folders = {str(Path(name).parent) for name, made in found.items() if "Evaluation" in made}
    assert folders == EVALUATIONS


def test_makers_are_found() -> None:
    imports = "from gateway.engine.dispatch import pool\nfrom gateway.engine.dispatch.pool import Pool as P\n"
    for made in ("P(1)", "partial(P, 1)", "pool.Pool()"):
        assert "Pool" in made_in(f"{imports}x = {made}"), made
    for other in ("isinstance(x, P)", "from gevent.pool import Pool\nPool()", "def f(x: P) -> P: ..."):
        assert "Pool" not in made_in(f"{imports}{other}"), other
