"""Policies, bindings and parameters that change come into force behind the gateway as in the API server.

Source: k8s.io/kubernetes test/integration/apiserver/cel/validatingadmissionpolicy_test.go (UpdateParamKind,
UpdateParamRef, UpdateParamResource, PolicyDeletedThenRecreated, BindingDeletedThenRecreated,
ParamResourceDeletedThenRecreated, TestBindingRemoval).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.objects import config_map
from tests.e2e.policy_comparison import (
    LABEL,
    PATHS,
    Policies,
    binding,
    bound,
    follow_config_maps,
    policy,
)
from tests.e2e.setups import REGISTRATIONS, rule
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster

    Json = dict[str, Any]

NAME: Final = "changing"
CORE: Final = "/api/v1/namespaces/default"


def _policy(expression: str, kind: str = "ConfigMap", version: str = "v1") -> Json:
    match = {
        "resourceRules": [rule("configmaps", "CREATE")],
        "objectSelector": {"matchLabels": {LABEL: NAME}},
    }
    return policy(
        NAME,
        {
            "paramKind": {"apiVersion": version, "kind": kind},
            "matchConstraints": match,
            "validations": [
                {"expression": expression, "messageExpression": "params.kind + ' ' + params.metadata.name"}
            ],
        },
    )


def _binding(param: str, *actions: str) -> Json:
    ref = {"name": param, "namespace": "default", "parameterNotFoundAction": "Deny"}
    return binding(NAME, NAME, bound(*actions, paramRef=ref))


def _param(name: str, prefix: str) -> Json:
    found = config_map(f"changing-{name}", prefix=prefix)
    return {**found, "metadata": {**found["metadata"], "namespace": "default"}}


def _secret(name: str) -> Json:
    metadata = {"name": f"changing-{name}", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}


BY_KIND: Final = "object.metadata.name.startsWith(params.kind.lowerAscii())"
BY_NAME: Final = "object.metadata.name.startsWith(params.metadata.name)"
BY_DATA: Final = "object.metadata.name.startsWith(params.data.prefix)"
ONE, TWO = _param("one", "a"), _param("two", "b")
NOT_FOUND: Final = "failed to configure binding: no params found for policy binding"
STAGES: Final[tuple[tuple[str, tuple[Json, ...], dict[str, str]], ...]] = (
    (
        "a parameter",
        (_policy(BY_KIND), _binding("changing-one"), ONE, TWO, _secret("one")),
        {"configmap-x": "", "secret-x": "ConfigMap changing-one"},
    ),
    (
        "another expression",
        (_policy(BY_NAME), _binding("changing-one"), ONE, TWO),
        {"changing-one-x": "", "changing-two-x": "ConfigMap changing-one"},
    ),
    (
        "another parameter",
        (_policy(BY_NAME), _binding("changing-two"), ONE, TWO),
        {"changing-one-x": "ConfigMap changing-two", "changing-two-x": ""},
    ),
    (
        "the content of the parameter",
        (_policy(BY_DATA), _binding("changing-one"), ONE, TWO),
        {"a-x": "", "c-x": "ConfigMap changing-one"},
    ),
    (
        "a changed parameter",
        (_policy(BY_DATA), _binding("changing-one"), _param("one", "c"), TWO),
        {"a-x": "ConfigMap changing-one", "c-x": ""},
    ),
    (
        "a deleted parameter",
        (_policy(BY_DATA), _binding("changing-one"), TWO),
        {"a-x": NOT_FOUND, "c-x": NOT_FOUND},
    ),
    (
        "the parameter again",
        (_policy(BY_DATA), _binding("changing-one"), ONE, TWO),
        {"a-x": "", "c-x": "ConfigMap changing-one"},
    ),
    ("no binding", (_policy(BY_DATA), ONE, TWO), {"a-x": "", "c-x": ""}),
    (
        "the binding again",
        (_policy(BY_DATA), _binding("changing-two"), ONE, TWO),
        {"a-x": "ConfigMap changing-two", "b-x": ""},
    ),
    ("no policy", (_binding("changing-two"), ONE, TWO), {"a-x": "", "b-x": ""}),
    (
        "the policy again",
        (_policy(BY_NAME), _binding("changing-one"), ONE, TWO),
        {"a-x": "ConfigMap changing-one", "changing-one-x": ""},
    ),
    (
        "another kind of parameters",
        (_policy(BY_KIND, "Secret"), _binding("changing-one"), ONE, TWO, _secret("one")),
        {"configmap-x": "Secret changing-one", "secret-x": ""},
    ),
    ("nothing", (), {"a-x": "", "c-x": ""}),
)
"""Name, the documents that exist, and the names of objects with the message that refuses them."""


def natively(cluster: Cluster) -> Iterator[Callable[[tuple[Json, ...]], None]]:
    """Yield a function that makes these documents, and no others, exist in the API server."""
    held: dict[str, Json] = {}

    def place(document: Json) -> str:
        name = document["metadata"]["name"]
        if document["kind"] in PATHS:
            return f"{REGISTRATIONS}/{PATHS[document['kind']]}/{name}"
        return f"{CORE}/{document['kind'].lower()}s/{name}"

    def change(documents: tuple[Json, ...]) -> None:
        wanted = {place(document): document for document in documents}
        for path in held.keys() - wanted.keys():
            assert cluster.api.delete(path).status == 200
            del held[path]
        for path, document in wanted.items():
            if path not in held:
                assert cluster.api.create(path.rpartition("/")[0], document).status == 201
            elif held[path] != document:
                current = cluster.api.get(path).document["metadata"]["resourceVersion"]
                metadata = {**document["metadata"], "resourceVersion": current}
                assert cluster.api.update(path, {**document, "metadata": metadata}).status == 200
            held[path] = document

    yield change
    change(())


def behind(cluster: Cluster, folder: Path) -> Iterator[Callable[[tuple[Json, ...]], None]]:
    """Yield a function that makes these documents, and no others, exist in the files of a gateway."""
    with Policies(cluster, folder, _used(STAGES[0][1])) as setup:
        file = setup.config / "policies.yaml"

        def change(documents: tuple[Json, ...]) -> None:
            unfinished = folder / "policies.unfinished"
            unfinished.write_text("".join(json.dumps(each) + "\n---\n" for each in _used(documents)))
            unfinished.rename(file)

        yield change


def _used(documents: tuple[Json, ...]) -> list[Json]:
    """Return policies, bindings and parameters: the gateway refuses documents of other kinds."""
    kinds = {each["spec"]["paramKind"]["kind"] for each in documents if "paramKind" in each.get("spec", {})}
    return [each for each in documents if each["kind"] in {*PATHS, *kinds}]


def refusals(cluster: Cluster, names: dict[str, str]) -> dict[str, str]:
    """Return the message about each of *names*; empty if it may be created."""
    found = {}
    for name in names:
        answer = cluster.api.create(f"{CORE}/configmaps?dryRun=All", config_map(name, {LABEL: NAME}))
        found[name] = "" if answer.status == 201 else answer.message.partition(" denied request: ")[2]
    return found


@pytest.mark.parametrize("where", ["natively", "behind"])
def test_a_change_comes_into_force(cluster: Cluster, tmp_path: Path, where: str) -> None:
    follow_config_maps(cluster)
    changes = natively(cluster) if where == "natively" else behind(cluster, tmp_path)
    change = next(changes)
    try:
        for stage, documents, expected in STAGES:
            change(documents)

            def in_force(expected: dict[str, str] = expected) -> bool:
                found = refusals(cluster, expected)
                return all(
                    message.startswith(text) if text else not message
                    for message, text in zip(found.values(), expected.values(), strict=True)
                )

            eventually(in_force, stage)
    finally:
        next(changes, None)
