"""The parts of manifest.yaml fit each other and the programs that they start."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from admission_gateway_worker.samples import server
from gateway import __version__
from gateway.config.kinds.addresses import parse_host_port
from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.engine.dispatch.pool import RESOLVE_EVERY_S
from gateway.engine.dispatch.targets import DnsName, parse_target
from gateway.server.process.supervisor import _STOP_MARGIN_S
from gateway.server.serving.admin import _PATHS
from tests.deploy.cluster import (
    CERT_MANAGER,
    CUSTOM_RESOURCES,
    GATEWAY,
    MANIFEST,
    REGISTRATION,
    WORKER,
    arguments,
    container,
    objects,
    only,
    pod,
    worker_options,
)

if TYPE_CHECKING:
    from gateway.config.merge.model import Config

BOTH = pytest.mark.parametrize("name", [GATEWAY, WORKER])
ALL_FILES = (MANIFEST, REGISTRATION, CERT_MANAGER, CUSTOM_RESOURCES)


def test_every_object_of_all_files_has_a_name_of_its_own() -> None:
    names = Counter(
        (o["apiVersion"], o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"])
        for file in ALL_FILES
        for o in objects(file)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_the_namespace_comes_first_and_everything_else_of_the_manifest_is_in_it() -> None:
    namespace, *others = objects(MANIFEST)
    assert (namespace["kind"], namespace["metadata"]["name"]) == ("Namespace", GATEWAY)
    of_no_namespace = {"ClusterRole", "ClusterRoleBinding"}
    assert {o["metadata"]["namespace"] for o in others if o["kind"] not in of_no_namespace} == {GATEWAY}
    assert all("namespace" not in o["metadata"] for o in others if o["kind"] in of_no_namespace)


def test_applying_the_manifest_alone_makes_the_api_server_call_nothing() -> None:
    assert not [o for o in objects(MANIFEST) if o["kind"].endswith("WebhookConfiguration")]


def test_the_config_map_is_a_configuration_that_serve_accepts(config: Config) -> None:
    assert config.mutating
    assert config.validating
    assert set(config.pools) == {hook.worker.pool for hook in (*config.mutating, *config.validating)}


def test_every_configured_policy_is_served_by_the_sample_worker(config: Config) -> None:
    for hook in (*config.mutating, *config.validating):
        assert server.policies[hook.worker.policy].mutating == (hook.phase == "mutate")


def test_the_config_map_is_mounted_whole_at_the_path_of_the_command_line() -> None:
    (mount,) = (m for m in container(GATEWAY)["volumeMounts"] if m["name"] == "config")
    (volume,) = (v for v in pod(GATEWAY)["volumes"] if v["name"] == "config")
    assert [str(path) for path in arguments().config] == [mount["mountPath"]]
    assert volume["configMap"] == {"name": GATEWAY}
    assert "subPath" not in mount


def test_the_certificate_is_read_from_the_mounted_secret_that_cert_manager_fills_too() -> None:
    (mount,) = (m for m in container(GATEWAY)["volumeMounts"] if m["name"] == "tls")
    (volume,) = (v for v in pod(GATEWAY)["volumes"] if v["name"] == "tls")
    assert str(arguments().tls_cert) == f"{mount['mountPath']}/tls.crt"
    assert str(arguments().tls_key) == f"{mount['mountPath']}/tls.key"
    assert "subPath" not in mount
    issued = only("Certificate", "admission-gateway-tls", CERT_MANAGER)
    assert issued["spec"]["secretName"] == volume["secret"]["secretName"]
    assert issued["metadata"]["namespace"] == GATEWAY
    # Read by a user that is not root, through the pod's group.
    assert volume["secret"]["defaultMode"] == 0o440
    assert pod(GATEWAY)["securityContext"]["fsGroup"] == pod(GATEWAY)["securityContext"]["runAsGroup"]


def test_every_mount_has_its_volume() -> None:
    for name in (GATEWAY, WORKER):
        mounted = {mount["name"] for mount in container(name)["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod(name)["volumes"]}
        assert "/tmp" in {mount["mountPath"] for mount in container(name)["volumeMounts"]}


@BOTH
def test_every_selector_matches_the_pods_of_its_own_deployment_and_no_others(name: str) -> None:
    deployment = only("Deployment", name)["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    selectors = [
        deployment["selector"]["matchLabels"],
        only("Service", name)["spec"]["selector"],
        only("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"],
        only("NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"],
        *(c["labelSelector"]["matchLabels"] for c in pod(name)["topologySpreadConstraints"]),
    ]
    others = only("Deployment", WORKER if name == GATEWAY else GATEWAY)["spec"]["template"]["metadata"][
        "labels"
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert not selector.items() <= others.items()


def test_only_gateways_may_reach_the_workers() -> None:
    (rule,) = only("NetworkPolicy", WORKER)["spec"]["ingress"]
    (peer,) = rule["from"]
    gateways = only("Deployment", GATEWAY)["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= gateways.items()
    assert rule["ports"] == [{"port": "grpc"}]


def test_the_ports_are_those_that_the_gateway_listens_on(config: Config) -> None:
    ports = {port["name"]: port["containerPort"] for port in container(GATEWAY)["ports"]}
    for name, address in (("https", config.gateway.listen), ("admin", config.gateway.admin_listen)):
        assert parse_host_port(address) == ("0.0.0.0", ports[name])
    (service,) = only("Service", GATEWAY)["spec"]["ports"]
    assert service["targetPort"] == "https"
    allowed = [
        port["port"] for rule in only("NetworkPolicy", GATEWAY)["spec"]["ingress"] for port in rule["ports"]
    ]
    assert sorted(allowed) == ["admin", "https"]


def test_the_pool_names_the_headless_service_of_the_worker(config: Config) -> None:
    service = only("Service", WORKER)
    (port,) = service["spec"]["ports"]
    (listening,) = container(WORKER)["ports"]
    assert service["spec"]["clusterIP"] == "None"
    assert port["targetPort"] == listening["name"]
    assert worker_options().listen == (f"0.0.0.0:{listening['containerPort']}",)
    ((target,),) = (pool.targets for pool in config.pools.values())
    assert parse_target(target) == DnsName(f"{WORKER}.{GATEWAY}.svc", port["port"])
    # A headless Service has no address of its own that could translate a port.
    assert port["port"] == listening["containerPort"]


def test_the_probes_use_paths_that_the_gateway_serves() -> None:
    probes = {kind: container(GATEWAY)[kind]["httpGet"] for kind in ("readinessProbe", "livenessProbe")}
    assert probes["readinessProbe"]["path"] == "/readyz"
    assert probes["livenessProbe"]["path"] == "/livez"
    assert {probe["path"].encode() for probe in probes.values()} <= set(_PATHS)
    assert {probe["port"] for probe in probes.values()} == {"admin"}


def test_the_probes_of_the_worker_use_the_port_of_grpc() -> None:
    (listening,) = container(WORKER)["ports"]
    for kind in ("readinessProbe", "livenessProbe"):
        assert container(WORKER)[kind]["grpc"] == {"port": listening["containerPort"]}


def seconds_before_stop(name: str) -> int:
    found: int = container(name)["lifecycle"]["preStop"]["sleep"]["seconds"]
    return found


def test_pods_are_not_killed_while_they_may_still_drain(config: Config) -> None:
    longest_s = {GATEWAY: config.gateway.drain_s + _STOP_MARGIN_S, WORKER: worker_options().grace_s}
    for name, stop_s in longest_s.items():
        assert pod(name)["terminationGracePeriodSeconds"] > seconds_before_stop(name) + stop_s


def test_a_worker_serves_until_the_gateways_have_resolved_its_name_again() -> None:
    assert seconds_before_stop(WORKER) > RESOLVE_EVERY_S


@BOTH
def test_a_rolling_update_and_a_node_drain_leave_replicas_serving(name: str) -> None:
    spec = only("Deployment", name)["spec"]
    assert spec["replicas"] >= 2
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert only("PodDisruptionBudget", name)["spec"]["maxUnavailable"] < spec["replicas"]


@BOTH
def test_the_pods_conform_to_the_restricted_pod_security_standard(name: str) -> None:
    security: dict[str, Any] = pod(name)["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] != 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(name)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    kinds = {kind for volume in pod(name)["volumes"] for kind in volume if kind != "name"}
    assert kinds <= {"configMap", "emptyDir", "secret"}


def test_the_gateway_may_read_namespaces_and_create_access_reviews_and_nothing_else(
    config: Config,
) -> None:
    assert config.gateway.kubernetes == KubernetesSettings()
    account = only("ServiceAccount", pod(GATEWAY)["serviceAccountName"])
    assert account["automountServiceAccountToken"] is False
    assert pod(GATEWAY)["automountServiceAccountToken"] is True
    assert pod(WORKER)["automountServiceAccountToken"] is False
    (binding,) = (o for o in objects(MANIFEST) if o["kind"].endswith("Binding"))
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", **{key: account["metadata"][key] for key in ("name", "namespace")}}
    ]
    (role,) = (o for o in objects(MANIFEST) if o["kind"].endswith("Role"))
    wanted = {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": role["metadata"]["name"]}
    assert binding["roleRef"] == wanted
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["subjectaccessreviews"],
            "verbs": ["create"],
        },
    ]


@BOTH
def test_the_image_is_the_one_of_this_version(name: str) -> None:
    assert container(name)["image"] == f"{name}:{__version__}"
