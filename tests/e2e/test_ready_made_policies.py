"""Policies of the library that Kubernetes has no controller for, behind a gateway in a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.objects import deployment, pod
from tests.e2e.setups import WithLibrary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster

Json = dict[str, Any]

PODS: Final = "/api/v1/namespaces/{}/pods"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/{}/deployments"
INGRESSES: Final = "/apis/networking.k8s.io/v1/namespaces/{}/ingresses"
BUDGETS: Final = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"


def container(image: str = "registry.test/main:1", **fields: Any) -> Json:
    return {"containers": [{"name": "main", "image": image, **fields}]}


def replicated(replicas: int) -> Json:
    found = deployment("web")
    found["spec"]["replicas"] = replicas
    return found


def ingress(name: str, host: str) -> Json:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name},
        "spec": {"rules": [{"host": host, "http": {"paths": [path]}}]},
    }


CASES: Final[dict[str, tuple[Json | None, str, Json, str]]] = {
    "allowed-registries": (
        {"registries": ["other.test"]},
        PODS,
        pod(),
        'spec.containers[0].image: image "registry.test/main:1" is not from an allowed registry: other.test',
    ),
    "require-image-digests": (
        None,
        PODS,
        pod(),
        'spec.containers[0].image: image "registry.test/main:1" has no digest: add @sha256:…',
    ),
    "require-labels": (
        {"labels": {"team": "[a-z]+"}},
        PODS,
        pod(labels={"team": "1"}),
        'metadata.labels[team]: "1" does not match [a-z]+',
    ),
    "require-resources": (
        {"limits": {"memory": {"max": "1Gi"}}},
        PODS,
        pod(**container(resources={"limits": {"memory": "2Gi"}})),
        (
            'spec.containers[0].resources.limits[memory]: container "main" has 2Gi memory in limits, '
            "more than 1Gi"
        ),
    ),
    "deny-latest-tag": (
        None,
        PODS,
        pod(**container("main")),
        (
            'spec.containers[0].image: image "main" has the tag latest, or no tag, which means latest: '
            "name a version"
        ),
    ),
    "require-probes": (
        {"probes": ["livenessProbe"]},
        DEPLOYMENTS,
        deployment("web"),
        'spec.template.spec.containers[0].livenessProbe: container "main" has no livenessProbe: add one',
    ),
    "allowed-host-paths": (
        None,
        PODS,
        pod(volumes=[{"name": "v", "hostPath": {"path": "/etc"}}]),
        (
            'spec.volumes[0].hostPath.path: volume "v" uses the path /etc of the node, which is not '
            "allowed: use an allowed one"
        ),
    ),
    "minimum-replicas": (
        {"minimum": 3},
        DEPLOYMENTS,
        replicated(2),
        "spec.replicas: 2 is less than the minimum of 3",
    ),
    "require-pod-disruption-budget": (
        None,
        DEPLOYMENTS,
        replicated(2),
        (
            "spec.template.metadata.labels: no PodDisruptionBudget in the namespace "
            "require-pod-disruption-budget selects the pods: create one first"
        ),
    ),
    "forbidden-tolerations": (
        {"taints": [{"key": "a"}]},
        PODS,
        pod(tolerations=[{"operator": "Exists"}]),
        'spec.tolerations[0]: the toleration {"operator":"Exists"} tolerates the taint a: remove it',
    ),
}
"""By policy: parameters, path, an object that it denies, and the message."""


@pytest.fixture(scope="module")
def library(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithLibrary]:
    policies = {name: case[0] for name, case in CASES.items()}
    others: dict[str, Json | None] = {
        "unique-ingress-hosts": None,
        "deprecated-api-versions": {"kubernetes": "1.99"},
    }
    here = {
        name: {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
        for name in policies
    }
    for name in (*policies, "one", "two"):
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        assert cluster.api.create("/api/v1/namespaces", document).status == 201
    folder = tmp_path_factory.mktemp("library")
    with WithLibrary(cluster, folder, {**policies, **others}, "ready-made", here) as setup:
        yield setup


@pytest.mark.parametrize("policy", CASES)
def test_a_policy_denies_and_names_the_problem(library: WithLibrary, policy: str) -> None:
    _, path, document, message = CASES[policy]
    refused = library.cluster.api.create(path.format(policy), document)
    assert refused.status == 403
    assert refused.message.partition(f"{policy}.policies.test: ")[2] == message
    (cause,) = refused.document["details"]["causes"]
    assert cause["field"]
    assert library.cluster.api.create(path.format("one"), document).status == 201
    assert library.cluster.api.request("DELETE", f"{path.format('one')}/web").status in (200, 202)


def test_a_workload_with_a_budget_is_allowed(library: WithLibrary) -> None:
    namespace = "require-pod-disruption-budget"
    workload = replicated(2)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": workload["spec"]["selector"]},
    }
    api = library.cluster.api
    assert api.create(BUDGETS.format(namespace), budget).status == 201
    assert api.create(DEPLOYMENTS.format(namespace), workload).status == 201


def test_a_host_belongs_to_one_namespace(library: WithLibrary) -> None:
    api = library.cluster.api
    assert api.create(INGRESSES.format("one"), ingress("web", "shop.test")).status == 201
    assert api.create(INGRESSES.format("one"), ingress("other", "shop.test")).status == 201
    refused = api.create(INGRESSES.format("two"), ingress("web", "shop.test"))
    assert refused.status == 403
    assert (
        'policies.test: spec.rules[0].host: the host "shop.test" belongs to the Ingress one/'
        in refused.message
    )
    assert api.create(INGRESSES.format("two"), ingress("web", "blog.test")).status == 201
