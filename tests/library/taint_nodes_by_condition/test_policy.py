"""Source of the cases: kubernetes plugin/pkg/admission/nodetaint admission_test.go."""

from __future__ import annotations

from typing import Any

import pytest

from tests.library.builtin import changed, of

NAME = "taint-nodes-by-condition"
TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
OTHER = {"key": "foo", "effect": "NoSchedule"}
WITH_VALUE = {**TAINT, "value": "a"}
EVICTING = {**TAINT, "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], [TAINT]),
        ([OTHER], [OTHER, TAINT]),
        ([TAINT], [TAINT]),
        ([WITH_VALUE], [WITH_VALUE]),
        ([EVICTING], [EVICTING, TAINT]),
    ],
)
def test_the_taint_of_new_nodes(given: list[Any], expected: list[Any]) -> None:
    node = {"metadata": {"name": "n"}, "spec": {"taints": given} if given else {}}
    assert changed(NAME, of("nodes", "Node", node))["spec"]["taints"] == expected
    for asked in (of("nodes", "Node", node, node), of("nodes/status", "Node", node), of("pods", "Pod", node)):
        assert changed(NAME, asked) == node
