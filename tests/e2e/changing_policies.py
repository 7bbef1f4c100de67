"""Policies, bindings and parameters that change, and the refusals after each change.

Source: k8s.io/kubernetes test/integration/apiserver/cel/validatingadmissionpolicy_test.go (UpdateParamKind,
UpdateParamRef, UpdateParamResource, PolicyDeletedThenRecreated, BindingDeletedThenRecreated,
ParamResourceDeletedThenRecreated, TestBindingRemoval).
"""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.objects import config_map
from tests.e2e.policy_comparison import LABEL, binding, bound, policy
from tests.e2e.setups import rule

Json = dict[str, Any]

NAME: Final = "changing"


def _policy(expression: str, kind: str = "ConfigMap", version: str = "v1") -> Json:
    match = {
        "resourceRules": [rule("configmaps", "CREATE")],
        "objectSelector": {"matchLabels": {LABEL: NAME}},
    }
    return policy(
        NAME,
        {
            "paramKind": {"apiVersion": version, "kind": kind},
            "matchConstraints": match,
            "validations": [
                {"expression": expression, "messageExpression": "params.kind + ' ' + params.metadata.name"}
            ],
        },
    )


def _binding(param: str, *actions: str) -> Json:
    ref = {"name": param, "namespace": "default", "parameterNotFoundAction": "Deny"}
    return binding(NAME, NAME, bound(*actions, paramRef=ref))


def _param(name: str, prefix: str) -> Json:
    found = config_map(f"changing-{name}", prefix=prefix)
    return {**found, "metadata": {**found["metadata"], "namespace": "default"}}


def _secret(name: str) -> Json:
    metadata = {"name": f"changing-{name}", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}


BY_KIND: Final = "object.metadata.name.startsWith(params.kind.lowerAscii())"
BY_NAME: Final = "object.metadata.name.startsWith(params.metadata.name)"
BY_DATA: Final = "object.metadata.name.startsWith(params.data.prefix)"
ONE, TWO = _param("one", "a"), _param("two", "b")
NOT_FOUND: Final = "failed to configure binding: no params found for policy binding"
STAGES: Final[tuple[tuple[str, tuple[Json, ...], dict[str, str]], ...]] = (
    (
        "a parameter",
        (_policy(BY_KIND), _binding("changing-one"), ONE, TWO, _secret("one")),
        {"configmap-x": "", "secret-x": "ConfigMap changing-one"},
    ),
    (
        "another expression",
        (_policy(BY_NAME), _binding("changing-one"), ONE, TWO),
        {"changing-one-x": "", "changing-two-x": "ConfigMap changing-one"},
    ),
    (
        "another parameter",
        (_policy(BY_NAME), _binding("changing-two"), ONE, TWO),
        {"changing-one-x": "ConfigMap changing-two", "changing-two-x": ""},
    ),
    (
        "the content of the parameter",
        (_policy(BY_DATA), _binding("changing-one"), ONE, TWO),
        {"a-x": "", "c-x": "ConfigMap changing-one"},
    ),
    (
        "a changed parameter",
        (_policy(BY_DATA), _binding("changing-one"), _param("one", "c"), TWO),
        {"a-x": "ConfigMap changing-one", "c-x": ""},
    ),
    (
        "a deleted parameter",
        (_policy(BY_DATA), _binding("changing-one"), TWO),
        {"a-x": NOT_FOUND, "c-x": NOT_FOUND},
    ),
    (
        "the parameter again",
        (_policy(BY_DATA), _binding("changing-one"), ONE, TWO),
        {"a-x": "", "c-x": "ConfigMap changing-one"},
    ),
    ("no binding", (_policy(BY_DATA), ONE, TWO), {"a-x": "", "c-x": ""}),
    (
        "the binding again",
        (_policy(BY_DATA), _binding("changing-two"), ONE, TWO),
        {"a-x": "ConfigMap changing-two", "b-x": ""},
    ),
    ("no policy", (_binding("changing-two"), ONE, TWO), {"a-x": "", "b-x": ""}),
    (
        "the policy again",
        (_policy(BY_NAME), _binding("changing-one"), ONE, TWO),
        {"a-x": "ConfigMap changing-one", "changing-one-x": ""},
    ),
    (
        "another kind of parameters",
        (_policy(BY_KIND, "Secret"), _binding("changing-one"), ONE, TWO, _secret("one")),
        {"configmap-x": "Secret changing-one", "secret-x": ""},
    ),
    ("nothing", (), {"a-x": "", "c-x": ""}),
)
"""Name, the documents that exist, and the names of objects with the message that refuses them."""


def object_named(name: str) -> Json:
    """Return an object that the policies review."""
    return config_map(name, {LABEL: NAME})


def is_expected(messages: dict[str, str], expected: dict[str, str]) -> bool:
    """Whether *messages* of refusals are the *expected* ones; both by the name of the object."""
    texts = {name: message.partition(" denied request: ")[2] for name, message in messages.items()}
    return all(
        texts[name].startswith(text) if text else not messages[name] for name, text in expected.items()
    )
