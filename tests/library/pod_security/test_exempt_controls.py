"""Exemptions of one control, which upstream does not have."""

from __future__ import annotations

from typing import Any, Final

import fastjsonschema
import pytest

from admission_gateway_worker import Denied
from admission_gateway_worker.policies.pod_security import DEFINITIONS
from admission_gateway_worker.policies.pod_security.parameters import prepare
from admission_gateway_worker.policies.pod_security.pod import Pod
from tests.library.counted import Counted
from tests.library.requests import of_pod, run

(POLICY,) = DEFINITIONS
Json = dict[str, Any]

PORT: Final = [{"hostPort": 80}]
AGENT: Final = {"name": "agent", "image": "registry.test/agent:7", "ports": PORT}
OTHER: Final = {"name": "other", "image": "registry.test/other:7", "ports": PORT}


def outcome(spec: Json, *controls: Json, level: str = "baseline") -> tuple[str, str]:
    """Return the violations of a Pod, and the controls of which it was exempt."""
    parameters = {"defaults": {"enforce": level}, "exemptions": {"controls": list(controls)}}
    fastjsonschema.validate(dict(POLICY.parameters), dict(parameters), use_default=False)
    document = of_pod(spec, resource={"group": "", "version": "v1", "resource": "pods"}, name="web")
    review = POLICY.review(document, parameters, namespace_object={"metadata": {"name": "default"}})
    try:
        POLICY.function(review)
    except Denied as denied:
        return denied.message.partition(f'"{level}:latest": ')[2], review.annotations.get(
            "exempt-controls", ""
        )
    return "", review.annotations.get("exempt-controls", "")


ALL: Final = {"control": "hostPorts"}
BY_IMAGE: Final = {**ALL, "images": ["registry.test/agent:*"]}
BY_NAME: Final = {**ALL, "containers": ["agent"]}
BAD: Final = 'hostPort (container "{}" uses hostPort 80)'


@pytest.mark.parametrize(
    ("containers", "control", "expected"),
    [
        ([AGENT, OTHER], ALL, ("", "hostPorts")),
        ([AGENT], BY_IMAGE, ("", "hostPorts")),
        ([AGENT], BY_NAME, ("", "hostPorts")),
        ([AGENT, OTHER], BY_IMAGE, (BAD.format("other"), "hostPorts")),
        ([AGENT, OTHER], BY_NAME, (BAD.format("other"), "hostPorts")),
        ([OTHER], BY_IMAGE, (BAD.format("other"), "")),
        ([AGENT], {**BY_IMAGE, "containers": ["other"]}, (BAD.format("agent"), "")),
        ([AGENT], {**BY_IMAGE, "namespaces": ["default"]}, ("", "hostPorts")),
        ([AGENT], {**BY_IMAGE, "namespaces": ["logging"]}, (BAD.format("agent"), "")),
        ([AGENT], {**BY_IMAGE, "control": "privileged"}, (BAD.format("agent"), "")),
        ([{"name": "agent", "image": "registry.test/agent:7"}], ALL, ("", "")),
    ],
)
def test_containers_are_exempt_by_image_name_and_namespace(
    containers: list[Json], control: Json, expected: tuple[str, str]
) -> None:
    assert outcome({"containers": containers}, control) == expected


def test_several_exemptions_of_a_control_add_up() -> None:
    spec = {"containers": [AGENT, OTHER]}
    assert outcome(spec, BY_IMAGE, {**ALL, "images": ["*/other:?"]}) == ("", "hostPorts")


def test_fields_of_the_pod_are_exempt_if_all_its_containers_are() -> None:
    paths = {"volumes": [{"name": "log", "hostPath": {"path": "/var/log"}}]}
    control = {"control": "hostPathVolumes", "images": ["registry.test/agent:*"]}
    assert outcome({**paths, "containers": [AGENT]}, BY_IMAGE, control) == ("", "hostPathVolumes, hostPorts")
    bad = 'hostPath volumes (volume "log")'
    assert outcome({**paths, "containers": [AGENT, OTHER]}, ALL, control) == (bad, "hostPorts")
    assert outcome({**paths, "containers": []}, control) == (bad, "")


def test_the_annotation_of_an_exempt_container_does_not_count() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/"
    spec = {"containers": [AGENT, OTHER]}
    document = of_pod(spec, resource={"group": "", "version": "v1", "resource": "pods"}, name="web")
    control = {"control": "appArmorProfile", "containers": ["agent"]}
    parameters = {"defaults": {"warn": "baseline"}, "exemptions": {"controls": [ALL, control]}}
    for names, warnings in ((["agent"], 0), (["agent", "other"], 1)):
        annotations = {key + name: "unconfined" for name in names}
        document["object"]["metadata"]["annotations"] = annotations
        review = run(POLICY, document, parameters, namespace_object={"metadata": {"name": "default"}})
        assert len(review.warnings) == warnings
        assert all(f'{key}other="unconfined"' in text and "agent" not in text for text in review.warnings)


def test_many_containers_are_not_compared_with_each_other() -> None:
    settings = prepare({"exemptions": {"controls": [BY_IMAGE]}})
    agents = [{**AGENT, "name": Counted(f"agent{index}")} for index in range(3000)]
    Counted.comparisons = 0
    reduced = settings.reduced("hostPorts", Pod({"spec": {"containers": [*agents, OTHER]}}), "default")
    assert reduced is not None
    assert [name for name, _, _ in reduced.containers] == ["other"]
    assert Counted.comparisons < 100 * len(agents)


def test_a_container_with_a_longer_name_of_its_image_is_not_exempt() -> None:
    for length, expected in ((1024, ("", "hostPorts")), (1025, (BAD.format("agent"), ""))):
        image = "registry.test/agent:".ljust(length, "7")
        assert outcome({"containers": [{**AGENT, "image": image}]}, BY_IMAGE) == expected


@pytest.mark.parametrize(
    "parameters",
    [
        {"defaults": {"enforce": "strict"}},
        {"defaults": {"enforce-version": "1.30"}},
        {"exemptions": {"namespaces": ["Kube"]}},
        {"exemptions": {"usernames": [""]}},
        {"exemptions": {"runtimeClasses": ["a", "a"]}},
        {"exemptions": {"controls": [{"control": "hostPort"}]}},
        {"exemptions": {"controls": [{"images": ["a"]}]}},
        {"exemptions": {"controls": [{"control": "hostPorts", "images": []}]}},
        {"exempt": {}},
    ],
)
def test_wrong_parameters_are_refused(parameters: Json) -> None:
    with pytest.raises(fastjsonschema.JsonSchemaValueException):
        fastjsonschema.validate(dict(POLICY.parameters), dict(parameters), use_default=False)


def test_the_example_is_valid() -> None:
    fastjsonschema.validate(dict(POLICY.parameters), dict(POLICY.example), use_default=False)
    assert POLICY.prepare(dict(POLICY.example))
