"""Kyverno's MutatingPolicy: recorded outcomes, and what holds for any policy.

``mutating.jsonl`` has policies and requests with what Kyverno's own engine of version 1.19.0 made of them:
the error of each policy, and the object. It evaluates mutating policies as that of 1.19.1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from gateway.pure.admission_policies.mutating import MAX_BRIEF_BYTES
from gateway.pure.core.explain import explain
from gateway.pure.core.matching import INDEXED
from gateway.pure.core.namespace import Namespace
from tests.kyverno.documents import ANYTHING, PODS, condition, exception, mutating
from tests.policies.documents import decided, written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.policies.documents import Answer

    Json = dict[str, Any]

RECORDED = [json.loads(line) for line in Path(__file__).with_name("mutating.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("row", RECORDED, ids=[each["name"] for each in RECORDED])
def test_outcomes_are_kyvernos(row: Json, tmp_path: Path) -> None:
    known = row["namespace"]
    space = known and Namespace("d", known["metadata"]["labels"], orjson.dumps(known))
    answer = decided(tmp_path, row["documents"], row["request"], phase="mutate", space=space)
    is_ignored = any(each["spec"].get("failurePolicy") == "Ignore" for each in row["documents"])
    texts = [] if is_ignored else row["errors"]
    kind = row["request"]["kind"]["kind"]
    messages = [f"Resource: d/{row['request']['name']}, Kind: {kind}, Errors: [{each}]" for each in texts]
    status = answer.decision.status
    assert (status.message.split("\n") if status else []) == messages
    assert answer.failures == (row["errors"] if is_ignored else [])
    after = answer.evaluation.final_object
    assert after == (row["patched"] or row["request"]["object"])


POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"a": "b"}}, "spec": {}}
FAILS = "[JSONPatch{op: 'remove', path: '/none'}]"


def label(name: str, value: str = "'1'") -> str:
    """A JSON Patch that adds a label with the value of an expression."""
    return f"[JSONPatch{{op: 'add', path: '/metadata/labels/{name}', value: {value}}}]"


def answer(folder: Path, documents: Sequence[Json] | Json, members: Json | None = None) -> Answer:
    listed = [documents] if isinstance(documents, dict) else documents
    return decided(folder, listed, {"name": "a", "object": POD, **(members or {})}, phase="mutate")


def labels(folder: Path, documents: Sequence[Json] | Json, members: Json | None = None) -> Json:
    """Return the labels that *documents* add."""
    after = answer(folder, documents, members).evaluation.final_object
    assert after is not None
    return {name: value for name, value in after["metadata"]["labels"].items() if name != "a"}


def test_the_answer_of_a_failure(tmp_path: Path) -> None:
    status = answer(tmp_path, mutating(FAILS)).decision.status
    assert status is not None
    assert (status.code, status.reason, status.causes) == (400, "", ())
    cause = "Policy p: failed to evaluate policy: JSON Patch: error in remove"
    assert status.message.startswith(f"Resource: default/a, Kind: Pod, Errors: [{cause}")


def test_a_namespaced_policy_is_for_its_namespace(tmp_path: Path) -> None:
    inside, outside = (mutating(label(each), namespace=each) for each in ("default", "other"))
    assert labels(tmp_path, [inside, outside]) == {"default": "1"}
    assert labels(tmp_path, inside, {"namespace": ""}) == {}


def test_the_name_of_a_namespaced_policy_has_no_namespace_in_messages(tmp_path: Path) -> None:
    status = answer(tmp_path, mutating(FAILS, namespace="default")).decision.status
    assert status is not None
    assert "[Policy p: failed" in status.message


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_versions(version: str, tmp_path: Path) -> None:
    policy = {**mutating(label("x")), "apiVersion": f"policies.kyverno.io/{version}"}
    assert labels(tmp_path, policy) == {"x": "1"}


def test_selectors_of_many_policies_see_the_object_as_it_is(tmp_path: Path) -> None:
    def selecting(number: int) -> Json:
        match = {
            "resourceRules": [ANYTHING],
            "objectSelector": {"matchLabels": {f"x{number - 1:02}": "1"}} if number else {},
        }
        return mutating(label(f"x{number:02}"), name=f"p{number:02}", matchConstraints=match)

    count = 2 * INDEXED
    found = labels(tmp_path, [selecting(number) for number in range(count)])
    assert found == {f"x{number:02}": "1" for number in range(count)}


def test_a_long_evaluation_has_the_same_result(tmp_path: Path) -> None:
    variables = [{"name": "v", "expression": "size(object.metadata.labels)"}]
    policies = [
        mutating(label("x", "string(variables.v)"), label("y", "string(variables.v)"), variables=variables),
        mutating(label("z"), FAILS, name="q", failurePolicy="Ignore"),
    ]
    large = {**POD, "data": "x" * MAX_BRIEF_BYTES}
    brief, long = (labels(tmp_path, policies, {"object": each}) for each in (POD, large))
    assert brief == long == {"x": "1", "y": "1"}


def test_an_object_does_not_grow_without_bounds(tmp_path: Path) -> None:
    copies = [f"[JSONPatch{{op: 'copy', from: '/data', path: '/copy{each}'}}]" for each in range(40)]
    large = {**POD, "data": "x" * 100_000}
    found = answer(tmp_path, mutating(*copies), {"object": large})
    assert found.decision.status is not None
    assert found.decision.status.message.endswith("bytes after the mutation]")
    assert found.evaluation.final_object == large


def test_what_is_missing_is_not_quoted(tmp_path: Path) -> None:
    status = answer(tmp_path, mutating("[JSONPatch{op: 'remove', path: '/kind'}]")).decision.status
    assert status is not None
    assert status.message.endswith("Internal error occurred: Object 'Kind' is missing]")


def test_delete_has_no_object_to_change(tmp_path: Path) -> None:
    members = {"operation": "DELETE", "object": None, "oldObject": POD}
    status = answer(
        tmp_path, mutating("[JSONPatch{op: 'add', path: '/kind', value: 'a'}]"), members
    ).decision.status
    assert status is not None
    assert status.message.endswith("DELETE has no object to change]")


def test_modes(tmp_path: Path) -> None:
    policy = mutating(label("x"))
    policy["metadata"]["annotations"] = {"admission-gateway.io/mode": "Audit"}
    found = answer(tmp_path, policy)
    (outcome,) = found.evaluation.outcomes
    assert (outcome.mode, outcome.would_change, found.evaluation.final_object) == ("Audit", True, POD)


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ([mutating(label("x"), matchConditions=condition("false"))], 'its matchCondition "c" is false'),
        (
            [mutating(label("x")), exception(kind="MutatingPolicy")],
            "exempted by PolicyException exceptions/e",
        ),
    ],
)
def test_what_left_a_policy_out_is_explained(documents: list[Json], said: str, tmp_path: Path) -> None:
    evaluation = answer(tmp_path, documents).evaluation
    assert said in "\n".join(explain(evaluation, evaluation.selection))


MUTATIONS = st.lists(
    st.sampled_from(
        [
            label("x", "string(variables.v)"),
            label("y", "string(size(object.metadata.labels))"),
            "Object{metadata: Object.metadata{labels: {'z': 'z'}}}",
            "[JSONPatch{op: 'test', path: '/kind', value: 'none'}]",
        ]
    ),
    max_size=5,
)
VARIABLES = [{"name": "v", "expression": "size(object.metadata.labels)"}]


@given(MUTATIONS, MUTATIONS, st.sampled_from(["Fail", "Ignore"]))
def test_a_policy_with_an_error_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], after: list[str], failure_policy: str
) -> None:
    folder = tmp_path_factory.mktemp("policies")
    failing = mutating(*before, FAILS, *after, name="a", variables=VARIABLES, failurePolicy=failure_policy)
    found = answer(folder, failing)
    assert found.evaluation.final_object == POD
    assert (found.decision.status is None) == (failure_policy == "Ignore")
    # The policy after it decides as if it were alone.
    other = mutating(*after, name="b", variables=VARIABLES)
    both, alone = (answer(folder, each).evaluation.final_object for each in ([failing, other], [other]))
    assert both == alone


@given(MUTATIONS)
def test_answers_do_not_depend_on_answers_before(
    tmp_path_factory: pytest.TempPathFactory, mutations: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("policies")
    policies = [mutating(*mutations, name=name, variables=VARIABLES) for name in ("a", "b")]
    first, second = (answer(folder, policies).decision for _ in range(2))
    assert (first.patch, first.status) == (second.patch, second.status)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (mutating("[]"), "spec.mutations[0].jsonPatch.expression: 1:1: must evaluate to list(JSONPatch)"),
        (mutating("object"), "spec.mutations[0].applyConfiguration.expression: 1:1: must evaluate to Object"),
        (mutating(label("x", "params")), "undeclared reference to 'params'"),
        (mutating(evaluation={"mode": "JSON"}), "spec.evaluation.mode: found JSON"),
        (mutating(matchConstraints={}), "spec.matchConstraints.resourceRules: is required"),
        (mutating(mutations=[{"patchType": "JSONPatch"}]), "jsonPatch: is required with patchType JSONPatch"),
        (
            mutating(targetMatchConstraints=[]),
            "spec.targetMatchConstraints: found a list, expected a mapping",
        ),
        (mutating(validations=[]), "spec.validations: "),
        (
            mutating(matchConditions=condition("variables.v"), variables=[{"name": "v", "expression": "1"}]),
            "spec.matchConditions[0].expression: 1:10: must evaluate to bool but got int",
        ),
    ],
)
def test_problems_of_documents(document: Json, expected: str, tmp_path: Path) -> None:
    written(tmp_path, [document])
    with pytest.raises(ConfigError) as caught:
        load([tmp_path])
    assert expected in "\n".join(map(str, caught.value.problems))


STORED = {"resourceRules": [PODS]}


@pytest.mark.parametrize(
    ("spec", "warning", "has_effect"),
    [
        (
            {"evaluation": {"mutateExisting": {"enabled": True}}},
            "spec.evaluation.mutateExisting: Kyverno changes stored objects, too",
            True,
        ),
        ({"reinvocationPolicy": "IfNeeded"}, "spec.reinvocationPolicy: has no effect", True),
        ({"targetMatchConstraints": STORED}, "spec.targetMatchConstraints: it is for stored objects", False),
        (
            {"evaluation": {"admission": {"enabled": False}, "mutateExisting": {"enabled": True}}},
            "spec.evaluation: admission is not enabled: the policy has no effect",
            False,
        ),
        ({"evaluation": {"mutateExisting": {"enabled": False}}}, "", True),
        ({"targetMatchConstraints": {"resourceRules": []}, "reinvocationPolicy": "Never"}, "", True),
        (
            {"matchConstraints": STORED},
            "spec.mutations[0].jsonPatch.expression: /metadata/labels/x is not rewritten",
            True,
        ),
    ],
)
def test_warnings_of_documents(spec: Json, warning: str, *, has_effect: bool, tmp_path: Path) -> None:
    policy = mutating(label("x"), **spec)
    assert labels(tmp_path, policy) == ({"x": "1"} if has_effect else {})
    found = [str(each) for each in load([tmp_path]).warnings]
    assert len(found) == (warning != ""), found
    assert not warning or warning in found[0]


def test_a_wrong_variant_is_a_problem(tmp_path: Path) -> None:
    # A brace in a text ends the wrapper too early.
    broken = "Object{spec: Object.spec{nodeName: '}}'}}"
    written(tmp_path, [mutating(broken, matchConstraints=STORED)])
    with pytest.raises(ConfigError) as caught:
        load([tmp_path])
    assert "what autogen makes of it for cronjobs is wrong" in str(caught.value.problems[0])
