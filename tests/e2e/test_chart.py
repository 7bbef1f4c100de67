"""The chart as Helm renders it, and what API servers say of its objects."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from admission_gateway_worker.policies import definitions
from deploy.chart_values import CHART, README
from deploy.monitoring import APART, DASHBOARD, PROMETHEUS_RULE, ROOT, apart_rule
from deploy.render import MANIFEST, manifest
from gateway import __version__
from gateway.config.merge.custom_resource import PLURALS
from gateway.engine.credentials.self_managed import next_state
from gateway.tools.cli import build_parser
from gateway.tools.cli.policies import configuration
from tests.audit.kit import policy_documents
from tests.e2e import engine_scenarios
from tests.e2e.binaries import chart_tool
from tests.e2e.charts import (
    SCENARIOS,
    hooks,
    objects,
    only,
    pods,
    refusal,
    text,
    write_config_map,
)
from tests.e2e.cluster import NAMESPACE
from tests.e2e.golang import go
from tests.e2e.monitoring import promtool
from tests.e2e.setups import KINDS, REGISTRATIONS, chart_account
from tests.kit import run_command
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.e2e.charts import Object
    from tests.e2e.cluster import Cluster

NAME = "admission-gateway"
WORKERS = f"--values={CHART / 'ci' / 'workers-values.yaml'}"
GITOPS = f"--values={CHART / 'ci' / 'gitops-values.yaml'}"
MONITORING = f"--values={CHART / 'ci' / 'monitoring-values.yaml'}"
FOLLOWING = f"--values={CHART / 'ci' / 'custom-resources-values.yaml'}"
OPERATORS = ROOT / "tests" / "e2e" / "operators"
DEFINITIONS = {
    "github.com/cert-manager/cert-manager": "deploy/crds/cert-manager.io_*.yaml",
    "github.com/prometheus-operator/prometheus-operator": "example/prometheus-operator-crd/*.yaml",
}

SCENARIO = pytest.mark.parametrize(
    "scenario", [f"--values={file}" for file in SCENARIOS], ids=[file.stem for file in SCENARIOS]
)


def test_the_manifest_is_up_to_date_with_the_chart() -> None:
    assert MANIFEST.read_text() == manifest(chart_tool("helm")), "run: make manifests"


@SCENARIO
def test_helm_lints_the_chart_without_a_remark(scenario: str) -> None:
    command = [str(chart_tool("helm")), "lint", "--strict", "--quiet", str(CHART), scenario]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr.strip()) == (0, "", "")


@SCENARIO
def test_two_renders_are_equal_and_every_object_has_a_name_of_its_own(scenario: str) -> None:
    again = text(scenario, "--skip-tests")
    assert again == text(scenario)
    names = [
        (o["apiVersion"], o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"])
        for o in objects(scenario)
    ]
    assert len(names) == len(set(names))


@SCENARIO
def test_the_programs_accept_their_arguments(scenario: str) -> None:
    commands = set()
    for pod in pods(scenario):
        for container in pod["spec"]["containers"]:
            if container["name"] != "worker":
                commands.add(build_parser().parse_args(container["args"]).command)
    expected = {"serve", "manifests"} if "gitops" in scenario else {"serve", "check", "manifests"}
    assert commands - {"audit", "watchdog"} == expected


@SCENARIO
def test_the_gateway_accepts_its_configuration(scenario: str, tmp_path: Path) -> None:
    found = next(o for o in objects(scenario) if o["kind"] == "ConfigMap" and "gateway.yaml" in o["data"])
    folder = write_config_map(tmp_path, found)
    settings = yaml.safe_load((folder / "gateway.yaml").read_text())
    settings.get("tls", {}).pop("clientCAFile", None)
    settings.get("tls", {}).pop("clientNames", None)
    (folder / "gateway.yaml").write_text(yaml.safe_dump(settings))
    done = run_command("check", "--config", folder, "--allow-empty")
    assert done.returncode == 0, done.stderr


def test_a_configuration_without_webhooks_is_allowed_as_long_as_the_values_have_none() -> None:
    for arguments, is_allowed in (
        ((), True),
        ((WORKERS,), False),
        ((WORKERS, "--set=allowEmpty=true"), True),
    ):
        for kind, name in (("Deployment", NAME), ("Job", f"{NAME}-check")):
            (container,) = only(kind, name, *arguments)["spec"]["template"]["spec"]["containers"]
            assert ("--allow-empty" in container["args"]) is is_allowed


def test_policies_of_other_engines_are_policies_of_the_values_and_taken_as_they_are(tmp_path: Path) -> None:
    documents = [document for each in engine_scenarios.SCENARIOS for document in each.documents]
    for kind, listed in {**{each["kind"]: [each] for each in documents}, "all": documents}.items():
        values = tmp_path / f"{kind}.yaml"
        values.write_text(yaml.safe_dump({"extraDocuments": listed}))
        (container,) = only("Deployment", NAME, f"--values={values}")["spec"]["template"]["spec"][
            "containers"
        ]
        is_no_policy = kind in ("PolicyException", "ConstraintTemplate")
        assert ("--allow-empty" in container["args"]) is is_no_policy, kind
    folder = tmp_path / "config"
    folder.mkdir()
    found = only("ConfigMap", NAME, f"--values={values}")
    done = run_command("check", "--config", write_config_map(folder, found))
    assert done.returncode == 0, done.stderr


ENGINES = f"--values={CHART / 'ci' / 'engines-values.yaml'}"
REFUSED = {
    "replicaCount=2": "additional properties 'replicaCount' not allowed",
    "replicas=many": "at '/replicas': got string, want integer",
    "image.digest=sha256:1": "at '/image/digest': 'sha256:1' does not match pattern",
    "tls.mode=Auto": "at '/tls/mode': value must be one of 'SelfManaged', 'CertManager', 'Secret'",
    "configuration.listen=0.0.0.0:1": "at '/configuration': additional properties 'listen' not allowed",
    "configuration.logging.format=xml": "/logging/format': value must be one of 'text', 'json'",
    "workers.Samples.port=1": "'Samples' does not match pattern",
    "engines.gatekeeper.documents=Files": "value must be one of 'Cluster', 'Values'",
    "engines.gatekeeper.worker.prot=1": "at '/engines/gatekeeper/worker': additional properties 'prot' not",
    "engines.kyverno.enabled=true,workers.kyverno.image.repository=x": "put the fields into engines.kyverno",
    "engines.kubewarden.modules=store": "at '/engines/kubewarden/modules': got string, want object",
    "engines.kubewarden.enabled=true,engines.kubewarden.documents=Values": (
        "extraDocuments is empty: put the documents there"
    ),
    "engines.kyverno.enabled=true,engines.kyverno.extraRules[0].apiGroups={},"
    "engines.kyverno.extraRules[0].resources={pods,secrets},engines.kyverno.extraRules[0].verbs={get}": (
        "engines.kyverno.extraRules[0].resources has secrets: the worker would get the right to read Secrets"
    ),
    "engines.kyverno.enabled=true,engines.kyverno.extraRules[0].apiGroups={apps},"
    "engines.kyverno.extraRules[0].resources={*},engines.kyverno.extraRules[0].verbs={get}": (
        'engines.kyverno.extraRules[0].resources has "*": name each of them'
    ),
    "engines.kyverno.enabled=true,engines.kyverno.extraRules[0].apiGroups={apps},"
    "engines.kyverno.extraRules[0].resources={a},engines.kyverno.extraRules[0].verbs={get,update}": (
        'engines.kyverno.extraRules[0].verbs has "update": the worker needs get, list and watch only'
    ),
    "engines.kyverno.enabled=true,engines.kyverno.worker.resources.limits.memory=much": (
        "engines.kyverno.worker.resources.limits.memory is much: want a number with a unit, such as 1280Mi"
    ),
    "workers.samples.prot=1": "at '/workers/samples': additional properties 'prot' not allowed",
    "registration.include={own-namespace}": "value must be one of 'kube-system', 'events', 'leases.",
    "validatingWebhookConfigurations.a[0].name=x": "missing properties 'clientConfig', 'sideEffects'",
    "configuration.policies.paramKinds[0].apiVersion=v1,configuration.policies.paramKinds[0].kind=Foo,"
    "configuration.policies.paramKinds[0].resource=secrets": "would get the right to read all Secrets",
    "configuration.policies.resources[0].apiVersion=v1,configuration.policies.resources[0].kind=Secret,"
    "configuration.policies.resources[0].resource=a": "policies.resources has Secret a: the gateway would",
    "configuration.policies.paramKinds[0].kind=Foo": "missing properties 'apiVersion', 'resource'",
    "replicas=0": "replicas is 0: without a gateway API servers refuse every request",
    "autoscaling.enabled=true,autoscaling.maxReplicas=1": "less than autoscaling.minReplicas",
    "autoscaling.enabled=true,autoscaling.queueTime.enabled=false": "autoscaling needs a metric",
    "podDisruptionBudget.minAvailable=1,podDisruptionBudget.maxUnavailable=1": "leave one of them out",
    "podDisruptionBudget.minAvailable=3": "no pod could ever be evicted",
    "tls.mode=Secret": "tls.secretName has to name a Secret",
    "tls.caCertificates=x": "tls.caCertificates is for tls.mode Secret, and tls.mode is SelfManaged",
    "defaultsOf=0.0.9": "the default values are those of 0.0.9, and this chart is",
    "defaultsOf=": "Use --reset-then-reuse-values",
    "ports.admin=8443": "ports.https and ports.admin are both 8443",
    "terminationGracePeriodSeconds=10": "the gateway may need 20 s",
    "registration.include={kube-system},registration.excludeNamespaces={kube-system}": "both have",
    "workers.samples.port=50051": "workers.samples.image.repository is empty",
    "workers.samples.image.repository=x": "because latest is not a version",
    "workers.a.image.repository=x,workers.a.image.tag=v1,pools.a.target=b:1": "have the same name",
    "flowSchema.priorityLevelName=": "flowSchema needs a level",
    "watchdog.enabled=true,watchdog.mode=Ignore": "watchdog.probe has to be an object",
    "watchdog.mode=Open": "value must be one of 'Alert', 'Exempt', 'Ignore'",
    "watchdog.probe.kind=Pod": "missing properties",
}


@pytest.mark.parametrize("values", REFUSED)
def test_wrong_values_are_refused_with_a_sentence(values: str) -> None:
    assert REFUSED[values] in refusal(f"--set={values}")


def resources(rules: list[dict[str, Any]]) -> set[str]:
    return {name for rule in rules for name in rule["resources"]}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("customResources.enabled=false,rbac.authorizer=false,tls.mode=CertManager", {"namespaces"}),
        ("customResources.enabled=false,tls.mode=CertManager", {"namespaces", "subjectaccessreviews"}),
        (
            "customResources.enabled=false,rbac.authorizer=false",
            {"namespaces", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
        ),
    ],
)
def test_the_role_has_the_rights_of_the_features_that_are_on(values: str, expected: set[str]) -> None:
    assert resources(only("ClusterRole", NAME, f"--set={values}")["rules"]) == expected


def naming_roles(kind: str, **block: Any) -> dict[str, Any]:
    """A policy of Kyverno, or an exception, with a *block* in ``match``."""
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": kind,
        "metadata": {"name": "p"},
        "spec": {"rules": [{"name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}, **block}]}}]},
    }


@pytest.mark.parametrize(
    ("documents", "settings", "has_right"),
    [
        ([naming_roles("ClusterPolicy", clusterRoles=["a"])], {}, True),
        ([naming_roles("Policy", roles=["n:a"])], {}, True),
        ([naming_roles("PolicyException", clusterRoles=["a"])], {}, True),
        ([naming_roles("ClusterPolicy", clusterRoles=[])], {}, False),
        ([naming_roles("ClusterPolicy", subjects=[{"kind": "User", "name": ',"roles":["a"]'}])], {}, False),
        (
            [naming_roles("ClusterPolicy", roles=["n:a"]), {"kind": "RoleBinding", "apiVersion": "v1"}],
            {},
            False,
        ),
        ([], {"customResourcesOf": ["Kyverno"]}, True),
        ([], {"customResourcesOf": ["Gatekeeper"]}, False),
    ],
)
def test_bindings_may_be_read_if_policies_compare_the_roles_of_users(
    tmp_path: Path, documents: list[Any], settings: dict[str, Any], *, has_right: bool
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"extraDocuments": documents, "configuration": {"policies": settings}}))
    rules = only("ClusterRole", NAME, f"--values={values}")["rules"]
    given = [rule for rule in rules if "rolebindings" in rule["resources"]]
    right = {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["rolebindings", "clusterrolebindings"],
        "verbs": ["list", "watch"],
    }
    assert given == ([right] if has_right else [])


@pytest.mark.parametrize(
    ("values", "file"),
    [
        ("customResources.enabled=true", "custom-resources.yaml"),
        ("configuration.reports.events=true", "reports.yaml"),
        ("tls.mode=SelfManaged", "self-managed-tls.yaml"),
        (
            "configuration.rolloutPlans.installation=admission-gateway/admission-gateway",
            "rollout-plans.yaml",
        ),
    ],
)
def test_a_feature_has_the_same_rights_as_in_the_plain_manifests(values: str, file: str) -> None:
    roles = [
        o for o in yaml.safe_load_all((ROOT / "deploy" / file).read_text()) if o["kind"].endswith("Role")
    ]
    wanted = [rule for role in roles for rule in role["rules"]]
    # The chart makes the Secret, so that the gateway does not have to.
    wanted = [rule for rule in wanted if (rule["resources"], rule["verbs"]) != (["secrets"], ["create"])]
    given = [
        rule
        for o in objects(f"--set={values}")
        if o["kind"].endswith("Role") and not hooks(o)
        for rule in o["rules"]
    ]
    assert [rule for rule in wanted if rule not in given] == []


def test_the_gateway_may_read_the_bundles_that_its_webhooks_name_and_no_others(tmp_path: Path) -> None:
    scenario = f"--values={CHART / 'ci' / 'followed-ca-values.yaml'}"
    # The command would read custom resources from a cluster.
    without = "--set=customResources.enabled=false"
    config = write_config_map(tmp_path, only("ConfigMap", NAME, scenario, without))
    done = run_command("manifests", "--config", config, "--roles-for", f"{NAME}/{NAME}")
    assert done.returncode == 0, done.stderr

    def allowed(made: Iterable[Object]) -> set[tuple[str, str, str]]:
        return {
            (role["metadata"].get("namespace", ""), resource, name)
            for role in made
            if role["kind"].endswith("Role") and role["metadata"]["name"].endswith("-ca-bundles")
            for rule in role["rules"]
            for resource in rule["resources"]
            for name in rule["resourceNames"]
        }

    assert allowed(objects(scenario)) == allowed(yaml.safe_load_all(done.stdout))
    for audited, names in (("false", {NAME}), ("true", {NAME, f"{NAME}-audit"})):
        bindings = [
            o
            for o in objects(scenario, f"--set=audit.enabled={audited}")
            if o["kind"].endswith("Binding") and o["metadata"]["name"].endswith("-ca-bundles")
        ]
        assert {subject["name"] for one in bindings for subject in one["subjects"]} == names


def test_gateway_and_registration_may_read_every_custom_resource() -> None:
    for name in (NAME, f"{NAME}-registration"):
        rules = only("ClusterRole", name)["rules"]
        own = [
            rule
            for rule in rules
            if rule["apiGroups"] == ["admission-gateway.io"] and "list" in rule["verbs"]
        ]
        assert resources(own) == set(PLURALS.values())


def test_jobs_check_before_an_upgrade_register_after_it_and_remove_before_the_end() -> None:
    events = {o["metadata"]["name"]: hooks(o) for o in objects() if o["kind"] == "Job"}
    assert events == {
        f"{NAME}-check": {"pre-install", "pre-upgrade", "pre-rollback"},
        f"{NAME}-register": {"post-install", "post-upgrade", "post-rollback"},
        f"{NAME}-unregister": {"pre-delete"},
    }
    off = {
        o["metadata"]["name"]: hooks(o)
        for o in objects("--set=registration.enabled=false")
        if o["kind"] == "Job"
    }
    assert off == {
        f"{NAME}-check": {"pre-install", "pre-upgrade", "pre-rollback"},
        f"{NAME}-unregister": {"pre-delete", "pre-upgrade", "pre-rollback"},
    }


def test_everything_that_a_job_names_is_there_when_it_runs() -> None:
    """A hook sees the objects of the release only from post-install on, and other hooks of the same event."""
    for scenario in SCENARIOS:
        made = objects(f"--values={scenario}")
        for job in (o for o in made if o["kind"] == "Job"):
            spec = job["spec"]["template"]["spec"]
            names = {("ServiceAccount", spec.get("serviceAccountName"))}
            names |= {
                ("ConfigMap", v["configMap"]["name"])
                for v in spec.get("volumes", ())
                if v["name"] == "config"
            }
            for kind, name in names - {("ServiceAccount", None)}:
                (found,) = (o for o in made if (o["kind"], o["metadata"]["name"]) == (kind, name))
                for event in hooks(job) & {"pre-install", "pre-upgrade", "pre-rollback"}:
                    assert event in hooks(found), (scenario.name, name)
                assert hooks(job) <= hooks(found) or not hooks(found)


@pytest.mark.parametrize("kind", ["CronJob", "Deployment"])
def test_an_audit_has_an_account_of_its_own_that_may_list_its_kinds_and_write_reports_alone(
    kind: str,
) -> None:
    given = ("--set=audit.enabled=true", "--set=audit.kinds={pods,deployments.apps,secrets}")
    wanted = (
        *given,
        "--set=audit.reports=true",
        f"--set=audit.continuous={str(kind == 'Deployment').lower()}",
    )
    job = only(kind, f"{NAME}-audit", *wanted)
    pod = (job["spec"]["jobTemplate"] if kind == "CronJob" else job)["spec"]["template"]["spec"]
    parsed = build_parser().parse_args(pod["containers"][0]["args"])
    assert (parsed.kinds, parsed.include_secrets, parsed.reports) == (
        *({"pods", "deployments.apps", "secrets"}, True),
        True,
    )
    assert (parsed.continuous, parsed.exit_zero) == (kind == "Deployment", kind == "CronJob")
    assert pod["serviceAccountName"] == f"{NAME}-audit"
    rules = only("ClusterRole", f"{NAME}-audit", *wanted)["rules"]
    read = {
        (group, resource): set(rule["verbs"])
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    follows: set[str] = {"watch"} if kind == "Deployment" else set()
    for key in (("", "pods"), ("apps", "deployments"), ("", "secrets")):
        assert read.pop(key) == {"list"} | ({"get"} | follows if follows else set())
    assert read.pop(("", "namespaces")) == {"get", "list"} | follows
    written = {group for (group, _), verbs in read.items() if "update" in verbs}
    assert written == {"openreports.io", "wgpolicyk8s.io"}
    without = only("ClusterRole", f"{NAME}-audit", *given)["rules"]
    assert not any("update" in rule["verbs"] or "delete" in rule["verbs"] for rule in without)


def test_the_requests_of_an_audit_have_a_level_below_that_of_the_gateway() -> None:
    given = ("--set=audit.enabled=true",)
    own, of_gateway = (only("FlowSchema", name, *given)["spec"] for name in (f"{NAME}-audit", NAME))
    accounts = [
        one["serviceAccount"]["name"] for spec in (own, of_gateway) for one in spec["rules"][0]["subjects"]
    ]
    assert accounts == [f"{NAME}-audit", NAME]
    assert own["priorityLevelConfiguration"] == {"name": "workload-low"}
    # Also in kube-system, whose service accounts have the level workload-high from 900 on.
    assert own["matchingPrecedence"] < 900
    kinds = {one["metadata"]["name"] for one in objects() if one["kind"] == "FlowSchema"}
    without = objects(*given, "--set=audit.flowSchema.enabled=false")
    assert kinds == {one["metadata"]["name"] for one in without if one["kind"] == "FlowSchema"} == {NAME}


def test_cert_manager_keeps_the_ca_of_the_registration_up_to_date() -> None:
    scenario = f"--values={CHART / 'ci' / 'cert-manager-values.yaml'}"
    issued = only("Certificate", f"{NAME}-tls", scenario)
    (container,) = only("Job", f"{NAME}-register", scenario)["spec"]["template"]["spec"]["containers"]
    source = f"{NAME}/{issued['metadata']['name']}"
    assert f"--annotation=cert-manager.io/inject-ca-from={source}" in container["args"]
    for kind, name in (("Deployment", NAME), ("Job", f"{NAME}-register")):
        volumes = only(kind, name, scenario)["spec"]["template"]["spec"]["volumes"]
        (secret,) = (volume["secret"] for volume in volumes if "secret" in volume)
        assert secret["secretName"] == issued["spec"]["secretName"]


def test_the_job_that_registers_may_ask_the_workers_before_it_does() -> None:
    def asks(*arguments: str) -> tuple[bool, bool]:
        pod = only("Job", f"{NAME}-register", WORKERS, *arguments)["spec"]["template"]
        rules = only("NetworkPolicy", f"{NAME}-samples", WORKERS, *arguments)["spec"]["ingress"]
        (peers,) = (rule["from"] for rule in rules if rule["ports"] == [{"port": "grpc"}])
        selectors = [peer["podSelector"]["matchLabels"] for peer in peers]
        is_let_in = any(selector.items() <= pod["metadata"]["labels"].items() for selector in selectors)
        return "--workers" in pod["spec"]["containers"][0]["args"], is_let_in

    assert asks() == (True, True)
    assert asks("--set=hooks.checkWorkers=false") == (False, False)


def test_pages_are_on_unless_the_loopback_is_that_of_the_node() -> None:
    def pages(*arguments: str) -> object:
        files = only("ConfigMap", NAME, *arguments)["data"]
        return yaml.safe_load(files["gateway.yaml"]).get("pages")

    assert pages() is None
    assert pages("--set=hostNetwork=true") == {"enabled": False}
    given = "--set=configuration.pages.tokenFile=tokens"
    assert pages("--set=hostNetwork=true", given) == {"tokenFile": "tokens"}


def test_the_values_of_the_page_name_a_mounted_file_of_who_may_change_plans(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "pages.md").read_text()
    (example,) = re.findall(r"```yaml\n(configuration:\n  pages: .*?)```", page, re.DOTALL)
    (create,) = re.findall(r"^kubectl .* create secret generic (.*)$", page, re.MULTILINE)
    values = tmp_path / "values.yaml"
    values.write_text(example)
    spec = only("Deployment", NAME, f"--values={values}")["spec"]["template"]["spec"]
    (mount,) = yaml.safe_load(example)["extraVolumeMounts"]
    assert mount in spec["containers"][0]["volumeMounts"]
    (volume,) = (one for one in spec["volumes"] if one["name"] == mount["name"])
    name, file = create.split(" --from-file=")
    # Readable by the group of the volume, not by all.
    assert volume["secret"] == {"secretName": name, "defaultMode": 0o440}
    assert spec["securityContext"]["fsGroup"]
    (tmp_path / "config").mkdir()
    folder = write_config_map(tmp_path / "config", only("ConfigMap", NAME, f"--values={values}"))
    settings = (folder / "gateway.yaml").read_text()
    assert f"{mount['mountPath']}/{file}" in settings
    (folder / file).write_text("alice:0123456789abcdef0123456789abcdef\n")
    (folder / "gateway.yaml").write_text(settings.replace(mount["mountPath"], str(folder)))
    done = run_command("check", "--config", folder, "--allow-empty")
    assert done.returncode == 0, done.stderr


def test_without_hooks_a_changed_configuration_makes_another_job() -> None:
    def job(*more: str) -> str:
        (found,) = (o for o in objects(GITOPS, *more) if o["kind"] == "Job")
        assert not hooks(found)
        name: str = found["metadata"]["name"]
        return name

    assert job() == job("--set=replicas=4")
    assert job() != job("--set=configuration.auditLevel=None")


def test_the_objects_of_a_worker_fit_each_other() -> None:
    service = only("Service", f"{NAME}-samples", WORKERS)
    deployment = only("Deployment", f"{NAME}-samples", WORKERS)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= labels.items()
    assert not only("Service", NAME, WORKERS)["spec"]["selector"].items() <= labels.items()
    pools = {
        pool["metadata"]["name"]: pool["spec"]
        for pool in yaml.safe_load_all(only("ConfigMap", NAME, WORKERS)["data"]["pools.yaml"])
    }
    assert pools["samples"] == {
        "target": f"dns:///{NAME}-samples.{NAME}.svc:50051",
        "maxInFlight": 256,
        "hedge": {"after": "p99"},
    }
    assert pools["signatures"]["target"] == f"dns:///image-signatures.{NAME}.svc:7443"
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--listen=0.0.0.0:50051", "--grace=10", "--metrics-listen=0.0.0.0:9091"]


def test_the_worker_of_an_engine_has_its_documents_and_the_rights_for_them(tmp_path: Path) -> None:
    files = only("ConfigMap", NAME, ENGINES)["data"]
    policies = yaml.safe_load(files["gateway.yaml"])["policies"]
    assert policies == {
        "customResourcesOf": ["Gatekeeper"],
        "engines": {
            "gatekeeper": {"pool": "gatekeeper", "failurePolicy": "Fail"},
            "kyverno": {"pool": "kyverno", "timeoutSeconds": 5},
        },
    }
    of_cluster, of_values = (
        only("Deployment", f"{NAME}-{each}", ENGINES)["spec"]["template"]["spec"]
        for each in ("gatekeeper", "kyverno")
    )
    assert of_cluster["containers"][0]["args"][-1] == "--cluster"
    assert of_cluster["automountServiceAccountToken"] is True
    rules = only("ClusterRole", of_cluster["serviceAccountName"], ENGINES)["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert ["networking.k8s.io"] in [rule["apiGroups"] for rule in rules]
    (mount,) = (each for each in of_values["containers"][0]["volumeMounts"] if each["name"] == "documents")
    assert of_values["containers"][0]["args"][-1] == f"--policies={mount['mountPath']}"
    (volume,) = (each for each in of_values["volumes"] if each["name"] == "documents")
    assert volume["configMap"] == {
        "name": NAME,
        "items": [{"key": "documents.yaml", "path": "documents.yaml"}],
    }
    assert "documents.yaml" in files
    assert of_values["automountServiceAccountToken"] is False
    write_config_map(tmp_path, only("ConfigMap", NAME, ENGINES))
    done = run_command("check", "--config", tmp_path)
    assert "1 validating" in done.stdout, done


def test_the_worker_of_kubewarden_has_a_volume_with_modules_and_the_rights_for_its_kinds() -> None:
    claim = "engines.kubewarden.modules.persistentVolumeClaim.claimName=store"
    values = f"--set=engines.kubewarden.enabled=true,{claim}"
    spec = only("Deployment", f"{NAME}-kubewarden", values)["spec"]["template"]["spec"]
    (mount,) = (one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "modules")
    assert spec["containers"][0]["args"][-2:] == ["--cluster", f"--modules={mount['mountPath']}"]
    assert mount["readOnly"] is True
    (volume,) = (one for one in spec["volumes"] if one["name"] == "modules")
    assert volume["persistentVolumeClaim"] == {"claimName": "store"}
    (rule,) = only("ClusterRole", spec["serviceAccountName"], values)["rules"]
    assert (rule["apiGroups"], rule["verbs"]) == (["policies.kubewarden.io"], ["get", "list", "watch"])
    files = only("ConfigMap", NAME, values)["data"]
    policies = yaml.safe_load(files["gateway.yaml"])["policies"]
    assert policies == {
        "customResourcesOf": ["Kubewarden"],
        "engines": {"kubewarden": {"pool": "kubewarden"}},
    }


def test_gateway_and_worker_apply_exceptions_of_the_same_namespaces() -> None:
    values = (
        "--set=engines.kyverno.enabled=true,configuration.policies.exceptionNamespaces={platform,security}"
    )
    args = only("Deployment", f"{NAME}-kyverno", values)["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[-2:] == ["--cluster", "--exception-namespaces=platform,security"]
    files = only("ConfigMap", NAME, values)["data"]
    policies = yaml.safe_load(files["gateway.yaml"])["policies"]
    assert policies["exceptionNamespaces"] == ["platform", "security"]


def test_the_worker_of_an_engine_may_be_a_pool_elsewhere_that_has_tls(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "engines.md").read_text()
    (example,) = (
        text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if text.startswith("pools:")
    )
    values = tmp_path / "values.yaml"
    values.write_text(example)
    (tmp_path / "config").mkdir()
    folder = write_config_map(tmp_path / "config", only("ConfigMap", NAME, f"--values={values}"))
    settings = yaml.safe_load((folder / "gateway.yaml").read_text())
    (name,) = yaml.safe_load(example)["pools"]
    assert settings["policies"]["engines"] == {"gatekeeper": {"pool": name}}
    done = run_command("check", "--config", folder, "--allow-empty")
    assert done.returncode == 0, done.stderr


def test_the_worker_of_an_engine_starts_and_reaches_nothing_more_without_roles_and_ports() -> None:
    arguments = (ENGINES, "--set=rbac.create=false,networkPolicy.externalPorts=null")
    name = f"{NAME}-gatekeeper"
    spec = only("Deployment", name, *arguments)["spec"]["template"]["spec"]
    assert only("ServiceAccount", spec["serviceAccountName"], *arguments)
    assert not [
        one for one in objects(*arguments) if one["kind"] == "ClusterRole" and one["metadata"]["name"] == name
    ]
    for rule in only("NetworkPolicy", name, *arguments)["spec"]["egress"]:
        assert rule["ports"], "a rule without ports lets out to all of them"
    # The first list of a large cluster takes longer than the liveness probe waits.
    probe = spec["containers"][0]["startupProbe"]
    assert (probe["grpc"], probe["periodSeconds"] * probe["failureThreshold"]) == ({"port": 50051}, 300)


@pytest.mark.parametrize(
    ("memory", "wanted"),
    [("1280Mi", "853MiB"), ("1.5Gi", "1024MiB"), ("3000M", "1907MiB"), ("1572864000", "1000MiB"), ("", None)],
)
def test_the_worker_of_an_engine_collects_garbage_below_the_limit_of_its_container(
    memory: str, wanted: str | None
) -> None:
    limit = f"engines.gatekeeper.worker.resources.limits.memory={memory or 'null'}"
    for kind in ("--set", "--set-string") if memory else ("--set",):
        spec = only("Deployment", f"{NAME}-gatekeeper", ENGINES, f"{kind}={limit}")["spec"]["template"][
            "spec"
        ]
        environment = {one["name"]: one["value"] for one in spec["containers"][0].get("env", ())}
        assert environment == ({"GOMEMLIMIT": wanted} if wanted else {})
    own = "--set=engines.gatekeeper.worker.env[0].name=GOMEMLIMIT,engines.gatekeeper.worker.env[0].value=1GiB"
    spec = only("Deployment", f"{NAME}-gatekeeper", ENGINES, own)["spec"]["template"]["spec"]
    assert spec["containers"][0]["env"] == [{"name": "GOMEMLIMIT", "value": "1GiB"}]


def test_the_worker_of_an_engine_may_read_secrets_if_a_value_says_so(tmp_path: Path) -> None:
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}
    values = tmp_path / "values.yaml"
    engine = {"enabled": True, "extraRules": [rule], "allowSecretsAndWildcards": True}
    values.write_text(yaml.safe_dump({"engines": {"gatekeeper": engine}}))
    assert rule in only("ClusterRole", f"{NAME}-gatekeeper", f"--values={values}")["rules"]


def test_the_worker_of_an_engine_is_run_like_every_other_worker() -> None:
    """Its objects are those of a worker of the values, of the same image and fields, and of the engine."""
    worker = {"image": {"repository": "gatekeeper-worker", "tag": __version__}, "metricsPort": 9091}
    plain = f"--set-json=workers.gatekeeper={json.dumps(worker)}"
    monitored = "--set=serviceMonitor.enabled=true"
    name = f"{NAME}-gatekeeper"
    found, ordinary = (
        {one["kind"]: one for one in objects(monitored, *arguments) if one["metadata"]["name"] == name}
        for arguments in ((ENGINES,), (plain,))
    )
    assert found.keys() - ordinary.keys() == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    assert ordinary.keys() <= found.keys()
    for kind in ("Service", "PodDisruptionBudget"):
        assert found[kind] == ordinary[kind]
    policies = [one["NetworkPolicy"]["spec"] for one in (found, ordinary)]
    assert policies[0].pop("egress")
    assert policies[1].pop("egress") == []
    assert policies[0] == policies[1]
    specs = [one["Deployment"]["spec"] for one in (found, ordinary)]
    pods = [spec["template"].pop("spec") for spec in specs]
    assert specs[0] == specs[1]
    containers = [pod.pop("containers")[0] for pod in pods]
    assert {field for field in containers[0] if containers[0][field] != containers[1].get(field)} == {
        *("args", "env", "resources", "startupProbe")
    }
    different = {field for field in pods[0] if pods[0][field] != pods[1].get(field)}
    assert different == {"serviceAccountName", "automountServiceAccountToken"}
    monitors = [
        one["metadata"]["name"] for one in objects(monitored, ENGINES) if one["kind"] == "ServiceMonitor"
    ]
    assert f"{NAME}-workers" in monitors


def test_check_judges_the_ready_made_policies_of_a_worker_of_the_chart(tmp_path: Path) -> None:
    worker = {
        "image": {"repository": "admission-gateway", "tag": "1"},
        "command": ["python", "-m", "admission_gateway_worker.policies"],
    }
    _, webhook = configuration([one for one in definitions() if one.name == "require-labels"])
    (hook,) = webhook["webhooks"]
    hook["clientConfig"]["worker"]["policy"] = "require-label"
    file = tmp_path / "values.json"
    values = {"workers": {"policies": worker}, "validatingWebhookConfigurations": {"labels": [hook]}}
    file.write_text(json.dumps(values))
    (tmp_path / "config").mkdir()
    folder = write_config_map(tmp_path / "config", only("ConfigMap", NAME, f"--values={file}"))
    done = run_command("check", "--config", folder)
    assert done.returncode == 1
    assert 'found "require-label", which is not a ready-made policy; did you mean' in done.stderr


def test_no_service_but_the_gateway_s_own_selects_a_pod_of_a_job() -> None:
    selector = only("Service", NAME)["spec"]["selector"]
    for pod in pods():
        is_gateway = pod["metadata"]["name"] == NAME
        assert (selector.items() <= pod["metadata"]["labels"].items()) is is_gateway


def test_rules_and_dashboard_are_those_of_the_project() -> None:
    rule = only("PrometheusRule", NAME, MONITORING)["spec"]["groups"]
    assert rule[:-1] == yaml.safe_load(PROMETHEUS_RULE.read_text())["spec"]["groups"]
    assert rule[-1]["name"] == "own"
    dashboard = only("ConfigMap", f"{NAME}-dashboard", MONITORING)["data"]["admission-gateway.json"]
    assert json.loads(dashboard) == json.loads(DASHBOARD.read_text())


@pytest.mark.parametrize("of", APART)
def test_what_is_apart_from_the_gateway_has_a_pod_monitor_and_rules_of_its_own(of: str) -> None:
    name = f"{NAME}-{of}"
    rule = only("PrometheusRule", name, MONITORING)
    assert rule["spec"] == yaml.safe_load(apart_rule(of).read_text())
    monitor, deployment = only("PodMonitor", name, MONITORING), only("Deployment", name, MONITORING)
    template = deployment["spec"]["template"]
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= template["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (container,) = template["spec"]["containers"]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
    assert {one["metadata"]["namespace"] for one in (rule, monitor)} == {
        deployment["metadata"]["namespace"],
        "monitoring",
    }


def test_an_audit_of_a_schedule_has_nothing_to_scrape() -> None:
    found = objects(MONITORING, "--set=audit.continuous=false")
    names = [one["kind"] for one in found if one["metadata"]["name"] == f"{NAME}-audit"]
    assert "CronJob" in names
    assert not {"PodMonitor", "PrometheusRule"} & set(names)


def test_a_namespace_of_the_watchdog_is_left_out_of_the_registration() -> None:
    values = "--set=watchdog.enabled=true,watchdog.namespace=watch"
    (job,) = (one for one in pods(values) if one["metadata"]["name"] == f"{NAME}-register")
    assert "--exclude-namespace=watch" in job["spec"]["containers"][0]["args"]
    roles = [one for one in objects(values) if one["metadata"]["name"] == f"{NAME}-watchdog"]
    places = {one["kind"]: one["metadata"].get("namespace") for one in roles}
    assert (places["Deployment"], places["ServiceAccount"]) == ("watch", "watch")


def test_a_service_monitor_selects_the_service_with_its_port() -> None:
    for suffix, service in (("", f"{NAME}-metrics"), ("-workers", f"{NAME}-samples")):
        monitor = only("ServiceMonitor", f"{NAME}{suffix}", MONITORING)["spec"]
        wanted = monitor["selector"]["matchLabels"].items()
        selected = [
            o
            for o in objects(MONITORING)
            if o["kind"] == "Service" and wanted <= o["metadata"]["labels"].items()
        ]
        assert [o["metadata"]["name"] for o in selected] == [service]
        assert monitor["endpoints"][0]["port"] in {port["name"] for port in selected[0]["spec"]["ports"]}


def test_the_rule_of_the_prometheus_adapter_gives_the_mean_queue_time(tmp_path: Path) -> None:
    example = re.findall(r"```yaml\n(rules:\n.*?)```", README.read_text(), re.DOTALL)
    (rule,) = yaml.safe_load(example[0])["rules"]
    series = rule["seriesQuery"].partition("{")[0]
    query = rule["metricsQuery"].replace("<<.Series>>", series).replace("<<.GroupBy>>", "pod")
    query = query.replace("<<.LabelMatchers>>", 'namespace="n",pod=~"a|b"')
    metric = only("HorizontalPodAutoscaler", NAME, MONITORING)["spec"]["metrics"][0]["pods"]["metric"]["name"]
    pattern, name = rule["name"]["matches"], rule["name"]["as"].replace("${1}", r"\1")
    assert re.sub(pattern, name, series) == metric
    # Pod a: 600 batches a minute which wait 4 ms each. Pod b has no calls.
    labels = [f'{{namespace="n",pod="{pod}",pool="p"}}' for pod in "ab"]
    inputs = [
        {"series": f"{series}{labels[0]}", "values": "0+2.4x10"},
        {"series": f"{series[:-3]}count{labels[0]}", "values": "0+600x10"},
        {"series": f"{series}{labels[1]}", "values": "1+0x10"},
        {"series": f"{series[:-3]}count{labels[1]}", "values": "1+0x10"},
    ]
    samples = [{"labels": '{pod="a"}', "value": 0.004}, {"labels": '{pod="b"}', "value": 0}]
    asked = {"expr": f"round({query}, 0.0001)", "eval_time": "10m", "exp_samples": samples}
    file = tmp_path / "case.yaml"
    file.write_text(
        yaml.safe_dump({"tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": [asked]}]})
    )
    status, output = promtool("test", "rules", file)
    assert status == 0, output


@pytest.fixture(scope="module")
def operators(cluster: Cluster) -> Iterator[None]:
    """The namespaces, and the definitions of the kinds of other programs, for all scenarios."""
    for module, pattern in DEFINITIONS.items():
        source = json.loads(go("mod", "download", "-json", module, cwd=OPERATORS))
        files = [f"--filename={file}" for file in sorted(Path(source["Dir"]).glob(pattern))]
        assert files
        applied = cluster.kubectl("apply", "--server-side", *files)
        assert applied.returncode == 0, applied.stderr
    for name in ("monitoring", "restricted"):
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        assert cluster.api.create("/api/v1/namespaces", document).status == 201
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = [
        one["metadata"]["name"]
        for one in cluster.api.get(definitions).document["items"]
        if one["spec"]["group"].endswith(("cert-manager.io", "monitoring.coreos.com"))
    ]
    cluster.wait_until_served(*names)
    yield
    for name in names:
        cluster.api.delete(f"{definitions}/{name}")


@SCENARIO
def test_the_api_server_accepts_every_object(cluster: Cluster, operators: None, scenario: str) -> None:
    applied = cluster.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename=-"),
        stdin=text(scenario),
    )
    assert (applied.returncode, applied.stderr) == (0, "")
    assert applied.stdout.count("(server dry run)") == len(objects(scenario))


@SCENARIO
def test_every_pod_conforms_to_the_restricted_standard(
    cluster: Cluster, operators: None, scenario: str
) -> None:
    for pod in pods(scenario):
        document = {**pod, "metadata": {**pod["metadata"], "namespace": "restricted"}}
        answer = cluster.api.create(
            "/api/v1/namespaces/restricted/pods?dryRun=All&fieldValidation=Strict", document
        )
        # No standard but `privileged` allows the node's network.
        is_allowed = not pod["spec"].get("hostNetwork")
        assert (answer.status == 201) is is_allowed, answer


def certificates() -> dict[str, str]:
    """Return the content that the gateway gives its Secret."""
    state = next_state(None, (f"{NAME}.{NAMESPACE}.svc",), datetime.now(UTC), is_published=False)
    assert state is not None
    return state.data()


TLS = certificates()


@contextmanager
def account_of(cluster: Cluster, folder: Path, account: str, *arguments: str) -> Iterator[Path]:
    """Yield a kubeconfig of *account* with the rights of the chart; the gateway's Secret is filled."""
    further = ("Secret", "CustomResourceDefinition")
    with chart_account(cluster, folder, account, *arguments, further=further) as kubeconfig:
        eventually(lambda: cluster.api.get("/apis/admission-gateway.io/v1alpha1/workerpools").status == 200)
        secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}-tls"
        filled = cluster.api.get(secret).document | {"data": TLS}
        assert cluster.api.update(secret, filled).status == 200
        yield kubeconfig


def run_job(name: str, kubeconfig: Path, config: Path, *arguments: str) -> list[str]:
    """Run what the Job or CronJob *name* runs, without endpoints and workers; return the results."""
    (pod,) = (pod for pod in pods(*arguments) if pod["metadata"]["name"] == name)
    (container,) = pod["spec"]["containers"]
    given = [one for one in container["args"] if not one.startswith(("--wait", "--workers", "--config"))]
    where = [] if "--delete" in given else ["--config", config]
    done = run_command(*given, *where, "--kubeconfig", kubeconfig)
    assert done.returncode == 0, done.stderr
    return [line.partition(" ")[2] for line in done.stdout.splitlines()]


def test_the_rights_of_an_audit_are_enough_for_it(cluster: Cluster, tmp_path: Path) -> None:
    given = ("--set=audit.enabled=true",)
    (tmp_path / "config").mkdir()
    config = write_config_map(tmp_path / "config", only("ConfigMap", NAME, *given))
    documents = policy_documents("audited", "true")
    (config / "audited.yaml").write_text(yaml.safe_dump_all(documents))
    with account_of(cluster, tmp_path, f"{NAME}-audit", *given) as account:
        (pod,) = (one for one in pods(*given) if one["metadata"]["name"] == f"{NAME}-audit")
        arguments = [
            one for one in pod["spec"]["containers"][0]["args"] if not one.startswith(("--config", "--state"))
        ]
        done = run_command(*arguments, "--config", config, "--kubeconfig", account)
    assert done.returncode == 0, (done.stdout, done.stderr)
    report = json.loads(done.stdout)
    assert (report["complete"], report["problems"]) == (True, [])


def test_the_rights_of_the_jobs_are_enough_to_register_to_follow_and_to_remove_the_registration(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "config").mkdir()
    config = write_config_map(tmp_path / "config", only("ConfigMap", NAME, WORKERS))
    follow = (WORKERS, FOLLOWING)
    with (
        account_of(cluster, tmp_path, f"{NAME}-registration", *follow) as account,
        account_of(cluster, tmp_path, f"{NAME}-follow", *follow) as follower,
    ):
        assert run_job(f"{NAME}-follow", follower, config, *follow) == ["was not there"] * 2
        assert run_job(f"{NAME}-register", account, config, *follow) == ["applied (created)"] * 2
        for kind in KINDS.values():
            entries = cluster.api.get(f"{REGISTRATIONS}/{kind.lower()}s/{NAME}").document["webhooks"]
            assert {one["clientConfig"]["caBundle"] for one in entries} == {TLS["ca.crt"]}
        assert run_job(f"{NAME}-follow", follower, config, *follow) == ["applied (unchanged)"] * 2
        assert run_job(f"{NAME}-unregister", account, config, *follow) == ["deleted"] * 2
        assert run_job(f"{NAME}-unregister", account, config, *follow) == ["was not there"] * 2
