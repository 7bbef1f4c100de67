"""Source of the cases: kubernetes plugin/pkg/admission/priority admission_test.go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from admission_gateway_worker import Denied
from admission_gateway_worker.policies.priority import set_priority
from tests.library.builtin import changed, of, of_pod, policy, refusal

if TYPE_CHECKING:
    from tests.library.api_server import ApiServer

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PROVIDED = "must not be provided in pod spec; priority admission controller computed"
GIVEN = "from the given PriorityClass name"
LOWER, NEVER = "PreemptLowerPriority", "Never"


def named(name: str, value: int, policy: str | None = None, *, default: bool = False) -> dict[str, Any]:
    found = {"metadata": {"name": name}, "value": value, "globalDefault": default}
    return found if policy is None else {**found, "preemptionPolicy": policy}


DEFAULT1, DEFAULT2 = named("default1", 1000, default=True), named("default2", 2000, default=True)
OTHER, NO_PREEMPTION = named("nondefault1", 2000, LOWER), named("never", 3000, NEVER)
CRITICAL = named("system-cluster-critical", 2000000000)


@pytest.mark.parametrize(
    ("classes", "given", "expected"),
    [
        ([DEFAULT1, OTHER], {}, {"priorityClassName": "default1", "priority": 1000}),
        ([DEFAULT2, DEFAULT1], {}, {"priorityClassName": "default1", "priority": 1000}),
        ([OTHER], {}, {"priority": 0, "preemptionPolicy": LOWER}),
        ([], {}, {"priority": 0, "preemptionPolicy": LOWER}),
        (
            [DEFAULT1, OTHER],
            {"priorityClassName": "nondefault1"},
            {"priority": 2000, "preemptionPolicy": LOWER},
        ),
        ([CRITICAL], {"priorityClassName": "system-cluster-critical"}, {"priority": 2000000000}),
        ([NO_PREEMPTION], {"priorityClassName": "never"}, {"priority": 3000, "preemptionPolicy": NEVER}),
        ([OTHER], {"priorityClassName": "nondefault1", "priority": 2000}, {"preemptionPolicy": LOWER}),
    ],
)
def test_priorities(api_server: ApiServer, classes: Any, given: Any, expected: Any) -> None:
    api_server.lists[CLASSES] = classes
    assert changed("priority", of_pod(given))["spec"] == {**given, **expected}
    assert changed("priority", of_pod(given, plural="pods/status"))["spec"] == given


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        (
            {"priorityClassName": "never", "priority": 1},
            f"the integer value of priority (1) {PROVIDED} 3000 {GIVEN}",
        ),
        (
            {"priorityClassName": "never", "preemptionPolicy": LOWER},
            f"the string value of PreemptionPolicy ({LOWER}) {PROVIDED} Never {GIVEN}",
        ),
    ],
)
def test_refusals(api_server: ApiServer, given: dict[str, Any], problem: str) -> None:
    api_server.lists[CLASSES] = [NO_PREEMPTION]
    assert refusal("priority", of_pod(given)) == f'pods "123" is forbidden: {problem}'


def test_an_update_keeps_priority_and_policy(api_server: ApiServer) -> None:
    old = {"priority": 5, "preemptionPolicy": NEVER}
    assert changed("priority", of_pod({}, old=old))["spec"] == old
    assert changed("priority", of_pod({"priority": 0}, old=old))["spec"] == {**old, "priority": 0}
    assert changed("priority", of_pod({}, old={}))["spec"] == {}
    assert api_server.requests == []


def test_a_new_class_counts_at_once(api_server: ApiServer) -> None:
    async def outcomes() -> list[str]:
        found = []
        for classes in ([], [OTHER]):
            api_server.lists[CLASSES] = classes
            review = policy("priority").review(of_pod({"priorityClassName": "nondefault1"}))
            try:
                await set_priority(review)
            except Denied as denied:
                found.append(denied.message)
            else:
                found.append(str(review.object["spec"]["priority"]))
        return found

    denied = 'pods "123" is forbidden: no PriorityClass with name nondefault1 was found'
    assert asyncio.run(outcomes()) == [denied, "2000"]


@pytest.mark.parametrize(
    ("classes", "new", "old", "is_denied"),
    [
        ([], DEFAULT1, None, False),
        ([OTHER], DEFAULT1, None, False),
        ([DEFAULT1], DEFAULT2, None, True),
        ([DEFAULT1], OTHER, None, False),
        ([DEFAULT1], DEFAULT1, DEFAULT1, False),
        ([DEFAULT1], DEFAULT2, named("default2", 2000), True),
    ],
)
def test_one_default(api_server: ApiServer, classes: Any, new: Any, old: Any, is_denied: bool) -> None:
    api_server.lists[CLASSES] = classes
    asked = of("priorityclasses", "PriorityClass", new, old, group="scheduling.k8s.io")
    denied = (
        'priorityclasses.scheduling.k8s.io "default2" is forbidden: PriorityClass default1 is already marked '
        "as default. Only one default can exist"
    )
    assert refusal("priority-validate", asked) == (denied if is_denied else "")
