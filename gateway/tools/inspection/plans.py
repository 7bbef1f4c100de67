"""Checks of the states of rollout plans in a cluster: stages that hold without their plan."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING

from admission_gateway_worker.text import printable
from gateway.base.errors import ClusterError
from gateway.pure.rollout_plan.decide import holds
from gateway.server.kubernetes.access import connect
from gateway.server.rollout.cluster_store import read_states
from gateway.server.rollout.documents import read_state
from gateway.server.rollout.store import StoreError, name_of
from gateway.tools.inspection.model import Finding

if TYPE_CHECKING:
    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.config.merge.model import Config

_FORBIDDEN, _NOT_FOUND = 403, 404


async def plan_findings(cluster: KubernetesSettings, config: Config) -> list[Finding]:
    """Return the findings about webhooks of *config* in which the stage of a removed plan holds.

    Raises:
        ClusterError: the cluster cannot be reached.
    """
    settings = config.gateway.rollout_plans
    if settings is None or settings.installation is None:
        return []
    api = await asyncio.to_thread(connect, cluster)
    try:
        states = await read_states(api, settings.installation)
    except ClusterError as error:
        if error.status not in (_FORBIDDEN, _NOT_FOUND):
            raise
        message = f"RolloutStates of {settings.installation} cannot be read: {error}"
        return [Finding("warning", "rollout plans", message, "deploy/rollout-plans.yaml has the rights")]
    finally:
        await api.close()
    # A document may make several entries of one plan.
    webhooks = {name_of(webhook): webhook for webhook in config.webhooks}
    found = []
    for name in webhooks.keys() & states.keys():
        webhook = webhooks[name]
        place = webhook.document or f'{webhook.configuration}, webhook "{webhook.name}"'
        try:
            state = read_state(states[name])
        except StoreError as error:
            advice = "delete it, or use the version that wrote it"
            found.append(Finding("warning", place, str(error), advice))
            continue
        if holds(webhook, state):
            where = f"stage {state.step + 1} of {len(state.stage_digests)} ({state.stage})"
            command = shlex.join(["admission-gateway", "rollout", "forget", printable(webhook.name)])
            message = f"its rollout plan was removed, and {where} holds"
            found.append(
                Finding("warning", place, message, f"write rollout.mode, or have it enforced by {command}")
            )
    return found
