"""What a worker of Gatekeeper's evaluates becomes entries that call it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gateway.pure.core.webhook import Rollout, WorkerRef
from tests.config.documents import load_documents, problems_of
from tests.gatekeeper.documents import (
    constraint,
    excluding,
    expansion,
    mutator,
    rego_template,
    scoped,
    template,
)

if TYPE_CHECKING:
    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Webhook

Json = dict[str, Any]

POOL: Json = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "WorkerPool",
    "metadata": {"name": "gatekeeper"},
    "spec": {"target": "127.0.0.1:1"},
}
PODS = {"kinds": [{"apiGroups": [""], "kinds": ["Pod"]}]}


def engine(**more: Any) -> Json:
    """A GatewayConfiguration with the worker; *more* are members of its entry."""
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "policies": {"engines": {"gatekeeper": {"pool": "gatekeeper", **more}}},
    }


def load(*documents: Json, **more: Any) -> Config:
    return load_documents(POOL, engine(**more), *documents)


def parameters_of(webhook: Webhook) -> Json:
    text = webhook.worker.parameters
    found: Json = orjson.loads(text) if text else {}
    return found


def resources_of(webhook: Webhook) -> set[tuple[str, str]]:
    return {(group, each) for rule in webhook.rules for group in rule.api_groups for each in rule.resources}


def test_a_constraint_in_rego_calls_the_policy_of_its_kind_and_name() -> None:
    (entry,) = load(rego_template(), constraint(match=PODS)).validating
    assert entry.client == WorkerRef(
        "gatekeeper", "NeedsLabels/c", b"", kind="NeedsLabels", has_own_words=True
    )
    assert (entry.configuration, entry.name) == ("c", "c")
    assert (entry.failure_policy, entry.timeout_s, entry.match_policy) == ("Ignore", 3, "Exact")
    assert ("", "pods") in resources_of(entry)
    assert {each for rule in entry.rules for each in rule.operations} == {"CREATE", "UPDATE"}
    assert entry.rollout is None


def test_the_settings_of_the_engine_decide_about_failures() -> None:
    (entry,) = load(rego_template(), constraint(), failurePolicy="Fail", timeoutSeconds=7).validating
    assert (entry.failure_policy, entry.timeout_s) == ("Fail", 7)


@pytest.mark.parametrize(
    ("spec", "mode", "found"),
    [
        ({}, "", ("Enforce", {})),
        ({"enforcementAction": "warn"}, "", ("Enforce", {})),
        ({"enforcementAction": "dryrun"}, "", ("Audit", {"action": "deny"})),
        (scoped(("deny", "*"), ("warn", "*")), "", ("Enforce", {})),
        ({"enforcementAction": "dryrun"}, "Enforce", ("Enforce", {"action": "deny"})),
        ({"enforcementAction": "warn"}, "Shadow", ("Shadow", {"action": "deny"})),
    ],
)
def test_actions_are_those_of_the_worker_or_modes(spec: Json, mode: str, found: tuple[str, Json]) -> None:
    (entry,) = load(rego_template(), constraint(mode=mode, **spec)).validating
    rollout = "Enforce" if entry.rollout is None else entry.rollout.mode
    assert (rollout, parameters_of(entry)) == found


def test_a_constraint_without_an_effect_is_no_entry() -> None:
    config = load(rego_template(), constraint(enforcementAction="maybe"))
    assert config.validating == ()


def test_templates_with_cel_stay_in_the_gateway() -> None:
    both = template("NeedsLabels", "false")
    both["spec"]["targets"][0]["rego"] = "package x"
    (entry,) = load(both, constraint()).validating
    assert entry.policy is not None


def test_constraints_of_one_name_are_two_entries() -> None:
    entries = load(
        rego_template(), rego_template("Other"), constraint(), constraint("Other"), constraint("Other", "d")
    ).validating
    found = [(each.name, each.worker.kind) for each in entries]
    assert found == [("c", "NeedsLabels"), ("c", "Other"), ("d", "Other")]


def test_parameters_are_judged_by_the_schema() -> None:
    made = rego_template()
    schema = {"type": "object", "properties": {"count": {"type": "integer"}}}
    made["spec"]["crd"]["spec"]["validation"] = {"openAPIV3Schema": schema}
    ((field, _),) = problems_of(POOL, engine(), made, constraint(parameters={"count": "many"}))
    assert field == "spec.parameters.count"


def test_all_mutators_are_one_entry() -> None:
    config = load(
        mutator("b"),
        mutator("a", applyTo=[{"groups": ["apps"], "versions": ["v1"], "kinds": ["Deployment"]}]),
        mutator("c", "AssignMetadata", match={"kinds": [{"apiGroups": [""], "kinds": ["Service"]}]}),
    )
    (entry,) = config.mutating
    assert entry.client == WorkerRef("gatekeeper", "mutation", kind="Mutators", has_own_words=True)
    assert entry.name == "mutation.gatekeeper.sh"
    assert {("apps", "deployments"), ("", "pods"), ("", "services")} <= resources_of(entry)
    assert ("apps", "statefulsets") not in resources_of(entry)
    assert config.validating == ()


def test_a_mutator_with_a_rollout_is_an_entry_of_its_own() -> None:
    rolled_out = mutator("b")
    rolled_out["metadata"]["annotations"] = {"admission-gateway.io/rollout": "{mode: Audit}"}
    alone, together = load(mutator("a"), rolled_out).mutating
    assert together.worker.policy == "mutation"
    assert alone.client == WorkerRef("gatekeeper", "mutation/Assign/b", kind="Assign", has_own_words=True)
    assert (alone.name, alone.rollout, alone.document) == ("b", Rollout("Audit"), "Assign/b")
    (only,) = load(rolled_out).mutating
    assert only.name == "b"


def test_a_mutator_for_all_kinds_has_all_requests() -> None:
    (entry,) = load(mutator(), mutator("all", "AssignMetadata")).mutating
    assert ("*", "*") in resources_of(entry)


def test_generators_are_reviewed_for_what_they_generate() -> None:
    documents = [
        expansion("Pod", "Deployment", "Job"),
        expansion("Job", "CronJob", name="cron"),
        rego_template(),
    ]
    of_pods, of_services = load(
        *documents,
        constraint(match=PODS),
        constraint(name="d", match={"kinds": [{"apiGroups": [""], "kinds": ["Service"]}]}),
    ).validating
    wanted = {("", "pods"), ("apps", "deployments"), ("batch", "jobs"), ("batch", "cronjobs")}
    assert wanted <= resources_of(of_pods)
    assert {("apps", "deployments"), ("batch", "jobs")}.isdisjoint(resources_of(of_services))


def test_cel_is_in_the_worker_if_its_objects_are_generated() -> None:
    documents = [template("NeedsLabels", "false"), constraint(match=PODS)]
    (native,) = load(*documents).validating
    (expanded,) = load(*documents, expansion("Pod", "Deployment")).validating
    (other,) = load(*documents, expansion("Job", "CronJob")).validating
    assert native.policy is not None
    assert other.policy is not None
    assert expanded.worker.policy == "NeedsLabels/c"


def test_an_action_for_what_is_generated_keeps_a_constraint_in_force() -> None:
    documents = [rego_template(), constraint(match=PODS, enforcementAction="dryrun")]
    replacing = expansion("Pod", "Deployment")
    replacing["spec"]["enforcementAction"] = "deny"
    (reported,) = load(*documents, expansion("Pod", "Deployment")).validating
    (replaced,) = load(*documents, replacing).validating
    assert reported.rollout is not None
    assert (replaced.rollout, parameters_of(replaced)) == (None, {})


def test_what_is_for_the_worker_alone_is_accepted_with_it() -> None:
    provider = {
        "apiVersion": "externaldata.gatekeeper.sh/v1beta1",
        "kind": "Provider",
        "metadata": {"name": "p"},
        "spec": {},
    }
    sync_set = {
        "apiVersion": "syncset.gatekeeper.sh/v1alpha1",
        "kind": "SyncSet",
        "metadata": {"name": "s"},
        "spec": {"gvks": []},
    }
    config = load(
        provider,
        sync_set,
        excluding("a", sync={"syncOnly": []}),
        rego_template(),
        constraint(match={"source": "Generated"}),
    )
    assert config.warnings == ()
    assert len(config.validating) == 1


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (mutator(applyTo=[]), "spec.applyTo"),
        (mutator(kind="ModifySet", applyTo=None), "spec.applyTo"),
        ({**mutator(), "apiVersion": "mutations.gatekeeper.sh/v2"}, "apiVersion"),
        ({**mutator(), "kind": "Assignment"}, "kind"),
        ({**mutator(), "extra": 1}, "extra"),
        (expansion("", "Deployment"), "spec.generatedGVK.kind"),
    ],
)
def test_what_the_gateway_reads_of_them_is_checked(document: Json, field: str) -> None:
    ((found, _),) = problems_of(POOL, engine(), document)
    assert found == field


def test_a_mode_of_a_mutator_is_a_warning() -> None:
    document = mutator()
    document["metadata"]["annotations"] = {"admission-gateway.io/mode": "Audit"}
    (warning,) = load(document).warnings
    assert warning.message == 'has no effect: only constraints have a mode, found "Assign"'


def test_a_pool_that_does_not_exist_is_a_problem() -> None:
    ((field, message),) = problems_of(engine(), rego_template(), constraint())
    assert field == "policies.engines.gatekeeper.pool"
    assert "gatekeeper" in message
