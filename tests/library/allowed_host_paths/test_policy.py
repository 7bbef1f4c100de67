"""The policy ``allowed-host-paths``."""

from __future__ import annotations

from typing import Any

import pytest

from admission_gateway_worker.policies.allowed_host_paths import DEFINITIONS
from tests.library.requests import denial, of_pod

(POLICY,) = DEFINITIONS


def spec(path: str, *mounts: dict[str, object]) -> dict[str, Any]:
    return {
        "volumes": [{"name": "other", "emptyDir": {}}, {"name": "v", "hostPath": {"path": path}}],
        "containers": [{"name": "a", "volumeMounts": [{"name": "v", **mount} for mount in mounts]}],
    }


@pytest.mark.parametrize(
    ("prefix", "path", "is_allowed"),
    [
        ("/var/log", "/var/log", True),
        ("/var/log/", "/var/log/pods", True),
        ("/var/log", "/var//log/./pods/", True),
        ("/var/log", "//var/log", True),
        ("/var/log", "/var/logs", False),
        ("/var/log", "/var/log/../lib", False),
        ("/var/log", "var/log", False),
        ("/var/log", "/", False),
        ("/", "/etc", True),
    ],
)
def test_a_path_is_below_an_allowed_one(prefix: str, path: str, *, is_allowed: bool) -> None:
    found = denial(POLICY, of_pod(spec(path)), {"paths": [{"prefix": prefix}]})
    message = f'volume "v" uses the path {path} of the node, which is not allowed: use an allowed one'
    assert found == ({} if is_allowed else {"spec.volumes[1].hostPath.path": message})


def test_no_path_is_allowed_without_parameters() -> None:
    assert list(denial(POLICY, of_pod(spec("/tmp")))) == ["spec.volumes[1].hostPath.path"]


def test_a_path_for_reading_is_mounted_for_reading() -> None:
    paths = [{"prefix": "/var/log", "readOnly": True}]
    found = denial(POLICY, of_pod(spec("/var/log", {"readOnly": True}, {})), {"paths": paths})
    assert found == {
        "spec.containers[0].volumeMounts[1].readOnly": (
            'container "a" may write to /var/log of the node: set readOnly: true'
        )
    }
    writable = {"paths": [*paths, {"prefix": "/var"}]}
    assert denial(POLICY, of_pod(spec("/var/log", {})), writable) == {}


def test_many_mounts_of_many_volumes() -> None:
    names = [str(index) for index in range(5000)]
    mounts = [{"name": name, "readOnly": name != "7"} for name in names]
    volumes = [{"name": name, "hostPath": {"path": "/var/log"}} for name in names]
    spec = {"containers": [{"name": "a", "volumeMounts": mounts}], "volumes": volumes}
    parameters = {"paths": [{"prefix": "/var/log", "readOnly": True}]}
    assert list(denial(POLICY, of_pod(spec), parameters)) == ["spec.containers[0].volumeMounts[7].readOnly"]
