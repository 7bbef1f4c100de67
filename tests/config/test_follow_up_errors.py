"""Of a configuration with one broken document only the errors of that document are reported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.config.documents import change as changed
from tests.config.test_places import DOCUMENTS, GATEWAY, HOOK, RULE, members, problems

if TYPE_CHECKING:
    from gateway.base.errors import Problem

MATCHED: dict[str, Any] = {"matchConstraints": {"resourceRules": [RULE]}}
ADMISSION = "admissionregistration.k8s.io/v1"
REGO = "package r\nviolation[{'msg': 'no'}] { input.review.object.kind == 'Pod' }"
PLAN = {"stages": [{"mode": "Warn", "for": "1h", "gates": {"maxFailures": 1}}, {"mode": "Enforce"}]}


def document(version: str, kind: str, name: str, spec: object = None, **rest: Any) -> dict[str, Any]:
    namespace = rest.pop("namespace", None)
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": metadata,
        **({} if spec is None else {"spec": spec}),
        **rest,
    }


def binding(policy: str, **spec: Any) -> dict[str, Any]:
    spec = {"policyName": policy, "validationActions": ["Deny"], **spec}
    return document(ADMISSION, "ValidatingAdmissionPolicyBinding", policy, spec)


def validating(name: str, expression: str, **spec: Any) -> dict[str, Any]:
    spec = {**MATCHED, "validations": [{"expression": expression}], **spec}
    return document(ADMISSION, "ValidatingAdmissionPolicy", name, spec)


SETTINGS: dict[str, Any] = {
    **DOCUMENTS[0],
    "policies": {
        "resources": [{"apiVersion": "v1", "kind": "Node", "resource": "nodes"}],
        "backends": [{"name": "teams", "url": "https://teams.example/v1"}],
        "engines": {
            "gatekeeper": {"pool": "rego"},
            "kubewarden": {"pool": "pods"},
            "kyverno": {"pool": "pods"},
        },
    },
    "imageReview": {"webhooks": ["team.example.com"]},
}
"""What other documents need of a GatewayConfiguration."""
MORE = [
    document(GATEWAY, "WorkerPool", "rego", {"target": "b:1"}),
    document(
        ADMISSION,
        "MutatingWebhookConfiguration",
        "changes",
        webhooks=[
            {
                "name": f"{name}.example.com",
                "clientConfig": {"worker": {"pool": "pods", "policy": name}},
                "rollout": {"plan": PLAN},
                **after,
                **HOOK,
            }
            for name, after in (("first", {}), ("second", {"after": ["first.example.com"]}))
        ],
    ),
    document(
        GATEWAY,
        "PolicyException",
        "old",
        {
            "webhooks": ["team.example.com"],
            "match": {"users": ["ci"]},
            "reason": "r",
            "owner": "o",
            "permanent": True,
        },
        namespace="shop",
    ),
    document("v1", "ConfigMap", "limits", namespace="shop", data={"most": "5"}),
    validating("limited", "params.data.most != ''", paramKind={"apiVersion": "v1", "kind": "ConfigMap"}),
    binding("limited", paramRef={"name": "limits", "namespace": "shop", "parameterNotFoundAction": "Deny"}),
    validating("reads", "resource.list('v1', 'nodes', '').items.size() < 9"),
    binding("reads"),
    document(
        "policies.kyverno.io/v1",
        "ValidatingPolicy",
        "asks",
        {
            **MATCHED,
            "validations": [
                {
                    "expression": "http.Get('https://teams.example/v1/a').ok"
                    " && globalContext.Get('nodes', '').size() > 0"
                }
            ],
        },
    ),
    document(
        "kyverno.io/v2",
        "GlobalContextEntry",
        "nodes",
        {"kubernetesResource": {"version": "v1", "resource": "nodes"}},
    ),
    document(
        "kyverno.io/v1",
        "ClusterPolicy",
        "own",
        {
            "rules": [
                {
                    "name": "r",
                    "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                    "validate": {"message": "no", "pattern": {"metadata": {"name": "?*"}}},
                }
            ]
        },
    ),
    document(
        "kyverno.io/v2",
        "PolicyException",
        "own",
        {
            "exceptions": [{"policyName": "own", "ruleNames": ["r"]}],
            "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        },
        namespace="shop",
    ),
    document(
        "templates.gatekeeper.sh/v1",
        "ConstraintTemplate",
        "rego",
        {
            "crd": {
                "spec": {
                    "names": {"kind": "Rego"},
                    "validation": {
                        "openAPIV3Schema": {"type": "object", "properties": {"most": {"type": "integer"}}}
                    },
                }
            },
            "targets": [{"target": "admission.k8s.gatekeeper.sh", "rego": REGO}],
        },
    ),
    document("constraints.gatekeeper.sh/v1beta1", "Rego", "one", {"parameters": {"most": 5}}),
    document(
        "mutations.gatekeeper.sh/v1",
        "Assign",
        "changes",
        {
            "applyTo": [{"groups": [""], "versions": ["v1"], "kinds": ["Pod"]}],
            "location": "spec.hostNetwork",
            "parameters": {"assign": {"value": False}},
        },
    ),
    document(
        "policies.kubewarden.io/v1",
        "ClusterAdmissionPolicy",
        "wasm",
        {"module": "registry://a/b:v1", "rules": [RULE], "mutating": False},
    ),
]
VALID = [SETTINGS, *DOCUMENTS[1:], *MORE]


def written(documents: list[dict[str, Any]]) -> list[str]:
    return [f"---\n{yaml.safe_dump(each, sort_keys=False, width=10_000)}" for each in documents]


def test_the_documents_are_valid() -> None:
    assert problems("".join(written(VALID))) == []


def own_and_others(documents: list[dict[str, Any]], number: int) -> tuple[list[Problem], list[Problem]]:
    """The errors of the document at index *number*, which is broken, and those of the others.

    The text BROKEN in it stands for broken YAML.
    """
    parts = written(documents)
    parts[number] = parts[number].replace("BROKEN", "[ {")
    begin = "".join(parts[:number]).count("\n") + 1
    # The parser notices an open bracket behind the document.
    end = begin + parts[number].count("\n")
    errors = problems("".join(parts))
    own = [one for one in errors if begin <= one.line <= end]
    return own, [one for one in errors if one not in own]


@settings(max_examples=150)
@given(data=st.data())
def test_only_the_errors_of_the_broken_document_are_reported(data: st.DataObject) -> None:
    documents: list[dict[str, Any]] = json.loads(json.dumps(VALID))
    number = data.draw(st.sampled_from(range(len(documents))))
    *path, last = data.draw(st.sampled_from(members(documents[number])))
    parent: Any = documents[number]
    for key in path:
        parent = parent[key]
    change = data.draw(st.sampled_from(["unknown", "type", "missing", "expression", "YAML"]))
    if change == "unknown":
        parent[f"{last}Wrong"] = 1
    elif change == "missing":
        del parent[last]
    else:
        parent[last] = {"type": [{"x": 7}], "expression": "object.x +", "YAML": "BROKEN"}[change]
    own, others = own_and_others(documents, number)
    assert own or change != "YAML"
    # Without a field that may be absent another document may lack something.
    assert not others or (change == "missing" and not own), others


@pytest.mark.parametrize(
    ("kind", "name", "path", "value"),
    [
        ("GatewayConfiguration", "", "policies.backends.0.url", "x"),
        ("GatewayConfiguration", "", "policies.resources.0.resource", "x y"),
        ("WorkerPool", "pods", "metadata.name", "x y"),
        ("WorkerPool", "pods", "kind", "Xyz"),
        ("ValidatingAdmissionPolicy", "limited", "spec.paramKind", 7),
        ("ValidatingAdmissionPolicy", "limited", "spec.paramKind.apiVersion", 7),
        ("ConstraintTemplate", "rego", "apiVersion", "x/v1"),
    ],
)
def test_what_once_had_follow_up_errors(kind: str, name: str, path: str, value: object) -> None:
    names = [(one["kind"], one.get("metadata", {}).get("name", "")) for one in VALID]
    number = names.index((kind, name))
    documents = [*VALID[:number], changed(VALID[number], path, value), *VALID[number + 1 :]]
    own, others = own_and_others(documents, number)
    assert own
    assert not others
