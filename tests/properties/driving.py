"""Runs an Evaluation with calls that end in any order, and checks its invariants at each step."""

from __future__ import annotations

import contextlib
import copy
import itertools
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission_gateway_worker.json_patch.patch import (
    PatchConflict,
    PatchSyntaxError,
    apply_patch,
    parse_patch,
)
from gateway.pure.core.conditions import AccessCheck, LongEvaluation
from gateway.pure.core.decision import decide
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.exemptions import by_webhook
from gateway.pure.core.matching import Selection
from gateway.pure.core.response import encode
from gateway.pure.core.review import decode
from gateway.pure.core.verdict import Allowed, Failed, FailureReason
from tests.core.build import known
from tests.properties.strategies import DECISIONS, NAMESPACES, Case

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.pure.core.annotations import AuditLevel
    from gateway.pure.core.call import Call
    from gateway.pure.core.conditions import ConditionTask, TaskResult
    from gateway.pure.core.review import AdmissionRequest, Json
    from gateway.pure.core.speculation import ChangeRates
    from gateway.pure.core.verdict import Verdict

NONE: Final[Mapping[Call, Call]] = MappingProxyType({})
NO_ROOM = Failed(FailureReason.STATUS, "RESOURCE_EXHAUSTED: no room", 429)


@dataclass
class Trace:
    """One evaluation from its start to its end."""

    request: AdmissionRequest
    evaluation: Evaluation
    made: list[Call] = field(default_factory=list)
    """In the order of the evaluation."""
    out: list[Call] = field(default_factory=list)
    after: dict[Call, Call] = field(default_factory=dict)
    """The calls of chains, each with the call that it follows."""
    tasks: list[ConditionTask] = field(default_factory=list)
    """Open checks of conditions."""
    all_tasks: list[ConditionTask] = field(default_factory=list)
    withdrawn: list[Call] = field(default_factory=list)
    dropped: list[Call] = field(default_factory=list)
    shown: list[Json | None] = field(default_factory=list)
    """The object after each step that changed it."""

    def take(self, calls: Sequence[Call]) -> None:
        """Record a step of the evaluation."""
        assert not (self.evaluation.done and calls), "calls after the end"
        assert len(set(map(id, calls)) - set(map(id, self.made))) == len(calls), "the same call twice"
        self.made += calls
        self.out += calls
        for call in calls:
            if call.after is not None:
                assert call.after in calls, "a chain in two batches"
                assert call.after.payload is call.payload
                self.after[call] = call.after
        has_condition_tasks = self.evaluation.has_condition_tasks
        tasks = self.evaluation.take_condition_tasks()
        assert has_condition_tasks is bool(tasks)
        assert not set(tasks) & set(self.all_tasks), "the same task twice"
        self.tasks += tasks
        self.all_tasks += tasks
        has_withdrawn = self.evaluation.has_withdrawn
        unwanted = self.evaluation.take_withdrawn()
        assert has_withdrawn is bool(unwanted)
        for call in unwanted:
            self.out.remove(call)
            self.withdrawn.append(call)
        current = self.evaluation.final_object
        if not self.shown or self.shown[-1] is not current:
            self.shown.append(current)
        # Open calls are needed: the review is not over, and their object is the current one.
        assert not (self.evaluation.done and self.out), "calls left behind"
        for call in self.out:
            if call.after is None:
                assert call.payload.object is current, "a call about an outdated object"
            else:
                assert self.evaluation.wants(call.after), "a call after an unwanted one"
        for call in unwanted:
            assert self.evaluation.done or call in self.after or call.payload.object is not current, (
                "a required call was withdrawn"
            )

    def answer(self, level: AuditLevel = "Metadata") -> bytes:
        return encode(self.request.api_version, self.request.uid, decide(self.evaluation, level))


def shown(call: Call) -> Json | None:
    """The object as the worker decodes it."""
    held: Json | None = orjson.loads(call.payload.json)["object"]
    return held


def verdict_of(case: Case, call: Call, after: Mapping[Call, Call] = NONE) -> Verdict:
    """The worker's verdict; *after* has the calls that follow others."""
    return case.answer(call.invocation.webhook.name, evaluated(case, call, after))


def evaluated(case: Case, call: Call, after: Mapping[Call, Call]) -> Json | None:
    """The object on which the worker evaluates *call*."""
    if call not in after:
        return shown(call)
    before = after[call]
    held = evaluated(case, before, after)
    verdict = case.answer(before.invocation.webhook.name, held)
    if isinstance(verdict, Allowed) and verdict.patch:
        with contextlib.suppress(PatchSyntaxError, PatchConflict):
            # The API server's checks are not made by a worker.
            patched: Any = apply_patch(copy.deepcopy(held), parse_patch(verdict.patch))
            return patched if isinstance(patched, dict) else held
    return held


def evaluation_of(case: Case, request: AdmissionRequest, memory: ChangeRates | None) -> Evaluation:
    selection = Selection(case.phase, case.webhooks, by_webhook(case.exceptions))
    return Evaluation(selection, request, known(NAMESPACES, request), memory, modes=case.modes)


def begin(case: Case, request: AdmissionRequest, *, remembering: bool = False) -> Trace:
    memory = case.memory(request) if remembering else None
    evaluation = evaluation_of(case, request, memory)
    trace = Trace(request, evaluation)
    trace.take(evaluation.start())
    return trace


def drive(
    case: Case,
    order: Sequence[int],
    *,
    remembering: bool = False,
    chains: Sequence[bool] = (),
    together: bool = False,
) -> Trace:
    """Run *case* to its end; calls end in the given order, or all open calls *together*.

    *chains* are repeated: for each verdict in a chain, whether the worker has evaluated the chain.
    """
    trace = begin(case, decode(orjson.dumps(review_of(case))), remembering=remembering)
    step = 0
    while not trace.evaluation.done:
        has_chains = not chains or chains[step % len(chains)]
        choice = order[step] if step < len(order) else 0
        if together and trace.out:
            end_all(case, trace, choice)
        else:
            end_one(case, trace, choice, has_chains=has_chains)
        step += 1
    for task in trace.tasks:
        assert not trace.evaluation.complete_condition_task(task, result_of(task)), "calls after the end"
    return trace


def result_of(task: ConditionTask) -> TaskResult:
    if isinstance(task, AccessCheck):
        return DECISIONS[task]
    assert isinstance(task, LongEvaluation)
    return task()


def end_one(case: Case, trace: Trace, choice: int, *, has_chains: bool = True) -> None:
    """End the open call or check that *choice* selects; without *has_chains* a call of a chain is dropped."""
    position = choice % (len(trace.out) + len(trace.tasks))
    if position < len(trace.out):
        call = trace.out.pop(position)
        if call in trace.after and not has_chains:
            trace.dropped.append(call)
            trace.take(trace.evaluation.drop(call))
        else:
            trace.take(trace.evaluation.receive(call, verdict_of(case, call, trace.after)))
    else:
        task = trace.tasks.pop(position - len(trace.out))
        trace.take(trace.evaluation.complete_condition_task(task, result_of(task)))


def end_all(case: Case, trace: Trace, first: int) -> None:
    """End all open calls together, the one that *first* selects first."""
    begin = first % len(trace.out)
    calls = trace.out[begin:] + trace.out[:begin]
    trace.out.clear()
    verdicts = [(call, verdict_of(case, call, trace.after)) for call in calls]
    trace.take(trace.evaluation.receive_all(verdicts))


def drive_in_little_room(case: Case, order: Sequence[int], room: int, *, remembering: bool = False) -> Trace:
    """Run *case* with at most *room* open calls; further ones are refused, as by a pool."""
    request = decode(orjson.dumps(review_of(case)))
    memory = case.memory(request) if remembering else None
    evaluation = evaluation_of(case, request, memory)
    trace = Trace(request, evaluation)
    queue = list(evaluation.start())
    tasks: list[ConditionTask] = []
    for step in itertools.count():
        tasks += evaluation.take_condition_tasks()
        for call in evaluation.take_withdrawn():
            if call in trace.out:
                trace.out.remove(call)
        if queue:
            call = queue.pop(0)
            if not evaluation.wants(call):
                continue
            if call.after is not None:
                trace.after[call] = call.after
            if len(trace.out) < room and (call.after is None or call.after in trace.out):
                trace.out.append(call)
            else:
                queue += evaluation.receive_refusal(call, NO_ROOM)
        elif trace.out:
            position = order[step] % len(trace.out) if step < len(order) else 0
            call = trace.out.pop(position)
            queue += evaluation.receive(call, verdict_of(case, call, trace.after))
        elif tasks:
            task = tasks.pop()
            queue += evaluation.complete_condition_task(task, result_of(task))
        else:
            break
    assert evaluation.done
    return trace


def review_of(case: Case) -> Json:
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": case.request}
