"""What a gateway process has for rollout plans: the store of its settings, evidence, and what it says."""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from typing import TYPE_CHECKING, Final

from gateway.observe.decisions import line
from gateway.server.rollout.collector import Collector
from gateway.server.rollout.folder_store import FolderStore
from gateway.server.rollout.plans import Pace, RolloutPlans

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gateway.config.kinds.gateway_configuration import GatewaySettings
    from gateway.config.merge.model import Config
    from gateway.engine.engine import Engine
    from gateway.pure.rollout_plan.state import Decision
    from gateway.server.rollout.live_plan import LivePlan
    from gateway.server.rollout.store import Json, PlanStore

log = logging.getLogger(__name__)

SYNCED_WITHIN_S: Final = 10.0
"""How long a start waits for the stages. After that, those of the last file or the first ones hold: a store
that cannot be read must not keep a gateway from answering."""
_NO_NAME: Final = re.compile(r"[^a-z0-9-]+")
_LOUD: Final = ("pause", "rollback", "hold")


class PlanFollower:
    """The rollout plans of a process. Make it on a running event loop."""

    def __init__(
        self,
        engine: Engine,
        now: Callable[[], float],
        log_record: Callable[[Json], None],
        folder: Path | None,
        number: int | None,
        pace: Pace | None = None,
    ) -> None:
        """*log_record* takes records of the decision log. *folder* is for the last states.

        *number* is that of the process, if there are several.
        """
        self.collector = Collector(now)
        self._log_record = log_record
        self._is_first = not number
        host = _NO_NAME.sub("-", os.uname().nodename.lower()).strip("-")[:100] or "host"
        self._process = f"{host}-{number or 0}-{secrets.token_hex(4)}"
        self.plans = RolloutPlans(
            engine.stages, self.collector, self._process, decided=self._decided, folder=folder, pace=pace
        )
        self._settings: object = None
        self._announce: Callable[[LivePlan, Decision], None] = lambda plan, decision: None

    async def activate(self, config: Config) -> None:
        """Follow the plans of *config*, which is in force now."""
        settings = config.gateway
        # Also without any plan: the store may have the stage of one that was removed.
        wanted = None if settings.rollout_plans is None else (settings.rollout_plans, settings.kubernetes)
        is_new = wanted != self._settings
        if is_new:
            self._settings = wanted
            await self.plans.use_store(self._open(settings))
        self.plans.activate(config.webhooks)
        if is_new:
            await self.plans.wait_until_synced(SYNCED_WITHIN_S)

    def _open(self, settings: GatewaySettings) -> PlanStore | None:
        chosen = settings.rollout_plans
        if chosen is None:
            return None
        if chosen.folder is not None:
            return FolderStore(chosen.folder, self.plans.changed)
        assert chosen.installation is not None
        assert settings.kubernetes is not None
        # Imported late: a gateway without a cluster does not need the client.
        from gateway.server.rollout.cluster_store import ClusterStore

        store = ClusterStore(settings.kubernetes, chosen.installation, self.plans.changed)
        self._announce = lambda plan, decision: store.announce(plan.name, event_of(plan, decision))
        return store

    def _decided(self, plan: LivePlan, decision: Decision) -> None:
        """Say what was decided: in the log, in the decision log and in an Event."""
        stage = plan.stages[min(decision.step, plan.plan.last)]
        write = log.warning if decision.action in _LOUD and not decision.who else log.info
        write(
            "rollout plan of %s: %s by %s, stage %d of %d (%s): %s",
            plan.webhook.name,
            decision.action,
            decision.who or "the gateway",
            decision.step + 1,
            len(plan.plan.stages),
            stage,
            decision.why,
        )
        if self._is_first:
            number = decision.step + 1
            record = line.rollout(
                time.time(), plan.webhook, decision.action, number, decision.who, decision.why
            )
            self._log_record(record)
        self._announce(plan, decision)


def event_of(plan: LivePlan, decision: Decision) -> Json:
    """Return the members of an Event about *decision* that do not depend on its object."""
    by = f" by {decision.who}" if decision.who else ""
    where = f"stage {decision.step + 1} of {len(plan.plan.stages)}"
    note = f"{plan.webhook.name}: {decision.action}{by}, {where}: {decision.why}"
    return {
        "action": "Rollout",
        "reason": f"Rollout{decision.action.capitalize()}",
        "type": "Warning" if decision.action in _LOUD else "Normal",
        "note": note.encode()[:1000].decode(errors="ignore"),
        "revision": decision.revision,
    }
