"""Whatever is in a test of another engine, the command reports it or runs it."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.json_patch.diff import same
from gateway.base.errors import ConfigError
from gateway.tools.policy_tests.discovery import read_tests
from gateway.tools.policy_tests.kyverno_resources import without_empty
from gateway.tools.policy_tests.run import run_tests
from tests.gatekeeper.documents import constraint, scoped, template
from tests.kyverno.documents import exception, validating

Json = dict[str, Any]

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "Policy", "x/y", "\x00"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
OBJECT: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"b": "c"}}}
NAMESPACE: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {"b": "c"}}}
ROW: Json = {
    "policy": "p",
    "rule": "r",
    "resources": ["a", "default/Pod/a"],
    "resourceSpecs": [{"version": "v1", "name": "a"}],
    "result": "pass",
    "operation": "UPDATE",
    "patchedResources": "object.json",
}
FILES: Json = {
    "policy": validating("has(object.metadata.name)", validationActions=["Warn"]),
    "cluster": {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [{"name": "r", "validate": {"failureAction": "Audit", "cel": {"paramKind": {}}}}]},
    },
    "exception": exception(),
    "object": OBJECT,
    "values": {
        "globalValues": {"request.operation": "CREATE"},
        "namespaces": [NAMESPACE],
        "namespaceSelector": [{"name": "n", "labels": {"a": "b"}}],
        "policies": [{"name": "p", "resources": [{"name": "a", "values": {"request.operation": "DELETE"}}]}],
        "subresources": [{"subresource": {"name": "a/b", "kind": "B"}, "parentResource": {"kind": "A"}}],
    },
    "user": {"userInfo": {"username": "a", "groups": ["b"], "extra": {"a": ["b"]}}},
    "kyverno-test": {
        "apiVersion": "cli.kyverno.io/v1alpha1",
        "kind": "Test",
        "policies": ["policy.json", "cluster.json"],
        "resources": ["object.json"],
        "exceptions": ["exception.json"],
        "paramResources": ["object.json"],
        "variables": "values.json",
        "userinfo": "user.json",
        "results": [ROW],
    },
    "template": template("Kind", "variables.anyObject.kind == 'Pod'"),
    "constraint": constraint("Kind", **scoped(("deny", "*"))),
    "review": {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"operation": "DELETE", "oldObject": OBJECT, "namespace": "n"},
    },
    "namespace": NAMESPACE,
    "suite": {
        "apiVersion": "test.gatekeeper.sh/v1alpha1",
        "kind": "Suite",
        "tests": [
            {
                "template": "template.json",
                "constraint": "constraint.json",
                "cases": [
                    {
                        "object": "review.json",
                        "inventory": ["namespace.json"],
                        "assertions": [{"violations": 1, "message": "a"}],
                    }
                ],
            }
        ],
    },
}


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all values in *value*."""
    items: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path, *(found for key, each in items for found in places(each, (*path, key)))]


PLACES = [path for path in places(FILES) if len(path) > 1]


@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3))
def test_whatever_a_file_has_is_reported_or_run(changes: list[tuple[tuple[Any, ...], object]]) -> None:
    files = copy.deepcopy(FILES)
    for (*path, last), value in changes:
        parent: Any = files
        for step in path:
            has_step = isinstance(parent, dict) and step in parent
            is_in = isinstance(parent, list) and isinstance(step, int) and step < len(parent)
            parent = parent[step] if has_step or is_in else None
        if isinstance(parent, dict) or (
            isinstance(parent, list) and isinstance(last, int) and last < len(parent)
        ):
            parent[last] = value
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in files.items():
            # Found in a folder by its name only, and JSON is YAML.
            suffix = "yaml" if file == "kyverno-test" else "json"
            (folder / f"{file}.{suffix}").write_text(json.dumps(content))
        try:
            results = asyncio.run(run_tests(read_tests([folder], []), []))
        except ConfigError as error:
            assert error.problems  # noqa: PT017 - either is right
        else:
            assert all(one.status in ("passed", "failed", "not supported", "skipped") for one in results)


@given(value=VALUES, empty=st.sampled_from([None, {}, [], [None], {"x": {}}]))
def test_empty_members_make_no_difference(value: object, empty: object) -> None:
    assert same(without_empty({"a": value}), without_empty({"a": value, "b": empty}))
    assert same(without_empty(without_empty(value)), without_empty(value))
