"""crds.yaml and custom-resources.yaml fit the gateway's reader and the requests that the gateway makes."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.crds import crds
from gateway.config.kinds.policy_exception import CLUSTER_WIDE, NAMESPACED
from gateway.config.merge.custom_resource import PLURALS, CustomResource, read_resource
from gateway.server.kubernetes import status_writer
from tests.config.test_custom import RULE, hook
from tests.deploy.cluster import CRDS, CUSTOM_RESOURCES, GATEWAY, objects, only

EXCEPTION: dict[str, Any] = {
    "webhooks": ["a.hooks.test"],
    "match": {"users": ["bot"]},
    "reason": "migration",
    "owner": "team-a",
    "expires": "2026-12-01T00:00:00Z",
}
SPECS: dict[str, dict[str, Any]] = {
    "WorkerPool": {"spec": {"target": "dns:///pods.policies.svc:50051"}},
    "MutatingWebhookConfiguration": {"webhooks": [hook()]},
    "ValidatingWebhookConfiguration": {"webhooks": [hook()]},
    "ValidatingAdmissionPolicy": {
        "spec": {
            "matchConstraints": {"resourceRules": [RULE]},
            "validations": [{"expression": "true"}],
        }
    },
    "ValidatingAdmissionPolicyBinding": {"spec": {"policyName": "p", "validationActions": ["Deny"]}},
    "MutatingAdmissionPolicy": {
        "spec": {
            "matchConstraints": {"resourceRules": [{**RULE, "operations": ["CREATE"]}]},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{}]"}}],
            "reinvocationPolicy": "Never",
        }
    },
    "MutatingAdmissionPolicyBinding": {"spec": {"policyName": "p"}},
    NAMESPACED: {"spec": EXCEPTION},
    CLUSTER_WIDE: {"spec": EXCEPTION},
}


def schema_of(kind: str) -> dict[str, Any]:
    (definition,) = (one for one in objects(CRDS) if one["spec"]["names"]["kind"] == kind)
    (version,) = definition["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def test_the_file_is_up_to_date_with_the_tables_of_the_gateway() -> None:
    assert CRDS.read_text() == crds(), "run: python -m deploy.crds > deploy/chart/files/crds.yaml"


@pytest.mark.parametrize("kind", PLURALS)
def test_the_schema_has_the_fields_that_the_gateway_reads_and_no_others(kind: str) -> None:
    """The error for an unknown field lists the known ones."""
    schema = schema_of(kind)

    def known(content: Any, schema: dict[str, Any], path: list[str | int]) -> None:
        content["unheardOf"] = 1
        document = {"kind": kind, "metadata": {"name": "a"}, **root}
        (message,) = (
            one.message
            for one in read_resource(CustomResource(kind, "a", document)).problems
            if "unknown field" in one.message
        )
        del content["unheardOf"]
        wanted = set(schema["properties"]) - {"apiVersion", "kind", "metadata", "status"}
        said = set(message.partition("known fields: ")[2].split(", ")) - {
            *("apiVersion", "kind", "metadata", "status")
        }
        assert said == wanted, path
        for name, field in schema["properties"].items():
            inner = field.get("items", field)
            if "properties" not in inner or name in ("metadata", "status"):
                continue
            was = content.get(name)
            value: dict[str, Any] = was[0] if isinstance(was, list) else was or {}
            content[name] = [value] if field["type"] == "array" else value
            known(value, inner, [*path, name])
            if was is None:
                del content[name]

    root: dict[str, Any] = SPECS[kind]
    known(root, schema, [])


def bounds(schema: dict[str, Any], path: str = "") -> list[str]:
    """Return the paths of fields without a bound, which a validation rule could not read."""
    needs = {"array": "maxItems", "string": "maxLength"}.get(schema.get("type", ""))
    missing = (
        [path] if needs and needs not in schema and "enum" not in schema and "format" not in schema else []
    )
    if "additionalProperties" in schema:
        missing += [] if "maxProperties" in schema else [path]
        missing += bounds(schema["additionalProperties"], f"{path}.*")
    for name, inner in schema.get("properties", {}).items():
        missing += bounds(inner, f"{path}.{name}")
    return missing + bounds(schema.get("items", {}), f"{path}[]") if schema else []


@pytest.mark.parametrize("kind", PLURALS)
def test_everything_has_a_bound(kind: str) -> None:
    assert set(bounds(schema_of(kind))) == {".apiVersion", ".kind"}


def test_the_roles_have_the_rights_that_the_gateway_uses_and_no_others() -> None:
    rules = [rule for one in objects(CUSTOM_RESOURCES) for rule in one.get("rules", ())]
    kinds = set(PLURALS.values())
    read, write, events = rules
    assert (set(read["resources"]), set(read["verbs"])) == (kinds, {"get", "list", "watch"})
    assert (set(write["resources"]), write["verbs"]) == ({f"{one}/status" for one in kinds}, ["patch"])
    assert (events["apiGroups"], events["resources"], events["verbs"]) == (
        ["events.k8s.io"],
        ["events"],
        ["create"],
    )
    role = only("Role", "admission-gateway-events", CUSTOM_RESOURCES)
    assert f"/namespaces/{role['metadata']['namespace']}/" in status_writer.EVENTS_PATH


def test_every_role_is_bound_to_the_gateway_alone() -> None:
    account = {"kind": "ServiceAccount", "name": GATEWAY, "namespace": GATEWAY}
    every = objects(CUSTOM_RESOURCES)
    roles = {(one["kind"], one["metadata"]["name"]) for one in every if one["kind"].endswith("Role")}
    bindings = [one for one in every if one["kind"].endswith("Binding")]
    assert {(one["roleRef"]["kind"], one["roleRef"]["name"]) for one in bindings} == roles
    assert all(one["subjects"] == [account] for one in bindings)
