"""What denials of policies for pods have in common: their size, and that they name new problems only."""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest

from admission_gateway_worker import Denied
from tests.library.builtin import policy
from tests.library.requests import denial, of_pod, request, run

Json = dict[str, Any]

BAD: Final[Json] = {
    "containers": [{"name": "a", "image": "a", "volumeMounts": [{"name": "v"}]}],
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "volumes": [{"name": "v", "hostPath": {"path": "/b"}}],
}
PARAMETERS: Final[dict[str, Json]] = {
    "allowed-host-paths": {"paths": [{"prefix": "/a"}, {"prefix": "/b", "readOnly": True}]},
    "allowed-registries": {"registries": ["good.test"]},
    "deny-latest-tag": {},
    "forbidden-tolerations": {"taints": [{"key": "a"}]},
    "require-image-digests": {},
    "require-probes": {"probes": ["livenessProbe"]},
    "require-resources": {"limits": {"memory": {}}},
}
"""By policy: parameters with which it denies ``BAD``."""
NEW: Final[dict[str, Json]] = {
    "allowed-host-paths": {"volumes": [{"name": "v", "hostPath": {"path": "/c"}}]},
    "allowed-registries": {"containers": [{"name": "a", "image": "b"}]},
    "deny-latest-tag": {"containers": [{"name": "a", "image": "b"}]},
    "forbidden-tolerations": {"tolerations": [{"operator": "Exists"}]},
    "require-image-digests": {"containers": [{"name": "a", "image": "b"}]},
    "require-probes": {"containers": [{"name": "b", "image": "a"}]},
    "require-resources": {"initContainers": [{"name": "b", "image": "a"}]},
}
"""By policy: fields with another violation, mostly at the same place."""


@pytest.mark.parametrize("name", PARAMETERS)
def test_what_an_object_has_already_is_not_denied(name: str) -> None:
    definition, parameters = policy(name), PARAMETERS[name]
    assert denial(definition, of_pod(BAD), parameters)
    gated = {**BAD, "schedulingGates": [{"name": "wait"}]}
    assert denial(definition, of_pod(BAD, old=gated), parameters) == {}
    assert denial(definition, of_pod(BAD, old={"containers": []}), parameters)
    assert len(denial(definition, of_pod({**BAD, **NEW[name]}, old=BAD), parameters)) == 1


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_new_violation_beside_an_old_one_is_denied_alone(name: str) -> None:
    spec = copy.deepcopy(BAD)
    for field in ("containers", "tolerations", "volumes"):
        spec[field].append({**spec[field][0], "name": "new"})
    spec["containers"][1]["volumeMounts"] = [{"name": "new"}]
    found = denial(policy(name), of_pod(spec, old=BAD), PARAMETERS[name])
    assert len(found) == 1
    assert all("s[1]" in field for field in found)


def test_a_debug_container_is_checked_in_a_pod_with_an_old_violation() -> None:
    for image, expected in (("good:1", []), ("bad", ["spec.ephemeralContainers[0].image"])):
        spec = {**BAD, "ephemeralContainers": [{"name": "debug", "image": image}]}
        asked = of_pod(spec, old=BAD, subResource="ephemeralcontainers")
        assert list(denial(policy("deny-latest-tag"), asked)) == expected


def test_labels_that_an_object_lacks_already_are_not_required() -> None:
    old: Json = {"metadata": {"labels": {"team": "1"}}, "spec": {"template": {"spec": {"containers": []}}}}
    parameters = {"labels": {"team": "[a-z]+"}}
    scaled = copy.deepcopy(old)
    scaled["spec"]["replicas"] = 3
    changed = copy.deepcopy(old)
    changed["metadata"]["labels"]["team"] = "2"
    for found, fields in ((scaled, []), (changed, ["metadata.labels[team]"])):
        asked = request("apps", "v1", "ReplicaSet", found, old)
        assert list(denial(policy("require-labels"), asked, parameters)) == fields


def test_a_denial_has_a_bound() -> None:
    for count, last in (
        (1000, 'spec.containers[999].image: image "a" has no digest: add @sha256:…'),
        (1001, "and more"),
    ):
        with pytest.raises(Denied) as raised:
            run(policy("require-image-digests"), of_pod({"containers": [{"image": "a"}] * count}))
        assert raised.value.message.split("; ")[-1] == last
        assert len(raised.value.causes) == 1000
