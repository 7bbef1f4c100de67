"""The annotation with the ``rollout`` of a policy document."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gateway.config.merge.custom_resource import CustomResource, loaded_resource
from gateway.config.merge.digest import digest
from gateway.config.merge.merged import Merged, merge
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.matching import Selection
from gateway.pure.core.modes import modes_of
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.webhook import Rollout, Rule
from gateway.pure.rollout_plan.model import at_step, may_be_held, plan_of
from tests.config.documents import load_documents, problems_of
from tests.config.policy_rollouts import AT, KINDS, ROLLOUT, Kind, annotated
from tests.config.test_mutating_policies import binding as mutating_binding
from tests.config.test_mutating_policies import policy as mutating_policy
from tests.config.test_policies import binding, policy
from tests.config.test_rollout import with_rollout
from tests.config.test_rollout_plan import PLAN
from tests.config.test_webhooks import POOL
from tests.core.build import request

if TYPE_CHECKING:
    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Webhook

MODES = ("Shadow", "Audit", "Warn", "Enforce")
EVERY = (Rule(("*",), ("*",), ("*",), ("*",)),)
EACH_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
NAMESPACES = ("n", "team-a", "team-b", "payments", "web")


def entries(kind: Kind, rollout: object, **spec: Any) -> list[Webhook]:
    """The entries of the documents of *kind* with *rollout*, in order."""
    return list(load_documents(*annotated(kind, rollout, **spec)).webhooks)


def of_webhook(rollout: object) -> Webhook:
    (hook,) = load_documents(with_rollout(rollout), POOL).mutating
    return hook


def some_rollout(chance: random.Random) -> dict[str, Any]:
    """A valid ``rollout``: in one mode, enforced in some places, or with a plan."""
    choice = chance.randrange(3)
    if choice == 0:
        return {"mode": chance.choice(MODES)}
    if choice == 1:
        enforce = {"percentOfNamespaces": chance.randint(1, 99)}
        selector = {"namespaceSelector": {"matchLabels": {"tier": chance.choice(["dev", "prod"])}}}
        after = {"after": chance.choice(["2026-01-01T00:00:00Z", "2036-01-01T00:00:00Z"])}
        return {"mode": chance.choice(MODES[:3]), "enforce": enforce | chance.choice([{}, selector, after])}
    mode, percent, stages = chance.randrange(3), 0, []
    for _ in range(chance.randint(1, 4)):
        stages.append({"mode": MODES[mode], "percentOfNamespaces": percent, "for": "1h"})
        mode, percent = chance.randint(mode, 2), chance.randint(percent, 100)
    stages[-1]["groups"] = ["canary"]
    salt = {"salt": "v1"} if chance.random() < 0.3 else {}
    return {"plan": {"stages": [*stages, {"mode": "Enforce"}], "groups": PLAN["groups"], **salt}}


def modes(hook: Webhook, step: int) -> list[object]:
    """The mode of *hook*, at *step* of its plan if it has one, in each namespace with labels of each tier."""
    rollout = hook.rollout
    stages = {}
    if plan_of(hook) is not None:
        found = at_step(hook, step).rollout
        assert found is not None
        stages = {hook.plan_id: found}
    selection = Selection(hook.phase, [replace(hook, rules=EVERY, namespace_selector=EVERYTHING)])
    assert rollout is None or rollout.candidate is None
    return [
        modes_of(
            selection,
            request(namespace=name),
            Namespace(name, {"tier": tier}, b""),
            1_796_000_000.0,
            stages,
        ).get(0, "Enforce")
        # A policy of one namespace has no mode in others.
        for name in NAMESPACES[: 1 if "/" in hook.name else None]
        for tier in ("dev", "prod", "other")
    ]


@EACH_KIND
def test_each_kind_has_the_modes_of_a_webhook_with_the_same_rollout(kind: Kind) -> None:
    for seed in range(12):
        rollout = some_rollout(random.Random(seed))
        hook = of_webhook(rollout)
        found = entries(kind, rollout)
        assert {f"{one.phase} {one.name}" for one in found} == set(kind.names)
        for one in found:
            assert plan_of(one) == plan_of(hook), seed
            same = replace(hook, phase=one.phase, name=one.name)
            plan = plan_of(hook)
            for step in range(1 if plan is None else len(plan.stages)):
                assert modes(one, step) == modes(same, step), seed


@EACH_KIND
def test_the_plan_is_of_the_document_that_has_it(kind: Kind) -> None:
    for one in entries(kind, {"plan": PLAN}):
        document = kind.document()
        metadata = document["metadata"]
        place = [document["kind"], metadata.get("namespace"), metadata["name"]]
        assert one.plan_id == (one.phase, "/".join(filter(None, place)), one.name)
        assert one.id != one.plan_id
        assert one.may_reject == (one.failure_policy == "Fail")


@EACH_KIND
def test_the_stage_of_a_plan_that_is_removed_holds_until_a_mode_is_written(kind: Kind) -> None:
    if kind is KINDS["mutator"]:
        pytest.skip("without a rollout all mutators are one entry")
    with_plan = entries(kind, {"plan": PLAN})
    without = load_documents(*kind.others, kind.document()).webhooks
    assert [one.plan_id for one in without] == [one.plan_id for one in with_plan]
    assert all(map(may_be_held, without))
    for rollout in ({"mode": "Enforce"}, {"mode": "Warn"}):
        written = entries(kind, rollout)
        assert [one.plan_id for one in written] == [one.plan_id for one in with_plan]
        assert not any(map(may_be_held, written))
        assert {one.rollout for one in written} == {Rollout(**rollout)}  # type: ignore[arg-type]


@EACH_KIND
def test_yaml_and_json_are_the_same_and_a_change_is_another_configuration(kind: Kind) -> None:
    rollout = {"plan": PLAN}
    as_json = load_documents(*annotated(kind, rollout))
    as_yaml = load_documents(*annotated(kind, yaml.safe_dump(rollout)))
    other = load_documents(*annotated(kind, {"plan": PLAN | {"salt": "other"}}))
    assert digest(as_json) == digest(as_yaml) != digest(other)


@EACH_KIND
def test_its_own_action_has_to_deny_beside_a_rollout(kind: Kind) -> None:
    if kind.softer is None:
        pytest.skip("it has no action")
    found = problems_of(*annotated(kind, {"mode": "Enforce"}, **kind.softer))
    assert found
    assert {field for field, _ in found} == {f"spec.{kind.softer_field}"}
    for _, message in found:
        assert message.endswith(f"the annotation {ROLLOUT} says how far denials are in force")
    # The mode of the older annotation takes its place.
    documents = annotated(kind, "{}", **kind.softer)
    annotations = documents[-1]["metadata"]["annotations"]
    del annotations[ROLLOUT]
    annotations["admission-gateway.io/mode"] = "Audit"
    assert not problems_of(*documents)


@EACH_KIND
def test_it_is_not_allowed_beside_a_mode(kind: Kind) -> None:
    documents = annotated(kind, {"mode": "Warn"})
    documents[-1]["metadata"]["annotations"]["admission-gateway.io/mode"] = "Warn"
    ((field, message),) = problems_of(*documents)
    assert field == 'metadata.annotations["admission-gateway.io/mode"]'
    assert message.startswith(f"is not allowed with the annotation {ROLLOUT}")


BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@EACH_KIND
@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ("", "", "found null, expected a mapping with mode, enforce or plan"),
        ("Warn", "", 'found the string "Warn", expected a mapping'),
        ("mode: Warn\n---\nmode: Audit", "", "found 2 documents, expected a mapping"),
        ("mode: [", "", "2:1: did not find expected node content"),
        ("mode: Warn\nmode: Audit", "", '2:1: duplicate key "mode", first in line 1'),
        ("{mode: Deny}", ".mode", 'found "Deny", expected Enforce, Warn, Audit or Shadow'),
        ("{plan: {stages: []}}", ".plan.stages", "is required with at least one entry"),
        ("{plan: {stages: [{mode: Audit, for: 24}]}}", ".plan.stages[0].for", "found the number 24"),
        ("{mode: Warn, enforce: {}}", ".enforce", "found nothing, expected at least one of"),
        ("{candidate: {percentOfReviews: 1}}", ".candidate", "is not allowed in an annotation"),
        (f"# {'x' * 70_000}", "", "found 70002 characters, expected at most 65536"),
        (BOMB, "", "the file has more than 1,000,000 values, aliases written out"),
        ("[" * 5_000, "", "nested deeper than 100 levels"),
    ],
    ids=lambda one: str(one)[:30].encode("unicode_escape").decode(),
)
def test_what_cannot_be_a_rollout_is_a_problem_with_its_place(
    kind: Kind, value: str, path: str, message: str
) -> None:
    found = problems_of(*annotated(kind, value))
    assert found, value
    field, text = found[0]
    assert field == AT + path
    assert message in text


def test_a_plan_without_gates_is_a_warning_as_for_webhooks() -> None:
    rollout = {"plan": {"stages": [{"mode": "Audit"}, {"mode": "Warn"}]}}
    in_webhook = load_documents(with_rollout(rollout), POOL).warnings
    in_document = load_documents(*annotated(KINDS["ValidatingAdmissionPolicyBinding"], rollout)).warnings
    assert [(one.field, one.message) for one in in_document] == [
        (one.field.replace("webhooks[0].rollout", AT), one.message) for one in in_webhook
    ]
    assert in_document


def test_a_stage_that_makes_calls_needs_a_module_without_side_effects() -> None:
    kind, rollout = KINDS["ClusterAdmissionPolicy"], {"plan": {"stages": [{"mode": "Shadow"}]}}
    ((field, message),) = problems_of(*annotated(kind, rollout, sideEffects="NoneOnDryRun"))
    assert (field, message) == (AT, "found Shadow, which requires sideEffects: None; found NoneOnDryRun")


def bound(name: str, rollout: object = None, make: Any = binding, **spec: Any) -> dict[str, Any]:
    document: dict[str, Any] = make(name, **spec)
    if rollout is not None:
        document["metadata"]["annotations"] = {ROLLOUT: json.dumps(rollout)}
    return document


def test_each_binding_with_a_rollout_is_an_entry_of_its_own() -> None:
    other = {"plan": PLAN | {"salt": "v2"}}
    found = load_documents(
        policy(),
        bound("z"),
        bound("a"),
        bound("c", {"plan": PLAN}),
        bound("b", other),
        bound("p", {"mode": "Warn"}),
    ).validating
    assert [one.name for one in found] == ["p"] * 4
    bindings = [[each.name for each in one.policy.bindings] for one in found]  # type: ignore[union-attr]
    assert bindings == [["a", "z"], ["b"], ["c"], ["p"]]
    assert [one.rollout for one in found] == [None, Rollout("Audit"), Rollout("Audit"), Rollout("Warn")]
    assert len({one.plan_id for one in found}) == 4


def test_the_bindings_of_a_mutating_policy_too_behind_those_of_each_mode() -> None:
    found = load_documents(
        mutating_policy(),
        bound("d", make=mutating_binding, mode="Warn"),
        bound("c", make=mutating_binding),
        bound("b", {"plan": PLAN}, mutating_binding),
        bound("e", {"mode": "Warn"}, mutating_binding),
    ).mutating
    bindings = [[each.name for each in one.policy.bindings] for one in found]  # type: ignore[union-attr]
    assert bindings == [["c"], ["d"], ["b"], ["e"]]
    assert [one.rollout for one in found] == [None, Rollout("Warn"), Rollout("Audit"), Rollout("Warn")]


@pytest.mark.parametrize(
    ("of_template", "rollout", "expected", "follows"),
    [
        ("Deny", {"plan": PLAN}, "Audit", True),
        ("Deny", {"mode": "Warn"}, "Warn", False),
        ("Warn", {"plan": PLAN}, "Audit", False),
        ("Warn", {"mode": "Enforce"}, "Warn", False),
        ("Warn", {"mode": "Shadow"}, "Shadow", False),
    ],
)
def test_the_review_of_templates_follows_the_binding(
    of_template: str, rollout: object, expected: str, *, follows: bool
) -> None:
    document = policy()
    document["metadata"]["annotations"] = {"admission-gateway.io/applies-to-templates": of_template}
    plain, on_templates = load_documents(document, bound("b", rollout)).validating
    assert on_templates.rollout is not None
    assert on_templates.rollout.mode == expected
    assert (on_templates.plan is not None) == follows
    if follows:
        assert on_templates.plan_id == plain.plan_id


def test_the_review_of_templates_by_a_mutating_policy_does_not_follow_its_plan() -> None:
    document = mutating_policy()
    document["metadata"]["annotations"] = {"admission-gateway.io/applies-to-templates": "Deny"}
    config = load_documents(document, bound("b", {"plan": PLAN}, mutating_binding))
    (on_templates,) = config.validating
    assert (on_templates.rollout, on_templates.plan) == (Rollout("Audit"), None)


def test_policies_of_one_name_have_plans_of_their_own() -> None:
    kinds = ("ValidatingAdmissionPolicyBinding", "ValidatingPolicy", "ClusterPolicy in CEL")
    documents = [one for name in kinds for one in annotated(KINDS[name], {"plan": PLAN})]
    found = load_documents(*documents).validating
    assert [one.name for one in found] == ["p", "p", "p"]
    assert len({one.plan_id for one in found}) == 3


def merged(documents: list[dict[str, Any]], before: Merged | None = None, generation: int = 1) -> Merged:
    """The configuration with *documents* as custom resources; settings and pools are in files."""
    files, resources = [], []
    for one in documents:
        version, kind = one["apiVersion"], one["kind"]
        metadata = one.get("metadata", {})
        found = {**one, "metadata": {**metadata, "uid": "u", "generation": generation}}
        if version.startswith("admission-gateway.io/"):
            files.append(one)
        elif version.startswith("admissionregistration.k8s.io/"):
            # The items of a list have no kind.
            del found["kind"], found["apiVersion"]
            resources.append(CustomResource(kind, metadata["name"], found))
        else:
            resources.append(loaded_resource(version, kind, found))
    return merge(files_of(json.dumps(files)), resources, before)


@cache
def files_of(documents: str) -> Config:
    return load_documents(*json.loads(documents))


@EACH_KIND
def test_custom_resources_have_the_same_rollouts(kind: Kind) -> None:
    documents = annotated(kind, {"plan": PLAN})
    first = merged(documents)
    assert {one.reason for one in first.statuses} == {"Accepted"}
    in_files = load_documents(*documents).webhooks
    found = [one for one in first.config.webhooks if one.plan is not None]
    assert [(one.plan_id, one.plan, one.rollout) for one in found] == [
        (one.plan_id, one.plan, one.rollout) for one in in_files
    ]
    # Without a change the entries stay the same objects, and with another annotation they do not.
    again = merged(documents, first)
    assert [*again.config.webhooks] == [*first.config.webhooks]
    changed = merged(annotated(kind, {"mode": "Warn"}), again)
    assert {one.rollout for one in changed.config.webhooks if one.rollout} == {Rollout("Warn")}


@EACH_KIND
def test_a_custom_resource_with_a_wrong_rollout_says_so_in_its_status(kind: Kind) -> None:
    wrong = annotated(kind, {"plan": {"stages": []}})
    last = merged(wrong, merged(annotated(kind, {"plan": PLAN})), generation=2)
    (status,) = [one for one in last.statuses if one.problems]
    assert status.problems[0].field == f"{AT}.plan.stages"
    assert status.effect == "generation 1 stays in force"
    assert any(one.plan is not None for one in last.config.webhooks)
