"""Rollout plans: their stages, what is in force where, evidence, gates and decisions, and what to type."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from gateway.base.text import rfc3339
from gateway.config.kinds.rollout_plan_settings import DEFAULT_INSTALLATION
from gateway.pure.core.durations import format_duration
from gateway.pure.rollout_plan.model import enforced_in
from gateway.server.pages.configuration import gates_of
from gateway.server.rollout.actions import possible, seen_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.config.kinds.gateway_configuration import GatewaySettings
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.rollout_plan.evidence import Part, Seen
    from gateway.pure.rollout_plan.state import PlanState
    from gateway.server.pages.state import Json, ProcessState
    from gateway.server.rollout.live_plan import LivePlan, PlanView

PATH: Final = "/rollouts/"
"""Before the name of a plan."""
_COMMAND: Final = "admission-gateway rollout"
_SHOWN: Final = 50
"""Names of namespaces of a stage, and of owners."""
_MOST_NAMESPACES: Final = 10_000
"""With more known ones, a stage names none: each is ranked for each stage."""


def summary(view: PlanView) -> Json:
    """Return what the overview shows of a plan."""
    one, state = view.plan, view.plan.state
    return {
        "name": one.name,
        "stage": one.step + 1,
        "stages": len(one.plan.stages),
        "phase": view.phase,
        "reason": one.why_held or ("" if state is None else state.decisions[-1].why),
        "gates": [f"{result.value}: {result}" for result in one.results],
        "waitsFor": list(view.waiting.texts),
    }


def part(state: ProcessState) -> Json:
    """Return all plans of a process, briefly."""
    return {"plans": [_brief(state, view) for view in state.plans.values()]}


def part_of_one(state: ProcessState, name: str) -> Json:
    """Return everything about the plan *name*; null if there is none."""
    view = next((one for one in state.plans.values() if one.plan.name == name), None)
    return {"plan": None if view is None else _whole(state, view)}


def merge(parts: Iterable[Sequence[Json]]) -> list[Json]:
    """Return the plans by the *parts* of the processes: of the first one, with the stages in force in all."""
    found: dict[str, Json] = {}
    for one in (one for plans in parts for one in plans):
        known = found.setdefault(one["name"], one)
        known["stagesInForce"] = sorted({*known["stagesInForce"], *one["stagesInForce"]})
    return list(found.values())


def _brief(process: ProcessState, view: PlanView) -> Json:
    one = view.plan
    rollout = process.snapshot.stages.in_force.get(one.webhook.plan_id, one.webhook.rollout)
    return {
        **summary(view),
        "webhook": one.webhook.name,
        "type": one.webhook.phase,
        "configuration": one.webhook.configuration,
        "mode": "Enforce" if rollout is None else rollout.mode,
        "stagesInForce": [one.step + 1],
    }


def _whole(process: ProcessState, view: PlanView) -> Json:
    one, state = view.plan, view.plan.state
    namespaces = dict(process.snapshot.namespaces)
    found = _brief(process, view) | {
        "gates": [{"name": gate.name, "value": gate.value, "found": gate.found} for gate in one.results],
        "allStages": [_stage(one, number, namespaces) for number in range(len(one.plan.stages))],
        "namespacesKnown": len(namespaces),
        "maxWait": format_duration(one.plan.max_wait_s),
        "critical": one.plan.is_critical,
        "rollback": None
        if one.plan.rollback is None
        else {
            "minOwners": one.plan.rollback.min_owners,
            "minNamespaces": one.plan.rollback.min_namespaces,
        },
        "evidence": None if one.evidence is None else _evidence(one.evidence.total, one.processes),
        "fault": one.fault,
    }
    if state is None:
        return found | {"seen": "", "since": "", "decisions": [], "actions": []}
    return found | {
        "seen": seen_of(state),
        "since": rfc3339(state.started_at_s),
        "decisions": [
            {
                "time": rfc3339(decision.time_s),
                "action": decision.action,
                "stage": decision.step + 1,
                "who": decision.who,
                "why": decision.why,
            }
            for decision in reversed(state.decisions)
        ],
        "actions": _actions(process.config.gateway, one, state, _names(process)),
    }


def _stage(one: LivePlan, number: int, namespaces: Mapping[str, Namespace]) -> Json:
    stage = one.plan.stages[number]
    found: Json = {
        "stage": number + 1,
        "text": str(stage),
        "mode": stage.mode,
        "for": format_duration(stage.for_s) if stage.for_s else "",
        "gates": {
            name: limit
            for name, limit in gates_of(stage.gates).items()
            if limit or not name.startswith("min")
        },
        "approval": stage.needs_approval,
        "enforced": "everywhere" if stage.is_enforced_everywhere else "nowhere",
        "namespaces": None,
        "firstNamespaces": [],
    }
    if stage.is_enforced_everywhere or not stage.is_enforced_somewhere:
        return found
    found["enforced"] = "somewhere"
    if len(namespaces) <= _MOST_NAMESPACES:
        labels = {name: namespace.labels for name, namespace in namespaces.items()}
        names = enforced_in(one.webhook.name, stage, labels)
        found |= {"namespaces": len(names), "firstNamespaces": names[:_SHOWN]}
    return found


def _evidence(total: Part, processes: int) -> Json:
    return {
        "processes": processes,
        "reviews": total.reviews,
        "namespaces": len(total.namespaces),
        "users": len(total.users),
        "newlyDenied": total.newly_denied,
        "newlyDeniedOwners": _owners(total.newly_denied_owners),
        "denied": total.denied,
        "deniedOwners": _owners(total.denied_owners),
        "compared": total.compared,
        "differences": total.differences,
        "failures": total.failures,
        "exceptionUses": total.exception_uses,
    }


def _owners(seen: Seen) -> Json:
    return {"count": len(seen), "hasMore": seen.has_more, "first": sorted(seen.items)[:_SHOWN]}


def _names(process: ProcessState) -> list[str]:
    return [one.plan.webhook.name for one in process.plans.values()]


def _actions(settings: GatewaySettings, one: LivePlan, state: PlanState, names: Sequence[str]) -> list[Json]:
    """Return what a person can do to a plan in *state*, with the command to type."""
    store = settings.rollout_plans
    options: list[str] = []
    if store is not None and store.folder is not None:
        # The person may be in another folder than the gateway.
        options = ["--folder", str(store.folder.resolve())]
    elif store is not None and store.installation not in (None, DEFAULT_INSTALLATION):
        options = ["--installation", str(store.installation)]
    if state.generation != one.plan.digest and not one.is_removed:
        # Which stages an action would be about is not known until all processes have this plan.
        return []
    # Webhooks of two configurations may share a name.
    webhook = one.webhook.name if names.count(one.webhook.name) == 1 else one.name
    found: list[Any] = []
    for action in possible(state):
        words = [webhook, *options, "--reason", "why"]
        found.append(
            {
                "action": action,
                "command": f"{_COMMAND} {action} {shlex.join(words)}",
                **_effect(action, one, state),
            }
        )
    return found


def _effect(action: str, one: LivePlan, state: PlanState) -> Json:
    """Return the stage after *action*, and what is said of it."""
    stages = one.plan.stages
    match action:
        case "pause":
            step, text = state.step, "Nothing is promoted until the plan is resumed. What is in force stays."
        case "resume":
            step, text = state.step, "The plan continues in its present stage. What is in force stays."
            if not state.is_paused_by_person:
                text = "The present stage begins again, without its evidence. What is in force stays."
        case "approve":
            step = state.step
            text = "The next stage begins once this one has lasted its time and all other gates pass."
        case "forget":
            # A mode that is written would hold already.
            text = "The stage does not hold any more. The webhook is enforced everywhere from then on."
            return {"stage": state.step + 1, "stageText": "Enforce", "effect": text}
        case "skip" if state.step >= one.plan.last:
            step, text = state.step, "The plan is complete. What is in force stays."
        case "skip":
            step, text = state.step + 1, "The next stage is put in force, whatever the gates say."
        case _:
            step = state.step - 1
            text = "The stage before is put in force, and stays until the plan is resumed."
    step = min(step, len(stages) - 1)
    return {"stage": step + 1, "stageText": str(stages[step]), "effect": text}
