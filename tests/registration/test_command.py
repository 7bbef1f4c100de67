"""``admission-gateway manifests`` as it is called."""

from __future__ import annotations

import base64
import datetime
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from deploy.chart_values import CHART
from gateway.base.errors import ClusterError
from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.config.kinds.policy_settings import ListedKind, PolicySettings
from gateway.config.yaml.documents import followed_kinds
from gateway.engine.dispatch.pool import Pool
from gateway.tools.cli import main
from gateway.tools.registration.backend import ca_bundle, parse_service, parse_url
from gateway.tools.registration.roles import binding_roles, engine_roles, read_roles
from gateway.tools.registration.yaml_output import to_yaml
from tests.config.documents import load_documents
from tests.kit import PATIENCE_S, Process, free_port, pool_document, webhook_document
from tests.kyverno.test_roles import binding as role_binding
from tests.kyverno.test_roles import policy as role_policy
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import trustme

    Run = Callable[..., tuple[int, str, str]]
    Serve = Callable[[int], None]

SERVICE = ("--service", "policies/gateway")
REACHED_WITHIN_S = "gateway.tools.inspection.workers.REACHED_WITHIN_S"


@pytest.fixture
def run(config: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command; return exit status, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["manifests", "--config", str(config), *arguments])
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def client_configs(text: str) -> list[Any]:
    return [entry["clientConfig"] for document in documents(text) for entry in document.get("webhooks", [])]


def test_prints_both_objects_and_warnings(run: Run) -> None:
    status, out, err = run(*SERVICE)
    assert status == 0
    assert [document["kind"] for document in documents(out)] == [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]
    assert "# Locked out? kubectl delete mutatingwebhookconfiguration," in out
    assert err.startswith("warning: no --ca-file, so the objects have no caBundle")
    gap = "namespaces policies, kube-system excluded: 2 webhooks are not called in each of them"
    assert [line.partition(", but")[0] for line in err.splitlines()[1:]] == [f"warning: {gap}"]
    assert run(*SERVICE) == (status, out, err), "the same every time"


def test_the_backend_is_a_service_or_a_url(run: Run) -> None:
    _, out, _ = run("--service", "policies/gateway:8443")
    service = {"namespace": "policies", "name": "gateway", "port": 8443}
    assert client_configs(out) == [
        {"service": {**service, "path": "/mutate"}},
        {"service": {**service, "path": "/validate.fail"}},
    ]
    _, out, _ = run("--url", "https://gateway.example:8443/here/")
    assert client_configs(out) == [
        {"url": "https://gateway.example:8443/here/mutate"},
        {"url": "https://gateway.example:8443/here/validate.fail"},
    ]


def test_the_ca_is_in_every_entry(run: Run, tmp_path: Path, authority: trustme.CA) -> None:
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    status, out, err = run(*SERVICE, "--ca-file", str(file))
    assert (status, "caBundle" in err) == (0, False)
    assert {base64.b64decode(found["caBundle"]) for found in client_configs(out)} == {file.read_bytes()}


def test_annotations_are_those_of_both_objects(run: Run) -> None:
    injected = "cert-manager.io/inject-ca-from"
    _, out, _ = run(*SERVICE, "--annotation", f"{injected}=a/b", "--annotation", "c=d=e")
    assert [one["metadata"]["annotations"] for one in documents(out)] == [{injected: "a/b", "c": "d=e"}] * 2


def test_a_registration_needs_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["manifests", *SERVICE])
    assert end.value.code == 2
    assert (
        "there is no configuration: expected --config, --delete, $ADMISSION_GATEWAY_CONFIG or ./gateway.yaml"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        (b"nothing", "holds no PEM certificate"),
        ("key", "contains a private key, which caBundle would publish"),
    ],
)
def test_a_file_without_certificates_is_a_failure(
    run: Run, tmp_path: Path, authority: trustme.CA, content: bytes | str | None, message: str
) -> None:
    file = tmp_path / "ca.pem"
    if content == "key":
        content = authority.cert_pem.bytes() + authority.private_key_pem.bytes()
    if isinstance(content, bytes):
        file.write_bytes(content)
    status, out, err = run(*SERVICE, "--ca-file", str(file))
    assert (status, out) == (1, "")
    assert err.startswith(f"admission-gateway: --ca-file: {file} {message}")
    assert len(err.splitlines()) == 1


def test_an_expired_ca_is_pointed_out(authority: trustme.CA) -> None:
    pem = authority.cert_pem.bytes()
    last = x509.load_pem_x509_certificate(pem).not_valid_after_utc
    assert ca_bundle(pem, last) == (base64.b64encode(pem).decode(), [])
    (doubt,) = ca_bundle(pem, last + datetime.timedelta(seconds=1))[1]
    assert "expired on" in doubt


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one of the arguments --service --url --delete --roles-for is required"),
        ([*SERVICE, "--url", "https://a"], "not allowed with argument"),
        (["--service", "gateway"], 'argument --service: found "gateway", expected NAMESPACE/NAME'),
        (["--service", "a/b/c"], "argument --service: found"),
        (["--service", "a/b:x"], "argument --service: found"),
        (["--service", "a/b:0"], "argument --service: found the port 0"),
        (["--service", "a/b:65536"], "argument --service: found the port 65536"),
        (["--service", "A/b"], 'argument --service: found "A", expected a name'),
        (["--url", "http://a"], 'argument --url: found the scheme "http"'),
        (["--url", "https://"], "argument --url: found"),
        (["--url", "https://u:p@a"], "argument --url: user and password"),
        (["--url", "https://a/?x=1"], "argument --url: found a query (?…), which"),
        (["--url", "https://a/#x"], "argument --url: found a fragment (#…), which"),
        ([*SERVICE, "--name", "A"], 'argument --name: found "A"'),
        ([*SERVICE, "--name", "a.static.k8s.io"], "argument --name: found"),
        ([*SERVICE, "--name", "n" * 240], "argument --name: found"),
        ([*SERVICE, "--annotation", "a"], 'argument --annotation: found "a", expected KEY=VALUE'),
        ([*SERVICE, "--annotation", "a b=c"], 'argument --annotation: found "a b"'),
        ([*SERVICE, "--exclude-namespace", "a.b"], 'argument --exclude-namespace: found "a.b"'),
        (
            [*SERVICE, "--include", "lease"],
            'found "lease", expected own-namespace, kube-system, leases.coordination.k8s.io or events',
        ),
        ([*SERVICE, "--include", "event"], 'did you mean "events"?'),
        (
            [*SERVICE, "--include", "kube-system", "--exclude-namespace", "kube-system"],
            "contradict each other",
        ),
        ([*SERVICE, "--kubeconfig", "k"], "--kubeconfig needs --apply"),
        ([*SERVICE, "--context", "k"], "--context needs --apply"),
        ([*SERVICE, "--force-conflicts"], "--force-conflicts needs --apply"),
        ([*SERVICE, "--if-registered"], "--if-registered needs --apply"),
        ([*SERVICE, "--workers"], "--workers needs --apply"),
        ([*SERVICE, "--wait", "1"], "--wait needs --service and --apply"),
        ([*SERVICE, "--roles-for", "a/b"], "not allowed with argument"),
        (["--roles-for", "gateway"], "argument --roles-for: expected NAMESPACE/NAME"),
        (["--roles-for", "A/b"], 'argument --roles-for: expected NAMESPACE/NAME: found "A"'),
        (["--roles-for", "a/b", "--apply"], "--roles-for excludes --apply, --static and --wait"),
        (["--delete", "--apply"], "--delete excludes --apply, --static and --wait"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(run: Run, arguments: list[str], message: str) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("admission-gateway manifests: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_roles_name_only_the_objects_that_are_followed(run: Run, config: Path) -> None:
    assert run("--roles-for", "policies/gateway")[:2] == (0, "")
    sources = [
        {"secret": {"namespace": "b", "name": "two"}},
        {"secret": {"namespace": "b", "name": "one", "key": "x"}},
        {"configMap": {"namespace": "a", "name": "roots"}},
        {"webhookConfiguration": {"kind": "MutatingWebhookConfiguration", "name": "m", "webhook": "a.b.c"}},
    ]
    hooks = [
        {
            "clientConfig": {"url": "https://a.example", "caBundleFrom": source},
            "name": f"h{number}.followed.test",
        }
        for number, source in enumerate(sources)
    ]
    rest = {"sideEffects": "None", "admissionReviewVersions": ["v1"]}
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    followed = {**head, "metadata": {"name": "followed"}, "webhooks": [{**hook, **rest} for hook in hooks]}
    gateway = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "kubernetes": {},
    }
    (config / "followed.yaml").write_text("\n---\n".join(map(json.dumps, (followed, gateway))))
    status, out, err = run("--roles-for", "policies/gateway")
    assert (status, err) == (0, "")
    found = documents(out)
    assert [(one["kind"], one["metadata"].get("namespace")) for one in found] == [
        ("ClusterRole", None),
        ("ClusterRoleBinding", None),
        ("Role", "a"),
        ("RoleBinding", "a"),
        ("Role", "b"),
        ("RoleBinding", "b"),
    ]
    assert found[4]["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["one", "two"],
            "verbs": ["get", "list", "watch"],
        }
    ]
    (subject,) = found[5]["subjects"]
    assert subject == {"kind": "ServiceAccount", "namespace": "policies", "name": "gateway"}


def test_roles_name_the_kinds_that_policies_read() -> None:
    maps = ListedKind("v1", "ConfigMap", "configmaps")
    limits = ListedKind("example.com/v1", "Limit", "limits")
    kinds = PolicySettings(param_kinds=(maps,), resources=(limits, maps)).read_kinds
    role, binding = read_roles(kinds, ("policies", "gateway"))
    assert role["rules"] == [
        {"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}
        for group, resource in (("", "configmaps"), ("example.com", "limits"))
    ]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "namespace": "policies", "name": "gateway"}]
    assert read_roles([], ("policies", "gateway")) == []


def test_roles_name_the_kinds_of_other_engines() -> None:
    role, binding = engine_roles(
        followed_kinds(("Kyverno", "Gatekeeper"), ("Gatekeeper",)), ("policies", "gateway")
    )
    assert role["rules"] == [
        {"apiGroups": [group], "resources": resources, "verbs": ["get", "list", "watch"]}
        for group, resources in (
            (
                "policies.kyverno.io",
                [
                    *("validatingpolicies", "namespacedvalidatingpolicies", "mutatingpolicies"),
                    *("namespacedmutatingpolicies", "policyexceptions"),
                ],
            ),
            ("kyverno.io", ["clusterpolicies", "policies", "policyexceptions"]),
            ("templates.gatekeeper.sh", ["constrainttemplates"]),
            ("config.gatekeeper.sh", ["configs"]),
            ("constraints.gatekeeper.sh", ["*"]),
            ("mutations.gatekeeper.sh", ["assign", "assignmetadata", "modifyset", "assignimage"]),
            ("expansion.gatekeeper.sh", ["expansiontemplate"]),
            ("externaldata.gatekeeper.sh", ["providers"]),
            ("syncset.gatekeeper.sh", ["syncsets"]),
        )
    ]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "namespace": "policies", "name": "gateway"}]
    assert engine_roles({}, ("policies", "gateway")) == []
    of_chart = (CHART / "templates" / "_jobs.tpl").read_text()
    for rule in role["rules"]:
        for name in (*rule["apiGroups"], *rule["resources"]):
            assert name in of_chart


BOUND = {
    "apiGroups": ["rbac.authorization.k8s.io"],
    "resources": ["rolebindings", "clusterrolebindings"],
    "verbs": ["list", "watch"],
}
"""The rule for the roles of users."""


def test_bindings_may_be_read_if_a_policy_compares_roles_or_may_come_to() -> None:
    gateway = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
    cluster = {**gateway, "kubernetes": {}}
    followed = {**gateway, "kubernetes": {"customResources": True}}
    with_roles, without = role_policy({"clusterRoles": ["admin"]}), role_policy()
    kyverno, gatekeeper = ({"policies": {"customResourcesOf": [one]}} for one in ("Kyverno", "Gatekeeper"))
    for documents_of, has_right in (
        ([with_roles, cluster], True),
        ([with_roles, role_binding("view"), cluster], False),
        ([without, cluster], False),
        ([without, followed | kyverno], True),
        ([without, followed | gatekeeper], False),
    ):
        found = binding_roles(load_documents(*documents_of), ("policies", "gateway"))
        assert [one["rules"] for one in found if "rules" in one] == ([[BOUND]] if has_right else [])


def test_policies_are_registered_unless_they_are_left_to_the_api_server(run: Run, config: Path) -> None:
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "p"}}
    rules = [{"operations": ["CREATE"], "apiGroups": ["a.b"], "apiVersions": ["v1"], "resources": ["things"]}]
    rules[0]["resourceNames"] = ["one"]
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "true"}]}
    policies = [
        {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {
            **head,
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {"policyName": "p", "validationActions": ["Deny"]},
        },
    ]
    (config / "policies.yaml").write_text("\n---\n".join(map(json.dumps, policies)))
    status, out, err = run(*SERVICE)
    assert (status, "things" in out) == (0, True), err
    left = {"leftToAPIServer": ["ValidatingAdmissionPolicy"]}
    gateway = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "policies": left,
    }
    (config / "gateway.yaml").write_text(json.dumps(gateway))
    status, out, err = run(*SERVICE)
    assert (status, "things" in out) == (0, False), err
    assert "ValidatingAdmissionPolicy is left to the API server" in err
    assert "not registered: p; apply these policies to the cluster, or nothing evaluates them" in err


def test_a_configuration_with_problems_registers_nothing(run: Run, config: Path) -> None:
    (config / "all.yaml").write_text("kind: Nothing\napiVersion: v1\n")
    status, out, err = run(*SERVICE)
    assert (status, out) == (1, "")
    assert "unknown kind" in err


def test_warnings_of_the_configuration_are_passed_on(run: Run, config: Path) -> None:
    rules = [
        {
            "operations": ["CREATE"],
            "apiGroups": ["authentication.k8s.io"],
            "apiVersions": ["v1"],
            "resources": ["tokenreviews"],
        }
    ]
    (config / "more.yaml").write_text(
        webhook_document("validate", "tokens", "pool", {"webhook": {"rules": rules}})
    )
    status, out, err = run(*SERVICE)
    assert status == 0
    assert "tokenreviews.authentication.k8s.io is excluded from admission webhooks" in err
    assert "tokenreviews" not in out


class Recorded(list[dict[str, Any]]):
    """A fake cluster that stores the applied objects."""

    refusal: ClusterError | None = None

    async def apply(self, settings: KubernetesSettings, made: Any, **options: Any) -> list[str]:
        if self.refusal is not None:
            raise self.refusal
        self.append({"settings": settings, "documents": made, **options})
        return ["one applied (created)", "two applied (unchanged)"]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorded:
    recorded = Recorded()
    monkeypatch.setattr("gateway.server.kubernetes.apply.apply", recorded.apply)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    return recorded


def test_apply_prints_the_lines_of_the_result_only(run: Run, cluster: Recorded, tmp_path: Path) -> None:
    status, printed, _ = run(*SERVICE)
    file = str(tmp_path / "k")
    status, out, _ = run(*SERVICE, "--apply", "--kubeconfig", file, "--context", "c", "--force-conflicts")
    assert (status, out) == (0, "one applied (created)\ntwo applied (unchanged)\n")
    (applied,) = cluster
    assert applied.pop("documents") == documents(printed)
    assert applied == {
        "settings": KubernetesSettings(tmp_path / "k", "c"),
        "field_manager": "admission-gateway",
        "force": True,
        "creates": True,
    }


def test_which_cluster(
    run: Run, cluster: Recorded, tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def target(*arguments: str) -> KubernetesSettings:
        status, _, err = run(*SERVICE, "--apply", *arguments)
        assert status == 0, err
        found: KubernetesSettings = cluster[-1]["settings"]
        return found

    status, out, err = run(*SERVICE, "--apply")
    assert (status, out) == (1, "")
    assert "use --kubeconfig FILE" in err

    # The cluster of the gateway's pod: this is none.
    head = "apiVersion: admission-gateway.io/v1alpha1\nkind: GatewayConfiguration\n"
    (config / "gateway.yaml").write_text(f"{head}kubernetes: {{}}\n")
    (tmp_path / ".kube").mkdir()
    home = tmp_path / ".kube" / "config"
    home.touch()
    assert target() == KubernetesSettings(home)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert target() == KubernetesSettings(None)
    assert target("--context", "c") == KubernetesSettings(home, "c")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "env"))
    assert target() == KubernetesSettings(tmp_path / "env")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
    assert run(*SERVICE, "--apply")[0] == 1

    kubeconfig = {
        "contexts": [{"name": name, "context": {"cluster": "it"}} for name in "cd"],
        "clusters": [{"name": "it", "cluster": {"server": "https://127.0.0.1:1"}}],
    }
    (tmp_path / "named").write_text(json.dumps(kubeconfig))
    (config / "gateway.yaml").write_text(f"{head}kubernetes: {{kubeconfig: {tmp_path}/named, context: c}}\n")
    assert target() == KubernetesSettings(tmp_path / "named", "c")
    assert target("--context", "d") == KubernetesSettings(tmp_path / "named", "d")
    assert target("--kubeconfig", str(tmp_path / "k")) == KubernetesSettings(tmp_path / "k")


def test_a_refusal_of_the_cluster_is_one_line(run: Run, cluster: Recorded, tmp_path: Path) -> None:
    cluster.refusal = ClusterError("MutatingWebhookConfiguration/admission-gateway: somebody else's")
    status, out, err = run(*SERVICE, "--apply", "--kubeconfig", str(tmp_path / "k"))
    assert (status, out) == (1, "")
    assert err == "admission-gateway: MutatingWebhookConfiguration/admission-gateway: somebody else's\n"


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029"), max_size=8))
def test_every_text_is_read_back_as_it_is(text: str) -> None:
    assert yaml.safe_load(to_yaml({"values": [text, text]})) == {"values": [text, text]}


@pytest.mark.parametrize(
    "text", ["y", "N", "1e3", "0o7", "1_0", "*", "", "0x1", "12:30", "-", "true", "null", "~"]
)
def test_ambiguous_texts_are_quoted(text: str) -> None:
    assert to_yaml({"key": text}) in (f'key: "{text}"\n', f"key: '{text}'\n")


def test_the_backends_address_is_read_strictly() -> None:
    assert parse_service("a/b").client_config("/x") == {
        "service": {"namespace": "a", "name": "b", "port": 443, "path": "/x"}
    }
    assert parse_url("https://a").client_config("/x") == {"url": "https://a/x"}
    assert parse_url("https://a/b/").client_config("/x") == {"url": "https://a/b/x"}
    assert parse_url("https://[::1]:1").client_config("/x") == {"url": "https://[::1]:1/x"}
    assert parse_service("a/b").namespace == "a"
    assert parse_url("https://a").namespace is None


def test_a_scheduled_run_creates_no_object(run: Run, cluster: Recorded, tmp_path: Path) -> None:
    arguments = ("--apply", "--kubeconfig", str(tmp_path / "k"), "--if-registered")
    assert run(*SERVICE, *arguments)[0] == 0
    assert [one["creates"] for one in cluster] == [False]


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Serve:
    """Start a worker with the sample policies on a port."""

    def serve(port: int) -> None:
        listen = ("--listen", f"127.0.0.1:{port}")
        worker = Process(sys.executable, "-m", "admission_gateway_worker.samples", *listen)
        request.addfinalizer(worker.stop)

    return serve


def ask_for(policy: str, port: int, config: Path, **parameters: Any) -> None:
    worker = {"pool": "pool", "policy": policy, **({"parameters": parameters} if parameters else {})}
    (config / "all.yaml").write_text(
        pool_document("pool", f"127.0.0.1:{port}")
        + pool_document("own", "unix:own.sock")
        + webhook_document("validate", "checks", "pool", {"webhook": {"clientConfig": {"worker": worker}}})
        + webhook_document("mutate", "local", "own", {})
    )


@pytest.mark.parametrize(
    ("policy", "parameters", "problem"),
    [
        (
            "deny-latest-tags",
            {},
            "not served by ipv4:127.0.0.1:{port}, so that calls fail closed; did you mean",
        ),
        ("deny-latest-tag", {"max": 1}, "so that calls fail closed"),
    ],
)
def test_nothing_is_applied_while_a_worker_does_not_serve_a_policy(
    run: Run,
    cluster: Recorded,
    config: Path,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    parameters: dict[str, Any],
    problem: str,
) -> None:
    # The worker may still be starting.
    monkeypatch.setattr(REACHED_WITHIN_S, PATIENCE_S)
    port = free_port()
    serve(port)
    arguments = (*SERVICE, "--apply", "--workers", "--kubeconfig", str(config / "k"))
    ask_for(policy, port, config, **parameters)
    status, out, err = run(*arguments)
    assert (status, out, list(cluster)) == (1, "", [])
    assert "error: " in err
    assert f'webhook checks/h0.checks.test: policy "{policy}" of pool pool: ' in err
    assert problem.format(port=port) in err
    assert "nothing was applied, the registration stays as it was: 1 error about workers" in err
    ask_for("deny-latest-tag", port, config)
    status, out, err = run(*arguments)
    assert (status, len(cluster)) == (0, 1), err
    assert "worker pools of the gateway's own machine are not checked: own" in err


def test_workers_have_time_to_become_reachable(
    run: Run, cluster: Recorded, config: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    ask_for("deny-latest-tag", port, config)
    arguments = (*SERVICE, "--apply", "--workers", "--kubeconfig", str(config / "k"))

    async def wait_until_refused(pool: Pool, _: float) -> bool:
        return not await until(lambda: pool.unreachable_reason)

    with monkeypatch.context() as patch:
        patch.setattr(Pool, "wait_until_ready", wait_until_refused)
        status, _, err = run(*arguments)
    assert (status, list(cluster)) == (1, [])
    assert "error: worker pool pool: no worker is reachable (UNAVAILABLE: " in err
    assert "; webhooks that fail closed: h0.checks.test" in err

    async def wait_for_endpoint(*_: object) -> None:
        # From here on the time of the workers runs.
        serve(port)

    monkeypatch.setattr("gateway.server.kubernetes.apply.wait_for_endpoint", wait_for_endpoint)
    status, _, err = run(*arguments, "--wait", f"{PATIENCE_S:g}")
    assert (status, len(cluster)) == (0, 1), err
