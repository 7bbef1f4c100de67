"""Constraints in files and their answers: from the reading of the files to the decision of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.merge.load import load
from gateway.pure.core.namespace import Namespace
from gateway.pure.gatekeeper.constraint import BUDGET
from tests.config.documents import load_documents
from tests.gatekeeper.documents import constraint, excluding, scoped, template
from tests.policies.documents import decided, written

if TYPE_CHECKING:
    from pathlib import Path

    from tests.policies.documents import Answer

Json = dict[str, Any]

SHOP = Namespace("default", {"team": "a"}, b'{"metadata":{"name":"default","labels":{"team":"a"}}}')
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "nginx"}]},
}
LABELS = {
    "type": "object",
    "properties": {
        "labels": {"type": "array", "items": {"type": "string"}, "default": ["owner"]},
        "message": {"type": "string"},
    },
}
NEEDS_LABELS = template(
    "NeedsLabels",
    {
        "expression": "variables.missing.size() == 0",
        "messageExpression": '"missing " + variables.missing.join(", ")',
    },
    variables=[
        {
            "name": "missing",
            "expression": "variables.params.labels.filter(l, !has(variables.anyObject.metadata.labels) "
            "|| !(l in variables.anyObject.metadata.labels))",
        }
    ],
    schema=LABELS,
)


def answer(folder: Path, *documents: Json, members: Json | None = None, space: Any = SHOP) -> Answer:
    return decided(folder, documents, {"object": POD, **(members or {})}, space=space)


def message(folder: Path, *documents: Json, members: Json | None = None, space: Any = SHOP) -> str:
    """The message of the denial; empty if there is none."""
    status = answer(folder, *documents, members=members, space=space).decision.status
    return status.message if status else ""


def never(message: str = "no", **more: Any) -> Json:
    """A template that no object satisfies."""
    return template("Never", {"expression": "false", "message": message}, **more)


def test_a_violation_is_refused_as_by_gatekeeper(tmp_path: Path) -> None:
    found = answer(tmp_path, NEEDS_LABELS, constraint(name="owners", parameters={"labels": ["owner", "app"]}))
    assert found.status == (403, "Forbidden")
    status = found.decision.status
    assert status is not None
    assert status.message == "[owners] missing owner"
    assert not status.causes
    assert not found.decision.warnings


def test_defaults_of_the_schema_hold(tmp_path: Path) -> None:
    assert message(tmp_path, NEEDS_LABELS, constraint(parameters={})) == "[c] missing owner"
    allowed = constraint(parameters={"labels": ["app"]})
    assert message(tmp_path, NEEDS_LABELS, allowed) == ""


def test_every_violation_is_a_line_sorted_by_its_text(tmp_path: Path) -> None:
    many = template(
        "Many",
        {"expression": "false", "message": "z"},
        {"expression": "true", "message": "y"},
        {"expression": "false", "message": "  b  "},
        "1 == 2",
    )
    assert message(tmp_path, many, constraint("Many")) == "[c] b\n[c] failed expression: 1 == 2\n[c] z"


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"expression": "false", "message": "a", "messageExpression": "'b'"}, "b"),
        ({"expression": "false", "message": "a", "messageExpression": "'  '"}, "a"),
        ({"expression": "false", "message": "a", "messageExpression": "'b\\nc'"}, "a"),
        ({"expression": "false", "message": "a", "messageExpression": "string(object.x.y)"}, "a"),
        (
            {"expression": "object.spec.x == 1"},
            "expression 'object.spec.x == 1' resulted in error: no such key: x",
        ),
    ],
)
def test_messages_are_those_of_an_admission_policy(tmp_path: Path, parameters: Json, expected: str) -> None:
    assert message(tmp_path, template("T", parameters), constraint("T")) == f"[c] {expected}"


def test_errors_pass_under_ignore(tmp_path: Path) -> None:
    wrong = template("T", "object.spec.x == 1", failurePolicy="Ignore")
    found = answer(tmp_path, wrong, constraint("T"))
    assert found.status == (0, "")
    assert found.failures == ["expression 'object.spec.x == 1' resulted in error: no such key: x"]
    both = template(
        "T", "object.spec.x == 1", {"expression": "false", "message": "m"}, failurePolicy="Ignore"
    )
    assert message(tmp_path, both, constraint("T")) == "[c] m"


@pytest.mark.parametrize(
    ("condition", "policy", "expected"),
    [
        ("variables.params.on == true", "Fail", "[c] no"),
        ("variables.params.on == false", "Fail", ""),
        (
            "object.spec.x == 1",
            "Fail",
            "[c] expression 'object.spec.x == 1' resulted in error: no such key: x",
        ),
        ("object.spec.x == 1", "Ignore", ""),
        ("namespaceObject == null", "Fail", "[c] no"),
    ],
)
def test_match_conditions_can_use_variables(
    tmp_path: Path, condition: str, policy: str, expected: str
) -> None:
    made = never(
        schema={"type": "object", "properties": {"on": {"type": "boolean"}}},
        matchCondition=[{"name": "a", "expression": condition}],
        failurePolicy=policy,
    )
    found = answer(tmp_path, made, constraint("Never", parameters={"on": True}))
    assert "\n".join(found.denials) == expected
    excluded = [] if expected or policy == "Ignore" else ["a"]
    assert [one.condition for _, one in found.evaluation.exclusions] == excluded


@pytest.mark.parametrize(
    ("expression", "is_true"),
    [
        ("variables.params == null", True),
        ("object != null", True),
        ("variables.anyObject.metadata.name == 'web'", True),
        ("request.operation == 'CREATE' && request.namespace == 'default'", True),
        ("namespaceObject.metadata.labels.team == 'a'", True),
        ("oldObject == null", True),
    ],
)
def test_the_values_on_creation(tmp_path: Path, expression: str, *, is_true: bool) -> None:
    assert (message(tmp_path, template("T", expression), constraint("T")) == "") == is_true


def test_on_deletion_any_object_is_the_old_one(tmp_path: Path) -> None:
    made = template(
        "T",
        "object == null && variables.anyObject.metadata.name == 'web' && oldObject.metadata.name == 'web'",
        operations=["DELETE"],
    )
    deletion = {"operation": "DELETE", "object": None, "oldObject": POD}
    found = answer(tmp_path, made, constraint("T"), members=deletion)
    assert [type(one.verdict).__name__ for one in found.evaluation.outcomes] == ["Allowed"]
    assert message(tmp_path, made, constraint("T")) == ""


def test_bare_params_are_the_constraint_in_variables_only(tmp_path: Path) -> None:
    variable = {"name": "name", "expression": "params.metadata.name"}
    made = template(
        "T", {"expression": "false", "messageExpression": "string(variables.name)"}, variables=[variable]
    )
    assert message(tmp_path, made, constraint("T", "mine")) == "[mine] mine"


@pytest.mark.parametrize("operations", [None, ["UPDATE"], ["CREATE", "DELETE"], ["*"]])
def test_a_template_is_for_its_operations(tmp_path: Path, operations: list[str] | None) -> None:
    made = never() if operations is None else never(operations=operations)
    seen = []
    for operation in ("CREATE", "UPDATE", "DELETE"):
        members = {"operation": operation, "oldObject": None if operation == "CREATE" else POD}
        if operation == "DELETE":
            members["object"] = None
        seen.append(message(tmp_path, made, constraint("Never"), members=members) != "")
    expected = operations or ["CREATE", "UPDATE"]
    assert seen == ["*" in expected or operation in expected for operation in ("CREATE", "UPDATE", "DELETE")]


@pytest.mark.parametrize(
    ("spec", "status", "warnings", "mode"),
    [
        ({}, 403, (), "Enforce"),
        ({"enforcementAction": "deny"}, 403, (), "Enforce"),
        ({"enforcementAction": "warn"}, 0, ("[c] no",), "Enforce"),
        ({"enforcementAction": "dryrun"}, 0, (), "Audit"),
        (scoped(("deny", "validation.gatekeeper.sh")), 403, (), "Enforce"),
        (scoped(("deny", "*"), ("warn", "validation.gatekeeper.sh")), 403, ("[c] no",), "Enforce"),
        (scoped(("warn", "*"), ("deny", "audit.gatekeeper.sh")), 0, ("[c] no",), "Enforce"),
        (scoped(("dryrun", "*")), 0, (), "Audit"),
        (scoped(("warn", "*"), ("dryrun", "*")), 0, ("[c] no",), "Enforce"),
    ],
)
def test_enforcement_actions(
    tmp_path: Path, spec: Json, status: int, warnings: tuple[str, ...], mode: str
) -> None:
    documents = [never(), constraint("Never", **spec)]
    written(tmp_path, documents)
    (entry,) = load([tmp_path]).validating
    assert (entry.rollout.mode if entry.rollout else "Enforce") == mode
    found = answer(tmp_path, *documents)
    assert found.status[0] == status
    assert found.decision.warnings == warnings


@pytest.mark.parametrize(
    "spec",
    [
        {"enforcementAction": "block"},
        {"enforcementAction": ""},
        scoped(("deny", "audit.gatekeeper.sh")),
        scoped(),
    ],
)
def test_a_constraint_without_an_effect_on_requests_is_no_entry(spec: Json) -> None:
    config = load_documents(never(), constraint("Never", **spec))
    assert config.validating == ()
    assert len(config.warnings) == 1


@pytest.mark.parametrize("action", ["deny", "warn", "dryrun"])
@pytest.mark.parametrize("mode", ["Enforce", "Warn", "Audit"])
def test_the_annotation_has_the_mode_whatever_the_action(action: str, mode: str, tmp_path: Path) -> None:
    documents = [never(), constraint("Never", mode=mode, enforcementAction=action)]
    (entry,) = load_documents(*documents).validating
    assert (entry.rollout.mode if entry.rollout else "Enforce") == mode
    found = answer(tmp_path, *documents)
    assert found.status[0] == (403 if mode == "Enforce" else 0)
    # A Shadow is evaluated after the answer.
    expected = [] if mode == "Shadow" else [(mode, "Denied")]
    assert [(one.mode, type(one.verdict).__name__) for one in found.evaluation.outcomes] == expected


def test_an_update_matches_by_the_old_object_too(tmp_path: Path) -> None:
    selector = {"matchLabels": {"app": "web"}}
    documents = [never(), constraint("Never", match={"labelSelector": selector})]
    other = {**POD, "metadata": {"name": "web", "namespace": "default"}}
    update = {"operation": "UPDATE", "object": other, "oldObject": POD}
    assert message(tmp_path, *documents, members=update) == "[c] no"
    assert message(tmp_path, *documents, members={**update, "oldObject": other}) == ""


def test_an_unknown_namespace_is_a_violation_of_a_namespace_selector(tmp_path: Path) -> None:
    documents = [never(failurePolicy="Ignore"), constraint("Never", match={"namespaceSelector": {}})]
    assert message(tmp_path, *documents) == "[c] no"
    assert message(tmp_path, *documents, space=None) == (
        "[c] unable to match constraints: error matching the requested object: web :failed to run Match "
        "criteria: namespace selector for namespace-scoped object but missing Namespace"
    )


def test_a_namespace_is_without_a_namespace(tmp_path: Path) -> None:
    made = template(
        "T", "!has(request.namespace) && namespaceObject == null && object.metadata.name == 'default'"
    )
    space = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "labels": {"team": "b"}},
    }
    members = {
        "object": space,
        "name": "default",
        "kind": {"group": "", "version": "v1", "kind": "Namespace"},
        "resource": {"group": "", "version": "v1", "resource": "namespaces"},
        "requestKind": {"group": "", "version": "v1", "kind": "Namespace"},
        "requestResource": {"group": "", "version": "v1", "resource": "namespaces"},
    }
    found = answer(tmp_path, made, constraint("T"), members=members)
    assert found.status == (0, "")
    assert len(found.evaluation.outcomes) == 1
    selector = {"matchLabels": {"team": "b"}}
    by_labels = constraint("Never", match={"namespaceSelector": selector, "scope": "Cluster"})
    assert message(tmp_path, never(), by_labels, members=members) == "[c] no"


def test_a_config_excludes_namespaces(tmp_path: Path) -> None:
    documents = [never(), constraint("Never")]
    assert message(tmp_path, *documents, excluding("def*")) == ""
    assert message(tmp_path, *documents, excluding("def*", processes=("webhook",))) == ""
    assert message(tmp_path, *documents, excluding("def*", processes=("audit", "sync"))) == "[c] no"
    assert message(tmp_path, *documents, excluding("other")) == "[c] no"


def test_a_constraint_has_a_tenth_of_the_budget_of_an_admission_policy(tmp_path: Path) -> None:
    """The costs of all its validations count together."""
    numbers = str(list(range(20)))
    dear = f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, a + b + c >= 0)))"
    one = template("T", dear)
    assert message(tmp_path, one, constraint("T")) == ""
    many = template("T", *[dear] * (BUDGET // 20_000))
    assert message(tmp_path, many, constraint("T")) == (
        "[c] validation failed due to running out of cost budget, no further validation rules will be run"
    )


def test_constraints_of_several_kinds_may_have_one_name(tmp_path: Path) -> None:
    found = message(tmp_path, never(), template("Other", "false"), constraint("Other"), constraint("Never"))
    assert found == "[c] no\n[c] failed expression: false"
    entries = load([tmp_path]).validating
    assert [getattr(entry.client, "kind", "") for entry in entries] == ["Never", "Other"]


def test_expressions_are_compiled_once_for_all_constraints() -> None:
    config = load_documents(NEEDS_LABELS, *(constraint(name=f"c{number}") for number in range(3)))
    rules = [entry.policy.policy.rules for entry in config.validating]  # type: ignore[union-attr]
    assert rules[0] is rules[1] is rules[2]


def test_what_decides_is_in_the_digest() -> None:
    def texts(*documents: Json) -> object:
        (entry,) = load_documents(*documents).validating
        assert entry.policy is not None
        return entry.policy.expressions

    documents = [NEEDS_LABELS, constraint()]
    assert texts(*documents) == texts(*documents)
    others = [
        [NEEDS_LABELS, constraint(parameters={"labels": ["a"]})],
        [NEEDS_LABELS, constraint(match={"scope": "Cluster"})],
        [*documents, excluding("a")],
        [template("NeedsLabels", "true", schema=LABELS), constraint()],
    ]
    assert len({str(texts(*each)) for each in [documents, *others]}) == len(others) + 1
