"""The two policies that look at nothing. Source: kubernetes plugin/pkg/admission/{admit,deny}."""

from __future__ import annotations

import pytest

from tests.library.builtin import of, of_pod, refusal


@pytest.mark.parametrize(
    ("asked", "subject"),
    [
        (of_pod({}, name="web"), 'pods "web"'),
        (of("deployments", "Deployment", {"metadata": {"name": "a"}}, group="apps"), 'deployments.apps "a"'),
        (of("pods", "Pod", {"metadata": {"generateName": "web-"}}), 'pods "web-"'),
        (of("bindings", "Binding", {}), 'bindings "Unknown"'),
        (of("pods", "Pod", None, {"metadata": {"name": "old"}}, operation="DELETE"), 'pods "old"'),
    ],
)
def test_everything_is_denied(asked: dict[str, object], subject: str) -> None:
    text = "admission control is denying all modifications"
    assert refusal("always-deny", asked) == f"{subject} is forbidden: {text}"
    assert refusal("always-admit", asked) == ""
