"""What the rollout plans of a configuration would have done while reviews were recorded.

All reviews run through the configuration once, with every webhook that has a plan in the mode Audit: what it
would refuse is known then, and nothing depends on the stage. Afterwards each plan goes through the recorded
time in steps of a minute, as one gateway that looks at it without a pause. Requests that were dry runs are no
evidence. Latencies, and candidates, are not judged: they would be those of the replay.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gateway.base.text import rfc3339, seconds_of
from gateway.pure.core.matching import Selection
from gateway.pure.core.modes import modes_of
from gateway.pure.core.verdict import Failed
from gateway.pure.core.webhook import Rollout
from gateway.pure.rollout_plan.decide import decide, judge
from gateway.pure.rollout_plan.evidence import Evidence, Tally, owner_of
from gateway.pure.rollout_plan.model import at_step, plan_of
from gateway.pure.rollout_plan.state import started

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gateway.config.merge.model import Config
    from gateway.engine.dry_run import DryRun
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.webhook import Webhook, WebhookId
    from gateway.pure.rollout_plan.model import Plan
    from gateway.pure.rollout_plan.state import Decision, PlanState
    from gateway.tools.replay.cases import Case
    from gateway.tools.replay.results import Result

    Json = dict[str, Any]

TICK_S: Final = 60
MAX_SEEN: Final = 1_000_000
"""Answers of webhooks that are kept: some 300 MB."""
MAX_TICKS: Final = 366 * 24 * 60
"""A year of minutes."""
TOO_MANY: Final = f"more than {MAX_SEEN} answers: only the first ones are judged"
NO_TIME: Final = "the time of the review is not known"
TOO_LATE: Final = "later than 366 days after the first one: not judged; is a time in the recordings wrong?"
_SOURCE: Final = "recordings"


@dataclass(frozen=True, slots=True)
class _Seen:
    """One answer of a webhook."""

    time_s: float
    number: int
    namespace: str
    user: str
    owner: str
    refuses: bool
    is_failure: bool
    is_excepted: bool
    enforced: int
    """The stages, as bits, in which it would have been enforced."""


class PlanResults:
    """Collects the answers of webhooks that have a plan. The ``Results`` of a replay."""

    def __init__(self, config: Config) -> None:
        """*config* has the plans; raises nothing if it has none."""
        self.notes: Counter[str] = Counter()
        self.stopped = ""
        self.reviews = 0
        self._hooks = {one.plan_id: one for one in config.webhooks if one.plan is not None}
        self._stages = {id_: tuple(_by_stage(hook)) for id_, hook in self._hooks.items()}
        self._with_shares = {id_ for id_, hook in self._hooks.items() if _has_shares(hook)}
        """Those of which it counts where they are enforced, also if they refuse nothing."""
        self._seen: dict[WebhookId, list[_Seen]] = {id_: [] for id_ in self._hooks}
        self._number = 0
        self._times: list[float] = []

    @property
    def has_plans(self) -> bool:
        """Whether there is any plan."""
        return bool(self._hooks)

    def add(self, _case: Case, _before: Result, _after: Result) -> None:
        """Count a review; its answers were noted when it was made."""
        self.reviews += 1

    def note(self, case: Case, run: DryRun, namespace: Namespace | None) -> None:
        """Keep the answers of *run*, which is of *case*."""
        time_s = _seconds(case.time)
        if time_s is None:
            self.notes[NO_TIME] += 1
            return
        self._times = [min([time_s, *self._times]), max([time_s, *self._times])]
        if case.request.get("dryRun") is True:
            return
        for answer in run.answers:
            evaluation = answer.evaluation
            seen: dict[WebhookId, list[Any]] = {}
            for outcome in evaluation.outcomes:
                seen.setdefault(outcome.invocation.webhook.plan_id, []).append(outcome)
            for id_, outcomes in seen.items():
                refuses = any(one.would_reject for one in outcomes)
                is_failure = any(type(one.verdict) is Failed for one in outcomes)
                self._keep(id_, case, evaluation.request, namespace, time_s, (refuses, is_failure, False))
            for exemption in evaluation.exemptions:
                id_ = exemption.invocation.webhook.plan_id
                self._keep(id_, case, evaluation.request, namespace, time_s, (False, False, True))

    def _keep(
        self,
        id_: WebhookId,
        case: Case,
        request: Any,  # noqa: ANN401 - an AdmissionRequest
        namespace: Namespace | None,
        time_s: float,
        flags: tuple[bool, bool, bool],
    ) -> None:
        if id_ not in self._hooks:
            return
        if self._number >= MAX_SEEN:
            self.notes[TOO_MANY] += 1
            return
        self._number += 1
        enforced = 0
        if flags[0] or id_ in self._with_shares:
            for step, selection in enumerate(self._stages[id_]):
                enforced |= (not modes_of(selection, request, namespace, time_s)) << step
        found = request.object if request.has_object else request.old_object
        owner = owner_of(found, request.kind[2]) if flags[0] else ""
        self._seen[id_].append(
            _Seen(time_s, case.number, request.namespace, request.user, owner, *flags, enforced)
        )

    def document(self) -> Json:
        """Return what each plan would have done, as JSON."""
        plans = [self._simulated(hook) for hook in self._hooks.values()]
        begin, end = self._times or (0.0, 0.0)
        last = begin + MAX_TICKS * TICK_S
        late = {one.number for found in self._seen.values() for one in found if one.time_s > last}
        if late:
            self.notes[TOO_LATE] = len(late)
        return {
            "from": rfc3339(begin) if self._times else "",
            "to": rfc3339(end) if self._times else "",
            "replayed": self.reviews,
            "notes": dict(sorted(self.notes.items())),
            "plans": plans if self._times else [],
        }

    def _simulated(self, hook: Webhook) -> Json:
        plan = plan_of(hook)
        assert plan is not None
        judged, left_out = _without_times(plan)
        seen = sorted(self._seen[hook.plan_id], key=lambda one: (one.time_s, one.number))
        begin, end = self._times or (0.0, 0.0)
        decisions, state, evidence = _run(judged, seen, begin, end)
        return {
            "webhook": _title(hook),
            "answers": len(seen),
            "stages": [str(one) for one in plan.stages],
            "decisions": [
                {"time": rfc3339(one.time_s), "action": one.action, "stage": one.step + 1, "why": one.why}
                for one in decisions
            ],
            "phase": state.phase,
            "stage": state.step + 1,
            "gates": [
                {"name": one.name, "value": one.value, "found": one.found}
                for one in (judge(judged, state, evidence) if state.phase == "Progressing" else ())
            ],
            "notJudged": left_out,
        }


def without_stages(config: Config) -> Config:
    """Return *config* with every webhook that has a plan in the mode Audit."""

    def audited(hooks: Iterable[Webhook]) -> tuple[Webhook, ...]:
        return tuple(
            one if one.plan is None else replace(one, plan=None, rollout=Rollout("Audit")) for one in hooks
        )

    return replace(config, mutating=audited(config.mutating), validating=audited(config.validating))


def as_text(document: Json) -> Iterator[str]:
    """Yield the lines of *document* for people."""
    if not document["plans"]:
        yield "no review with a time was replayed: nothing is known about the plans"
    for plan in document["plans"]:
        stages = plan["stages"]
        yield f"{plan['webhook']}: {plan['answers']} answers, {document['from']} to {document['to']}"
        for one in plan["decisions"]:
            place = f"stage {one['stage']} of {len(stages)}"
            yield f"  {one['time']} {one['action']:<8} {place} ({stages[one['stage'] - 1]}): {one['why']}"
        yield f"  at the end: {plan['phase']} in stage {plan['stage']} of {len(stages)}"
        for gate in plan["gates"]:
            yield f"    {gate['value']:<7} {gate['name']}: {gate['found']}"
        if plan["notJudged"]:
            yield f"  not judged: {', '.join(plan['notJudged'])}"
    for note, number in document["notes"].items():
        yield f"{number} reviews: {note}"


def _by_stage(hook: Webhook) -> Iterator[Selection]:
    plan = plan_of(hook)
    assert plan is not None
    for step in range(len(plan.stages)):
        yield Selection(hook.phase, [replace(at_step(hook, step), plan=None)])


def _title(hook: Webhook) -> str:
    if hook.document:
        return f"{hook.phase} {hook.name}, by {hook.document}"
    return f"{hook.phase} {hook.configuration}/{hook.name}"


def _has_shares(hook: Webhook) -> bool:
    plan = plan_of(hook)
    gates = [] if plan is None else [one.gates for one in plan.stages]
    return any(
        one.max_newly_denied_percent is not None or one.max_denied_percent is not None for one in gates
    )


def _without_times(plan: Plan) -> tuple[Plan, list[str]]:
    """Return *plan* without the gates that a replay cannot judge, and the names of these."""
    gates = [one.gates for one in plan.stages]
    names = {
        "maxP99Milliseconds": any(one.max_p99_ms is not None for one in gates),
        "maxDifferences": any(one.max_differences is not None for one in gates),
        "approval": any(one.needs_approval for one in plan.stages),
    }
    stages = tuple(
        replace(one, gates=replace(one.gates, max_p99_ms=None, max_differences=None), needs_approval=False)
        for one in plan.stages
    )
    return replace(plan, stages=stages), [name for name, is_there in names.items() if is_there]


def _run(
    plan: Plan, seen: list[_Seen], begin: float, end: float
) -> tuple[list[Decision], PlanState, Evidence]:
    """Return the decisions from *begin* to *end*, and the state and evidence at the end."""
    state = started(plan, begin)
    decisions, tally, index, read_at = [state.decisions[-1]], Tally(), 0, begin
    part = tally.part()
    for tick in range(min(int((end - begin) // TICK_S) + 2, MAX_TICKS)):
        now = begin + tick * TICK_S
        before = index
        while index < len(seen) and seen[index].time_s <= now:
            _count(tally, seen[index], state.step)
            index += 1
        if index != before:
            part = tally.part()
        evidence = Evidence(state.evidence_window, {_SOURCE: part})
        found = decide(plan, state, evidence, now, since_s=now - read_at)
        if found is None:
            continue
        if found.revision != state.revision:
            decisions.append(found.decisions[-1])
            tally = Tally()
            part = tally.part()
        state, read_at = found, now
        if state.phase != "Progressing":
            break
    return decisions, state, Evidence(state.evidence_window, {_SOURCE: part})


def _count(tally: Tally, one: _Seen, step: int) -> None:
    if one.is_excepted:
        tally.excepted()
        return
    tally.answered(
        one.namespace,
        one.user,
        is_failure=one.is_failure,
        refuses=one.refuses,
        is_enforced=bool(one.enforced >> step & 1),
        owner=one.owner,
    )


def _seconds(text: str) -> float | None:
    try:
        found = seconds_of(text)
    except ValueError:
        return None
    # The states of plans have no time before 1970.
    return found if found >= 0 else None
