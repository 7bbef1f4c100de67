"""The policy ``forbidden-tolerations``."""

from __future__ import annotations

import pytest

from admission_gateway_worker.policies.forbidden_tolerations import DEFINITIONS
from tests.library.requests import denial, of_pod

(POLICY,) = DEFINITIONS


@pytest.mark.parametrize(
    ("toleration", "taint", "is_forbidden"),
    [
        ({"operator": "Exists"}, {"key": "a"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}, False),
        ({"operator": "Exists", "effect": "NoSchedule"}, {"key": "a"}, True),
        ({"key": "a", "operator": "Exists"}, {"key": "a", "value": "x", "effect": "NoExecute"}, True),
        ({"key": "b", "operator": "Exists"}, {"key": "a"}, False),
        ({"key": "a", "value": "x"}, {"key": "a"}, True),
        ({"key": "a", "value": "x"}, {"key": "a", "value": "x"}, True),
        ({"key": "a", "value": "y"}, {"key": "a", "value": "x"}, False),
        ({"key": "a"}, {"key": "a", "value": ""}, True),
        ({"key": "a", "operator": "Gt", "value": "1"}, {"key": "a", "value": "5"}, True),
    ],
)
def test_a_toleration_of_the_taint_is_denied(
    toleration: dict[str, str], taint: dict[str, str], *, is_forbidden: bool
) -> None:
    spec = {"containers": [], "tolerations": [{"key": "harmless"}, toleration]}
    found = denial(POLICY, of_pod(spec), {"taints": [taint]})
    assert list(found) == (["spec.tolerations[1]"] if is_forbidden else [])


def test_the_taint_is_written_as_kubectl_does() -> None:
    spec = {"containers": [], "tolerations": [{"operator": "Exists"}]}
    taint = {"key": "a", "value": "x", "effect": "NoExecute"}
    assert denial(POLICY, of_pod(spec), {"taints": [taint]}) == {
        "spec.tolerations[0]": 'the toleration {"operator":"Exists"} tolerates the taint a=x:NoExecute: '
        "remove it"
    }
