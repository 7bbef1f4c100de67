"""Variables that cost too much, of which others are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.pure.cel.lazy import LazyVariables
from tests.policies.documents import binding, decided, policy

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_variables_that_cost_too_much_are_not_evaluated_for_each_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the event loop nothing of them was kept, and each level was evaluated twice for that above it."""
    count = 0
    evaluated = LazyVariables._evaluated

    def counted(self: LazyVariables, name: str) -> Any:
        nonlocal count
        count += 1
        return evaluated(self, name)

    monkeypatch.setattr(LazyVariables, "_evaluated", counted)
    levels = 30
    texts = ["'x'", *(f"variables.a{each} + variables.a{each}" for each in range(levels))]
    spec: dict[str, Any] = {
        "variables": [{"name": f"a{number}", "expression": text} for number, text in enumerate(texts)],
        "validations": [{"expression": f"variables.a{levels} == ''"}],
    }
    (denial,) = decided(tmp_path, [policy(**spec), binding()]).denials
    assert denial.endswith("actual cost limit exceeded")
    assert count <= 4 * levels
