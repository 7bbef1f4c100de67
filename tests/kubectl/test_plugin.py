"""``kubectl admission`` on an API server whose pods are gateways."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
import yaml

from tests.kit import call_command, pool_document, webhook_document
from tests.pages.test_pages import add, fetch, review
from tests.status.test_command import cluster  # noqa: F401 - a fixture
from tests.waiting import eventually

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.kit import GatewayProcess, StartGateway
    from tests.status.test_command import Cluster
    from tests.worker.server import StartWorker

UIDS = {"v": "3b9cbe0b-4ddf-4dc8-8a5b-b61ba1a5a1f5", "m": "77f2ab8e-31a0-4f7f-a9d5-7b6d9a3ea5c0"}
DISCOVERED: dict[str, Any] = {
    "/api": [("", "v1", "pods", "Pod", ["po"]), ("", "v1", "namespaces", "Namespace", ["ns"])],
    "/apis": [
        ("apps", "v1", "deployments", "Deployment", ["deploy"]),
        ("apps", "v1", "replicasets", "ReplicaSet", ["rs"]),
        ("b.io", "v1", "pods", "Pod", []),
    ],
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    },
}


def discovery(path: str) -> dict[str, Any]:
    """Return the aggregated discovery of *path*."""
    items = [
        {
            "metadata": {"name": group},
            "versions": [
                {
                    "version": version,
                    "resources": [
                        {
                            "resource": plural,
                            "singularResource": kind.lower(),
                            "shortNames": short,
                            "responseKind": {"kind": kind},
                            "scope": "Cluster" if kind == "Namespace" else "Namespaced",
                        }
                    ],
                }
            ],
        }
        for group, version, plural, kind, short in DISCOVERED[path]
    ]
    return {"kind": "APIGroupDiscoveryList", "items": items}


class Bed:
    """A cluster with two gateways, and the plug-in for it."""

    reference: str
    """What a person saw whose request was denied."""

    def __init__(self, found: Cluster, gateways: dict[str, GatewayProcess], folder: Path) -> None:
        self.cluster = found
        self.gateways = gateways
        self.folder = folder
        found.admin_ports = {name: gateway.admin_port for name, gateway in gateways.items()}
        info = {"username": "ann", "groups": ["dev", "system:authenticated"]}
        found.documents = {
            **{path: discovery(path) for path in DISCOVERED},
            "/apis/authentication.k8s.io/v1/selfsubjectreviews": {"status": {"userInfo": info}},
        }
        self.kubeconfig = found.kubeconfig(folder)

    def run(self, *arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        environment = {"KUBECONFIG": str(self.kubeconfig)}
        return call_command(
            *arguments,
            stdin=stdin,
            environment=environment,
            program="gateway.tools.kubectl",
            folder=self.folder,
        )


@pytest.fixture
def bed(
    tmp_path: Path,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    cluster: Cluster,  # noqa: F811 - the fixture
) -> Bed:
    (tmp_path / "config").mkdir()
    pods = {
        "webhook": {
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["pods"]}]
        }
    }
    denies = {"deny": {"message": "no team"}, **pods}
    changes = {"patch": [add("/metadata/annotations", {"a": "one"})]}
    reference = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "decisionReference": "Warning",
    }
    (tmp_path / "config" / "g.yaml").write_text(yaml.safe_dump(reference))
    (tmp_path / "config" / "c.yaml").write_text(
        pool_document("pool", start_worker().target)
        + webhook_document("mutate", "m", "pool", changes)
        + webhook_document("validate", "v", "pool", denies)
    )
    gateways = {name: start_gateway(tmp_path / "config") for name in ("gateway-a", "gateway-b")}
    found = Bed(cluster, gateways, tmp_path)
    gateways["gateway-a"].review("/mutate", review(UIDS["m"], name="web", namespace="shop"))
    denied = gateways["gateway-b"].review("/validate", review(UIDS["v"], name="web", namespace="shop"))
    found.reference = denied["warnings"][0]
    for uid in UIDS.values():
        eventually(lambda uid=uid: found.run("why", uid).returncode == 0, "the decision")  # type: ignore[misc]
    return found


@pytest.mark.process
@pytest.mark.smoke
def test_a_decision_is_found_by_uid_by_reference_and_by_object_in_whichever_replica_made_it(bed: Bed) -> None:
    by_uid = bed.run("why", UIDS["v"])
    assert (by_uid.returncode, by_uid.stderr) == (0, "")
    assert "  v/h0.v.test: Denied by " in by_uid.stdout
    assert "  at gateway-b" in by_uid.stdout.split("\n")
    line = f"Warning: {bed.reference}\nError from server: no team"
    page = f"http://localhost:9090/decisions/{UIDS['v']}"
    in_shop = ("-n", "shop")
    for words in ((line,), (page,), ("pod/web", *in_shop), ("po", "web", *in_shop), ("Pods/web", *in_shop)):
        done = bed.run("why", *words)
        assert (done.returncode, done.stderr) == (0, ""), words
        assert done.stdout == by_uid.stdout, words
    options = ("--kubeconfig", bed.kubeconfig, "--namespace", "policies")
    command = shlex.split(bed.reference.rpartition("run: ")[2])
    assert command[0] == "admission-gateway"
    for arguments in (command[1:], ["decisions", line, "--cluster"]):
        assert call_command(*arguments, *options).stdout == by_uid.stdout, arguments
    search = f"/decisions?{urlencode({'uid': line})}"
    pages = {name: fetch(gateway, search)[2] for name, gateway in bed.gateways.items()}
    assert f'href="./decisions/{UIDS["v"]}"' in pages["gateway-b"]
    assert f"<code>{' '.join(command)}</code>" in pages["gateway-a"], "another replica has it"
    (bed.folder / "web.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}})
    )
    assert bed.run("why", "-f", "web.json").stdout == by_uid.stdout
    both = json.loads(bed.run("why", "pod/web", "-n", "shop", "--limit", "2", "-o", "json").stdout)
    assert [one["uid"] for one in both["decisions"]] == [UIDS["v"], UIDS["m"]]
    assert [one["name"] for one in both["gateways"]] == ["gateway-a", "gateway-b", "new"]
    changed = bed.run("why", UIDS["m"]).stdout
    assert "  changes:\n" in changed
    assert "    +    a: one" in changed.split("\n")


@pytest.mark.process
def test_a_workload_has_the_decisions_about_its_pods_which_have_no_name_yet(bed: Bed) -> None:
    owner = {"kind": "ReplicaSet", "name": "web-5cc858f67d", "apiVersion": "apps/v1", "uid": "x"}
    metadata = {"generateName": "web-5cc858f67d-", "namespace": "shop", "ownerReferences": [owner]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    uid = "5f0f6a4e-2f7b-4c26-9a50-0b8f5b6f3a11"
    bed.gateways["gateway-a"].review("/validate", review(uid, name="", namespace="shop", object=pod))
    eventually(lambda: bed.run("why", uid).returncode == 0, "the decision")
    for workload in ("deploy/web", "replicasets/web-5cc858f67d"):
        done = bed.run("why", workload, "-n", "shop")
        assert (done.returncode, done.stderr) == (0, ""), workload
        assert "Denied by h0.v.test: CREATE Pod shop/(no name yet)\n" in done.stdout
    assert bed.run("why", "deploy/we", "-n", "shop").returncode == 1


@pytest.mark.process
def test_an_object_that_no_replica_remembers_is_reviewed_now(bed: Bed) -> None:
    absent = bed.run("why", "pod", "other", "-n", "shop")
    assert absent.returncode == 1
    for words in (
        "no replica remembers a decision about Pod shop/other:",
        "  gateway-a: has denials and failures since 20",
        "--tail=-1 | grep other",
        "admission-gateway audit",
    ):
        assert words in absent.stderr
    assert absent.stdout.startswith("Pod shop/other does not exist.")
    stored = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "other", "namespace": "shop", "uid": "x"},
    }
    bed.cluster.documents["/api/v1/namespaces/shop/pods/other"] = stored
    denied = bed.run("why", "pod/other", "-n", "shop")
    assert denied.returncode == 1
    assert denied.stdout.startswith(
        "The configuration in force denies its creation (a dry run, at gateway-a):\n"
    )
    assert "    no team" in denied.stdout.split("\n")
    assert "to see why" not in denied.stdout, "a dry run is not kept"
    found = json.loads(bed.run("why", "pod/other", "-n", "shop", "-o", "json").stdout)
    assert [one["allowed"] for one in found["dryRun"]] == [True, False]
    unknown = bed.run("why", "deploymnt/web")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr == (
        'kubectl admission: the cluster has no resource type the string "deploymnt"; '
        'did you mean "deployments"?\n'
    )


@pytest.mark.process
def test_a_preview_asks_a_gateway_about_the_objects_and_what_controllers_create(bed: Bed) -> None:
    (bed.folder / "web.yaml").write_text(yaml.safe_dump(DEPLOYMENT))
    done = bed.run("preview", "-f", "web.yaml", "-n", "shop")
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.split("\n")
    place = next(line for line in lines if ": Deployment" in line).partition(": ")[0]
    assert place.startswith("web.yaml:")
    assert f"{place}: Deployment shop/web: allowed" in lines
    pod = next(line for line in lines if "created from ReplicaSet shop/web-" in line)
    assert pod.endswith(": denied")
    assert "    no team" in lines
    assert lines[-2].startswith("3 objects as ann: 2 allowed, 1 denied, by the configuration in force (")
    found = json.loads(bed.run("preview", "-", "-o", "json", stdin=json.dumps(DEPLOYMENT).encode()).stdout)
    assert [one["allowed"] for one in found["objects"]] == [True, True, False]
    assert found["user"] == "ann"
    assert found["objects"][0]["object"] == "Deployment default/web"
    (bed.folder / "bad.yaml").write_text("a: 1\n")
    bad = bed.run("preview", "bad.yaml")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("bad.yaml:1:1: error: ")


@pytest.mark.process
def test_the_gateway_is_found_and_a_missing_right_is_named(bed: Bed) -> None:
    bed.cluster.namespace = "policies"
    status = json.loads(bed.run("status", "-o", "json").stdout)
    assert [one["name"] for one in status["gateways"]] == ["gateway-a", "gateway-b", "new"]
    assert bed.run("decisions", "-n", "shop", "--outcome", "Denied").stdout.count("Denied by") == 1
    nowhere = bed.run("status", "--gateway-namespace", "other")
    assert nowhere.stderr.startswith("kubectl admission: no pods in namespace other with the labels app.kub")
    bed.cluster.forwards = False
    bed.cluster.refusal = (
        'pods "gateway-a" is forbidden: User "ann" cannot get resource "pods/portforward" in API group "" in '
        'the namespace "policies"'
    )
    check = "kubectl auth can-i get pods --subresource=portforward --namespace policies"
    for proxies in (True, False):
        bed.cluster.proxies = proxies
        refused = bed.run("why", UIDS["v"])
        assert refused.returncode == 1
        assert f"{bed.cluster.refusal}; to see whether you may: {check}\n" in refused.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("pod/web", "-f", "x"),
        ("pod", "web", "api"),
        ("a/b/c",),
        ("pod/web", "--limit", "0"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(arguments: tuple[str, ...]) -> None:
    done = call_command("why", *arguments, program="gateway.tools.kubectl")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kubectl admission why: ")
    assert done.stderr.count("\n") == 1
