"""``admission-gateway import`` as it is called: with files, with standard input, with a cluster."""

from __future__ import annotations

import base64
import shlex
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import yaml

from gateway.base.errors import GatewayError
from gateway.tools.importing.folder import write as write_all
from tests.importing.kit import MUTATING, VALIDATING, configuration, entry, registering, run, write
from tests.kit import call_command, run_command
from tests.kubernetes.server import ApiServer, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Json = dict[str, Any]

GROUP = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def names(text: str) -> list[tuple[str, str]]:
    return [(one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(text)]


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def hold(server: ApiServer, *documents: Json) -> None:
    """Have *server* list these objects, without what every item of a list leaves out."""
    for kind in (MUTATING, VALIDATING):
        items = [
            {key: value for key, value in one.items() if key not in ("apiVersion", "kind")}
            for one in documents
            if one["kind"] == kind
        ]
        server.objects[f"{GROUP}/{kind.lower()}s"] = {"kind": f"{kind}List", "items": items}


def test_files_are_imported_in_the_order_in_which_they_are_called(tmp_path: Path) -> None:
    file = write(
        tmp_path / "all.json",
        configuration(VALIDATING, "b"),
        registering(),
        configuration(MUTATING, "z"),
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hooks"}},
        configuration(VALIDATING, "a"),
    )
    done = run(file)
    assert done.returncode == 0, done.stderr
    assert names(done.stdout) == [(MUTATING, "z"), (VALIDATING, "a"), (VALIDATING, "b")]
    assert (
        f"note: {VALIDATING}/admission-gateway: not imported, because it registers a gateway" in done.stderr
    )
    assert done.stderr.splitlines()[-3:] == [
        "kubectl delete mutatingwebhookconfiguration z",
        "kubectl delete validatingwebhookconfiguration a",
        "kubectl delete validatingwebhookconfiguration b",
    ]
    assert run_command("import", "-", stdin=done.stdout.encode()).stdout == done.stdout


POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"


def policies(version: str = "v1") -> list[Json]:
    """Return a policy with its binding, as an API server returns them."""
    head = {"apiVersion": f"admissionregistration.k8s.io/{version}"}
    rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
    spec = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "params.data.a == 'b'"}],
    }
    metadata = {
        "labels": {"app": "x"},
        "uid": "u",
        "generation": 1,
        "managedFields": [{"manager": "kubectl"}],
    }
    bound = {
        "policyName": "p",
        "validationActions": ["Deny"],
        "paramRef": {"name": "n", "parameterNotFoundAction": "Deny"},
    }
    return [
        {**head, "kind": POLICY, "metadata": {"name": "p", **metadata}, "spec": spec, "status": {}},
        {**head, "kind": BINDING, "metadata": {"name": "b", **metadata}, "spec": bound},
    ]


def test_policies_are_imported_with_their_bindings(tmp_path: Path) -> None:
    file = write(tmp_path / "all.json", *policies())
    folder = tmp_path / "config"
    done = run(file, "--output", folder)
    assert done.returncode == 0, done.stderr
    assert files(folder) == ["validatingadmissionpolicy-p.yaml", "validatingadmissionpolicybinding-b.yaml"]
    for kept, document in zip(files(folder), policies(), strict=True):
        read = yaml.safe_load((folder / kept).read_text())
        metadata = {"name": document["metadata"]["name"], "labels": {"app": "x"}}
        assert read == {
            **{key: document[key] for key in ("apiVersion", "kind", "spec")},
            "metadata": metadata,
        }
    assert "summary: 1 policy with 1 binding" in done.stderr.splitlines()
    assert "parameters of policies stay in the cluster" in done.stderr
    assert done.stderr.splitlines()[-2:] == [
        "kubectl delete validatingadmissionpolicybindings.admissionregistration.k8s.io b",
        "kubectl delete validatingadmissionpolicies.admissionregistration.k8s.io p",
    ]
    resources = run(file, "--as", "CustomResources")
    for one in yaml.safe_load_all(resources.stdout):
        assert one["apiVersion"] == "admission-gateway.io/v1alpha1"
        assert set(one["metadata"]) == {"name"}


def test_a_mode_that_only_the_gateway_knows_is_a_warning(tmp_path: Path) -> None:
    policy, binding = policies()
    policy["kind"], binding["kind"] = "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'test', path: '/a'}]"}}
    del policy["spec"]["validations"], binding["spec"]["validationActions"]
    policy["spec"] |= {"mutations": [mutation], "reinvocationPolicy": "Never"}
    for mode, expected in (("Audit", 1), ("Enforce", 0)):
        binding["metadata"]["annotations"] = {"admission-gateway.io/mode": mode}
        done = run(write(tmp_path / "all.json", policy, binding), "--output", tmp_path / mode)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("ignores the annotation admission-gateway.io/mode") == expected
        assert done.stderr.count("Audit: MutatingAdmissionPolicyBinding/b") == expected


def test_policies_of_a_cluster_come_in_the_best_version_that_it_has(
    server: ApiServer, tmp_path: Path
) -> None:
    hold(server, configuration(VALIDATING, "c"))
    for path, document in zip(
        ("validatingadmissionpolicies", "validatingadmissionpolicybindings"), policies("v1beta1"), strict=True
    ):
        items = [{key: value for key, value in document.items() if key not in ("apiVersion", "kind")}]
        server.objects[f"{GROUP}beta1/{path}"] = {"kind": "List", "items": items}
    done = run("--kubeconfig", server.kubeconfig(tmp_path))
    assert done.returncode == 0, done.stderr
    assert names(done.stdout) == [(VALIDATING, "c"), (POLICY, "p"), (BINDING, "b")]
    versions = {one["apiVersion"] for one in yaml.safe_load_all(done.stdout)}
    assert versions == {"admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1"}


def test_an_imported_configuration_passes_check(tmp_path: Path) -> None:
    file = write(tmp_path / "all.json", configuration(MUTATING, "a"), configuration(VALIDATING, "b"))
    folder = tmp_path / "config"
    done = run(file, "--output", folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{folder}/mutating-a.yaml written",
        f"{folder}/validating-b.yaml written",
    ]
    assert files(folder) == ["mutating-a.yaml", "validating-b.yaml"]
    assert call_command("check", "--config", folder).returncode == 0
    again = run(file, "--output", folder)
    assert again.stdout.splitlines() == [
        f"{folder}/mutating-a.yaml unchanged",
        f"{folder}/validating-b.yaml unchanged",
    ]


def test_files_are_only_overwritten_with_force(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "validating-b.yaml").write_text("mine")
    file = write(tmp_path / "all.json", configuration(MUTATING, "a"), configuration(VALIDATING, "b"))
    done = run(file, "--output", folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"--output: {folder}/validating-b.yaml exist with other content" in done.stderr
    assert files(folder) == ["validating-b.yaml"]
    done = run(file, "--output", folder, "--force")
    assert done.returncode == 0, done.stderr
    assert files(folder) == ["mutating-a.yaml", "validating-b.yaml"]
    assert "kind: Validating" in (folder / "validating-b.yaml").read_text()


def test_a_failed_write_leaves_no_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GatewayError, match="cannot be written: "):
        write_all(tmp_path / "file" / "folder", {"a.yaml": "x"}, force=True)
    folder = tmp_path / "config"
    (folder / "b.yaml").mkdir(parents=True)
    with pytest.raises(GatewayError):
        write_all(folder, {"a.yaml": "x", "b.yaml": "y"}, force=True)
    assert files(folder) == ["b.yaml"]


def test_invalid_objects_are_not_imported(tmp_path: Path) -> None:
    bad = configuration(VALIDATING, "bad", entry(timeoutSeconds=31))
    file = write(tmp_path / "all.json", configuration(VALIDATING, "good"), bad)
    done = run(file, "--output", tmp_path / "config")
    assert done.returncode == 1
    assert files(tmp_path / "config") == ["validating-good.yaml"]
    first, *_, last = done.stderr.splitlines()
    assert first.startswith(f'error: {VALIDATING} "bad": webhooks[0].timeoutSeconds: found the number 31')
    assert last.startswith("admission-gateway: 1 of 2 objects was not imported")
    assert last.endswith("--exclude bad")
    assert "kubectl delete validatingwebhookconfiguration good" in done.stderr
    assert "kubectl delete validatingwebhookconfiguration bad" not in done.stderr
    done = run(file, "--with-problems")
    assert done.returncode == 1
    assert len(names(done.stdout)) == 2
    done = run(file, "--exclude", "ba*")
    assert done.returncode == 0, done.stderr
    assert names(done.stdout) == [(VALIDATING, "good")]
    assert names(run(file, "--name", "g*").stdout) == [(VALIDATING, "good")]


@pytest.mark.parametrize("name", ["policies", "$(touch x)", "[a]*?", "\x1b[2J", "it's"])
def test_the_printed_exclude_matches_only_the_invalid_object(tmp_path: Path, name: str) -> None:
    """A good object of the other kind and the same name is still imported."""
    bad = configuration(VALIDATING, name, entry(clientConfig={"url": "https://a.test/", "caBundle": "Cg=="}))
    good = [configuration(MUTATING, "policies"), configuration(VALIDATING, "policies-a")]
    file = write(tmp_path / "all.json", bad, *good)
    done = run(file)
    assert done.returncode == 1
    assert len(names(done.stdout)) == 2
    assert "webhooks[0].clientConfig.caBundle: " in done.stderr
    excluding = shlex.split(done.stderr.splitlines()[-1].partition("without: ")[2])
    again = run(file, *excluding)
    assert (again.returncode, again.stdout) == (0, done.stdout), again.stderr


def test_an_unreadable_document_does_not_affect_others(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("a: [")
    write(tmp_path / "good.json", configuration(VALIDATING, "good"))
    done = run(tmp_path)
    assert done.returncode == 1
    assert names(done.stdout) == [(VALIDATING, "good")]
    assert f"error: {tmp_path}/broken.yaml:2:1: " in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("admission-gateway: unreadable documents were not imported"), last
    assert last.endswith("Correct them or remove them from the files; --exclude does not apply to them"), last


def test_warnings_about_a_large_cluster_are_few_lines(tmp_path: Path) -> None:
    """Each kind of warning is one line, with the names below it."""
    owned: Json = {"f:webhooks": {'k:{"name":"x"}': {"f:clientConfig": {"f:caBundle": {}}, "f:rules": {}}}}
    managed = [
        {
            "manager": "kubectl-client-side-apply",
            "fieldsV1": {"f:webhooks": {'k:{"name":"x"}': {"f:rules": {}}}},
        },
        {"manager": "webhook", "operation": "Update", "fieldsV1": owned},
    ]
    documents = [
        configuration(
            kind,
            f"project-{number}",
            entry(f"a.project-{number}.test"),
            managedFields=managed if number < 3 else [],
            annotations={"cert-manager.io/inject-ca-from": "a/b", "meta.helm.sh/release-name": "r"},
        )
        for number in range(54)
        for kind in (MUTATING, VALIDATING)
    ]
    done = run(write(tmp_path / "all.json", *documents))
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("kubectl ")]
    warnings = [line for line in said if line.startswith("warning: ")]
    assert len(warnings) == len(set(warnings)) <= 10
    assert warnings[0].startswith("warning: kube-system is no longer checked by 108 webhooks")
    assert warnings[1].startswith("warning: a controller writes rules or selectors of 6 configurations")
    assert warnings[2].startswith("warning: a controller writes the caBundle of 108 configurations")
    assert "\n    webhook: mutating/project-0, mutating/project-1, mutating/project-2," in done.stderr
    assert "a.project-53.test" in done.stderr, "all are listed"
    assert [line for line in said if line.startswith("summary: ")] == [
        "summary: 108 configurations with 108 webhooks: 54 mutating, 54 validating",
        "summary: they call 1 Service and 0 URLs",
        "summary: a controller writes the caBundle of 108 configurations",
        "summary: a controller writes the rules or selectors of 6 configurations",
        "summary: 108 webhooks will not be called in kube-system without manifests --include",
    ]


def test_no_temporary_path_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = configuration(VALIDATING, "many", *(entry(timeoutSeconds=31) for _ in range(1001)))
    file = write(tmp_path / "all.json", configuration(), configuration(), many)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    done = run(file, "--output", tmp_path / "out")
    assert done.returncode == 1
    assert "scratch" not in done.stdout + done.stderr
    assert "object.yaml" not in done.stdout + done.stderr
    folder = tmp_path / "config"
    (folder / "b.yaml").mkdir(parents=True)
    with pytest.raises(GatewayError) as failed:
        write_all(folder, {"a.yaml": "x", "b.yaml": "y"}, force=True)
    assert str(failed.value).startswith(f"--output: {folder}/b.yaml cannot be written: ")


def test_two_of_one_name_are_both_seen(tmp_path: Path) -> None:
    file = write(tmp_path / "all.json", configuration(), configuration())
    done = run(file)
    assert done.returncode == 1
    assert 'metadata.name: found "policies" a second time' in done.stderr


def test_warnings_describe_all_differences(tmp_path: Path) -> None:
    annotations = {"cert-manager.io/inject-ca-from": "a/b", "meta.helm.sh/release-name": "r"}
    owners = [{"kind": "Deployment", "name": "operator"}]
    file = write(
        tmp_path / "all.json",
        configuration(MUTATING, "first", annotations=annotations, ownerReferences=owners),
        configuration(VALIDATING, "second"),
        configuration(MUTATING, "stays"),
        configuration(VALIDATING, "made.static.k8s.io"),
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {"conversion": {"strategy": "Webhook"}},
        },
    )
    said = run(file, "--exclude", "stays").stderr
    for part in (
        "a controller writes the caBundle of 1 configuration; the import",
        "    cert-manager (cert-manager.io/inject-ca-from): mutating/first\n",
        "the gateway calls 1 Service by DNS name",
        "    policies/hooks\n",
        "    a.policies.test: mutating/first, validating/second\n",
        "kube-system is no longer checked by 2 webhooks",
        "    mutating: first/a.policies.test\n    validating: second/a.policies.test\n",
        "    Helm, Deployment/operator: mutating/first\n",
        "the API server still calls 1 mutating configuration not imported: by name before or after",
        "    MutatingWebhookConfiguration/stays\n",
        "ValidatingWebhookConfiguration/made.static.k8s.io: not imported, because it is a static",
        "CustomResourceDefinition/widgets.example.com: conversion webhooks are not admission",
    ):
        assert part in said
    assert "kubectl delete mutatingwebhookconfiguration stays" not in said


def test_an_object_that_also_registers_a_gateway_is_not_to_be_deleted(tmp_path: Path) -> None:
    mixed = registering("mixed")
    mixed["webhooks"].append(entry("other.policies.test"))
    done = run(write(tmp_path / "all.json", mixed))
    assert done.returncode == 0, done.stderr
    (written,) = yaml.safe_load_all(done.stdout)
    assert [one["name"] for one in written["webhooks"]] == ["other.policies.test"]
    assert (
        "mixed: imported without fail.validate.admission-gateway.io, which registers a gateway" in done.stderr
    )
    assert "kubectl delete" not in done.stderr


def test_custom_resources_have_a_name_and_the_same_fields(tmp_path: Path) -> None:
    file = write(tmp_path / "all.json", configuration(labels={"app": "x"}, annotations={"a": "b"}))
    (resource,) = yaml.safe_load_all(run(file, "--as", "CustomResources").stdout)
    (object_,) = yaml.safe_load_all(run(file).stdout)
    assert resource == {
        **object_,
        "apiVersion": "admission-gateway.io/v1alpha1",
        "metadata": {"name": "policies"},
    }


@pytest.mark.parametrize("form", ["WebhookConfigurations", "CustomResources"])
def test_a_bundle_that_a_controller_writes_is_followed(tmp_path: Path, form: str) -> None:
    """Entry by entry, as managedFields or the annotations of injectors show it."""
    written: Json = {'k:{"name":"a.written.test"}': {"f:clientConfig": {"f:caBundle": {}}}, "k:?": {}}

    created: Json = {key: {**fields, ".": {}} for key, fields in written.items()}

    def managed(manager: str, fields: Json) -> list[Json]:
        return [{"manager": manager, "operation": "Update", "fieldsV1": {"f:webhooks": fields}}]

    bundle = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    client = {**entry()["clientConfig"], "caBundle": bundle}
    pair = [entry(name, clientConfig=client) for name in ("a.written.test", "b.kept.test")]
    injected = {"annotations": {"cert-manager.io/inject-ca-from-secret": "a/b"}}
    file = write(
        tmp_path / "all.json",
        configuration(MUTATING, "some", *pair, managedFields=managed("pilot-discovery", written)),
        configuration(MUTATING, "created", *pair, managedFields=managed("operator", created)),
        configuration(MUTATING, "whole", *pair, managedFields=managed("webhook", {})),
        configuration(MUTATING, "by-hand", *pair, managedFields=managed("kubectl-edit", written)),
        configuration(VALIDATING, "annotated", entry(), **injected),
    )
    done = run(file, "--as", form)
    assert done.returncode == 0, done.stderr
    found = {
        (document["metadata"]["name"], one["name"]): one["clientConfig"]
        for document in yaml.safe_load_all(done.stdout)
        for one in document["webhooks"]
    }
    followed = {key for key, config in found.items() if "caBundleFrom" in config}
    expected = {("some", "a.written.test"), ("whole", "a.written.test"), ("whole", "b.kept.test")}
    assert followed == expected | {("annotated", "a.policies.test")}
    assert all(("caBundle" in config) is not ("caBundleFrom" in config) for config in found.values())
    assert found["some", "a.written.test"]["caBundleFrom"] == {
        "webhookConfiguration": {"kind": MUTATING, "name": "some", "webhook": "a.written.test"}
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [("a: [", "bad.yaml:2:1: "), ("- 1", "expected a mapping"), (b"\xff", "is not UTF-8 text")],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, content: Any, message: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = run(file)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [("x", "--context", "c"), ("x", "--kubeconfig", "k"), ("--force",), ("x", "--as", "Other")]
)
def test_options_that_contradict_each_other_are_refused(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


# -- a cluster ------------------------------------------------------------------------------------


def test_a_cluster_is_imported_like_its_files(server: ApiServer, tmp_path: Path) -> None:
    documents = [configuration(MUTATING, "a"), configuration(VALIDATING, "b"), registering()]
    hold(server, *documents)
    done = run("--kubeconfig", server.kubeconfig(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == run(write(tmp_path / "all.json", *documents)).stdout


def answer(page: Json) -> Any:
    """A fault: another page than the server has."""
    return lambda handler: handler.answer(200, page)


def test_lists_come_in_pages(server: ApiServer, tmp_path: Path) -> None:
    hold(server, configuration(VALIDATING, "c"))
    path = f"{GROUP}/mutatingwebhookconfigurations"
    for name, rest in (("a", "more"), ("b", "")):
        page = {"metadata": {"continue": rest}, "items": [configuration(MUTATING, name)]}
        server.faults["get"].append(answer(page))
    done = run("--kubeconfig", server.kubeconfig(tmp_path))
    assert names(done.stdout) == [(MUTATING, "a"), (MUTATING, "b"), (VALIDATING, "c")]
    assert [parameters for _, parameters in server.requests[:3]] == [
        {"limit": "100"},
        {"limit": "100", "continue": "more"},
        {"limit": "100"},
    ]
    assert path in server.objects


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, "the right to list mutatingwebhookconfigurations of admissionregistration.k8s.io is missing"),
        (410, "changed too much while they were read; try again"),
        (500, "the API server answers 500"),
    ],
)
def test_a_cluster_that_refuses_is_one_line(
    server: ApiServer, tmp_path: Path, status: int, message: str
) -> None:
    server.faults["get"].append(refuse(status))
    done = run("--kubeconfig", server.kubeconfig(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_cluster_that_cannot_be_reached_is_one_line(server: ApiServer, tmp_path: Path) -> None:
    kubeconfig = server.kubeconfig(tmp_path)
    text = kubeconfig.read_text().replace(server.url, "http://127.0.0.1:1")
    kubeconfig.write_text(text)
    done = run("--kubeconfig", kubeconfig)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1


def test_hostile_names_reach_no_shell_and_no_terminal(server: ApiServer, tmp_path: Path) -> None:
    hold(server, configuration(VALIDATING, "$(touch x)"), configuration(VALIDATING, "\x1b[2J"))
    done = run("--kubeconfig", server.kubeconfig(tmp_path), "--with-problems", "--output", tmp_path / "out")
    assert done.returncode == 1
    assert "delete validatingwebhookconfiguration '$(touch x)'" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout
    assert len(list((tmp_path / "out").iterdir())) == 2
