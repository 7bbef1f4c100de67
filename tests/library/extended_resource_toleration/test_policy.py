"""Source of the cases: kubernetes plugin/pkg/admission/extendedresourcetoleration admission_test.go, and
pkg/apis/core/helper helpers_test.go for the names.
"""

from __future__ import annotations

from typing import Any

import pytest

from admission_gateway_worker.policies.extended_resource_toleration import is_extended_resource
from admission_gateway_worker.policies.tolerations import added
from tests.library.builtin import changed, of, of_pod
from tests.library.counted import Counted

NAME = "extended-resource-toleration"
EK, DO = "example.com/device-ek", "example.com/device-do"
FOO = {"key": "foo", "operator": "Equal", "value": "bar", "effect": "NoSchedule"}
OTHER = {"key": EK, "operator": "Equal", "value": "foo", "effect": "NoExecute"}
ANY = {"operator": "Exists"}


def requesting(*names: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": dict.fromkeys(names, "1")}}


def toleration(name: str) -> dict[str, str]:
    return {"key": name, "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("containers", "init_containers", "given", "expected"),
    [
        ((), (), (), ()),
        (["cpu"], (), (), ()),
        ((), ["memory"], (), ()),
        ([EK], (), (), [toleration(EK)]),
        ((), [DO], (), [toleration(DO)]),
        (["cpu", EK], (), [FOO], [FOO, toleration(EK)]),
        (["memory", EK], ["cpu", DO], (), [toleration(DO), toleration(EK)]),
        (["cpu", "memory", EK], (), [toleration(EK)], [toleration(EK)]),
        (["cpu", EK], (), [OTHER], [OTHER, toleration(EK)]),
        (["cpu", EK], (), [ANY], [ANY, toleration(EK)]),
        ([EK], (), [{**toleration(EK), "tolerationSeconds": 1}, FOO], [toleration(EK), FOO]),
    ],
)
def test_tolerations_are_added(containers: Any, init_containers: Any, given: Any, expected: Any) -> None:
    spec = {
        "containers": [requesting(each) for each in containers],
        "initContainers": [requesting(each) for each in init_containers],
        **({"tolerations": list(given)} if given else {}),
    }
    assert changed(NAME, of_pod(spec))["spec"].get("tolerations", []) == list(expected)
    assert changed(NAME, of_pod(spec, old={}))["spec"].get("tolerations", []) == list(expected)
    assert changed(NAME, of("foos", "Foo", {"spec": spec}))["spec"] == spec


def test_many_resources_are_compared_a_few_times_each() -> None:
    count = 3000
    wanted = [toleration(Counted(f"a.b/{index}")) for index in range(count)]
    Counted.comparisons = 0
    assert added([FOO, *wanted[: count // 2]], wanted) == [FOO, *wanted]
    assert Counted.comparisons < 100 * count


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", False),
        ("cpu", False),
        ("pod.alpha.kubernetes.io/opaque-int-resource-foo", False),
        ("kubernetes.io/foo", False),
        ("requests.foo/bar", False),
        ("foo/bar", True),
        ("nvidia.com/gpu", True),
        ("Foo/bar", False),
        ("foo/", False),
        ("foo/bar/baz", False),
        ("foo/-bar", False),
        ("foo/" + "b" * 63, True),
        ("foo/" + "b" * 64, False),
        (("a" * 60 + ".") * 4 + "/b", False),
        (".".join(["a" * 60] * 4) + "/b", True),
        (".".join(["a" * 60] * 4) + "aa/b", False),
    ],
)
def test_names_of_extended_resources(name: str, expected: bool) -> None:
    assert is_extended_resource(name) is expected
