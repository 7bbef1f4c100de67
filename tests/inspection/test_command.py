"""The command ``admission-gateway check --cluster``, with an API server on a real socket."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import yaml

from gateway.config.merge.load import load
from gateway.pure.rollout_plan.decide import forget, hold, skip
from gateway.pure.rollout_plan.model import Plan, Stage
from gateway.pure.rollout_plan.state import started
from gateway.server.rollout.store import name_of
from tests.kit import ROOT, call_command, pool_document, webhook_document
from tests.kubernetes.server import GATEWAY, ApiServer, refuse
from tests.policies.documents import binding, policy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Json = dict[str, Any]

GROUP = "/apis/admissionregistration.k8s.io/v1"
SERVICE = "/api/v1/namespaces/policies/services/gateway"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/policies/endpointslices"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """A cluster that has a ready Service for a gateway."""
    with ApiServer() as server:
        server.objects[SERVICE] = {"spec": {"ports": [{"port": 443}]}}
        endpoints = [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}]
        server.objects[SLICES] = {"kind": "EndpointSliceList", "items": [{"endpoints": endpoints}]}
        for namespace in ("kube-system", "policies"):
            server.put(namespace)
        yield server


@pytest.fixture
def config(tmp_path: Path, authority: trustme.CA) -> Path:
    folder = tmp_path / "config"
    folder.mkdir()
    issued = authority.issue_cert("gateway.policies.svc", key_type=trustme.KeyType.ECDSA)
    issued.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))
    issued.private_key_pem.write_to_path(str(folder / "tls.key"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
    # RegisteredEntry directly, they would not be called in the namespaces that are left out either.
    elsewhere = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", "policies"],
    }
    hook = {"rules": rules, "namespaceSelector": {"matchExpressions": [elsewhere]}}
    tls = "tls: {certFile: tls.crt, keyFile: tls.key}"
    (folder / "all.yaml").write_text(
        pool_document("pool", "localhost:1")
        + webhook_document("mutate", "defaults", "pool", {"webhook": hook})
        + webhook_document("validate", "checks", "pool", {"webhook": hook})
        + f"---\napiVersion: admission-gateway.io/v1alpha1\nkind: GatewayConfiguration\n{tls}\n"
    )
    return folder


@pytest.fixture
def registered(config: Path, server: ApiServer) -> list[Json]:
    """The registration that *server* lists, for a test to change."""
    done = call_command(
        "manifests",
        "--config",
        config,
        "--service",
        "policies/gateway",
        "--ca-file",
        config.parent / "ca.crt",
    )
    assert done.returncode == 0, done.stderr
    documents: list[Json] = list(yaml.safe_load_all(done.stdout))
    for document in documents:
        server.objects[f"{GROUP}/{document['kind'].lower()}s"] = {"items": [document]}
    return documents


@pytest.fixture
def check(config: Path, server: ApiServer, tmp_path: Path) -> Any:
    kubeconfig = server.kubeconfig(tmp_path)
    return lambda *arguments: call_command(
        "check", "--config", config, "--cluster", "--kubeconfig", kubeconfig, *arguments
    )


def test_a_matching_registration_has_no_findings(check: Any, registered: list[Json]) -> None:
    assert registered
    done = check()
    assert (done.returncode, done.stderr) == (0, "")
    valid, summary = done.stdout.splitlines()
    assert valid.startswith("valid: ")
    assert summary == "cluster: 0 errors, 0 warnings"
    assert json.loads(check("--json").stdout) == []


def test_a_cluster_of_another_version_is_a_warning(
    check: Any, registered: list[Json], server: ApiServer, config: Path
) -> None:
    assert registered
    server.objects["/version"] = {"major": "1", "minor": "33"}
    assert check().stdout.endswith("cluster: 0 errors, 0 warnings\n")
    documents = policy(validations=["true"]), binding()
    (config / "policy.yaml").write_text("\n---\n".join(map(json.dumps, documents)))
    assert "warning: cluster: the API server has Kubernetes 1.33, and expressions are" in check().stdout
    server.forbidden.add("/version")
    assert "warning: rights: the right to get /version is missing" in check().stdout


def test_what_ca_bundle_from_names_is_read(
    check: Any, registered: list[Json], server: ApiServer, config: Path, authority: trustme.CA
) -> None:
    assert registered
    rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
    names = ("good", "gone", "broken", "forbidden")
    hooks = [
        {
            "name": f"{name}.policies.test",
            "clientConfig": {
                "url": "https://a.example",
                "caBundleFrom": {"secret": {"namespace": "a", "name": name}},
            },
            "rules": rules,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        for name in names
    ]
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    document = {**head, "metadata": {"name": "policies"}, "webhooks": hooks}
    (config / "followed.yaml").write_text(json.dumps(document))
    text = (config / "all.yaml").read_text()
    (config / "all.yaml").write_text(text + "kubernetes: {kubeconfig: ../kubeconfig}\n")
    bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
    server.hold("/api/v1/namespaces/a/secrets/good", data={"ca.crt": bundle})
    server.hold("/api/v1/namespaces/a/secrets/broken", data={"ca.crt": "%%"})
    forbidden = "/api/v1/namespaces/a/secrets/forbidden"
    server.forbidden.add(forbidden)
    lines = [line for line in check().stdout.splitlines() if "aBundleFrom" in line or "get Secret" in line]
    assert [line.split(";")[0] for line in lines] == [
        "error: caBundleFrom: Secret a/broken, key ca.crt: it holds no PEM certificate that can be read",
        "error: caBundleFrom: Secret a/gone, key ca.crt: there is no such object, or it lacks the field",
        "warning: rights: the right to get Secret a/forbidden, key ca.crt is missing",
    ]


def test_findings_are_lines_with_errors_first(check: Any, registered: list[Json]) -> None:
    registered[0]["webhooks"][0]["timeoutSeconds"] = 1
    registered[1]["webhooks"][0]["rules"] = []
    done = check()
    assert done.returncode == 1
    _, error, warning, summary = done.stdout.splitlines()
    assert error.startswith("error: validate checks/")
    assert "rules[0]: never sent to the gateway: CREATE of" in error
    assert warning.startswith("warning: MutatingWebhookConfiguration/admission-gateway: webhooks[0] mutate.")
    assert warning.endswith("run admission-gateway manifests --apply again")
    assert summary == "cluster: 1 errors, 1 warnings"
    found = json.loads(check("--json").stdout)
    assert [set(one) for one in found] == [{"severity", "place", "message", "advice"}] * 2


def test_warnings_alone_exit_with_0(check: Any, registered: list[Json]) -> None:
    registered[0]["webhooks"][0]["timeoutSeconds"] = 1
    done = check()
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "cluster: 0 errors, 1 warnings"


def test_nothing_registered_is_an_error(check: Any, server: ApiServer) -> None:
    for kind in ("mutating", "validating"):
        server.objects[f"{GROUP}/{kind}webhookconfigurations"] = {"items": []}
    done = check()
    assert done.returncode == 1
    assert "error: cluster: no registration of a gateway was found;" in done.stdout


def test_registrations_of_another_name_are_ignored(check: Any, registered: list[Json]) -> None:
    registered[0]["webhooks"][0]["timeoutSeconds"] = 1
    assert "no registration of a gateway was found called other" in check("--name", "other").stdout
    assert "timeoutSeconds" in check("--name", "admission-gateway").stdout


def test_the_service_and_its_endpoints_are_checked(
    check: Any, registered: list[Json], server: ApiServer
) -> None:
    assert registered
    server.objects[SLICES]["items"][0]["endpoints"][0]["conditions"]["ready"] = False
    assert "error: Service policies/gateway: has no ready endpoint" in check().stdout
    del server.objects[SERVICE]
    assert "error: Service policies/gateway: is registered and does not exist" in check().stdout
    assert {"labelSelector": "kubernetes.io/service-name=gateway"} in [asked for _, asked in server.requests]


def test_missing_rights_are_reported_and_the_rest_is_checked(
    check: Any, registered: list[Json], server: ApiServer
) -> None:
    lists = [server.objects[f"{GROUP}/{one['kind'].lower()}s"] for one in registered]
    server.faults["get"].extend(
        [
            *(lambda handler, page=page: handler.answer(200, page) for page in lists),
            *[refuse(403)] * 4,
        ]
    )
    done = check()
    assert done.returncode == 0
    rights = [line for line in done.stdout.splitlines() if "right to" in line]
    assert [line.partition("the right to ")[2].partition(" is missing")[0] for line in rights] == [
        "get namespaces",
        "get services in namespace policies",
        "list endpointslices of discovery.k8s.io in namespace policies",
    ]


@pytest.mark.parametrize("status", [401, 403, 500])
def test_unreadable_registrations_are_an_error_of_one_line(
    check: Any, server: ApiServer, status: int
) -> None:
    server.faults["get"].append(refuse(status))
    done = check()
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("admission-gateway: ")


def test_another_ca_is_an_error(check: Any, registered: list[Json]) -> None:
    other = trustme.CA(key_type=trustme.KeyType.ECDSA).cert_pem.bytes()
    registered[1]["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(other).decode()
    done = check()
    assert done.returncode == 1
    assert "caBundle does not verify the serving certificate" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("--kubeconfig", "x"),
        ("--context", "x"),
        ("--json",),
        ("--name", "x"),
        ("--expiry-days", "1"),
        ("--cluster", "--expiry-days", "-1"),
        ("--cluster", "--expiry-days", "x"),
    ],
)
def test_options_without_a_meaning_are_refused(config: Path, arguments: tuple[str, ...]) -> None:
    done = call_command("check", "--config", config, *arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_check_without_cluster_sends_no_request(config: Path, server: ApiServer) -> None:
    done = call_command("check", "--config", config)
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert server.requests == []


def test_custom_resources_are_included_if_enabled(
    check: Any, config: Path, registered: list[Json], server: ApiServer, tmp_path: Path
) -> None:
    assert registered
    file = config / "all.yaml"
    kubernetes = f"kubernetes: {{kubeconfig: {server.kubeconfig(tmp_path)}, customResources: true}}"
    file.write_text(f"{file.read_text()}\n{kubernetes}\n")
    assert check().stdout.splitlines()[-1] == "cluster: 0 errors, 0 warnings"
    rules = [
        {"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
    ]
    text = webhook_document("validate", "resource", "pool", {"webhook": {"rules": rules}})
    server.apply(next(one for one in yaml.safe_load_all(text) if one))
    done = check()
    assert done.returncode == 1, done.stderr
    assert "error: validate resource/" in done.stdout
    assert "never sent to the gateway: CREATE of apps/v1 deployments" in done.stdout
    manifests = call_command("manifests", "--config", config, "--service", "policies/gateway")
    assert "deployments" in manifests.stdout, manifests.stderr
    text = webhook_document("validate", "wrong", "pool", {"webhook": {"timeoutSeconds": 99}})
    server.apply(next(one for one in yaml.safe_load_all(text) if one))
    (finding,) = [one for one in json.loads(check("--json").stdout) if "timeoutSeconds: " in one["message"]]
    assert (finding["severity"], "found the number 99" in finding["message"]) == ("error", True), finding
    manifests = call_command("manifests", "--config", config, "--service", "policies/gateway")
    assert any(line.startswith("error: ") and "99" in line for line in manifests.stderr.splitlines())


def test_unreadable_custom_resources_are_an_error_of_one_line(
    config: Path, server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.server.kubernetes.custom_resources.READ_ONCE_TIMEOUT_S", 0.0)
    kubeconfig = server.kubeconfig(tmp_path, {"server": "http://127.0.0.1:1"})
    file = config / "all.yaml"
    file.write_text(f"{file.read_text()}\nkubernetes: {{kubeconfig: {kubeconfig}, customResources: true}}\n")
    review = ("review", ROOT / "tests/reviews/pod-create-mutate.json")
    for status, command in ((1, ("check", "--cluster")), (3, review)):
        done = call_command(*command, "--config", config)
        assert done.returncode == status
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert call_command("check", "--config", config).returncode == 0


def test_a_stage_that_holds_without_its_plan_is_a_warning(
    check: Any, config: Path, registered: list[Json], server: ApiServer, tmp_path: Path
) -> None:
    assert registered
    path = f"{GATEWAY}/namespaces/policies/rolloutstates"
    settings = f"kubernetes: {{kubeconfig: {server.kubeconfig(tmp_path)}}}"
    text = (config / "all.yaml").read_text() + settings
    plans = "\nrolloutPlans: {installation: policies/gateway}\n"

    def checked(state: object, text: str = text + plans) -> str:
        (config / "all.yaml").write_text(text)
        metadata = {"name": f"gateway.{name_of(hook)}", "resourceVersion": "1"}
        server.objects[path] = {"items": [{"metadata": metadata, "status": {"state": state}}]}
        done = check()
        assert (done.returncode, done.stderr) == (0, "")
        lines: list[str] = done.stdout.splitlines()
        return "\n".join(lines[1:])

    (hook,) = (one for one in load([config]).webhooks if one.phase == "validate")
    stages = (Stage("Audit"), Stage("Warn", 5), Stage("Enforce"))
    began = started(Plan.of(stages), 1e9)
    second = skip(Plan.of(stages), began, who="jane", why="is known", now_s=1e9)
    held = hold(second, 1e9)
    found = (
        'warning: checks, webhook "h0.checks.test": its rollout plan was removed, and '
        "stage 2 of 3 (Warn, enforced in 5 % of the namespaces) holds; "
        "write rollout.mode, or have it enforced by admission-gateway rollout forget h0.checks.test\n"
        "cluster: 0 errors, 1 warnings"
    )
    nothing = "cluster: 0 errors, 0 warnings"
    # Also before the gateway has noted that no process has the plan any more.
    assert checked(held.as_json()) == checked(second.as_json()) == found
    forgotten = forget(Plan.of(stages), held, who="jane", why="is known", now_s=1e9)
    assert checked(forgotten.as_json()) == nothing
    enforced = skip(Plan.of(stages), second, who="jane", why="is known", now_s=1e9)
    assert checked(enforced.as_json()) == nothing
    written = text.replace('"rules":', '"rollout": {"mode": "Warn"}, "rules":') + plans
    assert checked(held.as_json(), written) == nothing
    assert checked(held.as_json(), text) == nothing
    assert "is not one of a plan: step: found null" in checked({**held.as_json(), "step": None})
    del server.objects[path]
    assert "warning: rollout plans: RolloutStates of policies/gateway cannot be read: " in check().stdout
