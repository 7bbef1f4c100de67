"""What ``check --cluster`` predicts is what the API server does while the gateway is away."""

from __future__ import annotations

import base64
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from gateway.tools.deadlocks.compute import lock_outs
from gateway.tools.deadlocks.subjects import ClusterObjects
from tests.deadlocks.kit import entry, pod, registration, rule, service, without
from tests.e2e.setups import REGISTRATIONS
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gateway.tools.deadlocks.model import Request
    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

    Json = dict[str, Any]

NAME: Final = "lock-outs"
PATH: Final = f"{REGISTRATIONS}/validatingwebhookconfigurations"
NAMESPACES: Final = ("calico", "policies", "shop")
DRAWS: Final = 50
REFUSED: Final = {
    *("CREATE pods", "CREATE pods/binding", "CREATE pods/eviction", "DELETE pods", "CONNECT pods/exec"),
    *("UPDATE pods/status", "CREATE nodes", "UPDATE nodes", "UPDATE nodes/status"),
    *("UPDATE leases.coordination.k8s.io", "CREATE serviceaccounts/token"),
    *("UPDATE certificatesigningrequests.certificates.k8s.io/approval", "UPDATE daemonsets.apps/status"),
}
"""Requests of which some draws refuse one, and others do not."""
DEAD: Final = {"url": "https://127.0.0.1:1/validate"}
"""A URL that refuses connections, as an API server sees a Service without endpoints."""
MADE: Final = "made"
"""The name of an object whose name is not known before."""
METHODS: Final = {"CREATE": "POST", "UPDATE": "PUT", "DELETE": "DELETE", "CONNECT": "POST"}
SELECTED: Final[Json] = {
    "selector": {"matchLabels": {"app": "any"}},
    "template": {
        "metadata": {"labels": {"app": "any"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    },
}
ROLE: Final = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "none"}
BODIES: Final[Json] = {
    "apiservices": {
        "spec": {"group": "apps", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
    },
    "certificatesigningrequests": {
        "spec": {
            "signerName": "kubernetes.io/kubelet-serving",
            "usages": ["digital signature", "server auth"],
        }
    },
    "clusterrolebindings": {"roleRef": ROLE},
    "clusterroles": {"rules": []},
    "configmaps": {},
    "controllerrevisions": {"revision": 1, "data": {"spec": {}}},
    "csinodes": {"spec": {"drivers": []}},
    "daemonsets": {"spec": SELECTED},
    "deployments": {"spec": SELECTED},
    "endpoints": {},
    "endpointslices": {"addressType": "IPv4", "endpoints": []},
    "leases": {"spec": {}},
    "namespaces": {},
    "nodes": {},
    "pods": {},
    "pods/binding": {"target": {"kind": "Node", "name": "node"}},
    "pods/eviction": {},
    "pods/exec": {},
    "priorityclasses": {"value": 2_000_001_000},
    "replicasets": {"spec": SELECTED},
    "rolebindings": {"roleRef": ROLE},
    "roles": {"rules": []},
    "serviceaccounts": {},
    "serviceaccounts/token": {"spec": {"audiences": ["any"]}},
    "services": {"spec": {"ports": [{"port": 443}]}},
    "statefulsets": {"spec": {**SELECTED, "serviceName": "any"}},
    "volumeattachments": {
        "spec": {"attacher": "any", "nodeName": "node", "source": {"persistentVolumeName": "any"}}
    },
}
"""What objects need beside a name. Whatever is updated is there already, or is created so."""
CONDITIONS: Final = (
    '!("system:nodes" in request.userInfo.groups)',
    'request.userInfo.username != "system:apiserver"',
    'request.userInfo.username != "system:kube-scheduler"',
    'request.userInfo.username.startsWith("system:serviceaccount:kube-system:")',
    'request.resource.resource != "nodes"',
    'has(request.namespace) && request.namespace == "shop"',
    'has(request.subResource) && request.subResource == "status"',
    'request.kind.kind == "Pod" && object.metadata.labels.app == "shop"',
    'request.operation != "CREATE" || request.resource.group == ""',
    "object.metadata.name != ''",
    "oldObject == null",
)
RESOURCES: Final = (
    *("*", "*/*", "*/status", "pods", "pods/*", "pods/binding", "pods/status", "pods/eviction"),
    *("nodes", "nodes/status", "leases", "certificatesigningrequests", "clusterroles"),
    *("certificatesigningrequests/approval", "serviceaccounts/token"),
)
OPERATIONS: Final = (("*",), ("*",), ("CREATE",), ("UPDATE",), ("CREATE", "UPDATE"), ("DELETE", "CONNECT"))


def drawn_entry(draw: random.Random, index: int) -> Json:
    resources = draw.sample(RESOURCES, draw.choice((1, 1, 2)))
    # What is covered by another one may not be named beside it.
    if "*/*" in resources:
        resources = ["*/*"]
    elif "*" in resources:
        resources = ["*", *(one for one in resources if "/" in one)]
    elif "pods/*" in resources:
        resources = ["pods/*", *(one for one in resources if not one.startswith("pods"))]
    elif "*/status" in resources:
        resources = [one for one in resources if one == "*/status" or not one.endswith("/status")]
    scope = draw.choice(("*", "*", "Namespaced", "Cluster"))
    versions = draw.choice((["*"], ["v1"], ["v1beta1"]))
    one = {**rule(*resources, scope=scope, operations=draw.choice(OPERATIONS)), "apiVersions": versions}
    more: Json = {}
    if draw.random() < 0.4:
        left_out = draw.sample((*NAMESPACES, "kube-system", "kube-node-lease"), draw.choice((1, 3)))
        more["namespaceSelector"] = without(*left_out)
    if draw.random() < 0.3:
        more["objectSelector"] = {"matchLabels": {"app": draw.choice(("shop", "calico-node"))}}
    if draw.random() < 0.5:
        more["matchConditions"] = [{"name": "one", "expression": draw.choice(CONDITIONS)}]
    more["matchPolicy"] = draw.choice(("Exact", "Equivalent"))
    return entry(one, name=f"e{index}.admission-gateway.io", clientConfig=DEAD, **more)


def marker(number: int) -> Json:
    """An entry by which a test sees that the registration *number* is in force."""
    return entry(
        rule("configmaps", group="", operations=("CREATE",)),
        name="marker.admission-gateway.io",
        clientConfig=DEAD,
        objectSelector={"matchLabels": {"registration": str(number)}},
    )


def wait_until_in_force(cluster: Cluster, number: int) -> None:
    marked = {"metadata": {"name": "one", "labels": {"registration": str(number)}}}
    path = "/api/v1/namespaces/default/configmaps?dryRun=All"
    eventually(lambda: "marker.admission-gateway.io" in cluster.api.create(path, marked).message)


def list_path(request: Request) -> str:
    group = f"apis/{request.group}" if request.group else "api"
    is_inside = request.namespace and request.resource != "namespaces"
    namespace = f"/namespaces/{request.namespace}" if is_inside else ""
    return f"/{group}/v1{namespace}/{request.resource.partition('/')[0]}"


def object_path(request: Request) -> str:
    """The path of the object itself, which is there unless the request creates it."""
    return f"{list_path(request)}/{request.name or MADE}"


def body_of(request: Request, resource: str) -> Json:
    """An object as *resource* of *request* is created."""
    is_main = "/" in request.resource and "/" not in resource
    group, version, kind = (request.group, "v1", "") if is_main else request.kind
    head: Json = {"apiVersion": f"{group}/{version}" if group else version}
    if kind:
        head["kind"] = kind
    metadata: Json = {"name": request.name or MADE, "labels": dict(request.labels or {})}
    return {**head, "metadata": metadata, **BODIES[resource]}


def furnish(cluster: Cluster, requests: Iterable[Request], pods: list[Json]) -> list[str]:
    """Create what *requests* act on, and return the paths of what was not there."""
    made = []
    of_namespace = {one["metadata"]["namespace"]: one for one in pods}
    for request in requests:
        if request.operation == "CREATE" and "/" not in request.resource:
            continue
        path, main = object_path(request), request.resource.partition("/")[0]
        if cluster.api.get(path).status == 200:
            continue
        body = body_of(request, main)
        if main == "pods":
            of = of_namespace[request.namespace]
            body = {
                "metadata": {"name": request.name, "labels": of["metadata"]["labels"]},
                "spec": of["spec"],
            }
        answer = cluster.api.create(list_path(request), body)
        assert answer.status == 201, (path, answer.message)
        made.append(path)
    return made


def send(cluster: Cluster, request: Request) -> Answer:
    # Impersonation has one header for each group, and the client one value for each name.
    headers = {"Impersonate-User": request.user or "somebody", "Impersonate-Group": "system:masters"}
    for spelling, name in zip(
        ("impersonate-group", "Impersonate-group", "IMPERSONATE-GROUP"), request.groups, strict=False
    ):
        headers[spelling] = name
    method, sub_resource = METHODS[request.operation], request.resource.partition("/")[2]
    path, body = object_path(request), None
    if method == "PUT":
        body = cluster.api.get(path).document
    elif method == "POST":
        body = body_of(request, request.resource)
        if not sub_resource:
            path = list_path(request)
        if request.object is not None:
            body = dict(request.object)
    options = "command=any" if request.operation == "CONNECT" else "dryRun=All"
    path += f"/{sub_resource}?{options}" if sub_resource else f"?{options}"
    return cluster.api.request(method, path, body, **headers)


def collected(cluster: Cluster, configuration: Json, pods: list[Json]) -> ClusterObjects:
    namespaces = cluster.api.get("/api/v1/namespaces").document["items"]
    return ClusterObjects(
        [configuration], namespaces, pods, [], [service("gateway", "policies", app="gateway")]
    )


def predictions(found: ClusterObjects) -> Iterator[tuple[Request, set[str], bool]]:
    """Yield each request with the entries that refuse it, and whether there are others that perhaps do."""
    for one in lock_outs(found).results:
        for request in one.subject.requests:
            refusals = [refusal for refusal in one.refusals if refusal.request is request]
            certain = {refusal.entry.hook.name for refusal in refusals if refusal.is_certain}
            yield request, certain, len(certain) < len(refusals)


def test_predictions_for_drawn_registrations_are_what_the_api_server_does(cluster: Cluster) -> None:
    for name in NAMESPACES:
        made = cluster.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        assert made.status in (201, 409), made
    signing = BODIES["certificatesigningrequests"]["spec"]
    signing.setdefault("request", base64.b64encode(certificate_request()).decode())
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    pods = [
        pod("DaemonSet/calico-node", "calico", hostNetwork=True, tolerations=[{"operator": "Exists"}]),
        pod("Deployment/gateway", "policies"),
        pod("StatefulSet/shop", "shop", volumes=[claim]),
        pod("Deployment/dns", "kube-system"),
    ]
    for one in pods:
        one["metadata"]["generateName"] = "made-"
        for reference in one["metadata"]["ownerReferences"]:
            reference.update(apiVersion="apps/v1", uid="1")
        del one["metadata"]["name"]
    counts = {"refused": Counter[str](), "starts": Counter[str](), "perhaps": Counter[str]()}
    everything = [request for request, *_ in predictions(collected(cluster, registration(), pods))]
    paths = furnish(cluster, everything, pods)
    try:
        for number in range(DRAWS):
            draw = random.Random(number)
            entries = [drawn_entry(draw, index) for index in range(draw.choice((1, 1, 2)))]
            configuration = registration(*entries, marker(number), name=NAME)
            cluster.api.delete(f"{PATH}/{NAME}")
            made = cluster.api.create(PATH, configuration)
            assert made.status == 201, made
            wait_until_in_force(cluster, number)
            for request, certain, is_perhaps in predictions(collected(cluster, configuration, pods)):
                answer = send(cluster, request)
                shown = (number, request.step, request.namespace, request.user, answer.message, entries)
                is_refused = "failed calling webhook" in answer.message
                if certain:
                    assert is_refused, shown
                    counts["refused"][request.step] += 1
                elif is_perhaps:
                    counts["perhaps"][request.step] += 1
                else:
                    # To exec into a Pod that does not run fails in another way.
                    is_done = answer.status in (200, 201, 409) or request.operation == "CONNECT"
                    assert is_done and not is_refused, shown  # noqa: PT018
                    counts["starts"][request.step] += 1
    finally:
        cluster.api.delete(f"{PATH}/{NAME}")
        for path in reversed(paths):
            cluster.api.delete(path)
        for name in NAMESPACES:
            cluster.api.delete(f"/api/v1/namespaces/{name}")
    assert set(counts["starts"]) == {request.step for request in everything}
    assert set(counts["refused"]) >= REFUSED, counts


def certificate_request() -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, "system:node:node"),
        ]
    )
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)
