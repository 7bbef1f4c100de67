"""``import kyverno`` and ``import gatekeeper``: from folders and from a cluster, with the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.merge.read import read
from gateway.config.yaml.documents import read_documents
from gateway.tools.importing.other_engines import Imported, judge, of_engine
from tests.gatekeeper.documents import expansion, mutator
from tests.importing.kit import CLUSTERS_OWN, run
from tests.kit import call_command
from tests.kubernetes.server import ApiServer, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    Json = dict[str, Any]

KYVERNO, OLD = "policies.kyverno.io", "kyverno.io"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
PODS = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
TEMPLATE_CODE = {"validations": [{"expression": "variables.anyObject.metadata.name != 'a'", "message": "no"}]}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def policy(name: str, expression: str = "object.kind != ''", **spec: Any) -> Json:
    """A ValidatingPolicy of Kyverno."""
    return {
        "apiVersion": f"{KYVERNO}/v1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": PODS},
            "validations": [{"expression": expression, "message": "m"}],
            **spec,
        },
    }


def exception(name: str, refers_to: str) -> Json:
    """An exception of a ValidatingPolicy."""
    return {
        "apiVersion": f"{KYVERNO}/v1",
        "kind": "PolicyException",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"policyRefs": [{"kind": "ValidatingPolicy", "name": refers_to}]},
    }


def template(kind: str, *, engine: str = "K8sNativeValidation") -> Json:
    """A ConstraintTemplate."""
    code = [{"engine": engine, "source": TEMPLATE_CODE if engine != "Rego" else {"rego": "package a"}}]
    return {
        "apiVersion": "templates.gatekeeper.sh/v1",
        "kind": "ConstraintTemplate",
        "metadata": {"name": kind.lower()},
        "spec": {
            "crd": {"spec": {"names": {"kind": kind}}},
            "targets": [{"target": "admission.k8s.gatekeeper.sh", "code": code}],
        },
    }


def constraint(kind: str, name: str) -> Json:
    """A constraint of a template without parameters."""
    return {
        "apiVersion": "constraints.gatekeeper.sh/v1beta1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"match": {"kinds": [{"apiGroups": [""], "kinds": ["Pod"]}]}},
    }


def put(file: Path, *documents: Json) -> None:
    """Write *documents* to *file*, whose folder is made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump_all(documents))


def report(engine: str, *arguments: object) -> tuple[int, Json]:
    """Return the exit status and the report as JSON."""
    done = run(engine, *arguments, "--json")
    return done.returncode, json.loads(done.stdout)


def results(found: Json) -> dict[str, str]:
    """The result of each object, by KIND/NAME."""
    return {f"{one['kind']}/{one['name']}": one["result"] for one in found["objects"]}


def test_folders_are_read_with_those_below_and_what_runs_is_written(tmp_path: Path) -> None:
    source, output = tmp_path / "source", tmp_path / "config"
    put(source / "a.yaml", policy("runs"), exception("e", "runs"), exception("lost", "nothing"))
    unnamed = policy("differs", "object.metadata.name == 'a'")
    generating = {**policy("g"), "kind": "GeneratingPolicy"}
    put(source / "below" / "further" / "b.yaml", unnamed, generating, policy("broken", "object."))
    old = {"apiVersion": f"{OLD}/v1", "kind": "ClusterPolicy", "metadata": {"name": "o"}, "spec": {}}
    test = {"apiVersion": "cli.kyverno.io/v1alpha1", "kind": "Test", "metadata": {"name": "t"}}
    put(source / "below" / "kyverno-test.yaml", test, {"kind": "Values"}, old)
    put(source / ".hidden" / "c.yaml", policy("hidden"))
    (source / "list.json").write_text("[1]")
    status, found = report("kyverno", source, "--output", output)
    assert status == 1
    assert results(found) == {
        "ValidatingPolicy/runs": "runs",
        "PolicyException/shop/e": "runs",
        "PolicyException/shop/lost": "differs",
        "ValidatingPolicy/differs": "differs",
        "GeneratingPolicy/g": "refused",
        "ValidatingPolicy/broken": "refused",
        "ClusterPolicy/o": "refused",
    }
    assert found["counts"] == {"runs": 2, "differs": 2, "worker": 0, "refused": 3}
    assert found["passedOver"] == {"Test": 1, "no object": 2}
    reasons = {one["name"]: one["reasons"] for one in found["objects"]}
    assert reasons["g"][0]["field"] == "kind"
    assert "found GeneratingPolicy, which the gateway cannot run: " in reasons["g"][0]["message"]
    assert reasons["broken"][0]["field"] == "spec.validations[0].expression"
    assert [one["field"] for one in reasons["shop/lost"]] == ["spec.policyRefs"]
    written = sorted(one["file"] for one in found["objects"] if "file" in one)
    assert sorted(file.name for file in output.iterdir()) == written
    assert len(written) == 4
    checked = call_command("check", "--config", output)
    assert checked.stdout.startswith("valid: ")
    again = report("kyverno", output)
    assert again[0] == 0
    assert set(results(again[1]).values()) == {"runs", "differs"}


def test_a_report_without_an_output_writes_nothing(tmp_path: Path) -> None:
    put(tmp_path / "a.yaml", policy("a"))
    done = run("kyverno", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "runs as it is: 1",
        "  ValidatingPolicy/a",
        "summary: 1 runs as it is, 0 run with a difference, 0 cannot run",
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["a.yaml"]


def test_constraints_run_with_their_templates_only(tmp_path: Path) -> None:
    put(tmp_path / "a.yaml", constraint("Good", "a"), constraint("Bad", "b"), constraint("Lost", "c"))
    put(
        tmp_path / "b.yaml", template("Good"), template("Bad", engine="Other"), template("Old", engine="Rego")
    )
    put(tmp_path / "c.yaml", constraint("Old", "d"))
    status, found = report("gatekeeper", tmp_path, "--output", tmp_path / "config")
    assert status == 1
    assert results(found) == {
        "Good/a": "runs",
        "Bad/b": "refused",
        "Lost/c": "refused",
        "Old/d": "worker",
        "ConstraintTemplate/good": "runs",
        "ConstraintTemplate/bad": "refused",
        "ConstraintTemplate/old": "worker",
    }
    reasons = {one["name"]: one["reasons"][0]["message"] for one in found["objects"] if one["reasons"]}
    assert reasons["b"] == 'its ConstraintTemplate "bad" cannot run'
    assert "there is no ConstraintTemplate" in reasons["c"]
    assert call_command("check", "--config", tmp_path / "config").returncode == 0


def test_what_only_gatekeepers_worker_uses_runs_there(tmp_path: Path) -> None:
    of_worker = [mutator("m"), mutator("n", "AssignMetadata"), expansion("Pod", "Deployment")]
    put(tmp_path / "a.yaml", *of_worker, template("Old", engine="Rego"), constraint("Old", "d"))
    status, found = report("gatekeeper", tmp_path, "--output", tmp_path / "config")
    assert status == 0
    assert {*results(found).values()} == {"worker"}
    names = {one["name"]: one.get("policiesOfWorker") for one in found["objects"]}
    assert names == {"m": ["mutation"], "n": ["mutation"], "e": None, "old": None, "d": ["Old/d"]}
    lines = run("gatekeeper", tmp_path).stdout.splitlines()
    assert lines[lines.index("  Old/d") + 1] == "    policies of the worker: Old/d"
    assert call_command("check", "--config", tmp_path / "config").returncode == 0


def test_what_the_cluster_wrote_is_left_out_and_all_else_stays(tmp_path: Path) -> None:
    document = policy("a")
    annotations = {LAST_APPLIED: "{}", "note": "0x1"}
    document |= {"status": {"ready": True}}
    document["metadata"] |= {**CLUSTERS_OWN, "labels": {"a": "yes"}, "annotations": annotations}
    put(tmp_path / "a.yaml", document)
    assert report("kyverno", tmp_path, "--output", tmp_path / "config")[0] == 0
    written = yaml.safe_load((tmp_path / "config" / "validatingpolicy-a.yaml").read_text())
    assert written == {
        **policy("a"),
        "metadata": {"name": "a", "labels": {"a": "yes"}, "annotations": {"note": "0x1"}},
    }


def test_of_two_of_a_name_the_first_is_used(tmp_path: Path) -> None:
    put(tmp_path / "a.yaml", policy("a"), policy("a", "false"))
    status, found = report("kyverno", tmp_path, "--output", tmp_path / "config")
    assert status == 1
    assert [one["result"] for one in found["objects"]] == ["runs", "refused"]
    assert 'found "a" a second time; the first: ' in found["objects"][1]["reasons"][0]["message"]
    assert "kind != ''" in (tmp_path / "config" / "validatingpolicy-a.yaml").read_text()


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe",
        b"a: [",
        b"{apiVersion: policies.kyverno.io/v1, kind: ValidatingPolicy, metadata: {name: ../../x}}",
        b"{apiVersion: policies.kyverno.io/v1, kind: ../../x, metadata: {name: x}}",
        b'{apiVersion: policies.kyverno.io/v1, kind: ValidatingPolicy, metadata: {name: "\\ud800"}}',
        b"{apiVersion: policies.kyverno.io/v1, kind: ValidatingPolicy, metadata: [], spec: 1}",
        b"{apiVersion: policies.kyverno.io/v1, kind: PolicyException, metadata: {annotations: 7, name: {}}}",
        b"{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: " + b"x" * 5000 + b"}}",
        b"apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nspec: &a [*a]",
        b" " * (16 * 1024 * 1024 + 1),
    ],
)
def test_hostile_documents_are_messages(text: bytes, tmp_path: Path) -> None:
    put(tmp_path / "in" / "good.yaml", policy("good"))
    (tmp_path / "in" / "bad.yaml").write_bytes(text)
    done = run("kyverno", tmp_path / "in", "--output", tmp_path / "out" / "config")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "cannot run: 1" in done.stdout or "1 could not be read" in done.stdout
    assert [file.name for file in (tmp_path / "out" / "config").iterdir()] == ["validatingpolicy-good.yaml"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in", "out"]


POOL = [
    *(constraint(kind, name) for kind in ("Good", "Bad", "Lost") for name in "ab"),
    *(template("Good"), template("Bad", engine="Rego"), {**template("Good"), "spec": {}}),
    {"apiVersion": "constraints.gatekeeper.sh/v1", "kind": "GOOD", "metadata": {"name": "a"}},
    {"apiVersion": "mutations.gatekeeper.sh/v1", "kind": "Assign", "metadata": {"name": "a"}},
]


@given(st.lists(st.sampled_from(POOL), max_size=8))
def test_what_is_not_refused_is_a_configuration_in_any_order(documents: list[Json]) -> None:
    def judged(text: str) -> list[Imported]:
        found = of_engine("gatekeeper", read_documents(Path("a.yaml"), text)).objects
        judge(found)
        return found

    found = judged(yaml.safe_dump_all(documents))
    assert len(found) == len(documents)
    good = [one for one in found if not one.problems]
    texts = [one.text for one in good]
    read(list(read_documents(Path("a.yaml"), "---\n".join(texts))))
    again = judged("---\n".join(texts))
    assert [(one.text, one.result, one.file) for one in again] == [
        (one.text, one.result, one.file) for one in good
    ]
    templates = {one.name for one in good if one.kind == "ConstraintTemplate"}
    assert {one.kind.lower() for one in good if one.kind != "ConstraintTemplate"} <= templates


def hold(server: ApiServer, version: str, *, plurals: dict[str, list[Json]]) -> None:
    """Have *server* have the group of *version*, with these objects by plural name."""
    group = version.partition("/")[0]
    server.objects[f"/apis/{group}"] = {"kind": "APIGroup", "versions": [{"groupVersion": version}]}
    resources: list[Json] = []
    for plural, items in plurals.items():
        resources.append({"name": plural, "kind": items[0]["kind"], "namespaced": False, "verbs": ["list"]})
        resources.append({"name": f"{plural}/status", "kind": items[0]["kind"], "verbs": ["get"]})
        listed = [{key: one[key] for key in one.keys() - {"apiVersion", "kind"}} for one in items]
        server.objects[f"/apis/{version}/{plural}"] = {"kind": "AList", "items": listed}
    server.objects[f"/apis/{version}"] = {"kind": "APIResourceList", "resources": resources}


def test_a_cluster_has_the_kinds_that_are_installed(server: ApiServer, tmp_path: Path) -> None:
    hold(server, "templates.gatekeeper.sh/v1", plurals={"constrainttemplates": [template("Good")]})
    hold(server, "constraints.gatekeeper.sh/v1beta1", plurals={"good": [constraint("Good", "a")]})
    arguments = ("--kubeconfig", server.kubeconfig(tmp_path), "--output", tmp_path / "config")
    status, found = report("gatekeeper", *arguments)
    assert status == 0
    assert results(found) == {"Good/a": "runs", "ConstraintTemplate/good": "runs"}
    assert found["objects"][0]["source"] == "cluster: Good/a"
    assert report("kyverno", "--kubeconfig", server.kubeconfig(tmp_path)) == (
        0,
        {
            "engine": "kyverno",
            "counts": {"runs": 0, "differs": 0, "worker": 0, "refused": 0},
            "objects": [],
            "passedOver": {},
            "unreadable": [],
            "missingRights": [],
        },
    )


def test_a_missing_right_is_named_and_the_rest_is_read(server: ApiServer, tmp_path: Path) -> None:
    plurals = {"policyexceptions": [exception("e", "a")], "validatingpolicies": [policy("a")]}
    hold(server, f"{KYVERNO}/v1", plurals=plurals)
    server.forbidden.add(f"/apis/{KYVERNO}/v1/policyexceptions")
    done = run("kyverno", "--kubeconfig", server.kubeconfig(tmp_path))
    assert done.returncode == 1
    assert f"error: the right to list policyexceptions of {KYVERNO} is missing" in done.stderr
    assert done.stdout.splitlines()[1] == "  ValidatingPolicy/a"
    assert done.stdout.splitlines()[-1].endswith("0 cannot run, 1 kind could not be listed")


def test_a_cluster_that_does_not_answer_is_one_line(server: ApiServer, tmp_path: Path) -> None:
    server.faults["get"].append(refuse(500))
    done = run("kyverno", "--kubeconfig", server.kubeconfig(tmp_path))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)


READ_MAPS = "resource.Get('v1', 'configmaps', 'a', 'b').data.owner == 'ann'"
READ_WIDGETS = "resource.List('example.com/v1', 'widgets', '').items.size() == 0"
READ_SECRETS = "resource.Get('v1', 'secrets', 'a', 'b').data.owner == 'ann'"
LISTED_MAPS = {"apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps"}
LISTED_WIDGETS = {"apiVersion": "example.com/v1", "kind": "Widget", "resource": "widgets"}
WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1"}],
    },
}


def settings(*listed: Json) -> Json:
    """The GatewayConfiguration for policies that read these kinds."""
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "kubernetes": {},
        **({"policies": {"resources": [*listed]}} if listed else {}),
    }


def test_the_kinds_that_policies_read_are_reported_and_listed(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.yaml", policy("maps", READ_MAPS), policy("a"), policy("secrets", READ_SECRETS))
    put(tmp_path / "in" / "b.yaml", policy("widgets", READ_WIDGETS))
    status, found = report("kyverno", tmp_path / "in", "--output", tmp_path / "out")
    assert status == 1
    assert found["gatewayConfiguration"] == settings(LISTED_MAPS)
    objects = {one["name"]: one for one in found["objects"]}
    assert objects["maps"]["reads"] == [{"apiVersion": "v1", "resource": "configmaps"}]
    assert "reads" not in objects["a"]
    assert [objects[name]["result"] for name in ("maps", "a", "secrets", "widgets")] == [
        *("runs", "runs", "refused", "refused"),
    ]
    assert objects["secrets"]["reasons"][0]["message"] == "reads secrets of v1: no policy may read Secrets"
    assert "kind: KIND, resource: widgets" in objects["widgets"]["reasons"][0]["message"]
    written = tmp_path / "out" / "gatewayconfiguration.yaml"
    assert yaml.safe_load(written.read_text()) == settings(LISTED_MAPS)
    read(read_documents(written, "---\n".join(file.read_text() for file in (tmp_path / "out").iterdir())))
    put(tmp_path / "in" / "crd.yaml", WIDGETS)
    done = run("kyverno", tmp_path / "in")
    assert "    reads widgets of example.com/v1\n" in done.stdout
    advice = done.stdout.partition(
        "add this to your GatewayConfiguration, or use gatewayconfiguration.yaml as it is\n"
    )
    assert yaml.safe_load(advice[2]) == {
        "kubernetes": {},
        "policies": {"resources": [LISTED_WIDGETS, LISTED_MAPS]},
    }


def test_a_cluster_says_which_kind_a_plural_name_has(server: ApiServer, tmp_path: Path) -> None:
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    hold(server, f"{KYVERNO}/v1", plurals={"validatingpolicies": [policy("widgets", READ_WIDGETS)]})
    hold(server, "example.com/v1", plurals={"widgets": [widget]})
    status, found = report("kyverno", "--kubeconfig", server.kubeconfig(tmp_path))
    assert status == 0
    assert found["gatewayConfiguration"] == settings(LISTED_WIDGETS)


def test_kinds_that_are_named_in_a_review_are_a_difference(tmp_path: Path) -> None:
    later = "resource.Get('v1', object.kind == 'Pod' ? 'configmaps' : 'services', 'a', 'b').kind == ''"
    put(tmp_path / "a.yaml", policy("a", later, autogen={"podControllers": {"controllers": []}}))
    status, found = report("kyverno", tmp_path)
    assert (status, results(found)) == (0, {"ValidatingPolicy/a": "differs"})
    (reason,) = found["objects"][0]["reasons"]
    assert reason["message"].startswith("reads objects of kinds that its expressions name in a review")
    assert found["gatewayConfiguration"] == settings()


def test_what_asks_the_authorizer_needs_a_cluster(tmp_path: Path) -> None:
    asked = (
        "resource.Post('authorization.k8s.io/v1', 'subjectaccessreviews', {'spec': dyn({'user': 'a'})})"
        ".status.allowed == true"
    )
    put(tmp_path / "a.yaml", policy("a", asked))
    status, found = report("kyverno", tmp_path)
    assert (status, found["gatewayConfiguration"]) == (0, settings())


@pytest.mark.parametrize(
    "arguments",
    [
        ("--json",),
        ("kyverno", "--name", "a"),
        ("kyverno", "--with-problems"),
        ("gatekeeper", "--as", "CustomResources"),
        ("gatekeeper", "x", "--context", "c"),
        ("kyverno", "--force"),
    ],
)
def test_options_of_the_other_import_are_refused(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_rules_in_kyvernos_own_language_run_in_a_worker(tmp_path: Path) -> None:
    match = {"any": [{"resources": {"kinds": ["Pod"]}}]}
    rules = [
        {"name": "a", "match": match, "validate": {"pattern": {"spec": {"hostNetwork": False}}}},
        {
            "name": "b",
            "match": match,
            "mutate": {"patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}},
        },
    ]
    of_rule = {"generate": {"kind": "Secret"}}
    for name, more in (("old", []), ("makes", [{"name": "c", "match": match, **of_rule}])):
        metadata, spec = {"name": name}, {"rules": [*rules, *more]}
        document = {"apiVersion": f"{OLD}/v1", "kind": "ClusterPolicy", "metadata": metadata, "spec": spec}
        put(tmp_path / "source" / f"{name}.yaml", document)
    output = tmp_path / "config"
    status, found = report("kyverno", tmp_path / "source", "--output", output)
    assert status == 1
    assert results(found) == {"ClusterPolicy/old": "worker", "ClusterPolicy/makes": "refused"}
    of_worker = {one["name"]: one.get("policiesOfWorker") for one in found["objects"]}
    assert of_worker == {"old": ["old/b", "old/a"], "makes": None}
    assert found["gatewayConfiguration"] == {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "policies": {"engines": {"kyverno": {"pool": "kyverno"}}},
    }
    assert call_command("check", "--config", output).stdout.startswith("valid: ")
    (tmp_path / "source" / "makes.yaml").unlink()
    done = run("kyverno", tmp_path / "source")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:4] == [
        "runs in a worker: 1",
        "  ClusterPolicy/old",
        "    policies of the worker: old/b, old/a",
        "summary: 0 run as they are, 0 run with a difference, 1 runs in a worker, 0 cannot run",
    ]
    assert done.stdout.splitlines()[4].startswith(
        "a worker evaluates policies: workerpools.yaml has its pool"
    )


def test_policies_of_kubewarden_run_in_a_worker(tmp_path: Path) -> None:
    document = {
        "apiVersion": "policies.kubewarden.io/v1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"module": "registry://a/b:v1", "rules": PODS, "mutating": False},
    }
    put(tmp_path / "source" / "a.yaml", document, {**document, "kind": "AdmissionPolicyGroup"})
    status, found = report("kubewarden", tmp_path / "source", "--output", tmp_path / "config")
    assert status == 1
    assert results(found) == {"AdmissionPolicy/n/p": "worker", "AdmissionPolicyGroup/n/p": "refused"}
    assert call_command("check", "--config", tmp_path / "config").returncode == 0
