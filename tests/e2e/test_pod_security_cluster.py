"""The policy ``pod-security`` behind the gateway decides as the plugin PodSecurity of an API server.

One API server has the plugin, the other one the gateway with the policy instead.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.e2e.client import JSON, MERGE_PATCH
from tests.e2e.cluster import Cluster
from tests.e2e.objects import deployment, pod
from tests.e2e.outcome import audit_annotations
from tests.e2e.setups import WithLibrary
from tests.library.pod_security.upstream import folder_of_pods
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.client import Answer

PREFIX: Final = "pod-security.kubernetes.io/"
WEBHOOK: Final = "pod-security.policies.test"
POLICY: Final = "pod-security"
NAMESPACES: Final = "/api/v1/namespaces"
MODES: Final = ("enforce", "audit", "warn")
DRY_RUN: Final = "?dryRun=All"

PARAMETERS: Final[dict[str, Any]] = {
    "exemptions": {
        "namespaces": ["exempt"],
        "controls": [{"control": "hostNamespaces", "images": ["registry.test/agent:*"]}],
    }
}
"""The plugin has no exemptions, and the other tests use none of these."""

Json = dict[str, Any]


class Pair:
    """Two clusters: with the plugin, and with the policy."""

    def __init__(self, plugin: Cluster, policy: Cluster) -> None:
        self.clusters = plugin, policy
        self._answers: list[tuple[Answer, Answer]] = []

    def both(self, method: str, path: str, document: Json | None = None) -> Json:
        """Send a request to both, and return what users see, which has to be equal."""
        content_type = MERGE_PATCH if method == "PATCH" else JSON
        one, other = (each.api.request(method, path, document, content_type) for each in self.clusters)
        self._answers.append((one, other))
        plugin = seen(one)
        assert seen(other) == plugin, (method, path, document)
        return plugin

    def annotations(self) -> list[Json]:
        """Return the audit annotations since the last call, by request; they have to be equal."""
        found = []
        for cluster, answers in zip(self.clusters, zip(*self._answers, strict=True), strict=True):
            audited = audit_annotations(cluster, answers)
            found.append([_own(audited[answer.headers["Audit-Id"]]) for answer in answers])
        self._answers.clear()
        plugin, policy = found
        assert policy == plugin
        return plugin


def seen(answer: Answer) -> Json:
    """Return status, message, details and warnings in a form that both clusters share."""
    found: Json = {"status": answer.status, "warnings": [text[:256] for text in answer.warnings]}
    if answer.status >= 400:
        status, message = answer.document, answer.message
        if message.startswith("admission webhook"):
            message = message.partition(f" denied the request: {WEBHOOK}: ")[2]
        found |= {"message": message, "reason": status.get("reason"), "code": status.get("code")}
        details = status.get("details") or {}
        causes = [
            {**cause, "message": cause["message"].removeprefix(f"{WEBHOOK}: ")}
            for cause in details.get("causes") or ()
        ]
        found["details"] = {**details, "causes": causes}
    return found


def _own(annotations: dict[str, str]) -> Json:
    """Return the annotations of the plugin or the policy, by their names there."""
    return {
        key.removeprefix(PREFIX).rpartition(f"{WEBHOOK}.")[2]: value
        for key, value in annotations.items()
        if key.startswith(PREFIX) or f"{WEBHOOK}." in key
    }


@pytest.fixture(scope="module")
def pair(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pod-security")
    with (
        Cluster(cluster.binaries, folder / "cluster", "--disable-admission-plugins=PodSecurity") as other,
        WithLibrary(other, folder / "gateway", {POLICY: PARAMETERS}, "pod-security"),
    ):
        yield Pair(cluster, other)


@pytest.fixture(scope="module")
def version(cluster: Cluster) -> str:
    """Version of the standards: that of the API server."""
    return cluster.binaries.version.rpartition(".")[0]


def namespace(name: str, **chosen: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {PREFIX + key.replace("_", "-"): value for key, value in chosen.items()},
        },
    }


def make(pair: Pair, name: str, level: str, version: str) -> str:
    """Make a namespace in both clusters, and return its path."""
    chosen = {key: value for mode in MODES for key, value in ((mode, level), (f"{mode}_version", version))}
    assert pair.both("POST", NAMESPACES, namespace(name, **chosen))["status"] == 201
    return f"{NAMESPACES}/{name}"


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_upstreams_pods_and_deployments_of_them(pair: Pair, version: str, level: str) -> None:
    path = make(pair, f"upstream-{level}", level, version)
    files = sorted((folder_of_pods() / level / version).rglob("*.yaml"))
    assert files
    pair.annotations()
    evaluated: list[set[str]] = []
    for file in files:
        is_bad = file.parent.name == "fail"
        document = yaml.safe_load(file.read_bytes())
        document["metadata"]["name"] = "web"  # names of files have underscores
        found = pair.both("POST", f"{path}/pods{DRY_RUN}", document)
        if found["status"] == 422 and is_bad:
            evaluated.append(set())
            continue  # the API server refuses the combination before any admission
        assert found["status"] == (403 if is_bad else 201), (file, found)
        workload = deployment("shop")
        template = workload["spec"]["template"]
        template["spec"] = document["spec"]
        template["metadata"]["annotations"] = document["metadata"].get("annotations") or {}
        found = pair.both("POST", f"/apis/apps/v1/namespaces/upstream-{level}/deployments{DRY_RUN}", workload)
        assert found["status"] == 201, (file, found)
        assert any(text.startswith("would violate") for text in found["warnings"]) == is_bad
        violations = {"audit-violations"} if is_bad else set()
        evaluated += [violations | {"enforce-policy"}, violations]
    assert len(evaluated) > 1.8 * len(files)
    assert [set(each) for each in pair.annotations()] == evaluated


def test_labels_of_namespaces(pair: Pair) -> None:
    statuses = []
    for chosen in (
        {"enforce": "unknown"},
        {"enforce": "baseline", "warn_version": "1.30", "audit": "strict"},
        {"audit_version": "v1.01"},
        {"enforce": "baseline", "enforce_version": "v1.99"},
    ):
        found = pair.both("POST", f"{NAMESPACES}{DRY_RUN}", namespace("labelled", **chosen))
        statuses.append(found["status"])
    assert statuses == [422, 422, 422, 201]
    pair.annotations()


def test_a_stricter_level_warns_of_running_pods(pair: Pair, version: str) -> None:
    path = make(pair, "running", "privileged", "latest")
    pods: dict[str, Json] = {
        "plain": {},
        "other": {},
        "host": {"hostNetwork": True},
        "root": {"securityContext": {"runAsUser": 0}},
    }
    for name, spec in pods.items():
        assert pair.both("POST", f"{path}/pods", pod(name, **spec))["status"] == 201
    plugin, _ = pair.clusters
    strict = namespace("running", enforce="restricted", enforce_version=version)

    def plugin_has_all() -> bool:
        shown = "\n".join(plugin.api.update(f"{path}{DRY_RUN}", strict).warnings)
        return all(text in shown for text in ("(and 1 other pod): ", "host: ", "root: "))

    # The plugin reads Pods from a cache of its API server. "plain" and "other" are alike.
    eventually(plugin_has_all)
    for level in ("baseline", "restricted"):
        document = namespace("running", enforce=level, enforce_version=version)
        found = pair.both("PUT", f"{path}{DRY_RUN}", document)
        assert len(found["warnings"]) > 1
        assert found["status"] == 200
    pair.annotations()


def _is_denied(cluster: Cluster, path: str, change: Json) -> bool:
    return cluster.api.patch(path, change).status == 403


def test_updates_of_pods(pair: Pair, version: str) -> None:
    path = make(pair, "updates", "privileged", "latest")
    assert pair.both("POST", f"{path}/pods", pod("web", hostNetwork=True))["status"] == 201
    pair.both("PUT", path, namespace("updates", enforce="baseline", enforce_version=version))
    # Both watch the namespaces: the new level holds a moment later.
    changed = {"spec": {"containers": [{"name": "main", "image": "registry.test/main:2"}]}}
    for cluster in pair.clusters:
        eventually(partial(_is_denied, cluster, f"{path}/pods/web{DRY_RUN}", changed))
    debugger = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "registry.test/debug:1"}]}}
    labelled = {"metadata": {"labels": {"team": "a"}}}
    for document, subresource, status in (
        (changed, "", 403),
        (debugger, "/ephemeralcontainers", 403),
        (labelled, "", 200),
    ):
        found = pair.both("PATCH", f"{path}/pods/web{subresource}{DRY_RUN}", document)
        assert found["status"] == status
    assert [set(each) for each in pair.annotations()[-3:]] == [{"enforce-policy"}, {"enforce-policy"}, set()]


def test_exemptions(pair: Pair) -> None:
    _, cluster = pair.clusters
    bad = pod("web", hostNetwork=True)
    agent = pod("agent", hostNetwork=True, containers=[{"name": "agent", "image": "registry.test/agent:1"}])
    for name, document, expected in (
        ("exempt", bad, {"exempt": "namespace"}),
        ("controls", bad, {"enforce-policy": "baseline:latest"}),
        ("controls", agent, {"enforce-policy": "baseline:latest", "exempt-controls": "hostNamespaces"}),
    ):
        if cluster.api.get(f"{NAMESPACES}/{name}").status == 404:
            assert cluster.api.create(NAMESPACES, namespace(name, enforce="baseline")).status == 201
        answer = cluster.api.create(f"{NAMESPACES}/{name}/pods{DRY_RUN}", document)
        assert answer.status == (403 if name == "controls" and document is bad else 201), answer
        (annotations,) = audit_annotations(cluster, [answer]).values()
        assert _own(annotations) == expected
