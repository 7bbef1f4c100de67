"""Problems name file, line and column, and what only follows from a broken document is left out."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.errors import ConfigError, Problem
from gateway.config.merge.load import load

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
HOOK = {"rules": [RULE], "sideEffects": "None", "admissionReviewVersions": ["v1"]}
GATEWAY = "admission-gateway.io/v1alpha1"
CONSTRAINTS = "constraints.gatekeeper.sh"
ADMISSION = "admissionregistration.k8s.io/v1"
DOCUMENTS: list[dict[str, Any]] = [
    {
        "apiVersion": GATEWAY,
        "kind": "GatewayConfiguration",
        "kubernetes": {},
        "limits": {"maxRequestBytes": 9999},
    },
    {"apiVersion": GATEWAY, "kind": "WorkerPool", "metadata": {"name": "pods"}, "spec": {"target": "a:1"}},
    {
        "apiVersion": ADMISSION,
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hooks"},
        "webhooks": [
            {
                "name": "team.example.com",
                "clientConfig": {"worker": {"pool": "pods", "policy": "team"}},
                "matchConditions": [{"name": "all", "expression": "authorizer != null"}],
                "timeoutSeconds": 5,
                **HOOK,
            }
        ],
    },
    {
        "apiVersion": ADMISSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "names"},
        "spec": {
            "matchConstraints": {"resourceRules": [RULE]},
            "validations": [{"expression": "object.metadata.name != 'a'", "message": "no"}],
        },
    },
    {
        "apiVersion": "templates.gatekeeper.sh/v1",
        "kind": "ConstraintTemplate",
        "metadata": {"name": "never"},
        "spec": {
            "crd": {"spec": {"names": {"kind": "Never"}}},
            "targets": [
                {
                    "target": "admission.k8s.gatekeeper.sh",
                    "code": [
                        {
                            "engine": "K8sNativeValidation",
                            "source": {"validations": [{"expression": "false", "message": "never"}]},
                        }
                    ],
                }
            ],
        },
    },
    {
        "apiVersion": "constraints.gatekeeper.sh/v1beta1",
        "kind": "Never",
        "metadata": {"name": "n"},
        "spec": {},
    },
    {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "cel"},
        "spec": {
            "rules": [
                {
                    "name": "r",
                    "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                    "validate": {"cel": {"expressions": [{"expression": "true"}]}},
                }
            ]
        },
    },
]


def problems(text: str, name: str = "a.yaml") -> list[Problem]:
    with TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_text(text)
        try:
            load([file])
        except ConfigError as error:
            found = list(error.problems)
        else:
            return []
        assert all(one.file == str(file) for one in found), found
        return found


def members(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each field of mappings."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [(*path, key) for key, _ in pairs] if isinstance(value, dict) else []
    return found + [each for key, item in pairs for each in members(item, (*path, key))]


def written(documents: list[dict[str, Any]]) -> str:
    return "---\n".join(yaml.safe_dump(each, sort_keys=False, width=10_000) for each in documents)


def composed(text: str, one: Problem) -> tuple[int, int]:
    """Where PyYAML's own composer has the field of *one*, or its nearest parent."""
    *_, node = (each for each in yaml.compose_all(text) if each.start_mark.line < one.line)
    mark = node.start_mark
    for name, index in re.findall(r"([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]", one.field):
        if index and isinstance(node, yaml.SequenceNode) and int(index) < len(node.value):
            node = node.value[int(index)]
            mark = node.start_mark
        elif name and isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == name), None)
            if pair is None:
                break
            mark, node = pair[0].start_mark, pair[1]
        else:
            break
    return mark.line + 1, mark.column + 1


def test_the_documents_are_valid() -> None:
    assert problems(written(DOCUMENTS)) == []


@settings(max_examples=150, deadline=None)
@given(data=st.data(), is_json=st.booleans())
def test_a_problem_has_the_line_and_column_of_its_field(data: st.DataObject, *, is_json: bool) -> None:
    documents = copy.deepcopy(DOCUMENTS)
    document = data.draw(st.sampled_from(documents))
    *path, last = data.draw(st.sampled_from(members(document)))
    parent: Any = document
    for key in path:
        parent = parent[key]
    change = data.draw(st.sampled_from(["rename", "replace", "delete"]))
    value = parent.pop(last)
    if change == "rename":
        parent[f"{last}Renamed"] = value
    elif change == "replace":
        parent[last] = data.draw(st.sampled_from([{"x": 1}, [1], 7, "x y", ""]))
    text = "\n---\n".join(json.dumps(each, indent=2) for each in documents) if is_json else written(documents)
    for one in problems(text, "a.json" if is_json else "a.yaml"):
        assert str(one).startswith(f"{one.file}:{one.line}:{one.column}: ")
        if not re.match(r"\d+:\d+: ", one.message):
            assert (one.line, one.column) == composed(text, one)
        if change == "rename" and one.field.endswith("Renamed"):
            assert text.split("\n")[one.line - 1][one.column - 1 :].strip('"').startswith(f"{last}Renamed")


EXPRESSIONS = [
    ("object.x +", 0, 10),
    ("'object.x +'", 0, 11),
    ('"object.x +"', 0, 11),
    ("|\n      object.x &&\n        object.y + - / 2", 2, 22 - 17),
    ("|\n      object.x &&\n        object.y +\n", 2, 19 - 17),
    (">\n      object.x &&\n        object.y +", 0, 0),
    ("'object.x == ''a'' +'", 0, 0),
    ('"object.x == \\"a\\" +"', 0, 0),
    ("&a object.x +", 0, 0),
]


@pytest.mark.parametrize(("expression", "lines", "columns"), EXPRESSIONS)
def test_an_error_in_an_expression_has_its_own_place(expression: str, lines: int, columns: int) -> None:
    """*lines* and *columns* count from the begin of the expression, or of a block's line."""
    text = written(DOCUMENTS[:4])
    begin = text.index("object.metadata.name != 'a'")
    line, column = text[:begin].count("\n") + 1, begin - text.rfind("\n", 0, begin)
    text = text.replace("object.metadata.name != 'a'", expression)
    [one] = problems(text)
    assert one.field == "spec.validations[0].expression"
    assert (one.line, one.column) == (line + lines, column + columns), text.split("\n")[one.line - 1]


def test_an_error_in_the_text_of_an_annotation_has_its_own_place() -> None:
    """The annotation is YAML in a block of YAML."""
    rollout = "    admission-gateway.io/rollout: |\n      mode: Warn\n      mode: Audit\n"
    text = written(DOCUMENTS).replace("  name: cel\n", f"  name: cel\n  annotations:\n{rollout}")
    [one] = problems(text)
    assert one.message == '2:1: duplicate key "mode", first in line 1'
    assert text.split("\n")[one.line - 1][one.column - 1 :] == "mode: Audit"


BROKEN = [
    # A pool, by its kind, its version, its name, and the whole file.
    ("kind: WorkerPool", "kind: WorkerPol"),
    ("kind: WorkerPool", "kind: [WorkerPool]"),
    ("v1alpha1\nkind: WorkerPool", "v1alpha2\nkind: WorkerPool"),
    ("name: pods\nspec", "name: {pods\nspec"),
    ("name: pods\nspec", "nme: pods\nspec"),
    # The cluster that a condition needs.
    ("kubernetes: {}", "kuberntes: {}"),
    ("kind: GatewayConfiguration", "kind: GatewayConfig"),
    # The template of a constraint.
    ("kind: ConstraintTemplate", "kind: ConstraintTemplat"),
    ("metadata:\n  name: never", "metadata:\n  name: Never"),
    ("names:\n        kind: Never", "names:\n        kind: 7"),
]


@pytest.mark.parametrize(("right", "wrong"), BROKEN)
def test_what_only_follows_from_a_broken_document_is_left_out(right: str, wrong: str) -> None:
    text = written(DOCUMENTS)
    assert text.count(right) == 1
    line = text[: text.index(right)].count("\n") + 1
    found = problems(text.replace(right, wrong))
    assert found
    assert all(line - 6 <= one.line <= line + 3 for one in found), found


def test_what_is_absent_beside_a_broken_document_of_another_name_is_reported() -> None:
    text = (
        written(DOCUMENTS)
        .replace("pool: pods", "pool: others")
        .replace("kind: ClusterPolicy", "kind: Cluster")
    )
    found = {one.field: one.message for one in problems(text)}
    assert found["webhooks[0].clientConfig.worker.pool"] == 'there is no WorkerPool "others"'
    assert "kind" in found
