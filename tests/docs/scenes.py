"""What the pages suppose a reader to have before their first command: files, and names for placeholders."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import trustme
import yaml

from tests.audit.kit import World, deployment, owned
from tests.audit.kit import pod as new_pod
from tests.docs.pages import DOCS, ROOT
from tests.docs.reader import blocks
from tests.importing.test_command import hold as hold_webhooks
from tests.importing.test_other_engines import constraint, template
from tests.importing.test_other_engines import hold as hold_documents
from tests.kit import REVIEWS, free_port, webhook_document
from tests.kubernetes.server import ApiServer
from tests.migrating.kit import old_engine, pod
from tests.replay.kit import made_of, policy, recording, review
from tests.replay.test_plans import at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.docs.reader import Reader

    Json = dict[str, Any]

TEAM: Final = "(has(object.metadata.labels) && 'team' in object.metadata.labels)"
POD: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "labels": {"team": "shop"}},
    "spec": {"containers": [{"name": "app", "image": "nginx:1.29"}]},
}
OF_SHOP: Final = {"metadata": {"name": "shop", "labels": {"team": "team-shop"}}}
CHECKOUT: Final = (".venv", "deploy", "docs", "gateway", "tests", "workers")


def set_up(reader: Reader, page: str) -> None:
    """Give *reader* what *page* supposes."""
    DEFAULT(reader) if page not in SCENES else SCENES[page](reader)


def put(folder: Path, **files: str | Json) -> None:
    """Write files in YAML by their names, in which ``__`` stands for a slash."""
    for name, content in files.items():
        file = folder / f"{name.replace('__', '/')}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))


def checkout(reader: Reader) -> None:
    """Put the reader into a clone of the repository."""
    for name in CHECKOUT:
        (reader.folder / name).symlink_to(ROOT / name)
    reader.replaced["make run"] = ".venv/bin/admission-gateway serve --dev"


def configuration(reader: Reader) -> None:
    """A configuration with a policy on Pods, and a certificate, objects, recordings and a test."""
    folder = reader.folder
    settings = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
    files = {"certFile": "../tls/tls.crt", "keyFile": "../tls/tls.key"}
    put(
        folder,
        config__policies=policy("team-label", TEAM, "pods"),
        config__gateway={**settings, "tls": files},
        pod=POD,
        new=POD,
        stored=POD,
        manifests__web=POD,
        policies__tests={
            "apiVersion": settings["apiVersion"],
            "kind": "PolicyTest",
            "config": ["../config"],
            "cases": [{"name": "labels/team", "object": POD, "expect": {"allowed": True}}],
        },
    )
    (folder / "tls").mkdir(exist_ok=True)
    issued = trustme.CA().issue_cert("localhost", "127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(folder / "tls/tls.key"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "tls/tls.crt"))
    (folder / "ca.crt").write_bytes(issued.cert_chain_pems[0].bytes())
    recordings(reader, *[request_of_pod(number) for number in range(3)])
    asked = json.loads((REVIEWS / "pod-create-validate.json").read_bytes())
    asked["request"]["object"]["metadata"]["labels"] = {"team": "shop"}
    (folder / "REVIEW.json").write_text(json.dumps(asked))
    for path, here in (
        ("/etc/kubernetes/admission", "admission"),
        ("/var/lib/admission-gateway", "state"),
    ):
        (folder / here).mkdir(exist_ok=True)
        reader.replaced[path] = str(folder / here)


def recordings(reader: Reader, *requests: Json, **members: Any) -> None:
    """Recorded reviews of *requests* in the namespace shop, which were allowed."""
    (reader.folder / "recordings").mkdir(exist_ok=True)
    lines = [review(one, namespace=OF_SHOP, time="2026-11-20T10:00:00Z", **members) for one in requests]
    recording(reader.folder / "recordings/r.jsonl.gz", *lines)


def request_of_pod(number: int, **labels: str) -> Json:
    """The request by which a Pod is created; by default it has the label team."""
    request: Json = made_of("web", "shop", "nginx:1")[3]
    request["object"]["metadata"]["labels"] = labels or {"team": "shop"}
    return {**request, "uid": f"web-{number}"}


def history(reader: Reader) -> None:
    """Also two configurations that were in force, the first of which has the digest of the pages."""
    configuration(reader)
    old_cluster(reader)
    for kept in ("team", "owner"):
        text = policy(f"{kept}-label", TEAM.replace("team", kept), "pods")
        put(reader.folder, config__policies=text)
        reader.start("admission-gateway serve --config config --state state")
        reader.running.pop().stop()
    listed = reader.command("admission-gateway rollback --state state --list --json")
    reader.replaced["389fdff1a7ed"] = json.loads(listed.stdout)["configurations"][-1]["digest"]
    put(reader.folder, config__policies=policy("team-label", TEAM, "pods"))
    (reader.folder / "state/plans").mkdir()
    (reader.folder / ".config/fish/completions").mkdir(parents=True)
    reader.variables = f"fpath=(/ {reader.folder})\n"


def labelled(document: Json) -> Json:
    """The object with the label team."""
    return {**document, "metadata": {**document["metadata"], "labels": {"team": "shop"}}}


def old_cluster(reader: Reader) -> None:
    """A cluster with Gatekeeper, whose constraint denies what has the name a, and two recorded reviews."""

    def answer(request: Json, _: str) -> Json:
        if request["object"]["metadata"]["name"] != "a":
            return {"allowed": True}
        return {"allowed": False, "status": {"code": 403, "message": "[a] no"}}

    engine = reader.stack.enter_context(old_engine(reader.folder, answer))
    server = reader.stack.enter_context(ApiServer())
    (_, validating) = engine.registrations()
    validating["metadata"] = {
        "name": "gatekeeper-validating-webhook-configuration",
        "labels": {"gatekeeper.sh/system": "yes"},
    }
    client = validating["webhooks"][0]["clientConfig"]
    client["url"] = client["url"].replace("/validate", "/v1/admit")
    hold_documents(server, "templates.gatekeeper.sh/v1", plurals={"constrainttemplates": [template("Good")]})
    hold_documents(server, "constraints.gatekeeper.sh/v1beta1", plurals={"good": [constraint("Good", "a")]})
    hold_webhooks(server, validating)
    reader.environment["KUBECONFIG"] = str(server.kubeconfig(reader.folder))
    put(reader.folder, policies__a=template("Good"), webhooks=validating)
    denied = pod(1)
    denied["object"]["metadata"]["name"] = denied["name"] = "a"
    recordings(reader, *({**one, "object": labelled(one["object"])} for one in (pod(2), denied)))


def audited(reader: Reader) -> None:
    """A cluster with a policy that some of its objects do not follow."""
    server = reader.stack.enter_context(ApiServer())
    world = World(server, reader.folder)
    world.define_reports()
    world.policy("team-label")
    server.put("shop", team="shop")
    of_web = owned("ReplicaSet", "web-5d4f", "r", "5d4f")
    for number in range(3):
        world.add("shop", "pods", f"web-5d4f-{number}", **new_pod(**of_web))
    world.add("shop", "pods", "debug", **new_pod())
    world.add("bank", "configmaps", "rates", data={"usd": "1"})
    world.add("bank", "pods", "good", **new_pod(labels={"team": "bank"}))
    world.add("shop", "deployments", "web", **deployment(app="web"))
    kubeconfig = server.kubeconfig(reader.folder)
    document = yaml.safe_load(kubeconfig.read_text())
    document["contexts"].append({**document["contexts"][0], "name": "staging"})
    kubeconfig.write_text(yaml.safe_dump(document))
    reader.environment["KUBECONFIG"] = str(kubeconfig)
    reader.replaced[":9091"] = f":{free_port()}"


def old_and_new(reader: Reader) -> None:
    """Two configurations, and recordings in which a Deployment has an image without a tag."""
    configuration(reader)
    expression = (
        "(object.kind == 'Pod' ? object.spec : dyn(object.spec).template.spec)"
        ".containers.all(c, c.image.contains(':'))"
    )
    put(reader.folder, config__policies=policy("no-latest", expression))
    for folder in ("old", "new"):
        put(reader.folder, **{f"{folder}__policies": policy("team-label", "true", "pods")})
    recordings(reader, *made_of("web", "shop", "nginx"), *made_of("api", "shop", "nginx:1"))
    event = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Request",
        "auditID": "1",
        "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/shop/pods",
        "verb": "create",
        "user": {"username": "alice"},
        "objectRef": {"resource": "pods", "namespace": "shop", "apiVersion": "v1"},
        "responseStatus": {"code": 201},
        "requestObject": POD,
        "requestReceivedTimestamp": "2026-11-20T10:00:00Z",
    }
    (reader.folder / "audit.log").write_text(json.dumps(event) + "\n")


def planned(reader: Reader) -> None:
    """A worker, a plan of the page for its policy, and 61 recorded reviews, one of them without a team."""
    first = next(block for block in blocks(DOCS / "rollout-plans.md") if block.language == "yaml")
    (hook,) = yaml.safe_load(first.content)["webhooks"]
    command = [sys.executable, "-m", "admission_gateway_worker.samples"]
    named = {"name": hook["name"], "rollout": hook["rollout"]}
    fields = {"clientConfig": {"worker": {"pool": "team", "policy": "require-labels"}}}
    document = json.loads(webhook_document("validate", "team", "team", {}).removesuffix("---\n"))
    document["webhooks"][0] |= {**named, **fields}
    pool = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "WorkerPool", "metadata": {"name": "team"}}
    put(reader.folder, config__team=document, config__pool={**pool, "spec": {"command": command}})
    (reader.folder / "recordings").mkdir()
    reviews = [*((hour, "web", "default") for hour in range(60)), (36, "web", "shop")]
    lines = [at(*one) for one in reviews]
    for line in lines:
        labels = {} if line["namespace"]["metadata"]["name"] == "shop" else {"team": "a"}
        line["request"]["object"]["metadata"]["labels"] = labels
    recording(reader.folder / "recordings/r.jsonl.gz", *lines)


def previewed(reader: Reader) -> None:
    """The sample configuration."""
    put(reader.folder, config__gateway=(ROOT / "gateway/dev.yaml").read_text())


def of_kyverno(reader: Reader) -> None:
    """The documents that the page names: a policy that runs, one that does not, and a test with its Pod."""
    head = "apiVersion: policies.kyverno.io/v1\nkind: GeneratingPolicy\nmetadata: {name: copy-secrets}\n"
    test = "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\n---\napiVersion: v1\nkind: Pod\n"
    put(
        reader.folder,
        policies__a=f"{example('kyverno.md')}---\n{head}",
        policies__tests__test=test,
    )


def of_gatekeeper(reader: Reader) -> None:
    """The documents of the page, and a Namespace without labels."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    put(reader.folder, policies__a=example("gatekeeper.md"), namespace=namespace)


def of_kubewarden(reader: Reader) -> None:
    """The policy of the page beside a group."""
    policy = list(yaml.safe_load_all(example("kubewarden.md")))[-1]
    group = {**policy, "kind": "ClusterAdmissionPolicyGroup", "metadata": {"name": "signed-or-old"}}
    put(reader.folder, policies__a=yaml.safe_dump_all([policy, group]))


def beside_the_api_server(reader: Reader) -> None:
    """A configuration whose certificate is made by the commands of the page."""
    configuration(reader)
    settings = yaml.safe_load((reader.folder / "config/gateway.yaml").read_text())
    put(
        reader.folder,
        config__gateway={**settings, "tls": {"certFile": "../tls.crt", "keyFile": "../tls.key"}},
    )


def with_decisions(reader: Reader) -> None:
    """Lines of the decision log."""
    webhook = {"webhook": "a.example.com", "outcome": "FailedOpen", "milliseconds": 1200}
    line = {"time": "2026-11-20T10:00:00Z", "uid": "1", "outcome": "FailedOpen", "milliseconds": 1200}
    (reader.folder / "decisions.jsonl").write_text(json.dumps({**line, "webhooks": [webhook]}) + "\n")


def with_recordings(reader: Reader) -> None:
    """A recording in the folder itself."""
    denied = review(request_of_pod(1), allowed=False, message="no", time="2026-11-20T10:00:00Z")
    recording(reader.folder / "recording-1.jsonl.gz", denied)


def example(page: str) -> str:
    """The first document in YAML on *page*."""
    return next(block.content for block in blocks(DOCS / page) if block.language == "yaml")


def python_worker(reader: Reader) -> None:
    """A free port for the worker."""
    reader.replaced[":50051"] = f":{free_port()}"


def nothing(_: Reader) -> None:
    """Only what is on the page."""


DEFAULT: Final = configuration
SCENES: Final[dict[str, Callable[[Reader], None]]] = {
    "README.md": checkout,
    "docs/audit.md": audited,
    "docs/change-a-policy.md": nothing,
    "docs/commands.md": history,
    "docs/decision-log.md": with_decisions,
    "docs/forecast.md": nothing,
    "docs/gatekeeper.md": of_gatekeeper,
    "docs/kubewarden.md": of_kubewarden,
    "docs/kyverno.md": of_kyverno,
    "docs/loopback.md": beside_the_api_server,
    "docs/migrate-engines.md": old_cluster,
    "docs/mutators.md": nothing,
    "docs/preview.md": previewed,
    "docs/quick-start.md": checkout,
    "docs/recordings.md": with_recordings,
    "docs/replay.md": old_and_new,
    "docs/rollout-plans.md": planned,
    "workers/python/README.md": python_worker,
}
