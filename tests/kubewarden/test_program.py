"""The worker's program behind the gateway's: documents of Kubewarden, real requests over HTTPS.

The worker is ``workers/wasm/target/release/admission-gateway-wasm``, which ``make test-workers`` builds.
Without it, and without Go for a module, these tests are skipped.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.kit import REVIEWS, ROOT, Process, call_command, pool_document
from tests.kubewarden.guests import program, wapc_guest
from tests.languages.toolchains import named
from tests.waiting import eventually

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from tests.kit import GatewayProcess, StartGateway

Json = dict[str, Any]

WORKER = ROOT / named("kubewarden").product
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not WORKER.is_file(), reason="the worker of Kubewarden's policies is not built"),
]

PODS: Json = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
REVIEW: Json = json.loads((REVIEWS / "pod-create-mutate.json").read_bytes())
OWN = "admission-gateway.io/v1alpha1"


def policy(name: str, do: str = "", *, namespace: str = "", rollout: str = "", **spec: Any) -> Json:
    """A policy for Pods: of the program that *do* is for, otherwise of the waPC guest."""
    module = {"module": "file:program.wasm", "settings": {"do": do}} if do else {"module": "file:guest.wat"}
    metadata: Json = {"name": name, **({"namespace": namespace} if namespace else {})}
    if rollout:
        metadata["annotations"] = {"admission-gateway.io/mode": rollout}
    kind = "AdmissionPolicy" if namespace else "ClusterAdmissionPolicy"
    spec = {**module, "rules": [PODS], "mutating": False, **spec}
    return {"apiVersion": "policies.kubewarden.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def engine(**more: Any) -> Json:
    """The settings with the worker's pool."""
    policies = {"engines": {"kubewarden": {"pool": "kubewarden", **more}}}
    return {"apiVersion": OWN, "kind": "GatewayConfiguration", "policies": policies}


def modules(folder: Path) -> None:
    """Write the modules that the documents name."""
    built = program()
    if built is None:
        pytest.skip("there is no Go for a module")
    (folder / "program.wasm").write_bytes(built)
    (folder / "guest.wat").write_text(wapc_guest({"accepted": False, "message": "no root", "code": 422}))


def configured(folder: Path, *documents: Json) -> Path:
    """Write a configuration with *documents*, their modules, and a pool whose worker the gateway starts."""
    modules(folder)
    command = [str(WORKER), "--policies", str(folder)]
    pool = {"apiVersion": OWN, "kind": "WorkerPool", "metadata": {"name": "kubewarden"}}
    own = [engine(), {**pool, "spec": {"command": command}}]
    own += [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("shop", "team")
    ]
    (folder / "all.yaml").write_text(yaml.safe_dump_all([*own, *documents]))
    return folder


def review(*, namespace: str = "shop", name: str = "web") -> bytes:
    """The creation of a Pod."""
    metadata = {**REVIEW["request"]["object"]["metadata"], "name": name, "namespace": namespace}
    found = {**REVIEW["request"]["object"], "metadata": metadata}
    return json.dumps(
        {**REVIEW, "request": {**REVIEW["request"], "namespace": namespace, "name": name, "object": found}}
    ).encode()


def ready(gateway: GatewayProcess) -> GatewayProcess:
    """Wait until the gateway's worker is called: compiling the program takes seconds."""
    gateway.expect(r"worker kubewarden: serving \d+ policies")
    eventually(lambda: is_called(gateway))
    return gateway


def is_called(gateway: GatewayProcess) -> bool:
    """Whether the gateway has reached its worker, so that no policy fails."""
    return b"failed calling" not in gateway.post("/validate", review())


def test_policies_refuse_change_and_warn(tmp_path: Path, start_gateway: StartGateway) -> None:
    documents = [
        policy("changes", "mutate", mutating=True),
        policy("guest", matchConditions=[{"name": "root", "expression": "request.name == 'root'"}]),
        policy("own", "reject", namespace="team"),
        policy("warns", "accept"),
    ]
    gateway = ready(start_gateway(configured(tmp_path, *documents)))
    refused = gateway.review("/validate", review(name="root"))
    assert (refused["allowed"], refused["status"]["code"]) == (False, 422)
    assert refused["status"]["message"] == "guest: no root"
    allowed = gateway.review("/validate", review())
    assert (allowed["allowed"], allowed["warnings"]) == (True, ["careful"])
    own = gateway.review("/validate", review(namespace="team"))
    assert (own["status"]["code"], own["status"]["message"]) == (422, "team/own: not web")
    changed = gateway.review("/mutate", review())
    assert changed["allowed"] is True
    assert json.loads(base64.b64decode(changed["patch"])) == [{"op": "add", "path": "/seen", "value": True}]


def test_a_policy_that_monitors_and_modes_refuse_nothing(tmp_path: Path, start_gateway: StartGateway) -> None:
    documents = [
        policy("monitors", mode="monitor"),
        policy("warned", rollout="Warn"),
        policy("off", rollout="Shadow"),
    ]
    gateway = ready(start_gateway(configured(tmp_path, *documents)))
    found = gateway.review("/validate", review())
    assert (found["allowed"], found["warnings"]) == (
        True,
        ["would be refused later, date not set: warned: no root"],
    )
    told = [json.loads(text) for key, text in found["auditAnnotations"].items() if "not-enforced" in key]
    assert sorted((each["mode"], each["webhook"]) for each in told) == [
        ("Audit", "monitors"),
        ("Warn", "warned"),
    ]


def test_an_exception_leaves_a_policy_out(tmp_path: Path, start_gateway: StartGateway) -> None:
    exception = {
        "apiVersion": OWN,
        "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": "shop"},
        "spec": {
            "webhooks": ["guest"],
            "match": {"names": ["old"]},
            "permanent": True,
            "reason": "r",
            "owner": "o",
        },
    }
    gateway = ready(start_gateway(configured(tmp_path, policy("guest"), exception)))
    assert gateway.review("/validate", review(name="old"))["allowed"] is True
    assert gateway.review("/validate", review(name="new"))["allowed"] is False


def test_settings_that_the_module_refuses_are_told_and_count_as_failures(
    tmp_path: Path, start_gateway: StartGateway
) -> None:
    """At the start there is no worker; later the policies that were good stay."""
    documents = [policy("bad", "reject"), policy("open", "reject", failurePolicy="Ignore")]
    documents[0]["spec"]["settings"] = {"other": 1}
    gateway = start_gateway(configured(tmp_path, *documents))
    gateway.expect(r"bad: spec\.settings: the module refuses them: do is required")
    refused = gateway.review("/validate?timeout=5s", review())
    assert refused["status"]["code"] == 500
    assert "bad" in refused["status"]["message"]
    documents[0]["spec"]["settings"] = {"do": "accept"}
    configured(tmp_path, *documents)
    ready(gateway)
    eventually(lambda: gateway.review("/validate", review())["status"]["code"] == 422)


def test_what_migrate_writes_runs_as_it_is(
    tmp_path: Path, start_gateway: StartGateway, processes: ExitStack
) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    modules(documents)
    store = tmp_path / "store" / "registry" / "example.test" / "policies"
    store.mkdir(parents=True)
    (documents / "guest.wat").rename(store / "guest:v1")
    found = policy("guest", module="registry://example.test/policies/guest:v1")
    monitored = policy("monitored", module=found["spec"]["module"], mode="monitor")
    (documents / "a.yaml").write_text(yaml.safe_dump_all([found, monitored]))
    out = tmp_path / "out"
    done = call_command("migrate", documents, "--output", out)
    assert done.returncode == 0, done.stdout
    assert "summary: 0 in the gateway, 2 in the worker of Kubewarden, 0 cannot run\n" in done.stdout
    options = ["--modules", str(tmp_path / "store"), "--listen", "127.0.0.1:0"]
    worker = Process(str(WORKER), "--policies", str(out / "config"), *options)
    processes.callback(worker.stop)
    target = worker.expect(r"worker: serving 2 policies on (\S+)")[1]
    # The address is for the user to give.
    (out / "config" / "workerpools.yaml").write_text(
        pool_document("kubewarden", target).removesuffix("---\n")
    )
    gateway = start_gateway(out / "config")
    eventually(lambda: is_called(gateway))
    refused = gateway.review("/validate", review())
    assert (refused["status"]["code"], refused["status"]["message"]) == (422, "guest: no root")
