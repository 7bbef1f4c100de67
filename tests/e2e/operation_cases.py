"""Every operation on every kind of object, with policies that record their input."""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.cases import (
    EVERYTHING,
    JSON_PATCH,
    RECORD,
    STRATEGIC,
    WRITES,
    add,
    applied,
    create,
    delete,
    mutate,
    patch,
    relabelled,
    validate,
)
from tests.e2e.client import JSON
from tests.e2e.cluster import ALICE
from tests.e2e.compare import Case, Operation
from tests.e2e.objects import GROUP, autoscaler, config_map, deployment, deployments, pod, widget, within
from tests.e2e.setups import rule

EPHEMERAL: Final = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "registry.test/debug:1"}]}}
EVICTION: Final = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted"}}
BINDING: Final = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "web"},
    "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
}
SCALE: Final = {
    "apiVersion": "autoscaling/v1",
    "kind": "Scale",
    "metadata": {"name": "shop"},
    "spec": {"replicas": 9},
}


EVERY_OPERATION: Final = Case(
    "operations",
    (
        mutate("label", {"label": "added"}),
        mutate(
            "cap",
            {"patch": [add("/spec/replicas", 5)]},
            rule("deployments/scale", group="apps"),
            rule("widgets/scale", group=GROUP),
        ),
        mutate(
            "shell",
            {"patch": [{"op": "replace", "path": "/command", "value": ["sh"]}], **RECORD},
            rule("pods/exec", "CONNECT"),
        ),
        mutate(
            "status", {"patch": [add("/status/message", "patched")], **RECORD}, rule("pods/status", "UPDATE")
        ),
        mutate("all", RECORD, *EVERYTHING),
        validate("every", {**RECORD, "warnings": ["seen"]}, *EVERYTHING),
    ),
    (
        create(pod()),
        create(pod(), user="admin"),
        create(pod("made-")),
        create(pod("dry"), "?dryRun=All"),
        create(pod("bad", {"not a label!": "x"})),
        relabelled("pods/web", patched="merge"),
        patch(within("pods/web"), {"metadata": {"annotations": {"patched": "strategic"}}}, STRATEGIC),
        patch(within("pods/web"), [add("/metadata/annotations", {"patched": "json"})], JSON_PATCH),
        patch(within("pods/web") + "?dryRun=All", {"metadata": {"annotations": {"patched": "dry"}}}),
        patch(within("pods/web/status"), {"status": {"phase": "Running", "reason": "Test"}}),
        patch(within("pods/web/ephemeralcontainers"), EPHEMERAL, STRATEGIC),
        Operation("POST", within("pods/web/exec?command=ls&container=main&stdout=true"), None, JSON, ALICE),
        Operation("POST", within("pods/web/attach?container=main&stdout=true"), None, JSON, ALICE),
        Operation("POST", within("pods/web/portforward?ports=80"), None, JSON, ALICE),
        Operation("POST", within("pods/web/binding"), BINDING, JSON, ALICE),
        applied(pod("applied")),
        applied(pod("applied", {"applied": "again"})),
        applied(pod("applied", {"applied": "dry"}), "&dryRun=All"),
        create(pod("evicted")),
        Operation("POST", within("pods/evicted/eviction"), EVICTION, JSON, ALICE),
        delete(within("pods/applied") + "?dryRun=All"),
        delete(within("pods/applied"), {"gracePeriodSeconds": 0}),
        delete(within("pods/none")),
        delete(within("pods")),
        create(config_map(key="value")),
        create(config_map("numbered-", key="value")),
        Operation("PUT", within("configmaps/settings"), config_map(key="other"), JSON, ALICE),
        Operation("PUT", within("configmaps/none"), config_map("none", key="other"), JSON, ALICE),
        applied(config_map("applied", key="value")),
        delete(within("configmaps/settings"), {"propagationPolicy": "Foreground", "dryRun": ["All"]}),
        delete(within("configmaps/settings")),
        delete(within("configmaps")),
        create(deployment()),
        Operation("PUT", deployments("shop/scale"), SCALE, JSON, ALICE),
        patch(deployments("shop/scale"), {"spec": {"replicas": 2}}),
        patch(deployments("shop/scale") + "?dryRun=All", {"spec": {"replicas": 2}}),
        patch(deployments("shop/status"), {"status": {"replicas": 3}}),
        patch(
            deployments("shop"),
            {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "i:2"}]}}}},
            STRATEGIC,
        ),
        applied(deployment("shop", {"applied": "x"}), "&force=true"),
        delete(deployments("shop")),
        create(widget()),
        create(widget("v2", "second")),
        patch(within("widgets/gear", f"{GROUP}/v1"), {"spec": {"size": 4, "ratio": 1e3}}),
        patch(within("widgets/gear/scale", f"{GROUP}/v1"), {"spec": {"replicas": 2}}),
        patch(within("widgets/gear/status", f"{GROUP}/v1"), {"status": {"size": 3}}),
        applied(widget("v1", "applied")),
        delete(within("widgets/gear", f"{GROUP}/v1")),
        delete(within("widgets", f"{GROUP}/v1")),
    ),
)

DRY_RUN: Final = Case(
    "dry-run",
    (
        mutate("none", {"label": "none"}),
        mutate("outward", {"label": "outward", **RECORD}, sideEffects="NoneOnDryRun"),
        validate("outward", {**RECORD, "warnings": ["called"]}, sideEffects="NoneOnDryRun"),
    ),
    (create(pod("dry"), "?dryRun=All"), create(pod()), delete(within("pods/web") + "?dryRun=All")),
)

INNER: Final = "/api/v1/namespaces/{namespace}-inner"
NAMESPACES: Final = Case(
    "namespaces",
    (
        mutate("label", {"label": "team"}, rule("namespaces", *WRITES)),
        mutate("all", RECORD, rule("namespaces namespaces/*")),
        validate("see", RECORD, rule("namespaces namespaces/*")),
        validate(
            "deny",
            {"deny": {"code": 403, "message": "no"}},
            rule("namespaces", "UPDATE"),
            objectSelector={"matchLabels": {"refused": "x"}},
        ),
        validate("inside", RECORD, rule("configmaps")),
    ),
    (
        Operation(
            "POST",
            "/api/v1/namespaces",
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "{namespace}-inner", "labels": {"case": "namespaces"}},
            },
        ),
        patch(INNER, {"metadata": {"labels": {"more": "x"}}}),
        patch(INNER, {"metadata": {"labels": {"refused": "x"}}}),
        Operation("POST", INNER + "/configmaps", config_map()),
        delete(INNER),
    ),
)

AUTOSCALERS: Final = "horizontalpodautoscalers"


def autoscaled(version: str, name: str) -> Operation:
    return Operation(
        "POST", within(AUTOSCALERS, f"autoscaling/{version}"), autoscaler(version, name), JSON, ALICE
    )


def autoscaler_rule(version: str) -> dict[str, Any]:
    return rule(AUTOSCALERS, *WRITES, group="autoscaling", version=version)


CONVERTED: Final = Case(
    "converted",
    (
        mutate("cap", {"patch": [add("/spec/maxReplicas", 7)], **RECORD}, autoscaler_rule("v1")),
        mutate("exact", {"label": "exact", **RECORD}, autoscaler_rule("v1"), matchPolicy="Exact"),
        validate("see", RECORD, autoscaler_rule("v1")),
        validate("exact", RECORD, autoscaler_rule("v1"), matchPolicy="Exact"),
    ),
    (autoscaled("v1", "first"), autoscaled("v2", "second")),
)

VERSIONED: Final = [
    Case(
        "autoscalers",
        (
            mutate("cap", {"patch": [add("/spec/maxReplicas", 7)], **RECORD}, autoscaler_rule("v1")),
            mutate("second", RECORD, autoscaler_rule("v2")),
            mutate("exact", RECORD, autoscaler_rule("v2"), matchPolicy="Exact"),
            validate("first", RECORD, autoscaler_rule("v1")),
            validate("second", RECORD, autoscaler_rule("v2")),
            validate("exact", RECORD, autoscaler_rule("v1"), matchPolicy="Exact"),
        ),
        (
            autoscaled("v1", "first"),
            autoscaled("v2", "second"),
            patch(within(f"{AUTOSCALERS}/first", "autoscaling/v2"), {"spec": {"maxReplicas": 9}}),
        ),
        in_entries=True,
    ),
    Case(
        "widgets",
        (
            mutate("label", {"label": "one", **RECORD}, rule("widgets", *WRITES, group=GROUP)),
            mutate(
                "cap", {"patch": [add("/spec/replicas", 6)]}, rule("widgets/scale", group=GROUP, version="v2")
            ),
            validate("one", RECORD, rule("widgets widgets/*", group=GROUP)),
            validate("two", RECORD, rule("widgets widgets/*", group=GROUP, version="v2")),
            validate("any", RECORD, rule("widgets", group=GROUP, version="*")),
            validate("exact", RECORD, rule("widgets", group=GROUP, version="v2"), matchPolicy="Exact"),
        ),
        (
            create(widget("v1", "first")),
            create(widget("v2", "second")),
            patch(within("widgets/first/scale", f"{GROUP}/v2"), {"spec": {"replicas": 2}}),
            applied(widget("v2", "third")),
            delete(within("widgets", f"{GROUP}/v2")),
        ),
        in_entries=True,
    ),
]

OPERATIONS: Final = [EVERY_OPERATION, DRY_RUN, NAMESPACES, CONVERTED]
