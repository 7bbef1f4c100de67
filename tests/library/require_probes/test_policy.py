"""The policy ``require-probes``."""

from __future__ import annotations

from admission_gateway_worker.policies.require_probes import DEFINITIONS
from tests.library.requests import denial, of_cron_job, of_pod

(POLICY,) = DEFINITIONS
PROBES: dict[str, object] = {"livenessProbe": {"exec": {}}, "readinessProbe": {"exec": {}}}


def test_containers_and_sidecars_need_probes() -> None:
    spec = {
        "containers": [{"name": "a", **PROBES}, {"name": "b", "livenessProbe": {"exec": {}}}],
        "initContainers": [{"name": "c"}, {"name": "d", "restartPolicy": "Always"}],
    }
    assert denial(POLICY, of_pod(spec)) == {
        "spec.containers[1].readinessProbe": 'container "b" has no readinessProbe: add one',
        "spec.initContainers[1].livenessProbe": 'container "d" has no livenessProbe: add one',
        "spec.initContainers[1].readinessProbe": 'container "d" has no readinessProbe: add one',
    }
    assert list(denial(POLICY, of_pod(spec), {"probes": ["startupProbe"]})) == [
        "spec.containers[0].startupProbe",
        "spec.containers[1].startupProbe",
        "spec.initContainers[1].startupProbe",
    ]


def test_pods_that_run_to_an_end_need_none() -> None:
    assert denial(POLICY, of_cron_job({"restartPolicy": "OnFailure", "containers": [{"name": "a"}]})) == {}
