"""Gatekeeper's documents in files: what they may have, and the problems of what they may not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.loaders.gatekeeper import GROUPS
from gateway.config.loaders.gatekeeper_worker import ENGINE
from gateway.config.yaml.documents import LOADED_GROUPS
from gateway.config.yaml.fields import MAX_PROBLEMS
from tests.config.documents import change, load_documents, problems_of
from tests.gatekeeper.documents import (
    constraint,
    excluding,
    expansion,
    mutator,
    rego_template,
    scoped,
    template,
)
from tests.kit import call_command

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]

TEMPLATE = template("Never", "false")
PROVIDER: Json = {
    "apiVersion": "externaldata.gatekeeper.sh/v1beta1",
    "kind": "Provider",
    "metadata": {"name": "p"},
    "spec": {"url": "https://provider.example"},
}
SOURCE = "spec.targets.0.code.0.source"


def warnings_of(*documents: Json) -> list[tuple[str, str]]:
    return [(each.field, each.message) for each in load_documents(*documents).warnings]


def test_the_groups_are_those_of_the_loader() -> None:
    assert {each for each in LOADED_GROUPS if each.endswith(".gatekeeper.sh")} == {*GROUPS}


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
@pytest.mark.parametrize("of_constraint", ["v1beta1", "v1alpha1"])
def test_all_versions_are_read(version: str, of_constraint: str) -> None:
    documents = [template("Never", "false", version=version), constraint("Never")]
    documents[1]["apiVersion"] = f"constraints.gatekeeper.sh/{of_constraint}"
    (entry,) = load_documents(*documents).validating
    assert (entry.name, entry.match_policy, entry.failure_policy) == ("c", "Exact", "Fail")


@pytest.mark.parametrize(
    ("version", "legacy", "has_parameters"),
    [("v1", None, False), ("v1", True, True), ("v1beta1", None, True), ("v1beta1", False, False)],
)
def test_without_a_schema_parameters_are_those_of_legacy_templates(
    version: str, *, legacy: bool | None, has_parameters: bool
) -> None:
    made = template("Never", "variables.params == null", version=version, legacy=legacy)
    found = warnings_of(made, constraint("Never", parameters={"a": 1}))
    dropped = ("spec.parameters", "is dropped: the template has no schema, and so no parameters")
    assert found == ([] if has_parameters else [dropped])


@pytest.mark.parametrize(
    ("path", "value", "field", "message"),
    [
        (
            "metadata.name",
            "other",
            "metadata.name",
            'found "other", expected "never", the kind in lower case',
        ),
        ("spec.crd.spec.names.kind", "", "spec.crd.spec.names.kind", "is required"),
        ("spec.targets", [], "spec.targets", "found 0 targets, expected one"),
        ("spec.targets", [{}, {}], "spec.targets", "found 2 targets, expected one"),
        (
            "spec.targets.0.target",
            "x",
            "spec.targets[0].target",
            'found "x", expected admission.k8s.gatekeeper.sh',
        ),
        (
            "spec.targets.0.operations",
            ["PATCH"],
            "spec.targets[0].operations[0]",
            'found "PATCH", expected CREATE, UPDATE, DELETE, CONNECT or *',
        ),
        (
            "spec.targets.0.operations",
            ["*", "CREATE"],
            "spec.targets[0].operations",
            "found * beside others, expected it alone",
        ),
        (
            f"{SOURCE}.failurePolicy",
            "Deny",
            "spec.targets[0].code[0].source.failurePolicy",
            'found "Deny", expected Fail or Ignore',
        ),
        (
            f"{SOURCE}.variables",
            [{"name": "params", "expression": "1"}],
            "spec.targets[0].code[0].source.variables[0].name",
            "found params, which is reserved for the variable that every template has",
        ),
        (
            f"{SOURCE}.matchCondition",
            [{"name": "gatekeeper_internal_x", "expression": "true"}],
            "spec.targets[0].code[0].source.matchCondition[0].name",
            'found "gatekeeper_internal_x", expected a name that does not begin with gatekeeper_internal_',
        ),
        (
            f"{SOURCE}.validations.0.expression",
            "params.x == 1",
            "spec.targets[0].code[0].source.validations[0].expression",
            "1:1: undeclared reference to 'params' (in container '')",
        ),
        (
            f"{SOURCE}.validations.0.expression",
            "authorizer != null",
            "spec.targets[0].code[0].source.validations[0].expression",
            "1:1: undeclared reference to 'authorizer' (in container '')",
        ),
        (
            "spec.crd.spec.validation",
            {"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}},
            'spec.crd.spec.validation.openAPIV3Schema.properties["a"].type',
            "is required, expected array, boolean, integer, number, object or string",
        ),
    ],
)
def test_problems_of_templates(path: str, value: object, field: str, message: str) -> None:
    assert (field, message) in problems_of(change(TEMPLATE, path, value))


def test_a_template_in_rego_is_named_with_what_to_use() -> None:
    ((field, message),) = problems_of(rego_template("Never"), constraint("Never"))
    assert field == "spec.targets[0].code"
    assert message == (
        f'the template "never" has Rego only: a worker evaluates it: name its pool in {ENGINE}, '
        "or add code of the engine K8sNativeValidation"
    )
    both = change(TEMPLATE, "spec.targets.0.rego", "package x")
    assert problems_of(both, constraint("Never")) == []


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        (
            constraint("Neverr"),
            "kind",
            'there is no ConstraintTemplate with the kind "Neverr"; did you mean "Never"?',
        ),
        (
            {**constraint("Never"), "apiVersion": "constraints.gatekeeper.sh/v1"},
            "apiVersion",
            (
                'found "constraints.gatekeeper.sh/v1", expected constraints.gatekeeper.sh/v1beta1 or '
                "constraints.gatekeeper.sh/v1alpha1"
            ),
        ),
        (
            constraint("Never", match={"namespaces": ["a*b"]}),
            "spec.match.namespaces[0]",
            'found "a*b", expected a name, perhaps with * at its beginning or its end',
        ),
        (
            constraint(
                "Never", match={"labelSelector": {"matchExpressions": [{"key": "a", "operator": "is"}]}}
            ),
            "spec.match.labelSelector.matchExpressions[0].operator",
            'found "is", expected In, NotIn, Exists or DoesNotExist',
        ),
        (
            constraint("Never", match={"source": "Other"}),
            "spec.match.source",
            'found "Other", expected All, Original or Generated',
        ),
        (
            constraint("Never", enforcementAction="scoped"),
            "spec.scopedEnforcementActions",
            "is required with enforcementAction scoped",
        ),
        (
            constraint("Never", mode="Off"),
            'metadata.annotations["admission-gateway.io/mode"]',
            'found "Off", expected Enforce, Warn, Audit or Shadow',
        ),
        (constraint("Never", name="a" * 64), "metadata.name", "found 64 characters, expected at most 63"),
    ],
)
def test_problems_of_constraints(document: Json, field: str, message: str) -> None:
    assert problems_of(TEMPLATE, document) == [(field, message)]


def test_parameters_are_checked_by_the_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"labels": {"type": "array", "items": {"type": "string"}}},
        "required": ["labels"],
    }
    made = template("Never", "false", schema=schema)
    assert problems_of(made, constraint("Never", parameters={"labels": ["a", 1]})) == [
        ("spec.parameters.labels[1]", "found the number 1, expected a value of type string")
    ]
    assert problems_of(made, constraint("Never", parameters={})) == [
        ("spec.parameters.labels", "is required")
    ]
    assert problems_of(made, constraint("Never")) == []


@pytest.mark.parametrize(
    ("documents", "field", "message"),
    [
        (
            [change(TEMPLATE, f"{SOURCE}.matchConditions", []), constraint("Never")],
            "spec.targets[0].code[0].source.matchConditions",
            'unknown field, which Gatekeeper ignores; did you mean "matchCondition"?',
        ),
        (
            [TEMPLATE, constraint("Never", matches={})],
            "spec.matches",
            'unknown field, which the API server drops; did you mean "match"?',
        ),
        (
            [TEMPLATE, constraint("Never", match={"scope": "namespaced"})],
            "spec.match.scope",
            'found "namespaced", which is both for Gatekeeper; did you mean "Namespaced"?',
        ),
        (
            [TEMPLATE, constraint("Never", match={"source": "Generated"})],
            "spec.match.source",
            "found Generated: the gateway does not expand workloads, so that the constraint matches nothing",
        ),
        (
            [TEMPLATE, constraint("Never", enforcementAction="Deny")],
            "spec.enforcementAction",
            'found "Deny", expected deny, warn, dryrun or scoped; the constraint has no effect',
        ),
        (
            [TEMPLATE, constraint("Never", **scoped(("deny", "vap.k8s.io")))],
            "spec.scopedEnforcementActions",
            "none of them is for validation.gatekeeper.sh: the constraint has no effect on requests",
        ),
        (
            [excluding("a", sync={"syncOnly": []})],
            "spec.sync",
            f"has no effect: objects are replicated for Rego, and only a worker evaluates that, see {ENGINE}",
        ),
        (
            [excluding("a", processes=("webhooks",))],
            "spec.match[0].processes",
            'found "webhooks", expected audit, webhook, mutation-webhook, sync or *; it has no effect',
        ),
    ],
)
def test_what_has_no_effect_is_a_warning(documents: list[Json], field: str, message: str) -> None:
    assert warnings_of(*documents) == [(field, message)]


@pytest.mark.parametrize(
    ("group", "kind", "part"),
    [
        ("connection", "Connection", "decision log"),
        ("status", "ConstraintPodStatus", "leave it out"),
    ],
)
def test_other_kinds_are_refused_with_what_to_use_instead(group: str, kind: str, part: str) -> None:
    document = {"apiVersion": f"{group}.gatekeeper.sh/v1", "kind": kind, "metadata": {"name": "a"}}
    ((field, message),) = problems_of(document)
    assert field == "kind"
    assert kind in message
    assert part in message


@pytest.mark.parametrize(
    ("document", "part"),
    [
        (mutator(), "MutatingAdmissionPolicy"),
        (mutator(kind="AssignImage"), "MutatingAdmissionPolicy"),
        (expansion("Pod", "Deployment"), "Pod template"),
        (PROVIDER, "a policy of a worker"),
    ],
)
def test_what_only_a_worker_evaluates_is_refused_without_one(document: Json, part: str) -> None:
    ((field, message),) = problems_of(document)
    assert field == "kind"
    assert document["kind"] in message
    assert "policies.engines.gatekeeper" in message
    assert part in message


def test_a_sync_set_is_accepted_without_effect() -> None:
    document = {
        "apiVersion": "syncset.gatekeeper.sh/v1alpha1",
        "kind": "SyncSet",
        "metadata": {"name": "a"},
        "spec": {"gvks": []},
    }
    ((_, message),) = warnings_of(document)
    assert message.startswith("has no effect")


def test_names_are_unique() -> None:
    for document in (TEMPLATE, constraint("Never"), excluding("a")):
        ((field, message),) = problems_of(TEMPLATE, document, document)[:1]
        assert field == "metadata.name"
        assert "a second time" in message


@pytest.mark.parametrize("wrong", [None, 1, "x", [], [1], {}, {"x": 1}, [{}], [None], [[]]])
@pytest.mark.parametrize(
    ("document", "path"),
    [
        (document, path)
        for document, paths in (
            (
                template("Never", "true", variables=[], matchCondition=[], schema={"type": "object"}),
                (
                    *("metadata", "spec", "spec.crd", "spec.crd.spec", "spec.crd.spec.names", "spec.targets"),
                    *("spec.crd.spec.validation", "spec.crd.spec.validation.openAPIV3Schema"),
                    *("spec.crd.spec.validation.openAPIV3Schema.properties", "spec.targets.0"),
                    *("spec.crd.spec.validation.openAPIV3Schema.type", "spec.targets.0.code"),
                    *("spec.targets.0.operations", "spec.targets.0.code.0", SOURCE, f"{SOURCE}.variables"),
                    *(f"{SOURCE}.validations", f"{SOURCE}.validations.0", f"{SOURCE}.matchCondition"),
                    *(f"{SOURCE}.failurePolicy", f"{SOURCE}.generateVAP"),
                ),
            ),
            (
                constraint("Never", match={"kinds": [{}]}, parameters={}),
                (
                    *("metadata", "spec", "spec.match", "spec.match.kinds", "spec.match.kinds.0"),
                    *("spec.match.scope", "spec.match.name", "spec.match.namespaces", "spec.parameters"),
                    *("spec.match.labelSelector", "spec.match.namespaceSelector", "spec.enforcementAction"),
                    "spec.scopedEnforcementActions",
                ),
            ),
            (excluding("a"), ("metadata", "spec", "spec.match", "spec.match.0", "spec.match.0.processes")),
        )
        for path in paths
    ],
)
def test_a_value_of_another_type_is_a_problem_and_no_traceback(
    document: Json, path: str, wrong: object
) -> None:
    made = change(document, path, wrong)
    others = [TEMPLATE] if made["kind"] == "Never" else []
    for _, message in problems_of(*others, made, *([constraint("Never")] if not others else [])):
        assert message


def test_many_constraints_load(tmp_path: Path) -> None:
    count = 2000
    config = load_documents(
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [TEMPLATE, *(constraint("Never", f"c{number:04}") for number in range(count))],
        }
    )
    assert len(config.validating) == count


def test_many_unknown_fields_are_not_all_compared() -> None:
    spec: Json = {f"matc{number}": 1 for number in range(5000)}
    found = warnings_of(TEMPLATE, constraint("Never", **spec))
    assert len(found) == MAX_PROBLEMS


def test_few_kinds_without_a_template_get_a_hint() -> None:
    many = [constraint(f"Neve{number}", "c") for number in range(100)]
    found = problems_of({"apiVersion": "v1", "kind": "List", "items": [TEMPLATE, *many]})
    assert len(found) == 100
    assert sum('did you mean "Never"?' in message for _, message in found) == 20


def test_check_shows_problems_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Never\nmetadata: {name: a}\n"
    )
    found = call_command("check", "--config", tmp_path)
    assert found.returncode == 1
    assert 'a.yaml:2:1: Never "a": kind: there is no ConstraintTemplate' in found.stderr + found.stdout
