"""Rollout plans of whole gateways behind a real API server: what users create decides, for all replicas."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.pure.core.modes import rank
from tests.e2e.cluster import NAMESPACE
from tests.e2e.objects import config_map
from tests.e2e.plan_states import SeenPlan, plan_account
from tests.e2e.replicas import Replicas
from tests.e2e.setups import Hook, rule
from tests.e2e.test_custom_policies import apply
from tests.pages.test_acting import post
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster
    from tests.kit import GatewayProcess

GATED: Final = "gated.plans.test"
INSTALLATION: Final = f"{NAMESPACE}/gateways"
ACCOUNT: Final = f"system:serviceaccount:{NAMESPACE}:admission-gateway"
BY_PAGE: Final = "paged.plans.test"
POLICY: Final = "planned"
PASSWORD: Final = "0123456789abcdef-0123456789abcdef"
REFUSAL: Final = "not like this"
WRONG: Final = "wrong"
"""The label of objects that policies refuse."""
TOGETHER: Final = 6
"""Creates that are under way at once, so that the API server uses connections to both replicas."""


def _named(*, is_chosen: bool) -> str:
    """Return the name of a namespace that is, or is not, one of the 25 %."""
    names = (f"planned-{number}" for number in range(1000))
    return next(name for name in names if (rank(GATED, name) < 25) is is_chosen)


CHOSEN, OTHER = _named(is_chosen=True), _named(is_chosen=False)


def hook(name: str, released: Path, *stages: dict[str, Any]) -> Hook:
    """Return a webhook with a plan, for ConfigMaps with the label *name*. Calls wait until *released* is."""
    script = {"deny": {"code": 403, "message": REFUSAL}, "when": WRONG, "until": str(released)}
    selector = {"matchLabels": {"for": name}}
    fields = {"objectSelector": selector, "rollout": {"plan": {"stages": list(stages)}}}
    return Hook("validate", name, script, (rule("configmaps", "CREATE"),), fields=fields)


class Planned:
    """Replicas with a plan, and objects that are created in their cluster."""

    def __init__(self, setup: Replicas, kubeconfig: Path, released: Path) -> None:
        self.cluster, self.setup, self.released = setup.cluster, setup, released
        self._kubeconfig = kubeconfig

    @property
    def replicas(self) -> list[GatewayProcess]:
        return self.setup.replicas

    def plan(self, webhook: str) -> SeenPlan:
        return SeenPlan(self.cluster, self._kubeconfig, INSTALLATION, webhook)

    def create(
        self, name: str, space: str, *, of: str = GATED, wrong: bool = False, query: str = ""
    ) -> Answer:
        """Create the ConfigMap *name* for the plan *of*; *wrong*: one that it refuses where enforced."""
        labels = {"for": of, **({WRONG: ""} if wrong else {})}
        path = f"/api/v1/namespaces/{space}/configmaps{query}"
        return self.cluster.api.create(path, config_map(name, labels))

    def outcome(self, space: str = "default", of: str = GATED) -> str:
        """Return what the API server makes of an object that is wrong. A dry run is no evidence."""
        answer = self.create("tried", space, of=of, wrong=True, query="?dryRun=All")
        assert REFUSAL in answer.message or answer.status == 201, answer
        return "refused" if answer.status != 201 else "warned" if answer.warnings else "created"

    def outcomes(self) -> tuple[str, str]:
        """Return it for a namespace of the 25 % of ``GATED``, and for another one."""
        return self.outcome(CHOSEN), self.outcome(OTHER)

    def create_together(self) -> list[Answer]:
        """Create ``TOGETHER`` objects that both replicas review, one of which is wrong."""
        self.released.unlink()

        def create(number: int) -> Answer:
            try:
                return self.create(f"together-{number}", OTHER, wrong=number == 0)
            finally:
                self.cluster.api.close()

        with ThreadPoolExecutor(TOGETHER) as threads:
            answers = threads.map(create, range(TOGETHER))
            name = "admission_gateway_reviews_in_flight"
            in_flight = eventually(
                lambda: (
                    found if sum(found := [one.metric(name) for one in self.replicas]) == TOGETHER else None
                ),
                "all reviews under way",
            )
            self.released.touch()
        assert in_flight is not None
        assert min(in_flight) >= 1
        return list(answers)


def policy_with_plan(*, is_removed: bool = False) -> list[dict[str, Any]]:
    """Return a policy for ConfigMaps labelled ``POLICY`` as custom resources; the binding has a plan."""
    match = {
        "resourceRules": [rule("configmaps", "CREATE")],
        "objectSelector": {"matchLabels": {"for": POLICY}},
    }
    expression = {"expression": f"!('{WRONG}' in object.metadata.labels)", "message": REFUSAL}
    head = {"apiVersion": "admission-gateway.io/v1alpha1", "metadata": {"name": POLICY}}
    stages = [{"mode": mode, "for": "1s"} for mode in ("Audit", "Warn", "Enforce")]
    annotations = {"admission-gateway.io/rollout": json.dumps({"plan": {"stages": stages}})}
    return [
        {
            **head,
            "kind": "ValidatingAdmissionPolicy",
            "spec": {"matchConstraints": match, "validations": [expression]},
        },
        {
            **head,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": POLICY, "annotations": {} if is_removed else annotations},
            "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
        },
    ]


@pytest.fixture(scope="module")
def planned(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planned]:
    folder = tmp_path_factory.mktemp("gateways")
    released = folder / "released"
    released.touch()
    (folder / "config").mkdir()
    (folder / "config" / "people").write_text(f"alice:{PASSWORD}\n")
    for name in (CHOSEN, OTHER):
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        assert cluster.api.create("/api/v1/namespaces", document).status == 201
    hooks = [
        hook(
            GATED,
            released,
            # Only what both replicas have seen is enough.
            {"mode": "Audit", "for": "1s", "gates": {"maxNewlyDeniedOwners": 1, "minReviews": TOGETHER}},
            {
                "mode": "Warn",
                "percentOfNamespaces": 25,
                "for": "1s",
                "gates": {"maxNewlyDeniedOwners": 0, "minReviews": 2},
            },
            {"mode": "Enforce", "gates": {"minReviews": 1000}},
        ),
        hook(BY_PAGE, released, {"mode": "Audit", "for": "1h"}, {"mode": "Enforce"}),
    ]
    with plan_account(cluster, folder, "custom-resources.yaml") as kubeconfig:
        settings = {
            "kubernetes": {"kubeconfig": str(kubeconfig), "customResources": True},
            "rolloutPlans": {"installation": INSTALLATION},
            "pages": {"actions": {"basicAuthFile": "people"}},
            "logging": {"format": "json"},
        }
        # It is part of the registration.
        apply(cluster, *policy_with_plan())
        try:
            with Replicas(cluster, folder, hooks, "plans", gateway=settings) as setup:
                yield Planned(setup, kubeconfig, released)
        finally:
            for one in policy_with_plan():
                cluster.kubectl("delete", f"{one['kind'].lower()}.admission-gateway.io", POLICY)


def records(gateway: GatewayProcess, action: str) -> list[dict[str, Any]]:
    """Return what the decision log of *gateway* has of an *action* on the plan of ``GATED``."""
    lines = [line for line in gateway.log.splitlines() if '"outcome":"Rollout"' in line]
    return [one for one in map(json.loads, lines) if (one["webhook"], one["action"]) == (GATED, action)]


def test_an_action_by_the_page_of_one_replica_holds_in_both(planned: Planned) -> None:
    plan = planned.plan(BY_PAGE)
    plan.reaches("Progressing", 1, planned.replicas)
    path = f"/rollouts/{plan.stored['metadata']['name'].rpartition('.')[2]}"
    for gateway, action, phase, stage, outcome in (
        (planned.replicas[0], "pause", "Paused", 1, "created"),
        (planned.replicas[1], "skip", "Progressing", 2, "refused"),
    ):
        seen = json.loads(gateway.admin(f"{path}?format=json")[1])["plan"]["seen"]
        fields = {"action": action, "seen": seen, "who": "alice", "password": PASSWORD, "why": "a test"}
        status, page = post(gateway, path, {**fields, "password": "guessed"})
        assert (status, "the name or the password is wrong" in page) == (403, True)
        status, page = post(gateway, path, fields)
        assert (status, f"{phase}, stage {stage} of 2" in page) == (200, True), page
        plan.reaches(phase, stage, planned.replicas)
        assert plan.decisions[-1] == (action, stage, "alice by page")
        assert planned.outcome(of=BY_PAGE) == outcome


def test_a_policy_of_the_cluster_keeps_the_stage_of_a_plan_that_is_removed(planned: Planned) -> None:
    plan = planned.plan(POLICY)
    plan.reaches("Progressing", 1, planned.replicas)
    assert planned.outcome(of=POLICY) == "created"
    assert planned.create("first", "default", of=POLICY).status == 201
    plan.reaches("Progressing", 2, planned.replicas)
    assert planned.outcome(of=POLICY) == "warned"

    apply(planned.cluster, *policy_with_plan(is_removed=True))
    plan.reaches("Held", 2, planned.replicas)
    assert planned.outcome(of=POLICY) == "warned"
    shown = plan.command("status")
    assert f"{POLICY} by ValidatingAdmissionPolicyBinding/{POLICY}: Held, stage 2 of 3 (Warn)" in shown
    assert "the plan was removed: its stage holds" in shown

    plan.command("forget", "--reason", "it is good")
    eventually(lambda: plan.status["phase"] == "Forgotten")
    for gateway in planned.replicas:
        eventually(lambda gateway=gateway: not plan.shown_by(gateway))  # type: ignore[misc]
    assert planned.outcome(of=POLICY) == "refused"

    apply(planned.cluster, *policy_with_plan())
    plan.reaches("Progressing", 1, planned.replicas)
    assert planned.outcome(of=POLICY) == "created"


def test_creates_decide_commands_change_answers_and_a_killed_replica_returns(planned: Planned) -> None:
    plan = planned.plan(GATED)
    plan.reaches("Progressing", 1, planned.replicas)
    assert planned.outcomes() == ("created", "created")
    assert {answer.status for answer in planned.create_together()} == {201}
    plan.reaches("Progressing", 2, planned.replicas)
    assert planned.outcomes() == ("refused", "warned")
    assert plan.decisions == [("start", 1, ""), ("promote", 2, "")]

    # A new owner of something that would be refused, once.
    newcomer = planned.create("newcomer", OTHER, wrong=True)
    assert (newcomer.status, len(newcomer.warnings)) == (201, 1), newcomer
    plan.reaches("Paused", 2, planned.replicas)
    why = f"maxNewlyDeniedOwners: 1, such as {OTHER} ConfigMap/newcomer, expected at most 0"
    assert plan.status["reason"] == why
    shown = plan.command("status")
    assert f"{GATED}: Paused, stage 2 of 3 (Warn, enforced in 25 % of the namespaces)" in shown
    assert f"pause: {why}" in shown
    (event,) = eventually(lambda: [one for one in plan.events if one["reason"] == "RolloutPause"])
    assert event["type"] == "Warning"
    assert why in event["note"]
    for one in planned.replicas:
        assert plan.shown_by(one)["reason"] == why
        (found,) = eventually(lambda one=one: records(one, "pause"))  # type: ignore[misc]
        assert (found["stage"], found["message"], found["user"]) == (2, why, "")

    said = plan.command("resume", "--reason", "the newcomer has changed it")
    assert f"{GATED}: Progressing, stage 2 of 3" in said
    plan.reaches("Progressing", 2, planned.replicas)
    for number in range(2):
        assert planned.create(f"good-{number}", CHOSEN).status == 201
    plan.reaches("Progressing", 3, planned.replicas)
    assert planned.outcomes() == ("refused", "refused")

    plan.command("rollback", "--reason", "too early")
    plan.reaches("RolledBack", 2, planned.replicas)
    assert planned.outcomes() == ("refused", "warned")

    killed, other = planned.replicas
    killed.signal(signal.SIGKILL)
    killed.wait()
    planned.setup.forget(killed)
    again = planned.setup.scale_up()
    assert plan.in_force(again) == ("RolledBack", [2])
    assert not again.metric("admission_gateway_review_duration_seconds_count")
    planned.setup.forget(other)
    other.stop()
    # Its first requests.
    assert planned.outcomes() == ("refused", "warned")

    planned.setup.scale_up()
    plan.command("skip", "--reason", "sure now")
    plan.reaches("Progressing", 3, planned.replicas)
    assert planned.outcomes() == ("refused", "refused")
    assert plan.decisions[-5:] == [
        ("pause", 2, ""),
        ("resume", 2, ACCOUNT),
        ("promote", 3, ""),
        ("rollback", 2, ACCOUNT),
        ("skip", 3, ACCOUNT),
    ]
