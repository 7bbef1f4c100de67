"""What ``check --cluster`` predicts is what the API server does while the gateway is away."""

from __future__ import annotations

import base64
import random
from typing import TYPE_CHECKING, Any, Final

from gateway.tools.deadlocks.compute import lock_outs
from gateway.tools.deadlocks.subjects import ClusterObjects
from tests.deadlocks.kit import entry, pod, registration, rule, service, without
from tests.e2e.setups import REGISTRATIONS
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.tools.deadlocks.model import Request
    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

    Json = dict[str, Any]

NAME: Final = "lock-outs"
PATH: Final = f"{REGISTRATIONS}/validatingwebhookconfigurations"
NAMESPACES: Final = ("calico", "policies", "shop")
DRAWS: Final = 80
DEAD: Final = {"url": "https://127.0.0.1:1/validate"}
"""A URL that refuses connections, as an API server sees a Service without endpoints."""
SPECS: Final[Json] = {
    "leases": {},
    "nodes": {},
    "csinodes": {"drivers": []},
    "certificatesigningrequests": {
        "signerName": "kubernetes.io/kubelet-serving",
        "usages": ["digital signature", "server auth"],
    },
}
BODIES: Final[Json] = {
    "clusterroles": {"rules": []},
    "clusterrolebindings": {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "none"}
    },
    "endpointslices": {"addressType": "IPv4", "endpoints": []},
    "roles": {"rules": []},
    "serviceaccounts": {},
}
CONDITIONS: Final = (
    '!("system:nodes" in request.userInfo.groups)',
    'request.userInfo.username != "system:apiserver"',
    'request.resource.resource != "nodes"',
    'has(request.namespace) && request.namespace == "shop"',
    'request.kind.kind == "Pod" && object.metadata.labels.app == "shop"',
    'request.operation != "CREATE" || request.resource.group == ""',
    "object.metadata.name != ''",
)
RESOURCES: Final = (
    "*",
    "*/*",
    "pods",
    "pods/*",
    "nodes",
    "leases",
    "certificatesigningrequests",
    "clusterroles",
)


def drawn_entry(draw: random.Random, index: int) -> Json:
    resources = draw.sample(RESOURCES, draw.choice((1, 1, 2)))
    if "*/*" in resources:
        resources = ["*/*"]
    elif "*" in resources:
        resources = ["*"]
    elif "pods/*" in resources:
        resources = [one for one in resources if one != "pods"]
    scope = draw.choice(("*", "*", "Namespaced", "Cluster"))
    versions = draw.choice((["*"], ["v1"], ["v1beta1"]))
    one = {**rule(*resources, scope=scope), "apiVersions": versions}
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


def body_of(request: Request) -> Json | None:
    """The object of a CREATE, or None if this test makes none of the kind."""
    if request.operation != "CREATE":
        return None
    if request.resource == "pods":
        return dict(request.object or {})
    group, version, kind = request.kind
    labels = {} if request.labels is None else dict(request.labels)
    head: Json = {
        "apiVersion": f"{group}/{version}" if group else version,
        "kind": kind,
        "metadata": {"name": f"{request.name or 'made'}-0", "labels": labels},
    }
    if request.resource in SPECS:
        return {**head, "spec": SPECS[request.resource]}
    return {**head, **BODIES[request.resource]} if request.resource in BODIES else None


def send(cluster: Cluster, request: Request, body: Json) -> Answer:
    group = f"apis/{request.group}" if request.group else "api"
    namespace = f"/namespaces/{request.namespace}" if request.namespace else ""
    # Impersonation has one header for each group, and the client one value for each name.
    headers = {"Impersonate-User": request.user, "Impersonate-Group": "system:masters"}
    for spelling, name in zip(
        ("impersonate-group", "Impersonate-group", "IMPERSONATE-GROUP"), request.groups, strict=False
    ):
        headers[spelling] = name
    path = f"/{group}/v1{namespace}/{request.resource}?dryRun=All"
    return cluster.api.request("POST", path, body, **headers)


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
    signing = SPECS["certificatesigningrequests"]
    signing.setdefault("request", base64.b64encode(certificate_request()).decode())
    pods = [
        pod("DaemonSet/calico-node", "calico", hostNetwork=True, tolerations=[{"operator": "Exists"}]),
        pod("Deployment/gateway", "policies"),
        pod("StatefulSet/shop", "shop"),
        pod("Deployment/dns", "kube-system"),
    ]
    for one in pods:
        one["metadata"]["generateName"] = "made-"
        for reference in one["metadata"]["ownerReferences"]:
            reference.update(apiVersion="apps/v1", uid="1")
        del one["metadata"]["name"]
    counts = {"refused": 0, "starts": 0, "perhaps": 0}
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
                body = body_of(request)
                if body is None or not request.user:
                    continue
                answer = send(cluster, request, body)
                shown = (number, request.step, request.namespace, request.user, answer.message, entries)
                if certain:
                    assert "failed calling webhook" in answer.message, shown
                    counts["refused"] += 1
                elif is_perhaps:
                    counts["perhaps"] += 1
                else:
                    assert answer.status in (201, 409), shown
                    counts["starts"] += 1
    finally:
        cluster.api.delete(f"{PATH}/{NAME}")
        for name in NAMESPACES:
            cluster.api.delete(f"/api/v1/namespaces/{name}")
    assert min(counts["refused"], counts["starts"]) > 100, counts


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
