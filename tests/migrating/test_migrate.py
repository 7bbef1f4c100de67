"""``admission-gateway migrate``: what it finds, writes and prints, from files and from a cluster."""

from __future__ import annotations

import base64
import json
import shlex
from typing import TYPE_CHECKING, Any

import fastjsonschema
import pytest
import trustme
import yaml

from gateway.config.merge.load import load
from gateway.tools.cli import build_parser
from gateway.tools.migrating.engines import engine_of, policy_of
from tests.importing.kit import CLUSTERS_OWN
from tests.importing.test_command import hold as hold_webhooks
from tests.importing.test_other_engines import constraint, hold, policy, put, template
from tests.kit import ROOT, call_command
from tests.kubernetes.server import ApiServer, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Json = dict[str, Any]

CA = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
RULE = {"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def webhook(name: str, path: str, service: str = "gatekeeper-webhook-service") -> Json:
    """A webhook as a cluster has it."""
    namespace = service.partition("-")[0] + "-system"
    return {
        "name": name,
        "clientConfig": {
            "service": {"namespace": namespace, "name": service, "path": path},
            "caBundle": CA,
        },
        "rules": [RULE],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }


def registration(kind: str, name: str, *webhooks: Json, **metadata: Any) -> Json:
    """A webhook configuration as a cluster has it."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name, **CLUSTERS_OWN, **metadata},
        "webhooks": list(webhooks),
    }


GATEKEEPER = [
    registration(
        *("Mutating", "gatekeeper-mutating-webhook-configuration"),
        webhook("mutation.gatekeeper.sh", "/v1/mutate"),
        labels={"gatekeeper.sh/system": "yes"},
    ),
    registration(
        *("Validating", "gatekeeper-validating-webhook-configuration"),
        webhook("validation.gatekeeper.sh", "/v1/admit"),
        webhook("check-ignore-label.gatekeeper.sh", "/v1/admitlabel"),
        labels={"gatekeeper.sh/system": "yes"},
    ),
]
KYVERNO = [
    registration(
        *("Validating", "kyverno-resource-validating-webhook-cfg"),
        webhook("validate.kyverno.svc-fail", "/validate/fail", "kyverno-svc"),
        webhook("validate.kyverno.svc-ignore", "/validate/ignore", "kyverno-svc"),
        labels={"webhook.kyverno.io/managed-by": "kyverno"},
    ),
    registration(
        *("Mutating", "kyverno-policy-mutating-webhook-cfg"),
        webhook("mutate-policy.kyverno.svc", "/policymutate", "kyverno-svc"),
        labels={"webhook.kyverno.io/managed-by": "kyverno"},
    ),
]
OTHER = registration("Validating", "other", webhook("a.other.test", "/a", "other-hooks"))


def documents() -> list[Json]:
    return [template("Good"), constraint("Good", "a"), policy("names"), *GATEKEEPER, *KYVERNO, OTHER]


def migrate(*arguments: object, status: int = 0) -> Json:
    """Run the command, and return the report."""
    done = call_command("migrate", *arguments, "--json")
    assert done.returncode == status, (done.stdout, done.stderr)
    found: Json = json.loads(done.stdout)
    return found


def commands(report: Json) -> list[list[str]]:
    """The command lines of all steps."""
    return [shlex.split(line.removesuffix(" &")) for one in report["steps"] for line in one["commands"]]


def files(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


def test_what_is_written_is_the_new_configuration_the_old_webhooks_and_values(tmp_path: Path) -> None:
    put(tmp_path / "in" / "below" / "all.yaml", *documents())
    out = tmp_path / "out"
    report = migrate(tmp_path / "in", "--output", out)
    assert report["counts"] == {
        "native": 3,
        "gatekeeperWorker": 0,
        "kyvernoWorker": 0,
        "kubewardenWorker": 0,
        "refused": 0,
    }
    assert files(out) == [
        "candidates/gatewayconfiguration.yaml",
        "candidates/mutating-gatekeeper-mutating-webhook-configuration.yaml",
        "candidates/validating-gatekeeper-validating-webhook-configuration.yaml",
        "candidates/validating-kyverno-resource-validating-webhook-cfg.yaml",
        "candidates/workerpools.yaml",
        "config/constrainttemplate-good.yaml",
        "config/gatewayconfiguration.yaml",
        "config/good-a.yaml",
        "config/validatingpolicy-names.yaml",
        "documents/gatekeeper/constrainttemplate-good.yaml",
        "documents/gatekeeper/good-a.yaml",
        "old/gatewayconfiguration.yaml",
        "old/mutating-gatekeeper-mutating-webhook-configuration.yaml",
        "old/validating-gatekeeper-validating-webhook-configuration.yaml",
        "old/validating-kyverno-resource-validating-webhook-cfg.yaml",
        "registered/mutating-gatekeeper-mutating-webhook-configuration.yaml",
        "registered/mutating-kyverno-policy-mutating-webhook-cfg.yaml",
        "registered/validating-gatekeeper-validating-webhook-configuration.yaml",
        "registered/validating-kyverno-resource-validating-webhook-cfg.yaml",
        "values-candidates.yaml",
        "values.yaml",
    ]
    assert {one.configuration for one in load([out / "config"]).webhooks} == {"a", "names"}
    old, tried = load([out / "old"]), load([out / "candidates"])
    names = ["mutation.gatekeeper.sh", "validation.gatekeeper.sh"]
    names += ["validate.kyverno.svc-fail", "validate.kyverno.svc-ignore"]
    assert [one.name for one in old.webhooks] == names
    assert [one.name for one in tried.webhooks if one.rollout is not None] == names[:2]
    assert migrate(tmp_path / "in", "--output", out)["files"] == [
        line.replace(" written", " unchanged") for line in report["files"]
    ]
    notes = "\n".join(note for one in report["engines"] for note in one["notes"])
    assert "check-ignore-label.gatekeeper.sh is for objects of Gatekeeper itself, and is left out" in notes
    assert "validate.kyverno.svc-fail has no candidate: several webhooks share the policies" in notes
    assert "kube-system is no longer checked by" in notes


def test_webhooks_with_side_effects_have_no_candidate(tmp_path: Path) -> None:
    """As Kyverno registers its mutating ones: the gateway refuses candidates of such webhooks."""
    registered = [{**one, "webhooks": [dict(hook) for hook in one["webhooks"]]} for one in GATEKEEPER]
    registered[0]["webhooks"][0]["sideEffects"] = "NoneOnDryRun"
    put(tmp_path / "in" / "all.yaml", template("Good"), constraint("Good", "a"), *registered)
    report = migrate(tmp_path / "in", "--output", tmp_path / "out")
    tried = load([tmp_path / "out" / "candidates"])
    assert [one.name for one in tried.webhooks if one.rollout] == ["validation.gatekeeper.sh"]
    notes = "\n".join(note for one in report["engines"] for note in one["notes"])
    assert "mutation.gatekeeper.sh has no candidate: its sideEffects are NoneOnDryRun, and" in notes


def test_the_chart_accepts_the_values(tmp_path: Path) -> None:
    rego = template("Bad", engine="Rego"), constraint("Bad", "b"), MUTATOR
    put(tmp_path / "in" / "all.yaml", *documents(), PATTERN, *rego)
    migrate(tmp_path / "in", "--output", tmp_path / "out")
    schema = json.loads((ROOT / "deploy/chart/values.schema.json").read_text())
    validate = fastjsonschema.compile(schema, use_default=False)
    for name in ("values.yaml", "values-candidates.yaml"):
        validate(yaml.safe_load((tmp_path / "out" / name).read_text()))


def test_a_registration_is_written_as_it_was_for_the_way_back(tmp_path: Path) -> None:
    put(tmp_path / "in" / "all.yaml", *documents())
    migrate(tmp_path / "in", "--output", tmp_path / "out")
    for document in (*GATEKEEPER, *KYVERNO):
        kind = document["kind"].removesuffix("WebhookConfiguration").lower()
        file = tmp_path / "out" / "registered" / f"{kind}-{document['metadata']['name']}.yaml"
        found = yaml.safe_load(file.read_text())
        assert found["webhooks"] == document["webhooks"]
        assert found["metadata"]["labels"] == document["metadata"]["labels"]


def test_the_steps_are_commands_that_their_programs_accept(tmp_path: Path) -> None:
    put(tmp_path / "in" / "all.yaml", *documents())
    out = tmp_path / "out"
    report = migrate(tmp_path / "in", "--output", out)
    titles = [one["title"].split()[0] for one in report["steps"]]
    assert titles == ["install", "prove", "candidates:", "switch:", "remove", "remove", "the"]
    parser, lines = build_parser(), commands(report)
    for program, *arguments in lines:
        assert program in ("helm", "kubectl", "admission-gateway")
        if program == "admission-gateway":
            parser.parse_args(arguments)
        for argument in arguments:
            if argument.startswith(str(out)) and not argument.endswith("counterexamples"):
                assert (out / argument).exists()
    deleted = [line[4:] for line in lines if line[:3] == ["kubectl", "delete", "--ignore-not-found"]]
    assert sorted(name for names in deleted for name in names) == sorted(
        one["metadata"]["name"] for one in (*GATEKEEPER, *KYVERNO)
    )
    (prove,) = (line for line in lines if line[1:3] == ["migrate", "prove"])
    assert "gatekeeper-system/gatekeeper-webhook-service=127.0.0.1:18443" in prove
    assert "kyverno-system/kyverno-svc=127.0.0.1:18444" in prove
    scaled = [line for line in lines if "scale" in line]
    assert [line[-3:] for line in scaled] == [
        ["deployment/kyverno-admission-controller", "--replicas", "0"],
        ["deployment/kyverno-admission-controller", "--replicas", "1"],
    ]
    shown = call_command("migrate", tmp_path / "in", "--output", out).stdout
    assert all(f"   {line}\n" in shown for one in report["steps"] for line in one["commands"])


def test_a_cluster_is_moved_like_files_and_nothing_in_it_changes(server: ApiServer, tmp_path: Path) -> None:
    hold(server, "templates.gatekeeper.sh/v1", plurals={"constrainttemplates": [template("Good")]})
    hold(server, "constraints.gatekeeper.sh/v1beta1", plurals={"good": [constraint("Good", "a")]})
    hold_webhooks(server, *GATEKEEPER, *KYVERNO, OTHER)
    path = "/apis/apps/v1/namespaces/kyverno-system/deployments/kyverno-admission-controller"
    server.objects[path] = {"kind": "Deployment", "spec": {"replicas": 3}}
    kubeconfig = server.kubeconfig(tmp_path)
    out = tmp_path / "out"
    report = migrate("--kubeconfig", kubeconfig, "--output", out)
    assert report["counts"]["native"] == 2
    values = yaml.safe_load((out / "values.yaml").read_text())
    assert values == {
        "registration": {
            "excludeNamespaces": ["kube-public", "kube-node-lease", "gatekeeper-system", "kyverno-system"]
        },
        "configuration": {"policies": {"customResourcesOf": ["Gatekeeper"]}},
    }
    lines = commands(report)
    assert all("--kubeconfig" in line for line in lines)
    for program, *arguments in lines:
        if program == "admission-gateway":
            build_parser().parse_args(arguments)
    assert lines[-4][-3:] == ["deployment/kyverno-admission-controller", "--replicas", "3"]
    # Before the webhooks with Fail are back, something has to answer them.
    assert "rollout" in lines[-3]
    assert "apply" in lines[-2]
    assert {asked for asked, _ in server.requests} <= {"get", "list"}
    one = migrate("--kubeconfig", kubeconfig, "--engine", "gatekeeper", "--output", tmp_path / "one")
    assert [each["engine"] for each in one["engines"]] == ["gatekeeper"]
    assert not any("kyverno" in name for name in files(tmp_path / "one"))


def test_what_cannot_run_or_be_read_has_a_reason_and_the_rest_is_written(
    server: ApiServer, tmp_path: Path
) -> None:
    put(tmp_path / "in" / "a.yaml", template("Good"), constraint("Good", "a"), policy("broken", "object."))
    report = migrate(tmp_path / "in", "--output", tmp_path / "out", status=1)
    assert report["counts"]["refused"] == 1
    (broken,) = (one for each in report["engines"] for one in each["objects"] if one["name"] == "broken")
    assert (broken["runs"], "file" in broken) == ("refused", False)
    assert broken["reasons"][0]["field"] == "spec.validations[0].expression"
    text = call_command("migrate", tmp_path / "in", "--output", tmp_path / "out")
    assert (
        "  cannot run: 1\n    ValidatingPolicy/broken\n      spec.validations[0].expression: " in text.stdout
    )
    assert "note: found no webhook configuration of Gatekeeper; give one to prove with --old" in text.stdout
    hold(server, "templates.gatekeeper.sh/v1", plurals={"constrainttemplates": [template("Good")]})
    server.forbidden.add("/apis/templates.gatekeeper.sh/v1/constrainttemplates")
    hold_webhooks(server, *GATEKEEPER)
    done = call_command(
        "migrate", "--kubeconfig", server.kubeconfig(tmp_path), "--output", tmp_path / "cluster"
    )
    assert done.returncode == 1
    assert "error: the right to list constrainttemplates of templates.gatekeeper.sh is missing" in done.stderr


def test_without_registered_webhooks_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.yaml", PATTERN)
    report = migrate(tmp_path / "in", "--output", tmp_path / "out")
    titles = [one["title"].split()[0].rstrip(":") for one in report["steps"]]
    assert titles == ["install", "switch", "the"]
    assert not any("configmap" in line for line in commands(report))
    assert sorted({name.split("/")[0] for name in files(tmp_path / "out")}) == ["config", "values.yaml"]


def test_webhooks_that_check_what_cannot_run_are_removed_under_a_condition(tmp_path: Path) -> None:
    broken = registration(
        "Validating", "kyverno-resource-validating-webhook-cfg\x1b[31m", *KYVERNO[0]["webhooks"]
    )
    broken["metadata"]["labels"] = {"webhook.kyverno.io/managed-by": "kyverno"}
    put(tmp_path / "in" / "a.yaml", policy("broken", "object."), *GATEKEEPER, KYVERNO[0], broken)
    report = migrate(tmp_path / "in", "--output", tmp_path / "out", status=1)
    titles = [one["title"].partition(";")[0] for one in report["steps"]]
    assert [one for one in titles if one.startswith("remove")] == [
        "remove the webhooks of Gatekeeper only if it has no policies: none was found",
        "remove the webhooks of Kyverno only if you do without the document that cannot run",
    ]
    assert not any("\x1b" in word for line in commands(report) for word in line)


def test_a_context_has_the_name_that_each_program_gives_it(server: ApiServer, tmp_path: Path) -> None:
    hold_webhooks(server, *GATEKEEPER)
    content = yaml.safe_load(server.kubeconfig(tmp_path).read_text())
    (context,) = content["contexts"]
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump({**content, "contexts": [{**context, "name": "prod"}]}))
    options = ("--kubeconfig", file, "--context", "prod", "--output", tmp_path / "out")
    for program, *arguments in commands(migrate(*options)):
        expected = "--kube-context" if program == "helm" else "--context"
        assert arguments[arguments.index(expected) + 1] == "prod"


def test_a_shell_completes_both_commands() -> None:
    script = call_command("completion", "bash").stdout
    assert "_admission_gateway_migrate_prove_option_strings=" in script.replace("shtab_", "_").replace(
        "__", "_"
    )


def test_wrong_usage_and_an_empty_source_are_one_line(server: ApiServer, tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.yaml", OTHER)
    out = ("--output", tmp_path / "out")
    for arguments, status, message in (
        (("--json",), 2, "--output"),
        ((tmp_path / "in", "--kubeconfig", "a", *out), 2, "cannot be combined with files"),
        ((tmp_path / "in", "--engine", "opa", *out), 2, 'found "opa", expected gatekeeper, kyverno'),
        ((tmp_path / "in", *out), 1, "found no policy and no webhook of Gatekeeper, Kyverno"),
        ((tmp_path / "none", *out), 1, "none"),
    ):
        done = call_command("migrate", *arguments)
        assert (done.returncode, len(done.stderr.splitlines())) == (status, 1), done.stderr
        assert message in done.stderr
    server.faults["get"].append(refuse(500))
    done = call_command("migrate", "--kubeconfig", server.kubeconfig(tmp_path), *out)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert not (tmp_path / "out").exists()


PATTERN = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "team"},
    "spec": {
        "rules": [
            {
                "name": "label",
                "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "validate": {"message": "no team", "pattern": {"metadata": {"labels": {"team": "?*"}}}},
            }
        ]
    },
}


def test_what_the_gateway_does_not_evaluate_runs_in_the_worker(tmp_path: Path) -> None:
    broken = {**PATTERN, "metadata": {"name": "broken"}, "spec": {"rules": [{"name": "a"}]}}
    put(tmp_path / "in" / "a.yaml", PATTERN, broken, policy("names"), *KYVERNO)
    out = tmp_path / "out"
    report = migrate(tmp_path / "in", "--output", out, status=1)
    assert report["counts"] == {
        "native": 1,
        "gatekeeperWorker": 0,
        "kyvernoWorker": 1,
        "kubewardenWorker": 0,
        "refused": 1,
    }
    settings = yaml.safe_load((out / "config" / "gatewayconfiguration.yaml").read_text())
    assert settings["policies"] == {"engines": {"kyverno": {"pool": "kyverno"}}}
    values = yaml.safe_load((out / "values.yaml").read_text())
    assert values["engines"] == {"kyverno": {"enabled": True, "documents": "Values"}}
    assert [one["metadata"]["name"] for one in values["extraDocuments"]] == ["team", "names"]
    tried = yaml.safe_load((out / "values-candidates.yaml").read_text())
    assert tried["workers"]["kyverno"]["volumes"] == [
        {"name": "policies", "configMap": {"name": "migration-kyverno"}}
    ]
    assert files(out / "documents") == [
        "kyverno/clusterpolicy-team.yaml",
        "kyverno/validatingpolicy-names.yaml",
    ]
    (made,) = (line for line in commands(report) if "configmap" in line)
    assert made[-3:] == ["migration-kyverno", "--from-file", str(out / "documents" / "kyverno")]
    config = load([out / "config"])
    assert [*config.pools] == ["kyverno"]
    assert any("port-forward" in line and "50052:50051" in line for line in commands(report))
    text = call_command("migrate", tmp_path / "in", "--output", out).stdout
    assert "  run in the worker of Kyverno: 1\n    ClusterPolicy/team\n" in text
    assert "summary: 1 in the gateway, 1 in the worker of Kyverno, 1 cannot run\n" in text


def exception(namespace: str) -> Json:
    """An exception that leaves the rule of PATTERN out."""
    match = {"any": [{"resources": {"kinds": ["Pod"]}}]}
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": namespace},
        "spec": {"match": match, "exceptions": [{"policyName": "team", "ruleNames": ["*"]}]},
    }


@pytest.mark.parametrize(
    ("arguments", "namespaces", "left_out"),
    [
        ([], [], "2 PolicyExceptions are left out: by its flags, Kyverno applies those of no namespace"),
        (["--enablePolicyException=false", "--exceptionNamespace=a"], [], "those of no namespace"),
        (
            ["--enablePolicyException", "--exceptionNamespace", "a"],
            ["a"],
            "1 PolicyException is left out: by its flags, Kyverno applies those of a",
        ),
        (["-enablePolicyException=true", "--exceptionNamespace=*"], ["*"], None),
    ],
)
def test_exceptions_apply_where_they_do_at_home(
    server: ApiServer, tmp_path: Path, arguments: list[str], namespaces: list[str], left_out: str | None
) -> None:
    hold(server, "kyverno.io/v1", plurals={"clusterpolicies": [PATTERN]})
    hold(server, "kyverno.io/v2", plurals={"policyexceptions": [exception("a"), exception("b")]})
    server.objects["/apis/kyverno.io"]["versions"] = [
        {"groupVersion": f"kyverno.io/{one}"} for one in ("v1", "v2")
    ]
    hold_webhooks(server, *KYVERNO)
    path = "/apis/apps/v1/namespaces/kyverno-system/deployments/kyverno-admission-controller"
    container = {"name": "kyverno", "args": arguments}
    server.objects[path] = {"kind": "Deployment", "spec": {"template": {"spec": {"containers": [container]}}}}
    out = tmp_path / "out"
    report = migrate("--kubeconfig", server.kubeconfig(tmp_path), "--output", out)
    values = yaml.safe_load((out / "values.yaml").read_text())
    assert values["configuration"]["policies"].get("exceptionNamespaces", []) == namespaces
    found = [one for one in files(out / "config") if "policyexception" in one]
    applied = ["a", "b"] if namespaces == ["*"] else namespaces
    assert len(found) == len(applied)
    notes = [one for one in report["engines"][0]["notes"] if "PolicyException" in one]
    assert len(notes) == (left_out is not None)
    assert all(left_out is not None and one.endswith(left_out) for one in notes)


def test_where_exceptions_of_files_apply_is_not_known(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.yaml", PATTERN, exception("a"))
    report = migrate(tmp_path / "in", "--output", tmp_path / "out")
    (note,) = (one for one in report["engines"][0]["notes"] if "PolicyException" in one)
    assert "--enablePolicyException, in --exceptionNamespace, which are not known here" in note


MUTATOR = {
    "apiVersion": "mutations.gatekeeper.sh/v1",
    "kind": "AssignMetadata",
    "metadata": {"name": "stamp"},
    "spec": {"location": "metadata.labels.a", "parameters": {"assign": {"value": "b"}}},
}


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ({"timeoutSeconds": 3}, {}),
        ({"failurePolicy": "Fail", "timeoutSeconds": 1}, {"failurePolicy": "Fail"}),
        ({}, {"timeoutSeconds": 10}),
    ],
)
def test_gatekeepers_worker_is_called_as_gatekeeper_was(tmp_path: Path, fields: Json, settings: Json) -> None:
    registered = [{**one, "webhooks": [{**each, **fields} for each in one["webhooks"]]} for one in GATEKEEPER]
    put(
        tmp_path / "in" / "a.yaml",
        template("Bad", engine="Rego"),
        constraint("Bad", "b"),
        MUTATOR,
        *registered,
    )
    out = tmp_path / "out"
    report = migrate(tmp_path / "in", "--output", out)
    assert (report["counts"]["native"], report["counts"]["gatekeeperWorker"]) == (0, 3)
    found = yaml.safe_load((out / "config" / "gatewayconfiguration.yaml").read_text())
    assert found["policies"]["engines"] == {"gatekeeper": {"pool": "gatekeeper", **settings}}
    values = yaml.safe_load((out / "values.yaml").read_text())
    assert values["engines"]["gatekeeper"] == {
        "enabled": True,
        "documents": "Values",
        **settings,
    }
    assert {one.name for one in load([out / "config"]).webhooks} >= {"mutation.gatekeeper.sh"}


def test_policies_of_kubewarden_have_candidates_one_by_one(tmp_path: Path) -> None:
    policy_of_kubewarden = {
        "apiVersion": "policies.kubewarden.io/v1",
        "kind": "ClusterAdmissionPolicy",
        "metadata": {"name": "labels"},
        "spec": {"module": "registry://example.test/a:1", "mutating": False, "rules": [RULE]},
    }
    names = ("labels", "other")
    webhooks = [
        registration(
            *("Validating", f"clusterwide-{name}"),
            webhook(f"clusterwide-{name}.kubewarden.admission", f"/validate/clusterwide-{name}"),
            labels={"kubewarden": "true"},
        )
        for name in names
    ]
    put(tmp_path / "in" / "a.yaml", policy_of_kubewarden, *webhooks)
    report = migrate(tmp_path / "in", "--output", tmp_path / "out")
    assert (report["counts"]["kubewardenWorker"], report["counts"]["refused"]) == (1, 0)
    assert report["engines"][0]["objects"][0]["policiesOfWorker"] == ["labels"]
    assert any("engines.kubewarden.modules" in note for note in report["engines"][0]["notes"])
    found = load([tmp_path / "out" / "candidates"]).webhooks
    candidates = [one.rollout.candidate for one in found if one.rollout is not None]
    assert [str(one.client.policy) for one in candidates if one is not None] == list(names)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("document", "engine", "policies"),
    [
        (GATEKEEPER[0], "gatekeeper", ["mutation"]),
        (GATEKEEPER[1], "gatekeeper", ["validation", ""]),
        (KYVERNO[0], "kyverno", ["validation", "validation"]),
        (KYVERNO[1], "kyverno", [""]),
        (OTHER, "", []),
        (
            registration(
                *("Validating", "clusterwide-labels"),
                webhook("clusterwide-labels.kubewarden.admission", "/validate/clusterwide-labels"),
                labels={"kubewarden": "true"},
            ),
            "kubewarden",
            ["labels"],
        ),
        (
            registration(
                *("Validating", "namespaced-shop-labels"),
                webhook("a.kubewarden.admission", "/validate/namespaced-shop-labels"),
                annotations={"kubewardenPolicyName": "labels", "kubewardenPolicyNamespace": "shop"},
            ),
            "kubewarden",
            ["shop/labels"],
        ),
    ],
)
def test_webhooks_are_recognised(document: Json, engine: str, policies: list[str]) -> None:
    assert engine_of(document) == engine
    if engine:
        assert [policy_of(engine, document, entry) for entry in document["webhooks"]] == policies
