"""Source of the cases: kubernetes plugin/pkg/admission/podnodeselector admission_test.go."""

from __future__ import annotations

from typing import Any

import pytest

from admission_gateway_worker import Denied
from admission_gateway_worker.policies.pod_node_selector import ANNOTATION, parse_selector
from tests.library.builtin import changed, namespace, of_pod, policy, refusal
from tests.library.requests import run

NAME = "pod-node-selector"
CONFLICT = 'pods "123" is forbidden: pod node label selector conflicts with its namespace node label selector'
NOT_ALLOWED = 'pods "123" is forbidden: pod node label selector labels conflict with its namespace whitelist'


@pytest.mark.parametrize(
    ("default", "annotation", "allowed", "selector", "expected"),
    [
        ("", None, "", {}, {}),
        ("infra = false", None, "", {}, {"infra": "false"}),
        ("", " infra = false ", "", {}, {"infra": "false"}),
        ("infra = false", "infra=true", "", {}, {"infra": "true"}),
        ("infra = false", "", "", {}, {}),
        ("infra = false", "infra=true", "", {"env": "test"}, {"infra": "true", "env": "test"}),
        ("env = test", "infra=true", "", {"infra": "false"}, CONFLICT),
        ("env=dev", "infra=false, env = test", "", {"env": "dev", "color": "blue"}, CONFLICT),
        (
            "env=dev",
            "infra=false, env = dev",
            "env=dev, infra=false, color=blue",
            {"env": "dev", "color": "blue"},
            {"infra": "false", "env": "dev", "color": "blue"},
        ),
        (
            "env=dev",
            "infra=false, env = dev",
            "env=dev, infra=true, color=blue",
            {"env": "dev", "color": "blue"},
            NOT_ALLOWED,
        ),
        ("env=dev", None, "env=prd", {}, NOT_ALLOWED),
    ],
)
def test_selectors(
    default: str, annotation: str | None, allowed: str, selector: dict[str, str], expected: Any
) -> None:
    parameters = {"clusterDefaultNodeSelector": default, "default": allowed}
    found = namespace(**({} if annotation is None else {ANNOTATION: annotation}))
    asked = of_pod({"nodeSelector": selector} if selector else {})
    if isinstance(expected, str):
        assert refusal(NAME, asked, parameters, namespace_object=found) == expected
    else:
        merged = changed(NAME, asked, parameters, namespace_object=found)
        assert merged["spec"].get("nodeSelector", {}) == expected
        asked = of_pod(merged["spec"])
        assert refusal(f"{NAME}-validate", asked, parameters, namespace_object=found) == ""


def test_the_check_after_all_changes() -> None:
    asked = of_pod({"nodeSelector": {"env": "dev"}})
    for written, parameters, expected in (
        ({ANNOTATION: "env=test"}, {}, CONFLICT),
        ({}, {"default": "env=prd"}, NOT_ALLOWED),
        ({}, {"other": "env=prd"}, ""),
    ):
        found = namespace(**written)
        assert refusal(f"{NAME}-validate", asked, parameters, namespace_object=found) == expected


@pytest.mark.parametrize("asked", [of_pod({}, old={}), of_pod({}, plural="pods/status")])
def test_what_is_left_alone(asked: dict[str, Any]) -> None:
    assert changed(NAME, asked, {"clusterDefaultNodeSelector": "a=b"})["spec"] == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("infra", "invalid selector: [infra]"),
        ("a=b=c", "invalid selector: [a b c]"),
        ("a=b,", "invalid selector: []"),
        ("a b=c", 'invalid selector: "a b" is not a label key'),
        ("a/b/c=d", 'invalid selector: "a/b/c" is not a label key'),
        ("a=-", 'invalid selector: "-" is not a label value'),
    ],
)
def test_a_text_that_is_no_selector(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match="invalid selector") as raised:
        parse_selector(text)
    assert str(raised.value) == problem
    with pytest.raises(Denied) as denied:
        run(policy(NAME), of_pod({}), {}, namespace_object=namespace(**{ANNOTATION: text}))
    assert (denied.value.code, denied.value.message) == (500, problem)


def test_keys_and_values_of_labels() -> None:
    text = f"a.example.com/B_c=, {'k' * 63}={'v' * 63}"
    assert parse_selector(text) == {"a.example.com/B_c": "", "k" * 63: "v" * 63}
    for wrong in (f"{'k' * 64}=a", f"a={'v' * 64}"):
        with pytest.raises(ValueError, match="is not a label"):
            parse_selector(wrong)


def test_a_namespace_that_the_gateway_does_not_know() -> None:
    with pytest.raises(LookupError, match='has not sent the namespace "default"'):
        run(policy(NAME), of_pod({}))
