"""Source of the cases: kubernetes plugin/pkg/admission/runtimeclass admission_test.go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.library.builtin import changed, of_pod, refusal

if TYPE_CHECKING:
    from tests.library.api_server import ApiServer

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
SMALL = {"cpu": "100m", "memory": "1"}
LARGE = {"cpu": "10", "memory": "10G"}
START = 'pods "123" is forbidden: '
OTHER = f"{START}pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
NONE = f"{START}pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
CONFLICT = (
    f"{START}conflict: runtimeClass.scheduling.nodeSelector[foo] = conflict; pod.spec.nodeSelector[foo] = bar"
)
FOO = {"key": "foo", "operator": "Equal", "value": "bar", "effect": "NoSchedule"}
FIZZ = {"key": "fizz", "operator": "Equal", "value": "buzz", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("of_class", "given", "expected"),
    [
        ({}, {}, {}),
        ({"overhead": {"podFixed": SMALL}}, {}, {"overhead": SMALL}),
        ({"overhead": {"podFixed": SMALL}}, {"overhead": {"cpu": "0.1", "memory": "1"}}, {}),
        ({"overhead": {"podFixed": LARGE}}, {"overhead": SMALL}, OTHER),
        ({"overhead": {"podFixed": SMALL}}, {"overhead": {"cpu": "100m"}}, OTHER),
        ({"overhead": {}}, {}, {}),
        ({"scheduling": None}, {"nodeSelector": {"foo": "bar"}}, {}),
        ({"scheduling": {"nodeSelector": {"foo": "conflict"}}}, {"nodeSelector": {"foo": "bar"}}, CONFLICT),
        ({"scheduling": {"nodeSelector": {"foo": "bar"}}}, {}, {"nodeSelector": {"foo": "bar"}}),
        ({"scheduling": {"nodeSelector": {"foo": "bar"}}}, {"nodeSelector": {"foo": "bar"}}, {}),
        (
            {"scheduling": {"nodeSelector": {"foo": "bar", "fizz": "buzz"}}},
            {"nodeSelector": {"foo": "bar"}},
            {"nodeSelector": {"foo": "bar", "fizz": "buzz"}},
        ),
        ({"scheduling": {"tolerations": [FOO, FIZZ]}}, {"tolerations": [FOO]}, {"tolerations": [FOO, FIZZ]}),
        ({"scheduling": {"tolerations": [FOO]}}, {}, {"tolerations": [FOO]}),
    ],
)
def test_the_fields_of_a_class(api_server: ApiServer, of_class: Any, given: Any, expected: Any) -> None:
    api_server.lists[CLASSES] = [{"metadata": {"name": "foo"}, "handler": "bar", **of_class}]
    spec = {"runtimeClassName": "foo", **given}
    if isinstance(expected, str):
        assert refusal("runtime-class", of_pod(spec)) == expected
    else:
        found = changed("runtime-class", of_pod(spec))["spec"]
        assert found == {**spec, **expected}
        assert refusal("runtime-class-validate", of_pod(found)) == ""
    assert changed("runtime-class", of_pod(spec, old={}))["spec"] == spec


@pytest.mark.parametrize(
    ("of_class", "overhead", "expected"),
    [
        ({}, None, ""),
        ({}, SMALL, NONE),
        ({"overhead": {"podFixed": SMALL}}, SMALL, ""),
        ({"overhead": {"podFixed": SMALL}}, None, OTHER),
        ({"overhead": {"podFixed": SMALL}}, LARGE, OTHER),
        ({"overhead": {"podFixed": {}}}, None, ""),
    ],
)
def test_the_overhead_after_all_changes(
    api_server: ApiServer, of_class: Any, overhead: Any, expected: str
) -> None:
    api_server.lists[CLASSES] = [{"metadata": {"name": "foo"}, **of_class}]
    spec = {"runtimeClassName": "foo", **({} if overhead is None else {"overhead": overhead})}
    assert refusal("runtime-class-validate", of_pod(spec)) == expected
    assert refusal("runtime-class-validate", of_pod(spec, plural="pods/status")) == ""


def test_pods_without_a_class(api_server: ApiServer) -> None:
    assert refusal("runtime-class-validate", of_pod({"overhead": SMALL})) == NONE
    assert changed("runtime-class", of_pod({"overhead": SMALL}))["spec"] == {"overhead": SMALL}
    assert api_server.requests == []


def test_a_class_that_does_not_exist_is_looked_up_twice(api_server: ApiServer) -> None:
    api_server.lists[CLASSES] = []
    for name in ("runtime-class", "runtime-class-validate"):
        assert refusal(name, of_pod({"runtimeClassName": "foo"})) == (
            f'{START}pod rejected: RuntimeClass "foo" not found'
        )
    assert len(api_server.requests) == 4
