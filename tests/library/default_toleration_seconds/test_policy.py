"""Source of the cases: kubernetes plugin/pkg/admission/defaulttolerationseconds admission_test.go."""

from __future__ import annotations

from typing import Any

import pytest

from tests.library.builtin import changed, of_pod

NAME = "default-toleration-seconds"


def toleration(key: str = "", seconds: int | None = 300, effect: str = "NoExecute") -> dict[str, Any]:
    named = {"key": f"node.kubernetes.io/{key}"} if key else {}
    found: dict[str, Any] = {**named, "operator": "Exists"}
    if effect:
        found["effect"] = effect
    return found if seconds is None else {**found, "tolerationSeconds": seconds}


NOT_READY, UNREACHABLE = toleration("not-ready"), toleration("unreachable")
FOO = {"key": "foo", "operator": "Equal", "value": "bar", "effect": "NoSchedule", "tolerationSeconds": 700}


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ([], [NOT_READY, UNREACHABLE]),
        ([FOO], [NOT_READY, UNREACHABLE]),
        ([toleration("not-ready", 700)], [UNREACHABLE]),
        ([toleration("unreachable", 700)], [NOT_READY]),
        ([toleration("not-ready", 700), toleration("unreachable", 700)], []),
        ([toleration("unreachable", 700, effect="")], [NOT_READY]),
        ([toleration("", 700, effect="")], []),
        ([toleration("not-ready", None, effect="NoSchedule")], [NOT_READY, UNREACHABLE]),
    ],
)
def test_tolerations_are_added(given: list[dict[str, Any]], added: list[dict[str, Any]]) -> None:
    spec = {"tolerations": given} if given else {}
    expected = {"tolerations": [*given, *added]}
    assert changed(NAME, of_pod(spec))["spec"] == expected
    assert changed(NAME, of_pod(spec, old={}))["spec"] == expected
    assert changed(NAME, of_pod(spec, plural="pods/status"))["spec"] == spec


def test_other_seconds() -> None:
    found = changed(NAME, of_pod({}), {"notReadySeconds": 30, "unreachableSeconds": 0})
    assert found["spec"]["tolerations"] == [toleration("not-ready", 30), toleration("unreachable", 0)]


def test_the_tolerations_of_the_built_in_controller_are_replaced() -> None:
    parameters = {"notReadySeconds": 30, "replaceBuiltIn": True}
    given = {"tolerations": [FOO, NOT_READY, toleration("unreachable", 700)]}
    expected = [FOO, toleration("unreachable", 700), toleration("not-ready", 30)]
    assert changed(NAME, of_pod(given), parameters)["spec"]["tolerations"] == expected
    assert changed(NAME, of_pod(given, old=given), parameters)["spec"] == given
