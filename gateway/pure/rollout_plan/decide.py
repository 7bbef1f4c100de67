"""The decisions of a rollout plan: from a state and evidence to the next state.

1. *One step*: no decision skips a stage, in either direction. Only a person skips a gate.
2. *Three values*: a gate passes, fails, or is unknown. A plan is promoted only if all gates pass. Evidence
   that is absent, or was there and is gone, makes unknown out of pass, and never pass out of fail.
3. *Two clocks*: a stage lasts at least its time both by the monotonic clocks of those who decided and by the
   recorded time of its beginning. No decision is taken back because of a clock.
4. *No return*: after a rollback only a person lets a plan of this generation continue, also if another plan
   was in force meanwhile. The stage of a plan that is removed holds until a person says otherwise.
5. *A rollback of its own* is one step, of a plan that asks for it and is not critical, because of requests
   that were refused: for so many owners in so many namespaces, however often each tried. After each, stages
   last twice as long, until the plan is complete.
6. *An approval* of a person is for what comes after one stage, and ends with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, get_args

from gateway.base.errors import GatewayError
from gateway.pure.core.durations import format_duration
from gateway.pure.rollout_plan.evidence import MAX_SOURCES, names_of, namespaces_of, p99_ms
from gateway.pure.rollout_plan.model import may_be_held
from gateway.pure.rollout_plan.state import MAX_ROLLED_BACK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gateway.pure.core.webhook import Webhook
    from gateway.pure.rollout_plan.evidence import Evidence, Part, Seen
    from gateway.pure.rollout_plan.model import Gates, Plan
    from gateway.pure.rollout_plan.state import Phase, PlanState

Value = Literal["pass", "fail", "unknown"]
VALUES: Final[tuple[Value, ...]] = get_args(Value)

LONGEST_LOOK_S: Final = 600.0
"""Time that counts between two looks at the state. Nobody watched the stage for the rest of a longer one."""
MAX_DOUBLINGS: Final = 3
"""A stage lasts at most eight times as long after rollbacks."""
APPROVAL: Final = "approval"
"""The name of the gate that a person lets pass."""
HEARTBEAT_S: Final = 60.0
"""Time after which what has been watched is written down."""
_RATES: Final = ("maxP99Milliseconds", "maxNewlyDeniedPercent", "maxDeniedPercent")
"""Gates whose number can become smaller with more evidence."""
_NAMED: Final = 3
"""Owners in the reason of a decision."""


class ActionRefused(GatewayError):
    """What a person asks for is not possible in the present state."""


@dataclass(frozen=True, slots=True)
class GateResult:
    """What one gate says."""

    name: str
    """The field of ``gates``, ``evidence`` or ``approval``."""
    value: Value
    found: str
    """What was found, with what was expected."""

    def __str__(self) -> str:
        return f"{self.name}: {self.found}"


def judge(plan: Plan, state: PlanState, evidence: Evidence, expected: Iterable[str] = ()) -> list[GateResult]:
    """Return what each gate of the present stage says.

    *expected* has the sources that are known to be there now.
    """
    parts = evidence.parts if evidence.window == state.evidence_window else {}
    missing = sorted((state.sources.keys() | set(expected)) - parts.keys())
    missing += sorted(one for one, part in parts.items() if part.sequence < state.sources.get(one, 0))
    results = list(_gates(plan.stages[state.step].gates, evidence.total)) if parts else []
    if not parts:
        results.append(GateResult("evidence", "unknown", "none yet"))
    if missing:
        results.append(GateResult("evidence", "unknown", f"none of {_listed(missing)}"))
        results = [_without_part(one) for one in results]
    if len(parts) > MAX_SOURCES:
        results.append(GateResult("evidence", "unknown", f"of more than {MAX_SOURCES} starts of replicas"))
    if evidence.is_partial:
        results.append(GateResult("evidence", "unknown", "of some processes is not read: there is too much"))
    if plan.stages[state.step].needs_approval:
        by = state.approved_by
        found = f"given by {by}" if by else "a person has to approve"
        results.append(GateResult(APPROVAL, "pass" if by else "unknown", found))
    return results


def lasts_s(plan: Plan, state: PlanState) -> float:
    """Return how long the present stage of *plan* lasts at least, in seconds."""
    return float(plan.stages[state.step].for_s * 2 ** min(state.rollbacks, MAX_DOUBLINGS))


def enforced_from_s(plan: Plan, state: PlanState | None) -> float:
    """Return the earliest time at which *plan* enforces its webhook in more places, in seconds since 1970.

    0 if it is not set: nobody knows when a paused plan goes on.
    """
    if state is None or state.phase != "Progressing" or state.generation != plan.digest:
        return 0.0
    at = float(state.started_at_s)
    for step, stage in enumerate(plan.stages[state.step :], state.step):
        if step > state.step and stage.is_enforced_somewhere:
            return at
        at += lasts_s(plan, replace(state, step=step))
    return 0.0


def decide(
    plan: Plan,
    state: PlanState,
    evidence: Evidence,
    now_s: float,
    *,
    since_s: float,
    expected: Iterable[str] = (),
) -> PlanState | None:
    """Return the state to write in place of *state*, or None if there is nothing to write.

    *now_s* is the wall clock. *since_s* is the time since the caller read or wrote this very version of the
    state, by its monotonic clock; after it has written what this returns, or has read another version, it
    begins at 0 again. *expected* is as in :func:`judge`. A state of another plan, or of one that was removed,
    becomes one of *plan*: the caller makes sure that all replicas have the new plan.
    """
    if state.generation != plan.digest or state.is_of_removed_plan:
        return adopted(plan, state, now_s)
    if state.phase != "Progressing":
        return None
    wanted_s = lasts_s(plan, state)
    elapsed_s = state.elapsed_s + min(max(since_s, 0.0), LONGEST_LOOK_S)
    results = judge(plan, state, evidence, expected)
    if (why := _reason_to_go_back(plan, state, evidence)) is not None:
        return _before(state, why, now_s)
    if failed := [str(one) for one in results if one.value == "fail"]:
        return state.decided("pause", state.step, "Paused", why="; ".join(failed), now_s=now_s)
    is_passed = all(one.value == "pass" for one in results)
    if is_passed and elapsed_s >= wanted_s and now_s - state.started_at_s >= wanted_s:
        return _next(plan, state, f"all gates passed for {_time(elapsed_s)}", now_s)
    # A person may take any time.
    unknown = [str(one) for one in results if one.value == "unknown" and one.name != APPROVAL]
    if unknown and elapsed_s >= wanted_s + plan.max_wait_s:
        why = f"no data for {_time(elapsed_s)}: {'; '.join(unknown)}"
        return state.decided("pause", state.step, "Paused", why=why, now_s=now_s)
    parts = evidence.parts if evidence.window == state.evidence_window else {}
    if elapsed_s - state.elapsed_s < HEARTBEAT_S and parts.keys() <= state.sources.keys():
        return None
    sources = dict(state.sources)
    for source, part in sorted(parts.items()):
        if source in sources or len(sources) < MAX_SOURCES:
            sources[source] = max(part.sequence, sources.get(source, 0))
    found = replace(state, elapsed_s=elapsed_s, sources=sources)
    return None if found == state else found


def adopted(plan: Plan, state: PlanState, now_s: float) -> PlanState:
    """Return the state of *plan*, which replaces the plan of *state*, or returns after it was removed.

    It begins at the present stage if this and all before it are the same in both plans, and else at the last
    stage that is, or at the first. A pause of a person holds. A rollback is of one plan. A plan whose stage a
    person has forgotten begins again.
    """
    same = 0
    for mine, other in zip(plan.stage_digests, state.stage_digests, strict=False):
        if mine != other:
            break
        same += 1
    step = 0 if state.phase == "Forgotten" else min(state.step, max(same - 1, 0), plan.last)
    is_complete = state.phase == "Complete" and step == plan.last == state.step
    why = f"another plan, whose first {same} stages are those of the one before"
    if state.is_of_removed_plan:
        why = f"a plan is there again, whose first {same} stages are those of the one that was removed"
    moved = replace(state, generation=plan.digest, stage_digests=plan.stage_digests, outline=plan.outline)
    who = state.paused_by
    phase: Phase = "Paused" if who else "Complete" if is_complete else "Progressing"
    if plan.digest in state.rolled_back:
        phase = "RolledBack"
    found = moved.decided("restart", step, phase, why=why, now_s=now_s, who=who)
    return replace(found, paused_by=who)


def holds(webhook: Webhook, state: PlanState) -> bool:
    """Whether the stage of *state* is in force of *webhook*, without a plan, in place of its configuration.

    A stage that is enforced everywhere is what the configuration says too.
    """
    return may_be_held(webhook) and state.phase != "Forgotten" and not state.stage.is_enforced_everywhere


def hold(state: PlanState, now_s: float) -> PlanState:
    """Return the state after its plan was removed: the stage holds. No replica may have the plan any more."""
    why = "the plan was removed from the configuration: its stage holds"
    found = state.decided("hold", state.step, "Held", why=why, now_s=now_s)
    return replace(found, paused_by=state.paused_by)


def forget(plan: Plan, state: PlanState, *, who: str, why: str, now_s: float) -> PlanState:
    """Return the state after a person has ended that the stage of a plan that was removed holds.

    Raises:
        ActionRefused: it does not.
    """
    if not state.is_of_removed_plan:
        raise ActionRefused(f"cannot forget: a process still has the plan, which is {state.phase}")
    _expect(plan, state, "forget", who, "Held")
    return state.decided("forget", state.step, "Forgotten", why=why, now_s=now_s, who=who)


def pause(plan: Plan, state: PlanState, *, who: str, why: str, now_s: float) -> PlanState:
    """Return the state after a person has paused the plan: nothing is promoted until it is resumed.

    Raises:
        ActionRefused: it does not progress.
    """
    _expect(plan, state, "pause", who, "Progressing")
    paused = state.decided("pause", state.step, "Paused", why=why, now_s=now_s, who=who)
    # The stage goes on afterwards: what has been seen and the time until now count.
    return replace(_continued(state, paused), paused_by=paused.decisions[-1].who)


def resume(plan: Plan, state: PlanState, *, who: str, why: str, now_s: float) -> PlanState:
    """Return the state after a person has let the plan continue.

    After a pause of a person the stage goes on. Otherwise it begins again, without its evidence.

    Raises:
        ActionRefused: it is neither paused nor rolled back.
    """
    _expect(plan, state, "resume", who, "Paused", "RolledBack")
    resumed = state.decided("resume", state.step, "Progressing", why=why, now_s=now_s, who=who)
    resumed = replace(resumed, rolled_back=_without(state.rolled_back, plan.digest))
    return _continued(state, resumed) if state.is_paused_by_person else resumed


def approve(plan: Plan, state: PlanState, *, who: str, why: str, now_s: float) -> PlanState:
    """Return the state after a person has approved of the next stage: it begins when all other gates pass.

    Raises:
        ActionRefused: the plan does not progress, or its stage needs no approval or has one.
    """
    _expect(plan, state, "approve", who, "Progressing")
    if not state.stage.needs_approval:
        raise ActionRefused(f"cannot approve: stage {state.step + 1} requires no approval")
    if state.approved_by:
        raise ActionRefused(f"cannot approve: {state.approved_by} has approved already")
    found = state.decided("approve", state.step, "Progressing", why=why, now_s=now_s, who=who)
    return replace(_continued(state, found), approved_by=found.decisions[-1].who)


def skip(plan: Plan, state: PlanState, *, who: str, why: str, now_s: float) -> PlanState:
    """Return the state after a person has promoted the plan by one stage, whatever its gates say.

    Raises:
        ActionRefused: it is complete.
    """
    _expect(plan, state, "skip", who, "Progressing", "Paused", "RolledBack")
    skipped = _next(plan, state, why, now_s, who)
    return replace(skipped, rolled_back=_without(state.rolled_back, plan.digest))


def roll_back(plan: Plan, state: PlanState, *, who: str, why: str, now_s: float) -> PlanState:
    """Return the state after a person has put the stage before in force.

    Raises:
        ActionRefused: there is none.
    """
    _expect(plan, state, "roll back", who, "Progressing", "Paused", "RolledBack", "Complete")
    if state.step == 0:
        raise ActionRefused("cannot roll back: the plan is in its first stage")
    return _before(state, why, now_s, who)


def _expect(plan: Plan, state: PlanState, action: str, who: str, *phases: str) -> None:
    if not who:
        raise ActionRefused(f"cannot {action}: expected who asks for it")
    if state.generation != plan.digest:
        raise ActionRefused(f"cannot {action}: the state is that of another plan, expected {plan.digest}")
    if state.phase not in phases:
        raise ActionRefused(f"cannot {action}: the plan is {state.phase}, expected {' or '.join(phases)}")


def _continued(state: PlanState, found: PlanState) -> PlanState:
    """Return *found*, the state after a decision on *state*, with the stage as it was."""
    return replace(
        found,
        window=state.window,
        started_at_s=state.started_at_s,
        elapsed_s=state.elapsed_s,
        sources=state.sources,
        approved_by=state.approved_by,
    )


def _next(plan: Plan, state: PlanState, why: str, now_s: float, who: str = "") -> PlanState:
    if state.step >= plan.last:
        done = state.decided("complete", plan.last, "Complete", why=why, now_s=now_s, who=who)
        return replace(done, rollbacks=0)
    action: Literal["skip", "promote"] = "skip" if who else "promote"
    return state.decided(action, state.step + 1, "Progressing", why=why, now_s=now_s, who=who)


def _before(state: PlanState, why: str, now_s: float, who: str = "") -> PlanState:
    found = state.decided("rollback", state.step - 1, "RolledBack", why=why, now_s=now_s, who=who)
    rolled_back = (*_without(state.rolled_back, state.generation), state.generation)
    rollbacks = state.rollbacks if who else min(state.rollbacks + 1, MAX_DOUBLINGS)
    return replace(found, rolled_back=rolled_back[-MAX_ROLLED_BACK:], rollbacks=rollbacks)


def _without(generations: tuple[str, ...], generation: str) -> tuple[str, ...]:
    return tuple(one for one in generations if one != generation)


def _reason_to_go_back(plan: Plan, state: PlanState, evidence: Evidence) -> str | None:
    limits = plan.rollback
    if limits is None or plan.is_critical or state.step == 0 or evidence.window != state.evidence_window:
        return None
    refused = evidence.total.denied_owners
    owners, namespaces = names_of(refused), namespaces_of(refused)
    if len(owners) < limits.min_owners or len(namespaces) < limits.min_namespaces:
        return None
    return (
        f"requests of {len(owners)} owners in {len(namespaces)} namespaces were refused, {_owners(refused)}"
    )


def _gates(gates: Gates, total: Part) -> Iterator[GateResult]:
    """Yield the results of all gates that have a limit."""
    counts = (
        ("minReviews", gates.min_reviews, total.reviews, "reviews"),
        ("minNamespaces", gates.min_namespaces, len(total.namespaces), "namespaces"),
        ("minUsers", gates.min_users, len(total.users), "users"),
    )
    for name, least, number, what in counts:
        if least:
            value: Value = "pass" if number >= least else "unknown"
            yield GateResult(name, value, f"{number} {what}, expected at least {least}")
    newly, denied = total.newly_denied_owners, total.denied_owners
    limits = (
        ("maxNewlyDenied", gates.max_newly_denied, total.newly_denied, total.reviews, newly),
        ("maxNewlyDeniedOwners", gates.max_newly_denied_owners, len(newly), total.reviews, newly),
        ("maxDenied", gates.max_denied, total.denied, total.reviews, denied),
        ("maxDeniedOwners", gates.max_denied_owners, len(denied), total.reviews, denied),
        ("maxDifferences", gates.max_differences, total.differences, total.compared, None),
        ("maxFailures", gates.max_failures, total.failures, total.reviews, None),
        ("maxExceptionUses", gates.max_exception_uses, total.exception_uses, total.reviews, None),
    )
    for name, most, number, seen, owners in limits:
        if most is not None:
            value = "fail" if number > most else "pass" if seen else "unknown"
            who = f", {_owners(owners)}" if owners else ""
            yield GateResult(name, value, f"{number}{who}, expected at most {most}")
    shares = (
        (
            "maxNewlyDeniedPercent",
            gates.max_newly_denied_percent,
            total.newly_denied,
            total.reviews - total.enforced,
        ),
        ("maxDeniedPercent", gates.max_denied_percent, total.denied, total.enforced),
    )
    for name, share, number, seen in shares:
        if share is not None:
            # Of few reviews it would be a matter of chance.
            is_known = seen >= max(gates.min_reviews, 1)
            value = "unknown" if not is_known else "fail" if number * 100 > share * seen else "pass"
            yield GateResult(name, value, f"{number} of {seen} reviews, expected at most {share:g} percent")
    if gates.max_p99_ms is not None:
        found = p99_ms(total.latencies)
        value = "unknown" if found is None else "fail" if found >= gates.max_p99_ms else "pass"
        text = "too few calls" if found is None else f"more than {found} ms"
        yield GateResult("maxP99Milliseconds", value, f"{text}, expected at most {gates.max_p99_ms} ms")


def _without_part(result: GateResult) -> GateResult:
    """Return *result* if part of the evidence is not there: what has been counted can only be more."""
    is_a_rate = result.name in _RATES
    if result.value == "pass" or (is_a_rate and result.value == "fail"):
        return replace(result, value="unknown")
    return result


def _owners(owners: Seen) -> str:
    return f"such as {_listed(sorted(owners.items))}"


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _time(seconds: float) -> str:
    return format_duration(round(seconds))
