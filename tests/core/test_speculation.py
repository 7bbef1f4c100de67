"""The memory of webhooks that change objects."""

from __future__ import annotations

import pytest

from gateway.pure.core import speculation
from gateway.pure.core.speculation import ChangeRates
from tests.core.build import request, resource, webhook

HOOK = webhook()
ASKED = request()


def remembered(*changes: bool) -> ChangeRates:
    memory = ChangeRates()
    for changed in changes:
        memory.note(HOOK, ASKED, changed=changed)
    return memory


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], False),
        ([False] * 20, False),
        ([True], False),
        ([True] * 4, True),
        ([True] * 20, True),
        ([True] * 20 + [False], True),
        ([True] * 20 + [False] * 4, False),
        ([True] * 20 + [False] * 4 + [True] * 4, True),
        ([True, False] * 20, False),
    ],
)
def test_a_few_answers_change_the_memory(changes: list[bool], expected: bool) -> None:
    assert remembered(*changes).usually_changes(HOOK, ASKED) is expected


def test_the_memory_distinguishes_webhooks_and_kinds_of_requests() -> None:
    memory = remembered(*[True] * 9)
    assert memory.usually_changes(HOOK, request(object={}, namespace="other", uid="u-2"))
    assert memory.usually_changes(HOOK, request(resource=resource("/v2/pods")))
    assert not memory.usually_changes(webhook(), ASKED)
    assert not memory.usually_changes(HOOK, request(operation="UPDATE"))
    assert not memory.usually_changes(HOOK, request(resource=resource("/v1/nodes")))
    assert not memory.usually_changes(HOOK, request(resource=resource("apps/v1/pods")))


def test_webhooks_without_changes_take_no_memory() -> None:
    assert not remembered(*[False] * 9)._rates
    assert not remembered(*[True] + [False] * 30)._rates


def test_a_full_memory_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speculation, "_KEPT", 3)
    memory = remembered(*[True] * 9)
    for number in range(2):
        memory.note(HOOK, request(resource=resource(f"/v1/things{number}")), changed=True)
    assert memory.usually_changes(HOOK, ASKED)
    memory.note(HOOK, ASKED, changed=True)
    assert memory.usually_changes(HOOK, ASKED)
    memory.note(HOOK, request(resource=resource("/v1/things2")), changed=True)
    assert not memory.usually_changes(HOOK, ASKED)
    assert len(memory._rates) == 1
