"""The annotation by which a policy applies to the Pods of workloads: in files and in custom resources."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.config.merge.custom_resource import CustomResource
from gateway.config.merge.digest import digest
from gateway.config.merge.load import load
from gateway.config.merge.merged import merge
from gateway.config.merge.model import Config
from gateway.config.merge.placement import placements
from gateway.pure.core.webhook import PolicyRef, Rollout
from gateway.tools.registration.plan import plan
from tests.config.test_mutating_policies import binding as mutating_binding
from tests.config.test_mutating_policies import policy as mutating_policy
from tests.config.test_placement import GATEWAY
from tests.config.test_placement import binding as placed_binding
from tests.config.test_placement import mutating as placed_mutating
from tests.config.test_placement import validating as placed_validating
from tests.config.test_policies import RULES, binding, loaded, policy, problem
from tests.inspection.kit import Registered
from tests.registration.kit import WISHES

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.pure.core.webhook import Webhook

    Json = dict[str, Any]

KEY: Final = "admission-gateway.io/applies-to-templates"
PLACE: Final = f'metadata.annotations["{KEY}"]'
WORKLOADS: Final[set[Any]] = {
    ("", ("replicationcontrollers",)),
    ("apps", ("daemonsets", "deployments", "replicasets", "statefulsets")),
    ("batch", ("cronjobs", "jobs")),
}


def annotated(document: Json, mode: str = "Deny") -> Json:
    return {**document, "metadata": {**document["metadata"], "annotations": {KEY: mode}}}


def on_templates(config: Config) -> list[Webhook]:
    return [
        each
        for each in config.validating
        if isinstance(each.client, PolicyRef) and each.client.is_on_templates
    ]


def test_a_policy_has_an_entry_for_templates_behind_its_own(tmp_path: Path) -> None:
    exact = policy(matchConstraints={"resourceRules": RULES, "matchPolicy": "Exact"})
    config = loaded(tmp_path, policy("a"), binding("a", policyName="a"), annotated(exact), binding())
    assert [(one.name, one in on_templates(config)) for one in config.validating] == [
        ("a", False),
        ("p", False),
        ("p", True),
    ]
    (entry,) = on_templates(config)
    assert (entry.failure_policy, entry.rollout, entry.object_selector.is_empty) == ("Fail", None, True)
    assert entry.match_policy == "Equivalent"
    assert {(*rule.api_groups, rule.resources) for rule in entry.rules} == WORKLOADS
    assert {(rule.operations, rule.scope) for rule in entry.rules} == {(("CREATE", "UPDATE"), "Namespaced")}


def test_the_entry_of_a_mutating_policy_is_validating(tmp_path: Path) -> None:
    config = loaded(tmp_path, annotated(mutating_policy(), "Warn"), mutating_binding())
    assert [one.phase for one in config.webhooks] == ["mutate", "validate"]
    (entry,) = on_templates(config)
    assert (entry.failure_policy, entry.rollout) == ("Ignore", Rollout("Warn"))
    assert isinstance(entry.client, PolicyRef)
    assert entry.client.kind == "MutatingAdmissionPolicy"


@pytest.mark.parametrize(
    ("documents", "kind"),
    [((policy(), binding()), "Validating"), ((mutating_policy(), mutating_binding()), "Mutating")],
    ids=["validating", "mutating"],
)
def test_another_value_is_an_error(tmp_path: Path, documents: tuple[Json, Json], kind: str) -> None:
    found = problem(tmp_path, annotated(documents[0], "deny"), documents[1])
    assert f'{kind}AdmissionPolicy "p"' in found
    assert f'{PLACE}: found "deny", expected Warn or Deny' in found


def test_the_digest_has_the_mode(tmp_path: Path) -> None:
    found = [policy(), annotated(policy()), annotated(policy(), "Warn")]
    assert len({digest(loaded(tmp_path, one, binding())) for one in found}) == 3


ANNOTATIONS_ONLY = policy(validations=[], auditAnnotations=[{"key": "k", "valueExpression": "'x'"}])


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (
            policy(matchConstraints={"resourceRules": [{**RULES[0], "operations": ["DELETE"]}]}),
            "does not match",
        ),
        (policy(matchConstraints={"resourceRules": RULES, "excludeResourceRules": RULES}), "does not match"),
        (mutating_policy(matchConstraints={"resourceRules": [{**RULES[0], "scope": "Cluster"}]}), "does not"),
        (ANNOTATIONS_ONLY, "spec has no validations"),
    ],
    ids=["operation", "excluded", "scope", "annotations"],
)
def test_an_annotation_without_effect_is_a_warning(tmp_path: Path, document: Json, reason: str) -> None:
    bound = mutating_binding() if document["kind"] == "MutatingAdmissionPolicy" else binding()
    config = loaded(tmp_path, annotated(document), bound)
    assert not on_templates(config)
    (warning,) = (one for one in config.warnings if one.field == PLACE)
    assert warning.message.startswith("has no effect: ")
    assert reason in warning.message


def test_a_policy_that_is_left_to_the_api_server_is_on_no_templates(tmp_path: Path) -> None:
    settings = {**GATEWAY, "policies": {"leftToAPIServer": ["ValidatingAdmissionPolicy"]}}
    documents = (settings, annotated(mutating_policy()), mutating_binding())
    config = loaded(tmp_path, annotated(policy(name="v")), binding(policyName="v"), *documents)
    assert [one.name for one in on_templates(config)] == ["p"]
    (warning,) = (one for one in config.warnings if one.field == PLACE)
    assert '"v"' in warning.where
    assert "policies.leftToAPIServer" in warning.message


@pytest.mark.parametrize("document", [placed_validating(), placed_mutating()], ids=["validating", "mutating"])
def test_a_policy_on_templates_stays_in_the_gateway(tmp_path: Path, document: Json) -> None:
    bound = placed_binding(document)
    for one, expected in ((document, ()), (annotated(document, "Warn"), (KEY,))):
        (found,) = placements(loaded(tmp_path, GATEWAY, one, bound), (1, 37))
        assert found.can_move is not bool(expected)
        assert len(found.reasons) == len(expected)
        assert all(name in reason for name, reason in zip(expected, found.reasons, strict=True))


def registered(config: Config) -> list[tuple[str, str, set[Any]]]:
    """Phase, failurePolicy, and groups with resources of each entry of the registration."""
    documents: list[Any] = plan(config, WISHES).documents
    return [
        (
            document["kind"].removesuffix("WebhookConfiguration"),
            entry["failurePolicy"],
            {(*rule["apiGroups"], tuple(rule["resources"])) for rule in entry["rules"]},
        )
        for document in documents
        for entry in document.get("webhooks", ())
    ]


def test_the_registration_has_the_workloads(tmp_path: Path) -> None:
    pods = ("", ("pods",))
    assert registered(loaded(tmp_path, policy(), binding())) == [("Validating", "Fail", {pods})]
    config = loaded(tmp_path, annotated(policy()), binding())
    assert registered(config) == [("Validating", "Fail", {pods, *WORKLOADS})]
    # While the gateway cannot be reached, no workload is refused.
    config = loaded(tmp_path, annotated(policy(), "Warn"), binding())
    assert registered(config) == [("Validating", "Fail", {pods}), ("Validating", "Ignore", WORKLOADS)]
    config = loaded(tmp_path, annotated(mutating_policy()), mutating_binding())
    assert registered(config) == [("Mutating", "Fail", {pods}), ("Validating", "Fail", WORKLOADS)]


def test_the_entries_of_one_policy_are_named_once(tmp_path: Path) -> None:
    config = loaded(tmp_path, annotated(policy()), binding())
    (gap,) = plan(config, WISHES).coverage_gaps
    assert str(gap).startswith("1 webhook is not called in each of them")
    assert str(gap).endswith(": validate p/p")


def resource(document: Json, generation: int = 1) -> CustomResource:
    metadata = {**document["metadata"], "uid": document["metadata"]["name"], "generation": generation}
    name, kind = metadata["name"], document["kind"]
    return CustomResource(kind, name, {**document, "metadata": metadata})


@pytest.mark.parametrize(
    ("plain", "bound"),
    [(policy(), binding()), (mutating_policy(), mutating_binding())],
    ids=["validating", "mutating"],
)
def test_custom_resources_have_the_annotation(plain: Json, bound: Json) -> None:
    before = merge(Config(), [resource(plain), resource(bound)], None)
    assert not on_templates(before.config)
    denying = merge(Config(), [resource(annotated(plain)), resource(bound)], before)
    (entry,) = on_templates(denying.config)
    assert entry.rollout is None
    warning = merge(Config(), [resource(annotated(plain, "Warn")), resource(bound)], denying)
    (entry,) = on_templates(warning.config)
    assert entry.rollout == Rollout("Warn")
    again = merge(Config(), [resource(annotated(plain, "Warn")), resource(bound)], warning)
    assert again.config == warning.config
    # An invalid value leaves the last valid version in force.
    broken = merge(Config(), [resource(annotated(plain, "no"), 2), resource(bound)], warning)
    assert on_templates(broken.config) == [entry]
    status = next(one for one in broken.statuses if one.resource.name == "p")
    assert (status.reason, status.problems[0].field) == ("Invalid", PLACE)


def test_a_custom_resource_without_effect_is_a_warning() -> None:
    deleting = policy(matchConstraints={"resourceRules": [{**RULES[0], "operations": ["DELETE"]}]})
    merged = merge(Config(), [resource(annotated(deleting)), resource(binding())], None)
    (warning,) = merged.config.warnings
    assert (warning.where, warning.field) == ('cluster: ValidatingAdmissionPolicy "p"', PLACE)
    assert [one.is_in_force for one in merged.statuses] == [True, True]


def test_a_configuration_without_policies_is_not_affected(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("")
    assert replace(load([tmp_path]), warnings=(), source=b"") == Config()


@pytest.mark.parametrize("mode", ["Deny", "Warn"])
def test_an_inspection_tells_the_entries_of_a_policy_apart(tmp_path: Path, mode: str) -> None:
    mutations = annotated(mutating_policy(), mode), mutating_binding()
    hooks = loaded(tmp_path, annotated(policy(), mode), binding(), *mutations).webhooks
    assert Registered(tmp_path, *hooks).found() == []
    lacking = Registered(tmp_path, *hooks)
    for entry in lacking.seen.configurations[1]["webhooks"]:
        entry["rules"] = [rule for rule in entry["rules"] if rule["apiGroups"] != ["batch"]]
    # Both policies have the name: their findings are equal.
    found = [one for one in lacking.found() if one.severity == "error"]
    missing = "never sent to the gateway: CREATE, UPDATE of batch/v1 cronjobs, jobs (Namespaced)"
    assert [(one.place, one.message) for one in found] == [("validate p/p", f"rules[2]: {missing}")]
