"""What differs between two objects, by field."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.pure.core.conflicts import Writers
from gateway.pure.core.field_changes import (
    ABSENT,
    MAX_CHANGES,
    MAX_COMPARED,
    FieldChange,
    field_changes,
    general_path,
    path_text,
)
from tests.core.build import webhook


def lines(before: object, after: object) -> list[str]:
    return [one.line() for one in field_changes(before, after)]


def pod(**spec: Any) -> dict[str, Any]:
    return {"spec": spec}


APP = {"name": "app", "image": "a:1"}
SIDECAR = {"name": "proxy", "image": "p:1", "args": ["-v"]}


def test_an_element_before_others_moves_none() -> None:
    found = lines(pod(containers=[APP]), pod(containers=[SIDECAR, {**APP, "image": "a:2"}]))
    assert found == [
        'spec.containers[name=app].image: "a:1" becomes "a:2"',
        'spec.containers[name=proxy].args[*]: nothing becomes "-v"',
        'spec.containers[name=proxy].image: nothing becomes "p:1"',
        'spec.containers[name=proxy].name: nothing becomes "proxy"',
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (pod(containers=[APP, SIDECAR]), pod(containers=[SIDECAR, APP])),
        (pod(nodeSelector={}), pod()),
        (pod(nodeSelector=None, tolerations=[]), pod()),
        (pod(volumes=[{"name": "v", "configMap": {"name": "c", "optional": None}}]),) * 2,
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, {"limits": {"cpu": "1000m", "memory": "1024Mi"}}),
        ({"emptyDir": {"sizeLimit": "1000Mi"}}, {"emptyDir": {"sizeLimit": "1048576000"}}),
        ({"requests": {"cpu": 1}}, {"requests": {"cpu": "1"}}),
        (pod(ports=[{"containerPort": 80}]), pod(ports=[{"containerPort": 80}])),
    ],
)
def test_what_means_the_same_does_not_differ(before: object, after: object) -> None:
    assert lines(before, after) == lines(after, before) == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"emptyDir": {}}, {}, "emptyDir: {} becomes nothing"),
        ({"limits": {"cpu": "1"}}, {"limits": {"cpu": "1001m"}}, 'limits.cpu: "1" becomes "1001m"'),
        ({"limits": {"cpu": "x"}}, {"limits": {"cpu": "y"}}, 'limits.cpu: "x" becomes "y"'),
        ({"args": ["a", "b"]}, {"args": ["b", "a"]}, 'args (order): ["a","b"] becomes ["b","a"]'),
        (
            pod(initContainers=[APP, SIDECAR]),
            pod(initContainers=[SIDECAR, APP]),
            'spec.initContainers (order): ["name=app","name=proxy"] becomes ["name=proxy","name=app"]',
        ),
        (
            {"annotations": {"a/b": "1"}},
            {"annotations": {"a/b": "2"}},
            'annotations["a/b"]: "1" becomes "2"',
        ),
        ({"a": 1}, {"a": True}, "a: 1 becomes true"),
        ({"a": {"b": 1}}, {"a": 1}, "a.b: 1 becomes nothing"),
        (
            {"ports": [{"containerPort": 1, "name": "x"}]},
            {"ports": [{"containerPort": 1, "protocol": "TCP", "name": "y"}]},
            'ports[containerPort=1,protocol=TCP].name: "x" becomes "y"',
        ),
        (None, {"a": 1}, "a: nothing becomes 1"),
    ],
)
def test_what_differs_is_named(before: object, after: object, expected: str) -> None:
    assert expected in lines(before, after)


def test_a_general_path_has_no_keys_and_no_path_has_contents() -> None:
    (env,) = field_changes({"env": [{"name": "a", "value": "1"}]}, {"env": [{"name": "a", "value": "2"}]})
    assert (path_text(env.path), general_path(env.path)) == ("env[name=a].value", "env[*].value")
    (argument,) = field_changes({"args": []}, {"args": ["--password=x"]})
    assert "password" not in path_text(argument.path) + argument.line(with_values=False)


def test_the_number_of_changes_is_bounded() -> None:
    many = {str(number): number for number in range(MAX_CHANGES * 2)}
    assert len(field_changes({}, many)) == MAX_CHANGES


def test_deep_values_are_compared_as_a_whole() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = {"a": deep}
    (found,) = field_changes({}, deep)
    assert isinstance(found, FieldChange)
    assert found.before is ABSENT
    assert str(found.line()).startswith("a.a.a.")
    assert "(as a whole)" in found.line()
    assert field_changes(deep, deep) == []


def test_what_is_too_large_is_compared_as_a_whole_and_is_no_conflict() -> None:
    long = [{"key": number} for number in range(MAX_COMPARED)]
    before, after = {"a": 1, "tolerations": long}, {"a": 2, "tolerations": [*long, {"key": -1}]}
    assert [path_text(one.path) for one in field_changes(before, after)] == ["a", "tolerations (as a whole)"]
    writers = Writers(is_secret=False)
    assert writers.note(webhook("a.policies.test"), before, after) == []
    (conflict,) = writers.note(webhook("b.policies.test"), after, before)
    assert path_text(conflict.path) == "a"
