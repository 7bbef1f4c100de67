"""Source of the cases: kubernetes plugin/pkg/admission/alwayspullimages admission_test.go."""

from __future__ import annotations

from typing import Any

import pytest

from admission_gateway_worker import Denied
from tests.library.builtin import changed, of, of_pod, policy, refusal
from tests.library.requests import run

NAME = "always-pull-images"
POLICIES = ("", "Never", "IfNotPresent", "Always")


def container(pull_policy: str, image: str = "image") -> dict[str, str]:
    return {"name": "c", "image": image, **({"imagePullPolicy": pull_policy} if pull_policy else {})}


def spec(*pull_policies: str) -> dict[str, Any]:
    return {
        "initContainers": [container(each) for each in pull_policies],
        "containers": [container(each) for each in pull_policies],
        "volumes": [
            *({"name": "v", "image": {"pullPolicy": each} if each else {}} for each in pull_policies),
            {"name": "other", "emptyDir": {}},
        ],
    }


def test_every_pull_policy_becomes_always() -> None:
    found = changed(NAME, of_pod({**spec(*POLICIES), "ephemeralContainers": [container("Never")]}))
    expected = {**spec(*["Always"] * 4), "ephemeralContainers": [container("Always")]}
    assert found["spec"] == expected


def test_each_other_pull_policy_is_named() -> None:
    paths = (
        "initContainers[{}].imagePullPolicy",
        "containers[{}].imagePullPolicy",
        "volumes[{}].image.pullPolicy",
    )
    lines = [
        f'pods "123" is forbidden: spec.{path.format(index)}: Unsupported value: "{value}": '
        'supported values: "Always"'
        for path in paths
        for index, value in enumerate(POLICIES[:3])
    ]
    with pytest.raises(Denied) as raised:
        run(policy(f"{NAME}-validate"), of_pod(spec(*POLICIES)))
    assert (raised.value.code, raised.value.message) == (500, f"[{', '.join(lines)}]")
    one = refusal(f"{NAME}-validate", of_pod({"containers": [container("Never")]}))
    assert one == lines[4].replace("[1]", "[0]")
    assert refusal(f"{NAME}-validate", of_pod(spec("Always"))) == ""


@pytest.mark.parametrize(
    "asked",
    [
        of("foos", "Foo", {"metadata": {"name": "a"}, "spec": spec("Never")}),
        of_pod(spec("Never"), plural="pods/exec"),
        of_pod(spec("Never"), operation="DELETE"),
        of("pods", "Pod", {"metadata": {}}),
        of_pod({"containers": [container("Never")]}, old={"containers": [container("Always")]}),
        of_pod({"containers": [container("Never")]}, old={"initContainers": [container("Never")]}),
    ],
)
def test_what_is_left_alone(asked: dict[str, Any]) -> None:
    assert changed(NAME, asked) == asked["object"]
    assert refusal(f"{NAME}-validate", asked) == ""


def test_an_update_with_a_new_image() -> None:
    asked = of_pod({"containers": [container("Never", "other")]}, old={"containers": [container("Never")]})
    assert changed(NAME, asked)["spec"] == {"containers": [container("Always", "other")]}
    assert refusal(f"{NAME}-validate", asked)
