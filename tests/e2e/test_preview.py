"""A preview says what an API server does with the same manifests, as dry runs of it show."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from gateway.pure.core.field_changes import field_changes
from tests.e2e.binaries import obtain
from tests.e2e.capture import Captured, stable_object
from tests.e2e.cluster import ADMIN, Cluster
from tests.e2e.conftest import CHOSEN
from tests.e2e.controllers import Controllers
from tests.e2e.setups import BehindGateway, Hook, rule
from tests.kit import run_command
from tests.preview import invalid_cases
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PODS: Final = rule("pods", "CREATE")
ALL: Final = (PODS, rule("deployments statefulsets", "CREATE", group="apps"), rule("configmaps", "CREATE"))
SIDECAR: Final = {"name": "sidecar", "image": "sidecar:1"}
HOOKS: Final = [
    Hook("mutate", "label.policies.test", {"label": "team"}, ALL),
    Hook(
        "mutate",
        "sidecar.policies.test",
        {"patch": [{"op": "add", "path": "/spec/containers/-", "value": SIDECAR}]},
        (PODS,),
    ),
    Hook("validate", "a.policies.test", {"deny": {"code": 403, "message": "not a"}, "when": "bad"}, ALL),
    Hook("validate", "b.policies.test", {"deny": {"code": 403, "message": "not b"}, "when": "bad"}, ALL),
]
POD_SPEC: Final[dict[str, Any]] = {
    "initContainers": [{"name": "init", "image": "init@sha256:" + "0" * 64}],
    "containers": [
        {
            "name": "main",
            "image": "a.example:5000/main",
            "ports": [{"containerPort": 80}],
            "livenessProbe": {"httpGet": {"port": 80}},
            "resources": {"limits": {"cpu": "0.5", "memory": "1Gi"}},
            "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        }
    ],
    "volumes": [{"name": "a"}, {"name": "b", "configMap": {"name": "c"}}],
}
TEMPLATE: Final = {"metadata": {"labels": {"app": "a"}}, "spec": POD_SPEC}
SELECTOR: Final = {"matchLabels": {"app": "a"}}
# A default of rolling updates is newer than 1.33, and previews have the defaults of the newest version.
ON_DELETE: Final = {"updateStrategy": {"type": "OnDelete"}}
OBJECTS: Final[list[tuple[str, str, dict[str, Any]]]] = [
    ("v1", "pods", {"kind": "Pod", "spec": POD_SPEC}),
    ("v1", "configmaps", {"kind": "ConfigMap"}),
    ("apps/v1", "deployments", {"kind": "Deployment", "spec": {"selector": SELECTOR, "template": TEMPLATE}}),
    (
        "apps/v1",
        "statefulsets",
        {
            "kind": "StatefulSet",
            "spec": {"selector": SELECTOR, "serviceName": "s", "template": TEMPLATE, **ON_DELETE},
        },
    ),
]
OF_THE_SERVER: Final = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")


@pytest.fixture(scope="module", params=CHOSEN)
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BehindGateway]:
    """A gateway that is registered in a cluster whose Pods have service accounts."""
    folder = tmp_path_factory.mktemp("preview")
    with Cluster(obtain(request.param), folder / "cluster", service_accounts=True, audit=False) as cluster:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        path = "/api/v1/namespaces/default/serviceaccounts"
        assert cluster.api.create(path, account).status == 201
        with BehindGateway(cluster, folder / "gateway", HOOKS) as gateway:
            # The plug-in reads service accounts from a cache.
            eventually(lambda: dry_run(cluster, *manifest(*OBJECTS[0])).status == 201)
            yield gateway


def manifest(
    api_version: str, resource: str, found: dict[str, Any], namespace: str = "default", **labels: str
) -> tuple[str, Any]:
    """Return the path of the collection, and the manifest."""
    prefix = "api" if api_version == "v1" else "apis"
    metadata = {"name": "web", "namespace": namespace, **({"labels": labels} if labels else {})}
    path = f"/{prefix}/{api_version}/namespaces/{namespace}/{resource}"
    return path, {"apiVersion": api_version, "metadata": metadata, **found}


def dry_run(cluster: Cluster, path: str, document: object) -> Any:
    return cluster.api.create(f"{path}?dryRun=All", document)


def stable(found: dict[str, Any]) -> dict[str, Any]:
    """Return *found* without what the API server sets after admission, and without random names."""
    text = re.sub(r"kube-api-access-\w{5}", "kube-api-access", json.dumps(found))
    # Kubernetes before 1.34 writes it in each template.
    text = text.replace('"creationTimestamp": null, ', "")
    document: dict[str, Any] = json.loads(text)
    document.pop("status", None)
    for name in OF_THE_SERVER:
        document["metadata"].pop(name, None)
    return document


@pytest.mark.parametrize("one", OBJECTS, ids=lambda one: one[1])
def test_the_final_object_is_that_of_a_dry_run_of_the_api_server(
    gateway: BehindGateway, one: tuple[str, str, dict[str, Any]], tmp_path: Path
) -> None:
    path, document = manifest(*one)
    answer = dry_run(gateway.cluster, path, document)
    assert answer.status == 201, answer
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(document))
    done = run_command(
        "preview", tmp_path / "web.yaml", "--config", gateway.config, "--write", tmp_path / "final"
    )
    # The sidecar is injected again on its own result, which fails the preview of Pods.
    assert done.returncode == (0 if one[1] == "configmaps" else 1), done.stdout
    assert "denied by" not in done.stdout
    group = f".{one[0].partition('/')[0]}" if "/" in one[0] else ""
    file = tmp_path / "final" / "default" / f"{one[2]['kind'].lower()}{group}-web.yaml"
    final, expected = stable(yaml.safe_load(file.read_text())), stable(answer.document)
    assert not list(field_changes(expected, final))
    assert final == expected


@pytest.mark.parametrize("one", OBJECTS, ids=lambda one: one[1])
def test_denials_are_those_of_the_api_server(
    gateway: BehindGateway, one: tuple[str, str, dict[str, Any]], tmp_path: Path
) -> None:
    path, document = manifest(*one, bad="x")
    answer = dry_run(gateway.cluster, path, document)
    assert answer.status == 403
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(document))
    arguments = (tmp_path / "web.yaml", "--config", gateway.config, "--json", "--expand", "false")
    done = run_command("preview", *arguments)
    assert done.returncode == 1, done.stderr
    (found,) = json.loads(done.stdout)["objects"]
    denied = [each for each in found["findings"] if each["finding"] == "denied"]
    assert [each["message"] for each in denied] == ["not a", "not b"]
    for each in denied:
        assert f"{each['webhook'].partition('/')[2]}: {each['message']}" in answer.message


def collection(found: dict[str, Any]) -> str:
    """Return the path for objects like *found*, of a kind whose resource is its name in the plural."""
    version = found["apiVersion"]
    prefix = f"/{'apis' if '/' in version else 'api'}/{version}"
    is_namespaced = found["kind"] != "Namespace"
    return f"{prefix}{'/namespaces/default' if is_namespaced else ''}/{found['kind'].lower()}s"


def strictly(cluster: Cluster, found: dict[str, Any]) -> Any:
    return cluster.api.create(f"{collection(found)}?dryRun=All&fieldValidation=Strict", found)


def test_what_a_preview_refuses_the_api_server_refuses(gateway: BehindGateway, tmp_path: Path) -> None:
    for about, (found, field) in invalid_cases.REFUSED.items():
        answer = strictly(gateway.cluster, found)
        assert answer.status in (400, 422), (about, answer)
        if answer.status == 422:
            # Of the whole, the API server has other parts in brackets.
            assert re.split(r"[.\[]", field)[-1].rstrip("]") in answer.message, (about, answer.message)
    for about, (version, kind, _) in invalid_cases.NOT_SERVED.items():
        found = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}}
        assert strictly(gateway.cluster, found).status == 404, about
    for about, found in invalid_cases.TAKEN.items():
        answer = strictly(gateway.cluster, found)
        assert answer.status == 201, (about, answer)
    refused = [found for found, _ in invalid_cases.REFUSED.values()]
    text = json.dumps({"items": [*refused, *invalid_cases.TAKEN.values()], "kind": "List"})
    (tmp_path / "all.json").write_text(text)
    kubeconfig = gateway.cluster.kubeconfig(ADMIN)
    arguments = (tmp_path / "all.json", "--config", gateway.config, "--json", "--expand", "false")
    for more in ((), ("--server-dry-run",)):
        done = run_command("preview", *arguments, "--kubeconfig", kubeconfig, *more)
        objects = json.loads(done.stdout)["objects"]
        results = ["denied"] * len(refused) + ["allowed"] * len(invalid_cases.TAKEN)
        assert [one["result"] for one in objects] == results, more


SHOPS: Final = "shops"
READ_BY_PLUG_INS: Final[dict[str, list[dict[str, Any]]]] = {
    f"/api/v1/namespaces/{SHOPS}/serviceaccounts": [
        {"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "pull"}]},
        {
            "metadata": {
                "name": "strict",
                "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"},
            },
            "automountServiceAccountToken": False,
        },
    ],
    f"/api/v1/namespaces/{SHOPS}/limitranges": [
        {
            "metadata": {"name": "limits"},
            "spec": {
                "limits": [
                    {"type": "Container", "default": {"cpu": "300m"}, "max": {"cpu": "2", "memory": "2Gi"}},
                    {"type": "Pod", "maxLimitRequestRatio": {"memory": "2"}},
                    {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "5Gi"}},
                ]
            },
        }
    ],
    "/apis/scheduling.k8s.io/v1/priorityclasses": [
        {"metadata": {"name": "gold"}, "value": 7, "preemptionPolicy": "Never"},
        {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True},
    ],
    "/apis/node.k8s.io/v1/runtimeclasses": [
        {
            "metadata": {"name": "kata"},
            "handler": "kata",
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {
                "nodeSelector": {"kata": "yes"},
                "tolerations": [{"key": "kata", "operator": "Exists", "effect": "NoSchedule"}],
            },
        }
    ],
    "/apis/storage.k8s.io/v1/storageclasses": [
        {
            "metadata": {
                "name": "fast",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "disk.example",
        }
    ],
    "/apis/networking.k8s.io/v1/ingressclasses": [
        {
            "metadata": {
                "name": "web",
                "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"},
            },
            "spec": {"controller": "web.example/web"},
        }
    ],
}


def pod(*limits: str, **spec: Any) -> tuple[str, str, dict[str, Any]]:
    resources = {"limits": dict(zip(("cpu", "memory"), limits, strict=False))}
    container = {"name": "main", "image": "main:1", "resources": resources}
    return "v1", "pods", {"kind": "Pod", "spec": {"containers": [container], **spec}}


def claim(size: str) -> tuple[str, str, dict[str, Any]]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return "v1", "persistentvolumeclaims", {"kind": "PersistentVolumeClaim", "spec": spec}


BACKEND: Final = {"service": {"name": "web", "port": {"number": 80}}}
MOUNTED: Final = {"volumes": [{"name": "s", "secret": {"secretName": "other"}}]}
ADMITTED: Final = {
    "defaults": pod("0.5", "1Gi"),
    "classes": pod(priorityClassName="gold", runtimeClassName="kata", nodeSelector={"a": "b"}),
    "account": pod("1", "1Gi", serviceAccountName="strict"),
    "claim": claim("2Gi"),
    "ingress": (
        "networking.k8s.io/v1",
        "ingresses",
        {"kind": "Ingress", "spec": {"defaultBackend": BACKEND}},
    ),
}
REFUSED: Final = {
    "too-much": pod("3", "3Gi"),
    "no-account": pod("1", "1Gi", serviceAccountName="none"),
    "a-secret": pod("1", "1Gi", serviceAccountName="strict", **MOUNTED),
    "no-priority": pod("1", "1Gi", priorityClassName="none"),
    "a-priority": pod("1", "1Gi", priority=3),
    "no-runtime": pod("1", "1Gi", runtimeClassName="none"),
    "an-overhead": pod("1", "1Gi", overhead={"cpu": "1"}),
    "a-selector": pod("1", "1Gi", runtimeClassName="kata", nodeSelector={"kata": "no"}),
    "a-small-claim": claim("1Mi"),
}


def test_plug_ins_do_what_those_of_the_api_server_do(gateway: BehindGateway, tmp_path: Path) -> None:
    # The last test of the cluster, because its classes are the default for all Pods.
    api, cluster = gateway.cluster.api, gateway.cluster
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOPS}}
    assert api.create("/api/v1/namespaces", namespace).status == 201
    for path, documents in READ_BY_PLUG_INS.items():
        for document in documents:
            assert api.create(path, document).status == 201
    first = manifest(*ADMITTED["classes"], SHOPS)
    eventually(lambda: dry_run(cluster, *first).document.get("spec", {}).get("overhead"))
    for number, (name, one) in enumerate({**ADMITTED, **REFUSED}.items()):
        path, document = manifest(*one, SHOPS)
        document["metadata"]["name"] = name
        answer = dry_run(cluster, path, document)
        file, final = tmp_path / f"{name}.yaml", tmp_path / f"final-{number}"
        file.write_text(yaml.safe_dump(document))
        arguments = (file, "--config", gateway.config, "--kubeconfig", cluster.kubeconfig(ADMIN))
        done = run_command("preview", *arguments, "--json", "--write", final)
        if name in REFUSED:
            assert answer.status == 403, (name, answer)
            (found,) = json.loads(done.stdout)["objects"]
            denied = [each for each in found["findings"] if each["finding"] == "denied"]
            assert denied, (name, answer)
            assert all(each["message"] in answer.message for each in denied), (name, denied, answer.message)
        else:
            assert answer.status == 201, (name, answer)
            (file,) = final.glob("*/*")
            made, expected = stable(yaml.safe_load(file.read_text())), stable(answer.document)
            assert not list(field_changes(expected, made)), name
            assert made == expected


CREATED_IN: Final = "created"
BY_CONTROLLERS: Final = (
    rule("pods persistentvolumeclaims", "CREATE"),
    rule("replicasets", "CREATE", group="apps"),
    rule("jobs", "CREATE", group="batch"),
)
CLAIMS: Final = [
    {
        "metadata": {"name": "data", "labels": {"claim": "a"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
]
RICH: Final = {
    "metadata": {"labels": {"app": "a"}, "annotations": {"note": "b"}, "finalizers": ["shop.test/keep"]},
    "spec": {
        **POD_SPEC,
        "hostname": "own",
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                    }
                ]
            }
        },
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
    },
}
ONCE: Final = {**RICH, "spec": {**RICH["spec"], "restartPolicy": "Never"}}
INDEXED: Final = {"completionMode": "Indexed", "completions": 1, "template": ONCE}
WORKLOADS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "Deployment": (
        "apps/v1",
        {"selector": SELECTOR, "template": RICH, "replicas": 1, "minReadySeconds": 3},
    ),
    "StatefulSet": (
        "apps/v1",
        {
            "selector": SELECTOR,
            "template": RICH,
            "serviceName": "s",
            "ordinals": {"start": 2},
            "volumeClaimTemplates": CLAIMS,
            **ON_DELETE,
        },
    ),
    "DaemonSet": ("apps/v1", {"selector": SELECTOR, "template": RICH}),
    "Job": ("batch/v1", INDEXED),
    "CronJob": (
        "batch/v1",
        {
            "schedule": "* * * * *",
            "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"template": ONCE}},
        },
    ),
}


@pytest.mark.parametrize("version", CHOSEN)
def test_controllers_create_what_a_preview_says(
    version: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    documents = [
        {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": str(kind).lower(), "namespace": CREATED_IN, "annotations": {"own": "c"}},
            "spec": spec,
        }
        for kind, (api_version, spec) in WORKLOADS.items()
    ]
    expected = predicted(documents, tmp_path)
    hook = Hook("mutate", "seen.policies.test", {}, BY_CONTROLLERS)
    seen: dict[str, tuple[str, dict[str, Any]]] = {}
    # Paths of sockets have to be short.
    folder = tmp_path_factory.mktemp("c")
    with (
        Cluster(obtain(version), folder / "cluster", service_accounts=True, audit=False) as cluster,
        Controllers(cluster, 1),
        Captured(cluster, folder / "captured", [hook], "captured") as captured,
    ):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CREATED_IN}}
        assert cluster.api.create("/api/v1/namespaces", namespace).status == 201
        for one in documents:
            path = f"/apis/{one['apiVersion']}/namespaces/{CREATED_IN}/{str(one['kind']).lower()}s"
            answer = cluster.api.create(path, one)
            assert answer.status == 201, answer

        def all_are_seen() -> bool:
            for review in captured.take("mutate"):
                request = review.request
                if request.get("namespace") == CREATED_IN:
                    seen.setdefault(key_of(request["object"]), as_predicted(request))
            return seen.keys() >= expected.keys()

        eventually(all_are_seen)
    for key, (user, found) in expected.items():
        assert not list(field_changes(seen[key][1], found)), key
        assert seen[key] == (user, found), key


def predicted(documents: list[dict[str, Any]], folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the users and objects that controllers create from *documents*, as a preview says."""
    (folder / "manifests.yaml").write_text(yaml.safe_dump_all(documents))
    head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
    (folder / "config.yaml").write_text(yaml.safe_dump(head))
    arguments = (folder / "manifests.yaml", "--config", folder / "config.yaml", "--json")
    done = run_command("preview", *arguments, "--write", folder / "final")
    assert done.returncode == 0, done.stderr
    users = {
        (one["kind"], one["createdFrom"]["kind"]): one["user"]
        for one in json.loads(done.stdout)["objects"]
        if "createdFrom" in one
    }
    made = {}
    for file in (folder / "final" / CREATED_IN).iterdir():
        found = yaml.safe_load(file.read_text())
        if found["kind"] in WORKLOADS and not found["metadata"].get("ownerReferences"):
            continue
        owners = found["metadata"].get("ownerReferences") or [{"kind": "StatefulSet"}]
        user = users[found["kind"], owners[0]["kind"]]
        made[key_of(found)] = as_predicted({"object": found, "userInfo": {"username": user}})
    assert len(made) == 8
    return made


def key_of(found: dict[str, Any]) -> str:
    """Return what kind of object *found* is, and of which workload: ``Pod of Job job``."""
    [owner] = found["metadata"].get("ownerReferences") or [{"kind": "StatefulSet", "name": "statefulset"}]
    return f"{found['kind']} of {owner['kind']} {owner['name'].partition('-')[0]}"


def as_predicted(request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the user and the object of *request*, without what only a cluster can make up."""
    found = stable_object(request["object"])
    labels = found["metadata"].get("labels", {})
    text = json.dumps(found)
    for name in ("pod-template-hash", "controller-revision-hash"):
        if name in labels:
            text = text.replace(labels[name].rpartition("-")[2], "HASH")
    if found["kind"] == "ReplicaSet":
        text = text.replace(found["metadata"]["name"].rpartition("-")[2], "HASH")
    for pattern, written in (
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
        (r"(replicaset|deployment)-[a-z0-9]{8,10}\b", r"\1-HASH"),
        (r"cronjob-\d{8}", "cronjob-MINUTES"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
        (r'"node-0"', '"node"'),
    ):
        text = re.sub(pattern, written, text)
    return request["userInfo"]["username"], stable(json.loads(text))
