"""The results of the matchConditions and policies of one review, and the tasks that they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.core.conditions import (
    BRIEF_STEPS,
    AccessCheck,
    AccessDecision,
    BackendAnswer,
    BackendGet,
    FoundParam,
    NotMatched,
    ParamLookup,
    PolicyResult,
    Unresolved,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.core.conditions import (
        ConditionInput,
        ConditionResult,
        ConditionTask,
        Evaluated,
        MatchConditions,
        PolicyAnswer,
        TaskResult,
    )
    from gateway.pure.core.policy import AdmissionPolicy, PolicyInput

_OF_POLICIES: Final = (PolicyResult, NotMatched)


class ConditionState:
    """The results by the index of the webhook or policy, and the tasks to be completed for them.

    Conditions and policies are evaluated once for each state of the object.
    """

    __slots__ = (
        "_answers",
        "_brief_steps",
        "_decisions",
        "_known_tasks",
        "_new_tasks",
        "_params",
        "_results",
    )

    def __init__(self) -> None:
        self._results: dict[int, Evaluated] = {}
        self._decisions: dict[AccessCheck, AccessDecision] = {}
        self._params: dict[ParamLookup, FoundParam] = {}
        self._answers: dict[BackendGet, BackendAnswer | None] = {}
        self._known_tasks: set[ConditionTask] = set()
        self._new_tasks: list[ConditionTask] = []
        self._brief_steps: float = BRIEF_STEPS

    @property
    def has_tasks(self) -> bool:
        """Whether there are new tasks since they were last taken."""
        return bool(self._new_tasks)

    def evaluate(
        self, index: int, conditions: MatchConditions, condition_input: ConditionInput
    ) -> ConditionResult:
        """Return the result of *conditions* for *condition_input*, or None if all are true."""
        if index not in self._results:
            condition_input.brief_steps = min(self._brief_steps, condition_input.brief_steps)
            self._set(index, conditions.evaluate(condition_input, self._decisions))
            self._brief_steps = condition_input.brief_steps
        result = self._results[index]
        assert not isinstance(result, _OF_POLICIES), "the index is that of a policy"
        return result

    def evaluate_policy(self, index: int, policy: AdmissionPolicy, policy_input: PolicyInput) -> PolicyAnswer:
        """Return the result of *policy* for *policy_input*, with the current object."""
        if index not in self._results:
            conditions = policy_input.conditions
            policy_input.found_params = self._params
            policy_input.answers = self._answers
            conditions.brief_steps = min(self._brief_steps, conditions.brief_steps)
            self._set(index, policy.evaluate(policy_input, self._decisions))
            self._brief_steps = conditions.brief_steps
        result = self._results[index]
        assert result is not None, "the index is that of a webhook"
        return result

    def take_tasks(self) -> Sequence[ConditionTask]:
        """Return the tasks that are new since the last call; no task is returned twice."""
        tasks, self._new_tasks = self._new_tasks, []
        return tasks

    def complete(self, task: ConditionTask, result: TaskResult) -> Sequence[int]:
        """Note the result of *task*, and return the indices of the webhooks and policies that are unresolved.

        A decision of the authorizer holds for the rest of the review, as a parameter and an answer do.
        """
        if isinstance(task, AccessCheck):
            assert isinstance(result, AccessDecision)
            self._decisions[task] = result
        elif isinstance(task, ParamLookup):
            assert isinstance(result, FoundParam)
            self._params[task] = result
        elif isinstance(task, BackendGet):
            assert isinstance(result, BackendAnswer)
            self._answers[task] = result
        unresolved = {index: found for index, found in self._results.items() if isinstance(found, Unresolved)}
        for index, found in unresolved.items():
            if found.evaluation is task:
                assert not isinstance(result, AccessDecision | FoundParam | BackendAnswer)
                self._set(index, result)
            elif found.evaluation is None:
                del self._results[index]
        return list(unresolved)

    def clear(self) -> None:
        """Drop the results: the object has changed."""
        self._results.clear()

    def _set(self, index: int, result: Evaluated) -> None:
        self._results[index] = result
        if isinstance(result, Unresolved):
            tasks: tuple[ConditionTask, ...] = (*result.checks, *result.lookups, *result.gets)
            if result.evaluation is not None:
                tasks = (*tasks, result.evaluation)
            self._new_tasks += [task for task in tasks if task not in self._known_tasks]
            self._known_tasks.update(tasks)
