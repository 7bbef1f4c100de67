"""Policies, bindings and parameters that change are in force after a reload as in the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.changing_policies import STAGES, is_expected, object_named
from tests.e2e.policy_comparison import CANARY, PATHS
from tests.recorded.engine import RecordedEngine
from tests.recorded.recording import NEWEST, Operation, Review, Surroundings

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

CONFIG_MAPS = {"group": "", "version": "v1", "resource": "configmaps"}


def review_of(name: str) -> Review:
    request: dict[str, Any] = {
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": CONFIG_MAPS,
        "name": name,
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "admin"},
        "object": object_named(name),
    }
    return Review(("/validate",), request)


def test_a_change_comes_into_force(tmp_path: Path) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {}}}
    canary = list(CANARY.documents)
    engine = RecordedEngine(tmp_path, canary, Surroundings(NEWEST, [namespace], []), lambda _: {})
    try:
        for stage, documents, expected in STAGES:
            # The gateway refuses documents of kinds that are no parameters.
            kinds = {
                each["spec"]["paramKind"]["kind"] for each in documents if "paramKind" in each.get("spec", {})
            }
            engine.change([*canary, *(each for each in documents if each["kind"] in {*PATHS, *kinds})])
            answers = {
                name: engine.answer(Operation((review_of(name),), {"status": 201})) for name in expected
            }
            messages = {name: answer.get("message", "") for name, answer in answers.items()}
            assert is_expected(messages, expected), (stage, messages)
    finally:
        engine.close()
