"""Rollout plans in a cluster: the account of gateways that follow them, and what is seen of a plan."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deploy.monitoring import CHART_FILES
from gateway.server.rollout.store import PLURALS, STATE
from tests.e2e.cluster import NAMESPACE
from tests.e2e.setups import deployed_account
from tests.kit import run_command
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.kit import GatewayProcess

GROUP = "admission-gateway.io"


@contextmanager
def plan_account(cluster: Cluster, folder: Path, *files: str) -> Iterator[Path]:
    """Yield a kubeconfig, in *folder*, of the deployed account with the rights that states of plans need.

    It has the rights in *files* of deploy/ too. All states are removed in the end.
    """
    applied = cluster.kubectl("apply", "--server-side", f"--filename={CHART_FILES / 'crds.yaml'}")
    assert applied.returncode == 0, applied.stderr
    cluster.wait_until_served(*(f"{plural}.{GROUP}" for plural in PLURALS.values()))
    with ExitStack() as stack:
        for file in (*files, "rollout-plans.yaml"):
            kubeconfig = stack.enter_context(deployed_account(cluster, folder, file))
        stack.callback(remove_states, cluster)
        yield kubeconfig


def remove_states(cluster: Cluster) -> None:
    for plural in PLURALS.values():
        cluster.kubectl("delete", f"{plural}.{GROUP}", "--all", f"--namespace={NAMESPACE}")


@dataclass(frozen=True)
class SeenPlan:
    """The plan of *webhook*, as an operator sees it."""

    cluster: Cluster
    kubeconfig: Path
    """Of who runs commands."""
    installation: str
    webhook: str

    @property
    def stored(self) -> dict[str, Any]:
        """The RolloutState; empty if there is none."""
        namespace, _, prefix = self.installation.partition("/")
        path = f"/apis/{GROUP}/v1alpha1/namespaces/{namespace}/{PLURALS[STATE]}"
        found: list[dict[str, Any]] = self.cluster.api.get(path).document["items"]
        own = [one for one in found if one["metadata"]["name"].startswith(f"{prefix}.")]
        return next((one for one in own if one["status"]["webhook"] == self.webhook), {})

    @property
    def status(self) -> dict[str, Any]:
        """The content of the RolloutState; empty if there is none."""
        found: dict[str, Any] = self.stored.get("status", {})
        return found

    @property
    def decisions(self) -> list[tuple[str, int, str]]:
        """The actions, with the stage from 1 and who decided, the first one first."""
        found = self.status["state"]["decisions"]
        return [(one["action"], one["step"] + 1, one["who"]) for one in found]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The Events about the RolloutState."""
        namespace = self.installation.partition("/")[0]
        answer = self.cluster.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
        name = self.stored["metadata"]["name"]
        return [one for one in answer.document["items"] if one["regarding"].get("name") == name]

    def reaches(self, phase: str, stage: int, gateways: Iterable[GatewayProcess] = ()) -> None:
        """Wait until the plan is in *phase* and *stage*, from 1, in the cluster and in all *gateways*."""

        def is_stored() -> bool:
            found = self.status
            return (found.get("phase"), found.get("stage", "").partition("/")[0]) == (phase, str(stage))

        eventually(is_stored, f"{phase}, stage {stage} of {self.webhook}")
        for one in gateways:
            eventually(lambda one=one: self.in_force(one) == (phase, [stage]))  # type: ignore[misc]

    def shown_by(self, gateway: GatewayProcess) -> dict[str, Any]:
        """Return what the page of *gateway* shows of the plan; nothing if it does not have it."""
        status, text = gateway.admin("/rollouts?format=json")
        assert status == 200, text
        found: list[dict[str, Any]] = json.loads(text)["plans"]
        return next((one for one in found if one["webhook"] == self.webhook), {})

    def in_force(self, gateway: GatewayProcess) -> tuple[str, list[int]]:
        """Return the phase of the plan, and the stages, from 1, that hold in the processes of *gateway*."""
        found = self.shown_by(gateway)
        return found["phase"], found["stagesInForce"]

    def command(self, action: str, *arguments: object) -> str:
        """Run ``admission-gateway rollout`` for the plan, and return what it prints."""
        where = ("--installation", self.installation, "--kubeconfig", self.kubeconfig)
        done = run_command("rollout", action, self.webhook, *where, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout
