"""Kyverno's autogen: recorded variants, what holds for any policy, and warnings.

``autogen.jsonl`` has policies and what Kyverno's own functions ``Autogen`` of version 1.19.1 made of them,
without empty fields.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.kyverno.autogen import (
    CONTROLLERS,
    mutating_variants,
    mutating_warnings,
    validating_variants,
    validating_warnings,
)

Json = dict[str, Any]

RECORDED = [json.loads(line) for line in Path(__file__).with_name("autogen.jsonl").read_text().splitlines()]
VARIANTS = {"ValidatingPolicy": validating_variants, "MutatingPolicy": mutating_variants}
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}


def without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: each for name, of in value.items() if (each := without_empty(of)) not in (None, {}, [], "")
        }
    return [without_empty(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("text", ["object.{}x == 1", "object[{}'x'] == 1", "object.spec{}['x'] == 1"])
def test_spaces_cost_no_more_than_other_text(text: str) -> None:
    """Before, so many spaces took hours: their square."""
    spec = {
        "matchConstraints": {"resourceRules": [PODS]},
        "validations": [{"expression": text.format(" " * 1_000_000)}],
    }
    assert validating_warnings(spec) == []


@pytest.mark.parametrize("row", RECORDED, ids=[f"{each['kind']}: {each['name']}" for each in RECORDED])
def test_variants_are_kyvernos(row: Json) -> None:
    """Without those for custom workloads of mutating policies, which Kyverno skips."""
    before = json.dumps(row["spec"])
    variants = [
        {"name": name, "spec": without_empty(spec)} for name, spec in VARIANTS[row["kind"]](row["spec"])
    ]
    is_used = {
        "ValidatingPolicy": {"cronjobs", "defaults", "extract"},
        "MutatingPolicy": {"cronjobs", "defaults"},
    }
    assert variants == [each for each in row["variants"] if each["name"] in is_used[row["kind"]]]
    assert json.dumps(row["spec"]) == before, "the policy itself is not changed"


def policy(*, match: Json | None = None, **spec: Any) -> Json:
    return {"matchConstraints": {"resourceRules": [PODS], **(match or {})}, **spec}


def naming(*controllers: str, **spec: Any) -> Json:
    return policy(autogen={"podControllers": {"controllers": list(controllers)}}, **spec)


def validating(expression: str, **fields: Any) -> Json:
    return policy(validations=[{"expression": expression, **fields}])


def applying(expression: str, **spec: Any) -> Json:
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    return policy(mutations=[mutation], **spec)


def patching(expression: str) -> Json:
    return policy(mutations=[{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}])


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"matchConstraints": None},
        {"matchConstraints": {"resourceRules": None}},
        policy(match={"resourceRules": [{**PODS, "operations": []}]}),
        naming("Deployment"),
    ],
    ids=["nothing", "null", "no rules", "no operations", "unknown controller"],
)
def test_policies_without_variants(spec: Json) -> None:
    assert validating_variants(spec) == mutating_variants(spec) == []


@pytest.mark.parametrize(
    "autogen", [None, {}, {"podControllers": None}, {"podControllers": {"controllers": None}}]
)
def test_all_controllers_are_the_default(autogen: Json | None) -> None:
    for variants in VARIANTS.values():
        rules = [
            each
            for _, spec in variants(policy(autogen=autogen))
            for each in spec["matchConstraints"]["resourceRules"]
        ]
        assert sorted(name for each in rules for name in each["resources"]) == sorted(CONTROLLERS)


@pytest.mark.parametrize(
    ("name", "group", "version"), [("replicationcontrollers", "", "v1"), ("widgets", "*", "*")]
)
def test_a_name_alone_is_looked_up(name: str, group: str, version: str) -> None:
    (variant,) = validating_variants(naming(name))
    (rule,) = variant.spec["matchConstraints"]["resourceRules"]
    assert rule == {**PODS, "apiGroups": [group], "apiVersions": [version], "resources": [name]}


PIECES = [
    "object",
    "oldObject",
    "Object",
    ".spec",
    ".metadata",
    ".namespace",
    ".labels",
    "{",
    "}",
    '"',
    "\\",
    "x",
    " ",
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=2)).map("".join)


@given(TEXTS)
def test_texts_are_rewritten_as_the_json_that_they_are_in(text: str) -> None:
    """The replacement on the whole JSON, as Kyverno does it, and on each text give the same."""
    spec = validating(text, message=text)
    for name, variant in validating_variants(spec):
        template = "spec.template" if name == "defaults" else "spec.jobTemplate.spec.template"
        whole = json.dumps({**spec, "matchConstraints": variant["matchConstraints"]}, ensure_ascii=False)
        for found in ("object", "oldObject"):
            for field in ("spec", "metadata"):
                path = f"{found}.{field}"
                first, *others = whole.split(path)
                whole = first + "".join(
                    (path if is_namespace(rest) else f"{found}.{template}.{field}") + rest for rest in others
                )
        assert variant == json.loads(whole)


def is_namespace(rest: str) -> bool:
    after = rest.removeprefix(".namespace")
    return after != rest and not (after[:1].isascii() and (after[:1].isalnum() or after[:1] == "_"))


@given(TEXTS)
def test_expressions_without_paths_of_pods_stay(text: str) -> None:
    text = text.replace(".", "")
    assert all(
        spec["validations"] == [{"expression": text}] for _, spec in validating_variants(validating(text))
    )
    if not text.strip().startswith("Object"):
        spec = applying(text)
        assert all(variant["mutations"] == spec["mutations"] for _, variant in mutating_variants(spec))


@given(TEXTS, st.sampled_from(["objectSelector", "excludeResourceRules"]))
def test_a_policy_about_some_pods_has_no_variants(text: str, field: str) -> None:
    matched = {"objectSelector": {"matchLabels": {"a": "b"}}, "excludeResourceRules": [PODS]}
    for spec in (validating(text), applying(text)):
        spec["matchConstraints"][field] = matched[field]
        assert validating_variants(spec) == mutating_variants(spec) == []
        assert validating_warnings(spec) == mutating_warnings(spec) == []


def test_a_star_leaves_out_what_it_covers() -> None:
    names = ("*.v1.apps", "deployments.v1.apps", "deployments/scale.v1.apps")
    (variant,) = validating_variants(naming(*names))
    (rule,) = variant.spec["matchConstraints"]["resourceRules"]
    assert rule["resources"] == ["*", "deployments/scale"]


NOT_REWRITTEN = "is not rewritten: in the variants it is of the workload, not of its Pod template"
OF_TEMPLATE = "is of the Pod template, which lacks it"
PATCHES = "is not rewritten: it patches the workload itself, not its Pod template"
NAMED = "autogen.podControllers.controllers"
IN_FULL = "RESOURCE.VERSION.GROUP"
FOUND = f"by Kyverno in the one that it finds; {IN_FULL} is exact"
UNCHANGED = "Kyverno does not change the Pod templates of such workloads"
CONFIGURATION = "mutations[0].applyConfiguration.expression"
PATCH = "mutations[0].jsonPatch.expression"
VALIDATING: list[tuple[Json, list[str]]] = [
    (validating("object.spec.containers.all(c, has(object.metadata.labels))"), []),
    (validating("object.metadata.namespace == 'a' && object.metadata.?labels.a.orValue('') == ''"), []),
    (
        validating(
            "true", messageExpression="object.metadata.name + oldObject.metadata.uid + object.metadata.name"
        ),
        [
            f"validations[0].messageExpression: in the variants object.metadata.name {OF_TEMPLATE}",
            f"validations[0].messageExpression: in the variants oldObject.metadata.uid {OF_TEMPLATE}",
        ],
    ),
    (
        validating("object.?spec.b && object['spec'].b && object .spec.b"),
        [
            f"validations[0].expression: {each} {NOT_REWRITTEN}"
            for each in ("object.?spec", "object['spec']", "object .spec")
        ],
    ),
    (
        policy(matchConditions=[{"name": "a", "expression": "object.kind == 'Pod'"}]),
        ["matchConditions[0].expression: in the variants object.kind == 'Pod' is about the workload"],
    ),
    (
        naming("deployments", "Job", "widgets.v1.example.io", "replicationcontrollers", "pods", "widgets"),
        [
            f"{NAMED}[1]: Job has no variant: expected one of {', '.join(CONTROLLERS)}, or {IN_FULL}",
            f"{NAMED}[4]: pods is refused whatever the object: its spec has no Pod template",
            f"{NAMED}[5]: widgets is matched in all groups, {FOUND}",
        ],
    ),
    # For custom workloads nothing is rewritten.
    (naming("widgets.v1.example.io", variables=[{"name": "a", "expression": "object.?spec"}]), []),
    (policy(autogen={"podControllers": {"controllers": []}}, variables=[{"expression": "object.?spec"}]), []),
]
MUTATING: list[tuple[Json, list[str]]] = [
    (applying("Object{spec: Object.spec{a: object.spec.a, b: object.metadata.name}}"), []),
    (
        applying("Object{metadata: Object.metadata{labels: {'a': 'b'}}}"),
        [f"{CONFIGURATION}: the variants fail: Kyverno does not rename the type Object.metadata"],
    ),
    (
        applying("true ? Object{spec: Object.spec{}} : Object{}"),
        [f"{CONFIGURATION}: the variants fail: only what begins with Object{{ is wrapped"],
    ),
    (
        applying("Object{}", variables=[{"name": "a", "expression": "object.spec.a + object.metadata.name"}]),
        [f"variables[0].expression: object.spec {NOT_REWRITTEN}"],
    ),
    (
        applying("Object{}", matchConditions=[{"expression": "object.spec.a && object.metadata.?labels.a"}]),
        [f"matchConditions[0].expression: object.metadata.?labels {NOT_REWRITTEN}"],
    ),
    (
        patching("[JSONPatch{op: 'add', path: '/spec/a/b', value: object.spec.a}]"),
        [f"{PATCH}: object.spec {NOT_REWRITTEN}", f"{PATCH}: /spec/a {PATCHES}"],
    ),
    (
        naming("jobs", "widgets.v1.example.io"),
        [f"{NAMED}[1]: widgets.v1.example.io has no variant: {UNCHANGED}"],
    ),
    (
        patching("[JSONPatch{op: 'test', path: '/spec/template/spec/a'}, JSONPatch{path: '/metadata/name'}]"),
        [],
    ),
]


@pytest.mark.parametrize(("spec", "warnings"), VALIDATING)
def test_warnings_of_validating_policies(spec: Json, warnings: list[str]) -> None:
    assert validating_warnings(spec) == warnings


@pytest.mark.parametrize(("spec", "warnings"), MUTATING)
def test_warnings_of_mutating_policies(spec: Json, warnings: list[str]) -> None:
    assert mutating_warnings(spec) == warnings
