"""Source of the cases: kubernetes plugin/pkg/admission/limitranger admission_test.go; pkg/apis/core/v1
defaults_test.go; k8s.io/apimachinery pkg/api/resource quantity_test.go for the notation.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.policies.amounts import ZERO, parse
from admission_gateway_worker.policies.limit_ranger import ANNOTATION, pod_total
from admission_gateway_worker.quantity import compare
from tests.library.builtin import changed, of, of_pod, policy, refusal

NAME = "limit-ranger"
NAMES = {"c": "cpu", "m": "memory", "e": "ephemeral-storage", "s": "storage"}


def amounts(text: str) -> dict[str, str]:
    pairs = (each.split("=") for each in text.split() if text != "-")
    return {NAMES[key]: value for key, value in pairs}


def resources(text: str) -> dict[str, Any]:
    requests, limits = text.split(" / ")
    return {"requests": amounts(requests), "limits": amounts(limits)}


def cases(file: str) -> list[Any]:
    """Return the cases of a file, which has a line for each.

    Its columns: name, number of containers, requests / limits of each, the same of init containers or of the
    pod, ``pod`` or the restartPolicy of the init containers, type of the limits, min, max, ratio.
    """
    return [case(line) for line in Path(__file__).with_name(file).read_text().splitlines()]


def case(line: str) -> Any:
    name, count, each, others, mark, kind, low, high, ratio = line.split(" | ")
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": resources(each)}] * int(count)}
    if mark == "pod":
        spec["resources"] = resources(others)
    elif others != "-":
        restart = {} if mark == "-" else {"restartPolicy": mark}
        spec["initContainers"] = [{"resources": resources(one), **restart} for one in others.split(", ")]
    limit = {
        "type": kind,
        "min": amounts(low),
        "max": amounts(high),
        "maxLimitRequestRatio": amounts(ratio),
    }
    return pytest.param(spec, {"limits": [limit]}, id=name)


def check(spec: dict[str, Any], *limits: dict[str, Any], **others: Any) -> str:
    found = refusal(f"{NAME}-validate", of_pod(spec, **others), {"limits": list(limits)})
    return found.removeprefix('pods "123" is forbidden: ')


@pytest.mark.parametrize(("spec", "parameters"), cases("allowed.txt"))
def test_within_the_limits(spec: dict[str, Any], parameters: dict[str, Any]) -> None:
    assert refusal(f"{NAME}-validate", of_pod(spec), parameters) == ""


@pytest.mark.parametrize(("spec", "parameters"), cases("denied.txt"))
def test_outside_of_the_limits(spec: dict[str, Any], parameters: dict[str, Any]) -> None:
    assert refusal(f"{NAME}-validate", of_pod(spec), parameters)
    assert refusal(f"{NAME}-validate", of_pod(spec, old={}, plural="pods/resize"), parameters)
    assert refusal(f"{NAME}-validate", of_pod(spec, old={}), parameters) == ""
    assert refusal(f"{NAME}-validate", of_pod(spec, plural="pods/status"), parameters) == ""
    deleted = of("pods/resize", "Pod", {"spec": spec}, {"metadata": {"deletionTimestamp": "now"}})
    assert refusal(f"{NAME}-validate", deleted, parameters) == ""


NO_REQUEST = (
    "[minimum cpu usage per Container is 100m.  No request is specified, "
    "maximum cpu usage per Container is 1.  No limit is specified, "
    "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0]"
)
NO_LIMIT = (
    "[maximum cpu usage per Container is 1.  No limit is specified, "
    "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0]"
)
CPU = {"type": "Container", "min": {"cpu": "0.1"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": 2}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("- / -", NO_REQUEST),
        ("c=100m / -", NO_LIMIT),
        ("c=50m / c=50m", "minimum cpu usage per Container is 100m, but request is 50m"),
        ("c=100m / c=50m", "minimum cpu usage per Container is 100m, but limit is 50m"),
        ("c=1 / c=2", "maximum cpu usage per Container is 1, but limit is 2"),
        ("c=2 / c=1", "maximum cpu usage per Container is 1, but request is 2"),
        ("c=300m / c=1", "cpu max limit to request ratio per Container is 2, but provided ratio is 3.333333"),
        ("c=500m / c=1", ""),
    ],
)
def test_texts(given: str, expected: str) -> None:
    assert check({"containers": [{"name": "c", "resources": resources(given)}]}, CPU) == expected


def test_equal_problems_are_named_once() -> None:
    container = {"name": "c", "resources": resources("c=50m / c=50m")}
    expected = "minimum cpu usage per Container is 100m, but request is 50m"
    spec = {"containers": [container], "initContainers": [container]}
    assert check(spec, {"type": "Container", "min": {"cpu": "100m"}}) == expected


def test_values_that_thousandths_cannot_hold() -> None:
    spec = {"containers": [{"resources": resources("m=9223372036854776 / -")}]}
    assert check(spec, {"type": "Container", "min": {"memory": "9223372036854775.5"}}) == ""
    spec = {"containers": [{"resources": resources("m=1 / -")}]}
    assert check(spec, {"type": "Container", "min": {"memory": "1.5"}})


def test_sums_are_written_in_the_notation_of_the_first() -> None:
    pod = {"type": "Pod", "max": {"memory": "1Gi"}}
    spec = {"containers": [{"resources": resources(f"- / m={each}")} for each in ("1Gi", "512Mi")]}
    assert check(spec, pod) == "maximum memory usage per Pod is 1Gi, but limit is 1536Mi"
    spec = {"containers": [{"resources": resources(f"- / m={each}")} for each in ("0", "1G", "512M")]}
    assert check(spec, pod) == "maximum memory usage per Pod is 1Gi, but limit is 1512M"


def test_the_total_of_a_pod_with_sidecars() -> None:
    def of_cpu(value: str, **others: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": value}}, **others}

    sidecar = of_cpu("3", restartPolicy="Always")
    spec = {"initContainers": [sidecar, of_cpu("5")], "containers": [of_cpu("1"), of_cpu("1")]}
    assert str(pod_total(spec, "requests")["cpu"]) == "8"
    spec = {"initContainers": [of_cpu("5"), sidecar, sidecar], "containers": [of_cpu("1"), of_cpu("1")]}
    assert str(pod_total(spec, "requests")["cpu"]) == "8"
    assert str(pod_total({**spec, **of_cpu("4")}, "requests")["cpu"]) == "4"
    assert str(pod_total({**spec, "resources": {"requests": {"x": "4"}}}, "requests")["cpu"]) == "8"


LIMITS = {
    "type": "Container",
    "max": {"cpu": "100m", "memory": "2Gi"},
    "min": {"cpu": "25m", "memory": "1Mi"},
    "default": {"cpu": "75m", "memory": "10Mi"},
    "defaultRequest": {"cpu": "50m", "memory": "5Mi"},
}


def test_defaults_of_containers() -> None:
    def container(given: str) -> dict[str, Any]:
        return {"name": "foo-0", **({"resources": resources(given)} if given else {})}

    spec = {"containers": [container("")], "initContainers": [container("- / m=512Mi")]}
    found = changed(NAME, of_pod(spec), {"limits": [LIMITS]})
    assert found["spec"] == {
        "containers": [container("c=50m m=5Mi / c=75m m=10Mi")],
        "initContainers": [container("c=50m m=5Mi / c=75m m=512Mi")],
    }
    assert found["metadata"]["annotations"][ANNOTATION] == (
        "LimitRanger plugin set: cpu, memory request for container foo-0; cpu, memory limit for container "
        "foo-0; cpu, memory request for init container foo-0; cpu limit for init container foo-0"
    )
    given = {"containers": [container("c=50m m=5Mi / c=75m m=10Mi")]}
    untouched = changed(NAME, of_pod(given), {"limits": [LIMITS]})
    assert untouched == {"metadata": {"name": "123"}, "spec": given}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max": {"cpu": "2000m"}}, "c=2 / c=2"),
        ({"default": {"cpu": 0.5}}, "c=500m / c=500m"),
        ({"min": {"cpu": "1"}}, "c=1 / -"),
        ({"min": {"cpu": "1"}, "max": {"cpu": "3"}, "default": {"cpu": "2"}}, "c=2 / c=2"),
        ({"min": {"cpu": "1"}, "max": {"cpu": "3"}, "defaultRequest": {"cpu": "2"}}, "c=2 / c=3"),
    ],
)
def test_defaults_that_follow_from_others(given: dict[str, Any], expected: str) -> None:
    parameters = {"limits": [{"type": "Container", **given}]}
    (found,) = changed(NAME, of_pod({"containers": [{"name": "c"}]}), parameters)["spec"]["containers"]
    assert found["resources"] == {key: value for key, value in resources(expected).items() if value}
    without = {key: value for key, value in given.items() if not key.startswith("default")}
    parameters = {"limits": [{"type": "Pod", **without}]}
    assert changed(NAME, of_pod({"containers": [{}]}), parameters)["spec"] == {"containers": [{}]}


@pytest.mark.parametrize(
    ("requested", "low", "high", "expected"),
    [
        ("s=1Gi", "s=1Gi", "-", ""),
        ("s=1Gi", "-", "s=1Gi", ""),
        ("s=5Gi", "s=1Gi", "s=10Gi", ""),
        ("s=500Mi", "s=1Gi", "-", "minimum storage usage per {} is 1Gi, but request is 500Mi"),
        ("s=100Gi", "s=1Gi", "s=1Gi", "maximum storage usage per {} is 1Gi, but request is 100Gi"),
        ("-", "s=1Gi", "-", "minimum storage usage per {} is 1Gi.  No request is specified"),
        ("-", "-", "s=1Gi", "maximum storage usage per {} is 1Gi.  No request is specified"),
    ],
)
def test_claims(requested: str, low: str, high: str, expected: str) -> None:
    kind = "PersistentVolumeClaim"
    claim = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": amounts(requested)}}}
    parameters = {"limits": [{"type": kind, "min": amounts(low), "max": amounts(high)}]}
    start = 'persistentvolumeclaims "data" is forbidden: '
    for old in (None, claim):
        asked = of("persistentvolumeclaims", kind, claim, old)
        found = refusal(f"{NAME}-validate", asked, parameters)
        assert found == (start + expected.format(kind) if expected else "")
        assert changed(NAME, asked, parameters) == claim


@pytest.mark.parametrize(
    ("kind", "entry", "problem"),
    [
        ("Pod", {"default": {"cpu": 1}}, "default: the type Pod has none"),
        ("Pod", {"defaultRequest": {"cpu": 1}}, "defaultRequest: the type Pod has none"),
        ("Pod", {"max": {"mem": 1}}, "max[mem]: containers have no such resource"),
        ("PersistentVolumeClaim", {"max": {"cpu": 1}}, "min: storage is missing in min and max"),
        ("Pod", {"min": {"cpu": 2}, "max": {"cpu": 1}}, "min[cpu]: 2 is more than max, which is 1"),
        ("Container", {"min": {"cpu": 2}, "max": {"cpu": 1}}, "min[cpu]: 2 is more than max, which is 1"),
        (
            "Container",
            {"default": {"cpu": 1}, "defaultRequest": {"cpu": 2}},
            "defaultRequest[cpu]: 2 is more than default, which is 1",
        ),
        (
            "Container",
            {"min": {"cpu": 2}, "defaultRequest": {"cpu": 1}},
            "min[cpu]: 2 is more than defaultRequest, which is 1",
        ),
        (
            "Container",
            {"defaultRequest": {"cpu": 2}, "max": {"cpu": 1}},
            "defaultRequest[cpu]: 2 is more than max, which is 1",
        ),
        (
            "Container",
            {"default": {"cpu": 2}, "defaultRequest": {"cpu": 1}, "max": {"cpu": 1}},
            "default[cpu]: 2 is more than max, which is 1",
        ),
        (
            "Container",
            {"min": {"memory": "1Gi"}, "default": {"memory": "1Mi"}, "defaultRequest": {"memory": "1Gi"}},
            "min[memory]: 1Gi is more than default, which is 1Mi",
        ),
        (
            "Container",
            {"default": {"a.b/gpu": 2}, "defaultRequest": {"a.b/gpu": 1}},
            "defaultRequest[a.b/gpu]: found 1, expected 2, which is default",
        ),
        ("Pod", {"maxLimitRequestRatio": {"cpu": "500m"}}, "maxLimitRequestRatio[cpu]: 500m is less than 1"),
        (
            "Pod",
            {"min": {"cpu": 1}, "max": {"cpu": 2}, "maxLimitRequestRatio": {"cpu": 3}},
            "maxLimitRequestRatio[cpu]: 3 is more than max / min, which is 2 / 1",
        ),
    ],
)
def test_what_a_limit_range_cannot_be(kind: str, entry: dict[str, Any], problem: str) -> None:
    limits = [{"type": "Pod" if kind == "Container" else "Container"}, {"type": kind, **entry}]
    with pytest.raises(ValueError, match=f"^{re.escape(f'limits[1].{problem}')}$"):
        policy(NAME).prepare({"limits": limits})


def test_each_type_has_one_entry() -> None:
    with pytest.raises(ValueError, match=r"^limits\[1\].type: Pod is the type of another entry, too$"):
        policy(NAME).prepare({"limits": [{"type": "Pod"}] * 2})


def test_the_total_of_many_init_containers_after_sidecars() -> None:
    count = 2000
    names = [f"example.com/{index}" for index in range(count)]
    spec: dict[str, Any] = {
        "initContainers": [
            {"restartPolicy": "Always", "resources": {"requests": dict.fromkeys(names, "2")}},
            *({"resources": {"requests": {name: "3"}}} for name in names),
        ]
    }
    assert pod_total(spec, "requests") == dict.fromkeys(names, parse("5"))


NOTATIONS = """
0=0 0Gi=0 1=1 1000=1k 1024=1024 1024Mi=1Gi 0.5Gi=512Mi 1.5Gi=1536Mi 1000Ki=1000Ki 0.5=500m 1.5=1500m
2500m=2500m 1e3=1e3 1E3=1e3 1E=1E 1.1E3=1100 12e2=1200 0.001=1m 1n=1n 512=512 512Ki=512Ki 0.25Ki=256
1.00001Ki=1024010240u -1Gi=-1Gi 1Ei=1Ei 1000000=1M 100k=100k 1024Ei=9223372036854775807
"""


@pytest.mark.parametrize(("written", "expected"), [each.split("=") for each in NOTATIONS.split()])
def test_the_notation_of_amounts(written: str, expected: str) -> None:
    assert str(parse(written)) == expected


@given(st.integers(-(2**62), 2**62), st.sampled_from(("", "m", "u", "n", "k", "M", "Ki", "Mi", "e3", "e-3")))
def test_what_is_written_is_read_as_the_same_amount(number: int, suffix: str) -> None:
    amount = parse(f"{number}{suffix}")
    again = parse(str(amount))
    assert compare(again.quantity, amount.quantity) == 0
    assert str(again) == str(amount)
    assert (amount + ZERO).quantity == amount.quantity
    assert amount.value == -(-amount.milli_value // 1000)
