"""What an API server refuses by itself is found before any webhook, and nothing else is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gateway.tools.preview.invalid import invalid, undeclared
from tests.decisions.test_redaction import CANARY
from tests.preview.invalid_cases import NOT_SERVED, REFUSED, TAKEN, pod, workload
from tests.preview.kit import WEB, configure, findings, of, pods, preview

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.kit import StartWorker


@pytest.mark.parametrize("about", REFUSED)
def test_the_field_is_named(about: str) -> None:
    found, field = REFUSED[about]
    assert [one.path for one in (*undeclared(found, 37), *invalid(found, found, 37))] == [field]


@pytest.mark.parametrize("about", NOT_SERVED)
def test_a_kind_that_is_not_served_is_named_with_another_one(about: str) -> None:
    api_version, kind, hint = NOT_SERVED[about]
    found = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}}
    message = f"Kubernetes 1.37 has no {kind} of {api_version}{hint}"
    assert [*invalid(found, found, 37)] == [("apiVersion", message, False)]
    assert not invalid(found, found, 37, is_custom=True) or about == "a version that was removed"


@pytest.mark.parametrize("about", TAKEN)
def test_nothing_is_wrong_with_what_the_api_server_takes(about: str) -> None:
    found = TAKEN[about]
    assert not [*undeclared(found, 37), *invalid(found, found, 37)]


ODD: tuple[Any, ...] = (None, True, 1, 1.5, "", "A", [], {}, [[]], [{}], {"a": []})


def with_odd_values(whole: dict[str, Any]) -> Iterator[None]:
    """Yield once for each value of *whole* that is replaced by an odd one, and for each odd one."""
    parts: list[Any] = [whole]
    for part in parts:
        for key, before in [*part.items()] if isinstance(part, dict) else [*enumerate(part)]:
            for odd in ODD:
                part[key] = odd
                yield
            part[key] = before
            if isinstance(before, dict | list):
                parts.append(before)


def test_no_value_of_another_type_is_an_internal_error() -> None:
    found = workload("StatefulSet", volumeMounts=[{"name": "a", "mountPath": "/a"}])
    found["spec"]["template"]["spec"]["volumes"] = [{"name": "b"}]
    found["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "a"}}]
    tried = 0
    for _ in with_odd_values(found):
        tried += 1
        if isinstance(found["apiVersion"], str) and isinstance(found["kind"], str):
            invalid(found, found, 37)
            undeclared(found, 37)
    assert tried > 200


def test_of_custom_resources_only_metadata_is_checked() -> None:
    metadata = {"name": "A B", "labels": {"a": 1}}
    found = {"apiVersion": "a.example/v1", "kind": "C", "metadata": metadata, "spec": {"containers": 1}}
    assert [one.path for one in invalid(found, found, 37)] == ["metadata.labels.a"]


def test_defaults_and_changes_of_what_cannot_be_decoded_are_not_told_again() -> None:
    written = pod(resources={"limits": {"memory": "1GB"}})
    final = pod(resources={"limits": {"memory": "1GB"}, "requests": {"memory": "1GB"}}, image="")
    assert [one.path.rpartition(".")[2] for one in invalid(written, final, 37)] == ["memory", "image"]


def test_an_object_that_is_refused_is_reviewed_and_denied(tmp_path: Path, start_worker: StartWorker) -> None:
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[pods({"warnings": ["w"]})])
    (tmp_path / "web.yaml").write_text(WEB.replace("replicas: 2", "replica: 2"))
    arguments = tmp_path / "web.yaml", "--config", config
    report = preview(*arguments, status=1)
    assert [(one["kind"], one["result"]) for one in report["objects"]] == [
        ("Deployment", "denied"),
        ("ReplicaSet", "allowed"),
        ("Pod", "allowed"),
    ]
    refused, warned = findings(report)
    assert refused["rule"] == "kubernetes-validation"
    assert refused["field"] == "spec.replica"
    assert refused["message"] == 'Kubernetes 1.37 has no such field; did you mean "replicas"?'
    assert WEB.split("\n")[refused["line"] - 1] == "  replicas: 2"
    assert warned["level"] == "warning"
    (warning, _) = findings(preview(*arguments, "--validate", "warn"))
    assert warning["level"] == "warning"
    (one,) = findings(preview(*arguments, "--validate", "ignore"))
    assert one == warned


def test_what_webhooks_make_of_an_object_is_validated(tmp_path: Path, start_worker: StartWorker) -> None:
    name = [{"op": "replace", "path": "/spec/containers/0/name", "value": "A"}]
    label = [{"op": "add", "path": "/spec/template/metadata/labels/app", "value": "web"}]
    mutators = [pods({"patch": name}), of({"patch": label}, "apps", "deployments")]
    config = configure(tmp_path / "c.yaml", start_worker().target, mutate=mutators)
    # Without the label, the selector would not match.
    text = WEB.replace("      labels: {app: web}\n", "      labels: {}\n")
    report = preview("-", "--config", config, stdin=text, status=1)
    assert [one["result"] for one in report["objects"]] == ["allowed", "allowed", "denied"]
    (found,) = [one for one in findings(report) if one["level"] == "error"]
    assert found["field"] == "spec.containers[0].name"


def test_a_kind_with_a_definition_in_the_manifests_is_served(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[{}])
    definition: dict[str, Any] = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.policy"},
        "spec": {"group": "policy", "scope": "Namespaced", "names": {"kind": "Gadget", "plural": "gadgets"}},
    }
    gadget = {"apiVersion": "policy/v1", "kind": "Gadget", "metadata": {"name": "a"}}
    text = f"{json.dumps(gadget)}\n---\n{yaml.safe_dump(definition)}"
    assert not findings(preview("-", "--config", config, stdin=text))
    assert findings(preview("-", "--config", config, stdin=json.dumps(gadget), status=1))


def test_no_value_of_a_secret_is_in_a_message(tmp_path: Path, start_worker: StartWorker) -> None:
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[{}])
    values = f"data: {{a: '{CANARY}!'}}\nstringData: {{b: 4711}}\n"
    text = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{values}"
    report = preview("-", "--config", config, stdin=text, status=1)
    assert [one["field"] for one in findings(report)] == ["data.a", "stringData.b"]
    assert CANARY not in json.dumps(report)
    assert "4711" not in json.dumps(report)


def test_many_mistakes_are_bounded() -> None:
    found = workload()
    found["spec"]["template"]["spec"]["containers"] = [{"command": 1}] * 1000
    assert len(invalid(found, found, 37)) <= 100
