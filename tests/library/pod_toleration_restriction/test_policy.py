"""Source of the cases: kubernetes plugin/pkg/admission/podtolerationrestriction admission_test.go,
pkg/util/tolerations tolerations_test.go, and pkg/apis/core/helper/qos.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker import Denied
from admission_gateway_worker.policies.pod_toleration_restriction import ALLOWED, DEFAULTS, is_best_effort
from admission_gateway_worker.policies.tolerations import are_within, merged
from tests.library.builtin import changed, namespace, of_pod, policy, refusal
from tests.library.counted import Counted
from tests.library.requests import run

NAME = "pod-toleration-restriction"
BURSTABLE = {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}
GUARANTEED = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
PRESSURE = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}
DENIED = "pod tolerations (possibly merged with namespace default tolerations) conflict with its {} whitelist"


def one(value: str = "") -> dict[str, Any]:
    return {"key": "testKey", "operator": "Equal", "value": f"testValue{value}", "effect": "NoSchedule"}


A, B, C = one(), one("1"), one("2")


@pytest.mark.parametrize(
    ("resources", "default", "of_namespace", "allowed", "of_cluster", "given", "expected"),
    [
        ({}, [A], None, None, [], [], [A]),
        ({}, [A], [], None, [], [A], [A]),
        ({}, [], [A], None, [], [A], [A]),
        ({}, [], [A], None, [], [], [A]),
        ({}, [], [A], None, [], [B], [B, A]),
        ({}, [C], [], None, [], [B], [B]),
        ({}, [], [A], [A], [], [], [A]),
        ({}, [A], [], None, [], [], []),
        ({}, [], None, [], [B], [A], [A]),
        ({}, [], [A], [B], [], [], "namespace"),
        ({}, [], None, None, [B], [A], "cluster"),
        (BURSTABLE, [], [A], [], [], [], [A, PRESSURE]),
        ({}, [], [], [], [], [A, B], [A, B]),
        (GUARANTEED, [], [A], [], [], [], [A, PRESSURE]),
    ],
)
def test_defaults_and_allowed_tolerations(
    resources: Any, default: Any, of_namespace: Any, allowed: Any, of_cluster: Any, given: Any, expected: Any
) -> None:
    written = {DEFAULTS: of_namespace, ALLOWED: allowed}
    found = namespace(**{key: json.dumps(each) for key, each in written.items() if each is not None})
    parameters = {"default": default, "whitelist": of_cluster}
    spec = {"containers": [{"name": "c", "resources": resources}], "tolerations": given}
    if isinstance(expected, str):
        with pytest.raises(Denied) as raised:
            run(policy(NAME), of_pod(spec), parameters, namespace_object=found)
        assert (raised.value.code, raised.value.message) == (500, DENIED.format(expected))
    else:
        after = changed(NAME, of_pod(spec), parameters, namespace_object=found)
        assert after["spec"]["tolerations"] == expected
        assert refusal(f"{NAME}-validate", of_pod(after["spec"]), parameters, namespace_object=found) == ""


def test_an_update_gets_no_defaults_and_is_checked() -> None:
    parameters = {"default": [A], "whitelist": [B, PRESSURE]}
    found = namespace()
    spec = {"containers": [{"name": "c", "resources": BURSTABLE}]}
    after = changed(NAME, of_pod(spec, old={}), parameters, namespace_object=found)
    assert after["spec"]["tolerations"] == [PRESSURE]
    assert changed(NAME, of_pod({}, old={}), parameters, namespace_object=found)["spec"] == {}
    asked = of_pod({"tolerations": [A]}, old={})
    for name in (NAME, f"{NAME}-validate"):
        assert refusal(name, asked, parameters, namespace_object=found) == DENIED.format("cluster")
    asked = of_pod({"tolerations": [A]}, plural="pods/status")
    assert refusal(f"{NAME}-validate", asked, parameters) == ""


def test_an_annotation_is_read_as_go_reads_it() -> None:
    text = '[{"KEY": "k", "Operator": "Exists", "other": 1, "effect": null}, null]'
    found = namespace(**{DEFAULTS: text})
    after = changed(NAME, of_pod({}), namespace_object=found)
    assert after["spec"]["tolerations"] == [{"key": "k", "operator": "Exists"}, {}]
    assert changed(NAME, of_pod({}), {"default": [A]}, namespace_object=namespace(**{DEFAULTS: ""}))
    found = namespace(**{ALLOWED: "null"})
    assert refusal(NAME, of_pod({"tolerations": [A]}), {"whitelist": [B]}, namespace_object=found) == ""


@pytest.mark.parametrize("annotation", [DEFAULTS, ALLOWED])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x", "unexpected character"),
        ("{}x", "unexpected content after document"),
        ('"a"', 'found "a", expected a list'),
        ('""', 'found "", expected a list'),
        ("{}", "found {}, expected a list"),
        ("false", "found false, expected a list"),
        ("0", "found 0, expected a list"),
        ("[1]", "[0]: found 1, expected an object"),
        ('[{}, "a"]', '[1]: found "a", expected an object'),
        ('[{"key": 5}]', "[0].key: found 5, expected a string"),
        ('[{"Operator": true}]', "[0].operator: found true, expected a string"),
        *(
            (
                f'[{{"tolerationSeconds": {value}}}]',
                f"[0].tolerationSeconds: found {value}, expected a whole number of 64 bits",
            )
            for value in ('"30"', "1.5", "true", "9223372036854775808")
        ),
    ],
)
def test_an_annotation_of_another_type_is_refused(annotation: str, text: str, problem: str) -> None:
    found = namespace(**{annotation: text})
    with pytest.raises(Denied) as raised:
        run(policy(NAME), of_pod({"tolerations": [A]}), namespace_object=found)
    start = f'annotation {annotation} of namespace "default" is not a JSON list of tolerations: '
    assert raised.value.message.startswith(start + problem)
    assert raised.value.code == 500


@pytest.mark.parametrize(
    ("toleration", "problem"),
    [
        ({"key": "a b", "operator": "Exists"}, '.key: "a b" is not a label key'),
        ({"operator": "Equal"}, ".operator: it has to be Exists without a key"),
        ({"key": "a", "tolerationSeconds": 1}, ".effect: it has to be NoExecute with tolerationSeconds"),
        (
            {"key": "a", "operator": "Exists", "value": "b"},
            '.value: found "b", expected none with the operator Exists',
        ),
        ({"key": "a", "value": "b c"}, '.value: "b c" is not a label value'),
        ({"key": "a.b/c", "value": "d", "effect": "NoExecute", "tolerationSeconds": 1}, ""),
        ({"operator": "Exists"}, ""),
    ],
)
def test_parameters_are_valid_tolerations(toleration: Any, problem: str) -> None:
    for field in ("default", "whitelist"):
        parameters = {field: [A, toleration]}
        if not problem:
            assert policy(NAME).prepare(parameters) == parameters
            continue
        with pytest.raises(ValueError, match=f"^{re.escape(f'{field}[1]{problem}')}$"):
            policy(f"{NAME}-validate").prepare(parameters)


def t(
    key: str = "", operator: str = "", value: str = "", effect: str = "", seconds: int | None = None
) -> Any:
    return {"key": key, "operator": operator, "value": value, "effect": effect, "tolerationSeconds": seconds}


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        (t(operator="Exists"), t("foo", "Exists"), True),
        (t(operator="Exists"), t("foo", "Equal", "bar", "NoExecute"), True),
        (t("foo", "Exists"), t("foo", "Equal", "bar"), True),
        (t("foo", "Exists"), t("bar", "Equal", "bar"), False),
        (t("foo", "Equal", "bar"), t("foo", "Exists"), False),
        (t("foo", "Equal", "bar"), t("foo", "Equal", "baz"), False),
        (t("foo", "", "bar"), t("foo", "Equal", "bar"), True),
        (t("foo", "Equal", "bar"), t("foo", "", "bar"), False),
        (t("foo", "Exists"), t("foo", "Exists", effect="NoSchedule"), True),
        (t("foo", "Exists", effect="NoSchedule"), t("foo", "Exists"), False),
        (t("foo", "Exists", effect="NoSchedule"), t("foo", "Exists", effect="NoExecute"), False),
        (t("foo", "Exists", "", "NoExecute", 300), t("foo", "Exists", "", "NoExecute"), False),
        (t("foo", "Exists", "", "NoExecute", 300), t("foo", "Exists", "", "NoExecute", 400), False),
        (t("foo", "Exists", "", "NoExecute", 300), t("foo", "Exists", "", "NoExecute", 200), True),
        (t("foo", "Exists", "", "NoExecute"), t("foo", "Exists", "", "NoExecute", 200), True),
        (t("foo", "Lt", "1"), t("foo", "Lt", "0"), False),
        (t("foo", "Lt", "1"), t("foo", "Lt", "1"), True),
    ],
)
def test_which_toleration_includes_another(wide: Any, narrow: Any, expected: bool) -> None:
    assert are_within([narrow], [wide]) is expected
    if expected and wide != narrow:
        assert merged([narrow], [wide]) == merged([wide], [narrow]) == [wide]
    assert merged([narrow], [narrow]) == [narrow]


TOLERATIONS = st.lists(
    st.builds(
        t,
        *(st.sampled_from(texts) for texts in (["", "a", "b"], ["", "Equal", "Exists", "Lt"], ["", "1"])),
        *(st.sampled_from(each) for each in (["", "NoSchedule", "NoExecute"], [None, 0, 1, 2])),
    ),
    max_size=8,
)


@given(TOLERATIONS, TOLERATIONS)
def test_tolerations_are_merged_as_pair_by_pair(first: list[Any], second: list[Any]) -> None:
    every = [*first, *second]
    expected: list[Any] = []
    for index, each in enumerate(every):
        others = [*expected, *(other for other in every[index + 1 :] if other != each)]
        if not any(are_within([each], [other]) for other in others):
            expected.append(each)
    assert merged(first, second) == expected
    assert are_within(first, second) is (
        not second or all(any(are_within([each], [other]) for other in second) for each in first)
    )


def test_many_tolerations_are_compared_a_few_times_each() -> None:
    count = 3000
    many = [t(Counted(f"k{index}"), "Exists") for index in range(count)]
    Counted.comparisons = 0
    assert merged(many, many) == many
    assert are_within(many, many)
    assert Counted.comparisons < 100 * count


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, True),
        ({"containers": [{"name": "a"}]}, True),
        ({"containers": [{"resources": {"requests": {"example.com/gpu": "1"}}}]}, True),
        ({"containers": [{"resources": {"limits": {"memory": "1Mi"}}}]}, False),
        ({"containers": [{}], "initContainers": [{"resources": BURSTABLE}]}, False),
        ({"containers": [{"resources": {"requests": {"cpu": "0"}}}]}, True),
        ({"containers": [{}], "resources": BURSTABLE}, False),
        (
            {"containers": [{"resources": BURSTABLE}], "resources": {"requests": {"hugepages-2Mi": "2Mi"}}},
            True,
        ),
        ({"containers": [{"resources": BURSTABLE}], "resources": {}}, False),
    ],
)
def test_the_quality_of_service(spec: dict[str, Any], expected: bool) -> None:
    assert is_best_effort({"spec": spec}) is expected
    assert is_best_effort({"spec": spec, "status": {"qosClass": "BestEffort"}})
    assert not is_best_effort({"spec": spec, "status": {"qosClass": "Burstable"}})
