"""Rules in Kyverno's own language for subresources, custom resources and kinds without a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.e2e.client import MERGE_PATCH
from tests.e2e.cluster import ALICE
from tests.e2e.compare import Operation
from tests.e2e.engine_scenarios import DRY, PODS, labelled, patch, post, workload
from tests.e2e.kyverno_rules import (
    ALWAYS,
    MAPS,
    RBAC,
    condition,
    delete,
    deny,
    labels_of,
    merge,
    policy,
    scenario,
    validate,
)
from tests.e2e.objects import GROUP, config_map, deployment, pod, widget, widget_definition, within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.kyverno_rules import WorkerScenario

    Json = dict[str, Any]


def _of(kind: str, *operations: str, **resources: Any) -> Json:
    chosen = {"operations": list(operations)} if operations else {}
    return {"any": [{"resources": {"kinds": [kind], **chosen, **resources}}]}


def _subresources() -> Iterator[WorkerScenario]:
    shown = "{{ request.operation }} {{ request.subResource }} {{ request.kind.kind }} {{ request.name }}"
    failed = {"status": {"phase": "Failed"}}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}
    yield scenario(
        "connections",
        [
            policy(
                "exec",
                validate(
                    "exec",
                    match=_of("Pod/exec", "CONNECT"),
                    message=f"{shown} {{{{ request.object.container }}}}",
                    deny=deny(condition("{{ request.object.command[0] }}", "Equals", "sh")),
                ),
            ),
            policy(
                "attach",
                validate("attach", match=_of("PodAttachOptions", "CONNECT"), message=shown, deny=ALWAYS),
            ),
            policy("eviction", validate("eviction", match=_of("Pod/eviction"), message=shown, deny=ALWAYS)),
            policy(
                "status",
                validate(
                    "status",
                    match=_of("Pod/status"),
                    message=shown,
                    deny=deny(condition("{{ request.object.status.phase }}", "Equals", "Failed")),
                ),
            ),
        ],
        post(pod()),
        Operation("POST", f"{PODS}/web/exec?command=sh&container=main&stdout=true"),
        Operation("POST", f"{PODS}/web/exec?command=sh&container=main&stdout=true", user=ALICE),
        Operation("POST", f"{PODS}/web/eviction", eviction),
        Operation("PATCH", f"{PODS}/web/status", failed, MERGE_PATCH),
        Operation("PATCH", f"{PODS}/web/status", {"status": {"phase": "Succeeded"}}, MERGE_PATCH),
        patch(f"{PODS}/web", {"metadata": {"labels": {"a": "b"}}}),
    )


def _custom() -> Iterator[WorkerScenario]:
    def widgets(version: str, name: str = "") -> str:
        return within(f"widgets{name and '/'}{name}", f"{GROUP}/{version}")

    few = {"spec": {"replicas": "<=3"}}
    small, thin = {"spec": {"size": "<=5"}}, {"spec": {"=(ratio)": "<1"}}
    yield scenario(
        "custom",
        [
            policy("size", validate("size", "Widget", message="size", pattern=small)),
            policy("named", validate("second", match=_of(f"{GROUP}/v2/Widget"), message="v2", pattern=thin)),
            policy("scale", validate("few", match=_of("Widget/scale"), message="few", pattern=few)),
            policy(
                "status",
                validate(
                    "status",
                    match=_of(f"{GROUP}/*/Widget/status"),
                    message="{{ request.object.status.size }}",
                    deny=deny(condition("{{ request.object.status.size || `0` }}", "GreaterThan", 3)),
                ),
            ),
            policy(
                "mark", merge("mark", labels_of(**{"+(marked)": "{{ request.resource.version }}"}), "Widget")
            ),
        ],
        *(
            Operation("POST", widgets(version) + DRY, {**widget(version), "spec": {"size": size}})
            for version in ("v1", "v2")
            for size in (5, 6)
        ),
        *(
            Operation("POST", widgets(version) + DRY, {**widget(version), "spec": {"size": 5, "ratio": 2}})
            for version in ("v1", "v2")
        ),
        Operation("POST", widgets("v1"), widget("v1")),
        *(
            Operation("PATCH", widgets("v1", "gear/scale"), {"spec": {"replicas": replicas}}, MERGE_PATCH)
            for replicas in (2, 4)
        ),
        *(
            Operation("PATCH", widgets("v2", "gear/status"), {"status": {"size": size}}, MERGE_PATCH)
            for size in (2, 4)
        ),
        Operation("PATCH", widgets("v2", "gear"), {"spec": {"size": 9}}, MERGE_PATCH),
        delete(widgets("v1", "gear")),
        objects=[widget_definition()],
    )


def _cluster_scoped() -> Iterator[WorkerScenario]:
    def made(kind: str, name: str, version: str = "v1", **members: Any) -> Json:
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **members}}

    spaces, roles = "/api/v1/namespaces", f"/apis/{RBAC}/v1/clusterroles"
    owned: Json = {"labels": {"owner": "team-a"}}
    yield scenario(
        "scopes",
        [
            policy(
                "namespaces",
                validate(
                    "owner",
                    match=_of("Namespace", names=["scoped-*"]),
                    message="{{ request.object.metadata.name }} in {{ request.namespace }}",
                    pattern={"metadata": {"labels": {"owner": "team-*"}}},
                ),
                validate(
                    "kept",
                    match=_of("Namespace", "DELETE", names=["scoped-*"]),
                    message="{{ request.oldObject.metadata.labels.owner || 'none' }}",
                    deny=ALWAYS,
                ),
            ),
            policy(
                "roles",
                validate(
                    "wildcards",
                    match=_of("ClusterRole", names=["scoped-*"]),
                    message="wildcards",
                    deny=deny(condition("{{ request.object.rules[].verbs[] }}", "AnyIn", ["*"])),
                ),
            ),
        ],
        Operation("POST", spaces, made("Namespace", "scoped-a")),
        Operation("POST", spaces, made("Namespace", "scoped-b", **owned)),
        Operation("PATCH", f"{spaces}/scoped-b", {"metadata": {"labels": {"owner": None}}}, MERGE_PATCH),
        delete(f"{spaces}/scoped-b{DRY}"),
        *(
            Operation(
                "POST",
                roles + DRY,
                {
                    **made("ClusterRole", "scoped-a", f"{RBAC}/v1"),
                    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}],
                },
            )
            for verb in ("get", "*")
        ),
    )


def _with(name: str, *fields: str) -> Json:
    made = pod(name)
    made["spec"] |= dict.fromkeys(fields, True)
    return made


def _together() -> Iterator[WorkerScenario]:
    no_host = {
        "expressions": [{"expression": "object.spec.?hostPID.orValue(false) == false", "message": "pid"}]
    }
    yield scenario(
        "languages",
        [
            policy(
                "mixed",
                validate("cel", message="in CEL", cel=no_host),
                validate("pattern", message="host", pattern={"spec": {"=(hostNetwork)": False}}),
                validate(
                    "deny",
                    message="ipc",
                    deny=deny(
                        condition("{{ request.object.spec.hostIPC || `false` }}", "Equals", value=True)
                    ),
                ),
            ),
            policy(
                "context",
                validate(
                    "cel",
                    cel=no_host,
                    message="with preconditions",
                    preconditions={"all": [condition("{{ request.operation }}", "Equals", "CREATE")]},
                ),
            ),
        ],
        *(
            post(_with("a", *fields), dry=True)
            for fields in (
                (),
                ("hostPID",),
                ("hostNetwork", "hostIPC"),
                ("hostPID", "hostNetwork", "hostIPC"),
            )
        ),
        post(workload("Deployment", "b", hostPID=True, hostNetwork=True), dry=True),
    )
    yield scenario(
        "webhook-conditions",
        [
            policy(
                "conditional",
                validate("no", "ConfigMap", message="no", deny=ALWAYS),
                webhookConfiguration={
                    "matchConditions": [
                        {"name": "user", "expression": "request.userInfo.username != 'alice'"},
                        # It is asked in all namespaces, and a deletion has no object.
                        {
                            "name": "name",
                            "expression": "object == null || object.metadata.name.startsWith('a')",
                        },
                    ]
                },
            )
        ],
        *(post(config_map(name), dry=True, user=user) for name in "ab" for user in ("admin", ALICE)),
    )
    shown = "{{ request.roles }} {{ serviceAccountName }} {{ request.userInfo.groups }}"
    user = {"kind": "User", "name": ALICE, "apiGroup": RBAC}
    yield scenario(
        "users",
        [policy("shown", validate("shown", "ConfigMap", message=shown, deny=ALWAYS))],
        *(post(config_map(), dry=True, user=name) for name in ("admin", ALICE)),
        objects=[
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "shown", "namespace": "users"},
                "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "shown"},
                "subjects": [user],
            }
        ],
    )
    selected = {"matchLabels": {"checked": "yes"}}
    yield scenario(
        "not-generated",
        [
            policy(
                "selector",
                validate("selector", match=_of("Pod", selector=selected), message="selected", deny=ALWAYS),
            ),
            policy(
                "both",
                validate(
                    "kinds",
                    "Pod",
                    "Deployment",
                    message="both",
                    pattern={"metadata": {"labels": {"a": "?*"}}},
                ),
            ),
        ],
        post(labelled("a", checked="yes", a="b"), dry=True),
        post({**deployment("b"), "metadata": {"name": "b", "labels": {"checked": "yes"}}}, dry=True),
        post(workload("StatefulSet", "c"), dry=True),
        delete(f"{MAPS}/absent"),
    )


KINDS: Final = (*_subresources(), *_custom(), *_cluster_scoped(), *_together())
