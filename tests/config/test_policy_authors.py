"""Only those write policies in custom resources who may read what the policies read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.merge.custom_resource import read_resource
from gateway.config.merge.load import load
from gateway.config.merge.merged import merge
from gateway.config.merge.policy_authors import AUTHORS
from gateway.pure.admission_policies.model import MutatingPolicy, ValidatingPolicy
from gateway.pure.cel.object_reads import ANY
from gateway.pure.cel.spec_reads import is_seen, reads_of
from tests.config.test_custom_policies import (
    BINDING,
    LIMITS,
    MAPS,
    POLICY,
    RULES,
    authored,
    policy,
    reasons,
    resource,
    verdict_of,
)
from tests.kyverno.documents import validating

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Webhook

    Json = dict[str, Any]

MUTATING: Final = "MutatingAdmissionPolicy"
CONFIG: Final = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
GET_MAPS: Final = {"resource": "configmaps", "verb": "get"}
LIST_MAPS: Final = {"resource": "configmaps", "verb": "list"}
LIST_LIMITS: Final = {"group": "example.com", "resource": "limits", "verb": "list"}
EVERYTHING: Final = [{"group": "*", "resource": "*", "verb": verb} for verb in ("get", "list")]
ONE: Final = "resource.get('v1', 'configmaps', 'a', 'b')"


def configured(folder: Path, *resources: Json, **policies: Any) -> Config:
    kubernetes = {"customResources": True}
    content = {**CONFIG, "kubernetes": kubernetes, "policies": {"resources": resources, **policies}}
    (folder / "a.json").write_text(json.dumps(content))
    return load([folder])


def checked(webhook: Webhook, document: Json, *granted: Json, **options: Any) -> tuple[str, list[Json]]:
    """Return what is decided on *document* of an author with the rights *granted*, and what was asked."""
    asked: list[Json] = []

    def rights(spec: Json) -> bool:
        attributes = {name: value for name, value in spec["resourceAttributes"].items() if name != "version"}
        asked.append(attributes)
        return attributes in granted

    return verdict_of(webhook, document, rights, user="eve", **options), asked


def reading(expression: str, **spec: Any) -> Json:
    return authored(POLICY, validations=[{"expression": expression}], **spec)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"{ONE} == null", [GET_MAPS]),
        ("resource.Get('v1', 'configmaps', 'a', object.metadata.name) == null", [GET_MAPS]),
        ("resource.list('v1', 'configmaps', '').items == []", [LIST_MAPS]),
        ("resource.List('example.com/v1', 'limits', 'a', {'b': 'c'}).items == []", [LIST_LIMITS]),
        (f"{ONE} == resource.list('v1', 'configmaps', 'a').items[0]", [GET_MAPS, LIST_MAPS]),
        (" \n(\tresource) .get ('v1',\"config\\x6daps\", r'a', '''b''') == null // resource", [GET_MAPS]),
        (f".{ONE} == null", [GET_MAPS]),
        (f"[1].all(resource, .{ONE} == null)", [GET_MAPS]),
        (f"[{ONE}].all(resource, resource.get == null)", [GET_MAPS]),
        ("resource.get(object.kind, 'configmaps', 'a', 'b') == null", EVERYTHING),
        ("resource.get('v1', 'config' + 'maps', 'a', 'b') == null", EVERYTHING),
        ("[resource].all(r, r.get('v1', 'configmaps', 'a', 'b') == null)", EVERYTHING),
        ("cel.bind(r, resource, r.get('v1', 'configmaps', 'a', 'b') == null)", EVERYTHING),
        ("(true ? resource : resource).list('v1', 'configmaps', '').items == []", EVERYTHING),
        ("object.spec.resource == 'resource'", []),
        ("object.list.all(resource, resource.get('v1', 'configmaps', 'a', 'b') == 1)", []),
        ("no resource at all", []),
    ],
)
def test_an_author_needs_the_rights_for_what_an_expression_reads(
    tmp_path: Path, expression: str, expected: list[Json]
) -> None:
    (authors,) = configured(tmp_path, MAPS, LIMITS).validating
    assert authors.name == AUTHORS
    document = reading(expression)
    for place in (
        {"validations": [{"expression": "true", "messageExpression": expression}]},
        {"variables": [{"name": "a", "expression": expression}]},
        {"matchConditions": [{"name": "a", "expression": expression}]},
        {"auditAnnotations": [{"key": "a", "valueExpression": expression}]},
        {"mutations": [{"applyConfiguration": {"expression": expression}}]},
    ):
        assert checked(authors, authored(POLICY, **place)) == checked(authors, document)
    decided, asked = checked(authors, document)
    assert asked == expected
    assert (decided == "allowed") == (not expected)
    assert checked(authors, document, *expected)[0] == "allowed"
    for missing in expected:
        granted = [each for each in (*EVERYTHING, GET_MAPS, LIST_MAPS, LIST_LIMITS) if each != missing]
        decided, _ = checked(authors, document, *granted)
        assert decided.startswith("policies can show what they read: ")


def test_every_way_to_write_a_policy_is_checked(tmp_path: Path) -> None:
    (authors,) = configured(tmp_path, MAPS).validating
    denial = "policies can show what they read: the author has no right to get all configmaps"
    before = reading("true")
    for document in (reading(f"{ONE} == null"), {**reading(f"{ONE} == null"), "kind": MUTATING}):
        assert checked(authors, document)[0] == denial
        assert checked(authors, document, operation="UPDATE", old=before)[0] == denial
        assert checked(authors, document, operation="UPDATE", old=document)[0] == "allowed"
    # A binding has no expressions: its texts are words.
    assert checked(authors, authored(BINDING, policyName="p", other="resource")) == ("allowed", [])
    # A kind may be listed later, when the policy is there already.
    (alone,) = configured(tmp_path, paramKinds=[LIMITS]).validating
    assert checked(alone, reading(f"{ONE} == null"))[0] == denial
    other = reading("resource.list('example.com/v1', 'limits', '').items == []")
    assert checked(authors, other)[0] == (
        "policies can show what they read: the author has no right to list all limits.example.com"
    )


def test_a_policy_reads_a_limited_number_of_kinds(tmp_path: Path) -> None:
    (authors,) = configured(tmp_path, MAPS).validating
    for number, expected in ((24, "allowed"), (25, "expected at most 24 kinds that expressions get or list")):
        texts = [f"resource.get('v1', 'kind{index}', '', 'a') == null" for index in range(number)]
        granted = [{"resource": f"kind{index}", "verb": "get"} for index in range(number)]
        document = authored(POLICY, validations=[{"expression": each} for each in texts])
        assert checked(authors, document, *granted)[0].splitlines()[0] == expected


def test_authors_of_policies_of_kyverno_are_checked(tmp_path: Path) -> None:
    rules = {"apiGroups": ["policies.kyverno.io"], "resources": ["validatingpolicies", "mutatingpolicies"]}
    (alone,) = configured(tmp_path, MAPS).validating
    (authors,) = configured(tmp_path, MAPS, customResourcesOf=["Kyverno"]).validating
    document = validating(ONE + ".data == {}")
    for expression, expected in (
        (ONE, [GET_MAPS]),
        ("resource.Get(resource.toGVR('v1', 'ConfigMap'), 'a', 'b')", EVERYTHING),
        ("resource.Post('v1', 'things', resource.Get('v1', 'configmaps', 'a', 'b'))", [GET_MAPS]),
    ):
        document = validating(f"{expression}.data == {{}}")
        assert checked(authors, document)[1] == expected
        assert checked(authors, document, *expected)[0] == "allowed"
    shown = [(rule.api_groups, rule.resources) for rule in authors.rules]
    assert (tuple(rules["apiGroups"]), tuple(rules["resources"])) in shown
    assert len(alone.rules) == len(authors.rules) - 1


def test_without_custom_resources_there_are_no_authors_to_check(tmp_path: Path) -> None:
    of_files: Json = {**CONFIG, "policies": {"resources": [MAPS]}}
    for content in (of_files, {**of_files, "kubernetes": {}}):
        (tmp_path / "a.json").write_text(json.dumps(content))
        assert not load([tmp_path]).webhooks


def test_a_kind_that_expressions_may_read_is_no_kind_of_parameters(tmp_path: Path) -> None:
    files = configured(tmp_path, MAPS)
    of_maps = {"apiVersion": "v1", "kind": "ConfigMap"}
    (authors,) = files.validating
    assert checked(authors, authored(POLICY, paramKind=of_maps), GET_MAPS)[0] == (
        "expected a paramKind of policies.paramKinds: it lists none"
    )
    assert reasons(merge(files, [policy(paramKind=of_maps)], None)) == {"p": "ParamKindNotListed"}


def test_a_policy_that_reads_objects_is_nothing_for_the_api_server(tmp_path: Path) -> None:
    document = {**policy(expression=f"{ONE} == null").document}
    document["apiVersion"] = "admissionregistration.k8s.io/v1"
    (tmp_path / "b.json").write_text(json.dumps(document))
    files = configured(tmp_path, MAPS, leftToAPIServer=[POLICY])
    messages = [warning.message for warning in files.warnings]
    assert len([each for each in messages if "API server refuses such expressions" in each]) == 1


RESOURCE: Final = st.recursive(
    st.sampled_from(["resource", ".resource", "variables.alias"]),
    lambda inner: st.one_of(
        inner.map(lambda one: f"[{one}][0]"),
        inner.map(lambda one: f"dyn({one})"),
        inner.map(lambda one: f"{{'a': {one}}}.a"),
        inner.map(lambda one: f"optional.of({one}).optMap(resource, resource).value()"),
        st.tuples(inner, inner).map(lambda both: f"(1 == 2 ? {both[0]} : {both[1]})"),
        st.tuples(inner, inner).map(lambda both: f"[{both[0]}].map(resource, {both[1]})[0]"),
    ),
    max_leaves=4,
)
NAME: Final = st.sampled_from(
    ["'configmaps'", '"config\\u006daps"', "r'limits'", "'''limits'''", "object.kind", "variables.text"]
)
READ: Final = st.one_of(
    st.tuples(RESOURCE, NAME).map(lambda both: f"{both[0]}.get('v1', {both[1]}, 'a', 'b') == null"),
    st.tuples(RESOURCE, NAME).map(lambda both: f"{both[0]}.List('v1', {both[1]}, '').items == []"),
    st.tuples(RESOURCE, NAME).map(lambda both: f"resource.get('v1', {both[1]}, 'a', 'b').b == {both[0]}"),
    st.just("object.kind == 'resource'"),
)


@given(st.lists(READ, min_size=1, max_size=3), st.sampled_from(["resource", ".resource", "'a'", ONE]))
def test_what_a_policy_in_force_reads_is_seen_in_its_document(reads: list[str], alias: str) -> None:
    variables = [{"name": "alias", "expression": alias}, {"name": "text", "expression": "'configmaps'"}]
    spec = {
        "matchConstraints": {"resourceRules": RULES},
        "variables": variables,
        "validations": [{"expression": each} for each in reads],
    }
    read = read_resource(resource(POLICY, "p", "u", 1, spec))
    if any("author" in problem.message for problem in read.problems):
        pytest.fail(str(read.problems))
    if not read.problems:
        assert isinstance(read.content, ValidatingPolicy)
        assert all(is_seen(each, reads_of(spec)) for each in read.content.object_reads())


def test_a_policy_whose_reads_the_check_would_not_see_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_seen(ANY, reads_of({"validations": [{"expression": ONE}]}))
    patch = f"[JSONPatch{{op: 'add', path: '/data', value: {ONE}.data}}]"
    spec = {
        "matchConstraints": {"resourceRules": RULES},
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    assert not read_resource(resource(MUTATING, "p", "u", 1, spec)).problems
    monkeypatch.setattr(MutatingPolicy, "object_reads", lambda _: {ANY: frozenset()})
    (problem,) = read_resource(resource(MUTATING, "p", "u", 1, spec)).problems
    assert problem.message == "reads objects in a way that the check of its author does not see"
