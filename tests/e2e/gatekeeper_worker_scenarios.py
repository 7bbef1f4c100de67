"""Documents of Gatekeeper that its worker evaluates, and operations under them: written ones and drawn ones.

All are in force at the same time. Those of a scenario match its namespace, and those that are drawn match
objects with the label ``drawn`` or ``flaw``. Templates, ExpansionTemplates and the Config are for all.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.client import APPLY, JSON
from tests.e2e.cluster import ALICE
from tests.e2e.compare import Operation
from tests.e2e.engine_scenarios import DRY, PODS, Scenario, labelled, patch, workload
from tests.e2e.objects import GROUP, config_map, deployment, deployments, metadata, pod, widget, within
from tests.gatekeeper.documents import constraint, mutator, scoped, template

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.e2e.engine_comparison import Seen

    Json = dict[str, Any]

WIDER: Final = ("wide", "shown-wide", "draw-wide")
"""Namespaces in which Gatekeeper is called for DELETE and CONNECT too."""
SPACES: Final[dict[str, dict[str, str]]] = {
    "draw-a": {"tier": "one"},
    "draw-b": {"tier": "two", "closed": "yes"},
    "draw-c": {},
    "draw-wide": {"tier": "one"},
    "excluded-webhook": {},
    "excluded-mutation": {},
    "excluded-all": {},
    "inventory-b": {},
}
"""Further namespaces, with their labels."""
DRAWN: Final = 220
"""The number of drawn objects."""
_ANY: Final = [{"apiGroups": ["*"], "kinds": ["*"]}]
_INSIDE: Final[Json] = {"kinds": _ANY, "scope": "Namespaced"}
_POD: Final = [{"apiGroups": [""], "kinds": ["Pod"]}]
_COMMON: Final = [{"apiGroups": ["", "apps"], "kinds": ["Pod", "ConfigMap", "Deployment"]}]
_CONFIG_MAP: Final = [{"apiGroups": [""], "kinds": ["ConfigMap"]}]
_PLURALS: Final = {
    "ConfigMap": "configmaps",
    "CronJob": "cronjobs",
    "Deployment": "deployments",
    "Job": "jobs",
    "Pod": "pods",
    "Service": "services",
    "StatefulSet": "statefulsets",
    "Widget": "widgets",
}
_OF_CLUSTER: Final = {
    "Namespace": "/api/v1/namespaces",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
}


def post(document: Json, *, dry: bool = False, user: str = "admin", inside: str = "{namespace}") -> Operation:
    """Create *document*, by default in the namespace of the scenario."""
    path = _OF_CLUSTER.get(document["kind"])
    if path is None:
        path = within(_PLURALS[document["kind"]], document["apiVersion"]).replace("{namespace}", inside)
    return Operation("POST", path + (DRY if dry else ""), document, user=user)


def delete(path: str) -> Operation:
    """Delete an object."""
    return Operation("DELETE", path)


def namespace(name: str, **labels: str) -> Json:
    """Return a Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata(name, labels)}


def cluster_role(name: str, **labels: str) -> Json:
    """Return a ClusterRole."""
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    return {**head, "metadata": metadata(name, labels), "rules": []}


def service(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Json:
    """Return a Service that gets no address."""
    known = {"clusterIP": "None", "ports": [{"port": 80}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata(name, labels), "spec": known}


def rego(
    kind: str,
    source: str,
    *,
    version: str = "",
    libs: Sequence[str] = (),
    operations: Sequence[str] = (),
    properties: Json | None = None,
) -> Json:
    """Return a template in Rego; *properties* are the schemas of its parameters."""
    made = template(kind, schema={"type": "object", "properties": properties or {}})
    code: Json = {"rego": f"package {kind.lower()}\n\n{source}"}
    code |= {"version": version} if version else {}
    code |= {"libs": list(libs)} if libs else {}
    (target,) = made["spec"]["targets"]
    target["code"] = [{"engine": "Rego", "source": code}]
    if operations:
        target["operations"] = list(operations)
    return made


def _scenario(
    name: str, documents: list[Json], *operations: Operation, awaited: dict[int, int] | None = None
) -> Scenario:
    """Return a scenario whose documents have names that begin with its own, and match its namespace.

    Those that match by something else are left as they are.
    """
    for document in documents:
        if document["kind"] in ("ConstraintTemplate", "Config", "SyncSet"):
            continue
        document["metadata"]["name"] = f"{name}-{document['metadata']['name']}"
        if document["kind"] != "ExpansionTemplate":
            match = document["spec"].setdefault("match", {})
            if not {"namespaces", "name", "namespaceSelector"} & match.keys():
                match["namespaces"] = [name]
    return Scenario(name, tuple(documents), operations, awaited or {})


_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_TEXT: Final = {"type": "string"}

_LABELS: Final = """\
violation[{"msg": msg, "details": {"missing": missing}}] {
  given := {key | input.review.object.metadata.labels[key]}
  missing := {key | key := input.parameters.labels[_]} - given
  count(missing) > 0
  msg := sprintf("%v: %v %v lacks %v", [
    input.parameters.word, input.review.kind.kind, input.review.object.metadata.name, sort(missing)])
}
"""
_IMAGES: Final = """\
violation contains {"msg": msg} if {
  some container in input.review.object.spec.containers
  not is_allowed(container.image)
  msg := sprintf("the image %v of %v is not allowed to %v", [
    container.image, container.name, object.get(input.review, ["userInfo", "username"], "nobody")])
}

is_allowed(image) if {
  some prefix in input.parameters.prefixes
  startswith(image, prefix)
}
"""
_UNIQUE: Final = """\
violation[{"msg": msg}] {
  host := input.review.object.data.host
  other := data.inventory.namespace[namespace]["v1"].ConfigMap[name]
  other.data.host == host
  [namespace, name] != [input.review.namespace, input.review.object.metadata.name]
  msg := sprintf("%v is the host of %v/%v", [host, namespace, name])
}

violation[{"msg": msg}] {
  known := data.inventory.cluster["v1"].Namespace[input.review.object.data.namespace]
  tier := object.get(known.metadata.labels, "tier", "none")
  msg := sprintf("%v exists with %v", [known.metadata.name, tier])
}
"""
_PREFIXES: Final = ("object", "oldObject", "namespaceObject", "_unstable/namespace")
_CHANGING: Final = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "deletionTimestamp")
_SHOWN: Final = f"""\
violation[{{"msg": msg}}] {{
  removed := {{path | path := sprintf("%v/metadata/%v", [
    {list(_PREFIXES)!s}[_], {list(_CHANGING)!s}[_]])}}
  msg := json.marshal(json.remove(input.review, removed | {{"uid"}}))
}}

violation[{{"msg": msg}}] {{
  msg := json.marshal(input.parameters)
}}
""".replace("'", '"')
_FAILING: Final = """\
violation[{"msg": msg}] {
  input.parameters.how == "conflict"
  msg := sprintf("%v", [one])
}

one = value {
  value := input.review.object.data[_]
}

violation[{"msg": msg}] {
  input.parameters.how == "division"
  msg := sprintf("%v", [1 / 0])
}

violation[{"msg": msg}] {
  input.parameters.how == "number"
  msg := 7
}

violation[{"text": msg}] {
  input.parameters.how == "none"
  msg := "no message"
}

violation[{"msg": msg}] {
  input.parameters.how == "many"
  number := numbers.range(1, 12)[_]
  msg := sprintf("line %v\\nof  \\"several\\" \\u00e9 <&>", [number])
}
"""
_TRIMMED: Final = """\
import data.lib.texts

violation[{"msg": msg}] {
  found := texts.trimmed(input.review.object.metadata.labels.text)
  found == input.parameters.forbidden[_]
  msg := texts.sentence(found)
}
"""
_LIBRARY: Final = """\
package lib.texts

import data.lib.words

trimmed(text) = made {
  made := trim(lower(text), "-")
}

sentence(word) = made {
  made := concat(" ", [word, words.ending])
}
"""
_WORDS: Final = 'package lib.words\n\nending = "is forbidden"\n'
_SCALES: Final = [{"apiGroups": ["apps", "autoscaling"], "kinds": ["Deployment", "Scale"]}]
_FLAW: Final = {"flaws": _TEXTS, "word": {"type": "string", "default": "bad"}}
_FLAW_OLD: Final = """\
violation[{"msg": msg}] {
  input.review.object.metadata.labels.flaw == input.parameters.flaws[_]
  msg := sprintf("%v %v of %v/%v by %v", [
    input.parameters.word, input.review.kind.kind, object.get(input.review, "namespace", "-"),
    object.get(input.review.object.metadata, "name", "-"),
    object.get(input.review, ["userInfo", "username"], "nobody")])
}
"""
_FLAW_NEW: Final = """\
violation contains {"msg": msg} if {
  input.review.object.metadata.labels.flaw in input.parameters.flaws
  msg := concat(" ", [input.parameters.word, input.review.kind.kind, input.review.operation])
}
"""


def _templates() -> list[Json]:
    in_rego = rego(
        "WorkerLabels",
        _LABELS,
        properties={"labels": {**_TEXTS, "default": ["owner"]}, "word": _FLAW["word"]},
    )
    # The older field, beside `code`.
    (target,) = in_rego["spec"]["targets"]
    target["rego"] = target.pop("code")[0]["source"]["rego"]
    both = rego("WorkerBoth", 'violation[{"msg": "in Rego"}] { true }')
    both["spec"]["targets"][0]["code"] += template(
        "WorkerBoth", {"expression": "false", "message": "in CEL"}
    )["spec"]["targets"][0]["code"]
    flaw = "variables.anyObject.metadata.?labels[?'flaw'].orValue('')"
    return [
        in_rego,
        rego("WorkerImages", _IMAGES, version="v1", properties={"prefixes": _TEXTS}),
        template(
            "WorkerReplicas",
            {
                "expression": "variables.anyObject.spec.replicas <= variables.params.most",
                "messageExpression": "'replicas: ' + string(variables.anyObject.spec.replicas) + ' of '"
                " + string(variables.params.most)",
            },
            schema={"type": "object", "properties": {"most": {"type": "integer", "default": 3}}},
        ),
        rego("WorkerUnique", _UNIQUE),
        rego(
            "WorkerShown",
            _SHOWN,
            operations=["*"],
            properties={"a": _TEXT, "b": {"type": "integer", "default": 7}},
        ),
        rego("WorkerFailing", _FAILING, properties={"how": _TEXT}),
        rego("WorkerTrimmed", _TRIMMED, libs=[_LIBRARY, _WORDS], properties={"forbidden": _TEXTS}),
        rego("WorkerNever", 'violation[{"msg": "never"}] { true }', operations=["CREATE"]),
        rego(
            "WorkerKept",
            'violation[{"msg": "kept"}] { input.review.operation == "DELETE" }',
            operations=["DELETE"],
        ),
        rego(
            "WorkerTerminal",
            'violation[{"msg": msg}] { msg := sprintf("no %v in %v", [input.review.object.command, '
            "input.review.object.container]) }",
            operations=["CONNECT"],
        ),
        both,
        rego("FlawOld", _FLAW_OLD, operations=["CREATE", "UPDATE", "DELETE"], properties=_FLAW),
        rego("FlawNew", _FLAW_NEW, version="v1", operations=["CREATE", "UPDATE", "DELETE"], properties=_FLAW),
        template(
            "FlawCel",
            {
                "expression": "!(variables.flaw in variables.params.flaws)",
                "messageExpression": "variables.params.word + ' ' + variables.anyObject.kind + ' of '"
                " + request.?namespace.orValue('-')",
            },
            variables=[{"name": "flaw", "expression": flaw}],
            schema={"type": "object", "properties": _FLAW},
            operations=["CREATE", "UPDATE"],
        ),
    ]


def _expansions() -> list[Json]:
    def expansion(name: str, group: str, kind: str, generated: str, source: str, **more: str) -> Json:
        return {
            "apiVersion": "expansion.gatekeeper.sh/v1beta1",
            "kind": "ExpansionTemplate",
            "metadata": {"name": name},
            "spec": {
                "applyTo": [{"groups": [group], "versions": ["v1"], "kinds": [kind]}],
                "templateSource": source,
                "generatedGVK": {
                    "group": group if generated == "Job" else "",
                    "version": "v1",
                    "kind": generated,
                },
                **more,
            },
        }

    return [
        expansion("deployments", "apps", "Deployment", "Pod", "spec.template"),
        expansion("sets", "apps", "StatefulSet", "Pod", "spec.template", enforcementAction="warn"),
        expansion("cron-jobs", "batch", "CronJob", "Job", "spec.jobTemplate"),
        expansion("jobs", "batch", "Job", "Pod", "spec.template", enforcementAction="dryrun"),
    ]


def _config(*excluded: tuple[str, str]) -> Json:
    match = [{"excludedNamespaces": [name], "processes": [process]} for name, process in excluded]
    synced = [{"group": "", "version": "v1", "kind": "Namespace"}]
    return {
        "apiVersion": "config.gatekeeper.sh/v1alpha1",
        "kind": "Config",
        "metadata": {"name": "config", "namespace": "gatekeeper-system"},
        "spec": {"match": match, "sync": {"syncOnly": synced}},
    }


CONFIG: Final = _config(
    ("excluded-webhook", "webhook"), ("excluded-mut*", "mutation-webhook"), ("*cluded-all", "*")
)
SYNC_SET: Final = {
    "apiVersion": "syncset.gatekeeper.sh/v1alpha1",
    "kind": "SyncSet",
    "metadata": {"name": "maps"},
    "spec": {"gvks": [{"group": "", "version": "v1", "kind": "ConfigMap"}]},
}


def owners(name: str = "c", kind: str = "WorkerLabels", **spec: Any) -> Json:
    """Return a constraint that requires the label ``owner``."""
    return constraint(kind, name, **{"match": {"kinds": _ANY}, "parameters": {}, **spec})


def _constraints() -> Iterator[Scenario]:
    images = {"prefixes": ["registry.test/", "other.test/"]}
    yield _scenario(
        "rego",
        [
            *_templates(),
            *_expansions(),
            CONFIG,
            SYNC_SET,
            owners(match={"kinds": _COMMON}),
            owners("b", match={"kinds": _COMMON}, parameters={"labels": ["team", "cost"], "word": "no"}),
            constraint("WorkerImages", "a", match={"kinds": _POD}, parameters=images),
            constraint("WorkerTrimmed", match={"kinds": _POD}, parameters={"forbidden": ["secret", "none"]}),
            constraint("WorkerBoth", match={"kinds": _POD, "name": "both"}),
        ],
        post(pod()),
        post(
            pod(
                "two", {"owner": "a"}, containers=[{"name": "a", "image": "a"}, {"name": "b", "image": "b:1"}]
            )
        ),
        post(labelled("right", owner="a", team="b", cost="c")),
        post(labelled("trimmed", owner="a", team="b", cost="c", text="--SECRET-")),
        post(labelled("both", owner="a", team="b", cost="c"), user=ALICE),
        post(labelled("right", owner="a", team="b", cost="c"), dry=True),
        post(config_map("map", {"owner": "a"})),
        post(deployment()),
        patch(f"{PODS}/right", {"metadata": {"labels": {"owner": None}}}),
        patch(f"{PODS}/right{DRY}", {"metadata": {"labels": {"text": "none"}}}),
        Operation("PATCH", f"{PODS}/right?fieldManager=a", labelled("right", added="yes"), APPLY),
        delete(f"{PODS}/right"),
    )
    webhook, audit = "validation.gatekeeper.sh", "audit.gatekeeper.sh"
    for engine, kind in (("rego", "WorkerLabels"), ("cel", "WorkerReplicas")):
        kinds = {"kinds": _POD if engine == "rego" else _SCALES}
        many = {"parameters": {"labels": ["a"]} if engine == "rego" else {"most": 1}}
        yield _scenario(
            f"actions-{engine}",
            [
                owners("deny", kind, match={**kinds, "name": "deny*"}, **many),
                owners("warn", kind, match={**kinds, "name": "*warn"}, enforcementAction="warn", **many),
                owners("dry", kind, match=dict(kinds), enforcementAction="dryrun", **many),
                owners("unknown", kind, match=dict(kinds), enforcementAction="reject", **many),
                owners(
                    "both",
                    kind,
                    match={**kinds, "name": "both*"},
                    **scoped(("warn", webhook), ("deny", "*")),
                    **many,
                ),
                owners("other", kind, match=dict(kinds), **scoped(("deny", audit)), **many),
            ],
            *(
                post(made, dry=True)
                for name in ("deny", "x-warn", "deny-warn", "both", "both-warn", "none")
                for made in (pod(name), deployment(name, replicas=5))
            ),
        )
    yield _scenario(
        "replicas",
        [constraint("WorkerReplicas", match={"kinds": _SCALES}, parameters={})],
        post(deployment(replicas=2)),
        post(deployment("many", replicas=4)),
        patch(deployments("shop/scale"), {"spec": {"replicas": 3}}),
        patch(deployments("shop/scale"), {"spec": {"replicas": 4}}),
        patch(deployments("shop"), {"spec": {"replicas": 5}}),
    )
    failing = [
        constraint(
            "WorkerFailing",
            how,
            match={"kinds": _CONFIG_MAP, "name": f"{how}*", "namespaces": ["errors"]},
            parameters={"how": how},
        )
        for how in ("conflict", "division", "number", "none", "many")
    ]
    yield _scenario(
        "errors",
        [*failing, owners("warned", match={"kinds": _CONFIG_MAP}, enforcementAction="warn")],
        *(
            post(config_map(how, a="1", b="2"))
            for how in ("conflict", "division", "none", "many", "number", "good")
        ),
        patch(within("configmaps/good"), {"data": {"a": "2"}}),
    )


def _requests() -> Iterator[Scenario]:
    """Yield scenarios about what constraints see of a request."""
    yield _scenario(
        "shown",
        [
            constraint("WorkerShown", match=dict(_INSIDE), parameters={"a": "b"}, enforcementAction="warn"),
            constraint(
                "WorkerShown", "new", match={"kinds": _ANY, "name": "shown-new*"}, enforcementAction="warn"
            ),
        ],
        post(namespace("shown-new", a="b")),
        patch("/api/v1/namespaces/shown-new", {"metadata": {"labels": {"a": None}}}),
        post(cluster_role("shown-new")),
        post(config_map("map", {"a": "b"}, c="d")),
        post(config_map("map"), dry=True, user=ALICE),
        patch(within("configmaps/map"), {"data": {"c": None}}),
        Operation("PATCH", within("configmaps/new?fieldManager=a"), config_map("new"), APPLY),
        post(pod()),
        patch(within("pods/web/ephemeralcontainers"), {"spec": {"ephemeralContainers": [_DEBUGGER]}}),
        patch(within("pods/web/status"), {"status": {"message": "a"}}),
        Operation("POST", within("pods/web/binding"), _BINDING),
        Operation("POST", within("pods/web/eviction"), _EVICTION),
        post(workload("Deployment", "deployment")),
        post(workload("CronJob", "cron-job")),
        post(workload("Job", "job")),
        patch(deployments("deployment/scale"), {"spec": {"replicas": 2}}),
        post(widget(name="first")),
        post(widget("v2", name="second")),
        patch(within("widgets/first/scale", f"{GROUP}/v1"), {"spec": {"replicas": 2}}),
        post(service("headless")),
        patch(
            within("services/headless/status"), {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}
        ),
    )
    yield _scenario(
        "shown-wide",
        [constraint("WorkerShown", match=dict(_INSIDE), parameters={"b": 1}, enforcementAction="warn")],
        post(pod()),
        post(config_map()),
        delete(within("configmaps/settings?dryRun=All")),
        delete(within("configmaps/settings")),
        Operation("POST", within("pods/web/exec?command=ls&container=main&stdout=true")),
        delete(within("pods/web?gracePeriodSeconds=0")),
        delete(within("configmaps")),
    )
    yield _scenario(
        "wide",
        [
            constraint(
                "WorkerKept", match={"kinds": _CONFIG_MAP, "labelSelector": {"matchLabels": {"keep": "yes"}}}
            ),
            constraint("WorkerTerminal", match={"kinds": [{"apiGroups": [""], "kinds": ["PodExecOptions"]}]}),
            constraint("WorkerNever", match={"kinds": _CONFIG_MAP, "name": "never"}),
        ],
        post(config_map("kept", {"keep": "yes"})),
        post(config_map("gone")),
        post(config_map("never")),
        patch(within("configmaps/kept"), {"data": {"c": "d"}}),
        *(delete(within(f"configmaps/{name}")) for name in ("kept", "gone")),
        post(pod()),
        Operation("POST", within("pods/web/exec?command=ls&container=main&stdout=true")),
        Operation("POST", within("pods/web/attach?container=main&stdout=true")),
    )
    for name in ("excluded-webhook", "excluded-mutation", "excluded-all"):
        yield _scenario(
            name,
            [
                owners(match={"kinds": _POD}),
                constraint("WorkerReplicas", match={"kinds": _SCALES}, parameters={"most": 0}),
                _metadata_of("labels.mutated", match={}),
            ],
            post(pod()),
            post(deployment()),
            post(labelled("owned", owner="a")),
            awaited={0: 403 if name == "excluded-mutation" else 201},
        )


_DEBUGGER: Final = {"name": "debugger", "image": "debugger:1"}
_BINDING: Final = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "web"},
    "target": {"kind": "Node", "name": "absent"},
}
_EVICTION: Final = {
    "apiVersion": "policy/v1",
    "kind": "Eviction",
    "metadata": {"name": "web"},
    "deleteOptions": {"gracePeriodSeconds": 0},
}


def _matching() -> Iterator[Scenario]:
    """Yield scenarios about ``match`` of constraints."""
    has_team: Json = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}
    free: Json = {"matchExpressions": [{"key": "free", "operator": "DoesNotExist"}]}
    matches: dict[str, Json] = {
        "kinds": {"kinds": [{"apiGroups": ["apps"], "kinds": ["*"]}, *_POD]},
        "groups": {"kinds": [{"apiGroups": [GROUP], "kinds": ["Widget"]}]},
        "no-kinds": {"kinds": [{"apiGroups": ["*"], "kinds": []}]},
        "globs": {"namespaces": ["match*", "*x*"]},
        "excluded": {"namespaces": ["*ching"], "excludedNamespaces": ["*atch*"]},
        "labels": {"labelSelector": has_team},
        "free": {"labelSelector": free},
        "cluster": {"scope": "Cluster", "name": "matching*"},
        "namespaced": {"scope": "Namespaced"},
        "odd": {"scope": "namespaced"},
        "name": {"name": "special*", "namespaces": ["matching"]},
        "suffix": {"name": "*-end", "namespaces": ["matching"]},
        "inner": {"name": "*-mid-*", "namespaces": ["matching"]},
        "original": {"source": "Original"},
        "generated": {"source": "Generated"},
        "all": {"source": "All"},
    }
    listed = [
        owners(name, match=match, parameters={"labels": [name]}, enforcementAction="warn")
        for name, match in matches.items()
    ]
    yield _scenario(
        "matching",
        listed,
        *(
            post(made, dry=True)
            for made in (
                pod(),
                labelled("special", team="a"),
                labelled("x-mid-end", team="c", free="yes"),
                pod("special-"),
                config_map(),
                deployment(),
                deployment("special"),
                widget(),
                widget("v2", "special-end"),
                namespace("matching-new", team="a"),
                namespace("xmatch-ing"),
                namespace("ing", free="yes"),
                cluster_role("matching", team="b"),
                cluster_role("other"),
                service("matching-service"),
            )
        ),
        post(labelled("owned", team="a")),
        patch(f"{PODS}/owned", {"metadata": {"labels": {"team": None, "free": "yes"}}}),
        patch(f"{PODS}/owned", {"metadata": {"labels": {"a": "b"}}}),
    )
    selectors: dict[str, Json] = {
        "one": {"matchLabels": {"tier": "one"}},
        "not-one": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["one"]}]},
        "open": {"matchExpressions": [{"key": "closed", "operator": "DoesNotExist"}]},
    }
    listed = [
        owners(
            name,
            match={
                "kinds": _CONFIG_MAP_OR_NAMESPACE,
                "namespaceSelector": selector,
                "labelSelector": _OF_SELECTORS,
            },
            parameters={"labels": [name]},
            enforcementAction="warn",
        )
        for name, selector in selectors.items()
    ]
    marked = {"of": "selectors"}
    yield _scenario(
        "selectors",
        listed,
        *(post(config_map("selected", marked), inside=inside) for inside in ("draw-a", "draw-b", "draw-c")),
        *(post(namespace(f"selected-{tier}", tier=tier, **marked), dry=True) for tier in ("one", "two")),
        post(namespace("selected-none", **marked)),
        post(cluster_role("selected", **marked), dry=True),
    )


_CONFIG_MAP_OR_NAMESPACE: Final = [{"apiGroups": ["", "rbac.authorization.k8s.io"], "kinds": ["*"]}]
_OF_SELECTORS: Final = {"matchLabels": {"of": "selectors"}}


def _expanded() -> Iterator[Scenario]:
    """Yield scenarios about what workloads generate."""
    privileged = [{"name": "main", "image": "bad/main:1"}]
    workloads = ("Deployment", "StatefulSet", "CronJob", "Job")
    yield _scenario(
        "expanded",
        [
            constraint(
                "WorkerImages", "image", match={"kinds": _POD}, parameters={"prefixes": ["registry.test/"]}
            ),
            owners("implied", match={"kinds": _POD, "source": "Generated"}),
            owners(
                "job", match={"kinds": [{"apiGroups": ["batch"], "kinds": ["Job"]}]}, enforcementAction="warn"
            ),
            constraint(
                "WorkerReplicas", match={"kinds": _SCALES}, parameters={"most": 0}, enforcementAction="warn"
            ),
            constraint("FlawCel", match={"kinds": _POD}, parameters={"flaws": ["", "a"], "word": "not"}),
        ],
        *(post(workload(kind, kind.lower())) for kind in workloads),
        *(post(workload(kind, f"bad-{kind}".lower(), containers=privileged), dry=True) for kind in workloads),
        post(pod(containers=privileged)),
    )
    yield _scenario(
        "mutated-expansion",
        [
            owners("implied", match={"kinds": _POD}),
            _metadata_of("labels.owner", value="generated", match={"source": "Generated"}),
            mutator(
                "image",
                location="spec.containers[name: *].image",
                match={"source": "Generated"},
                parameters={"assign": {"value": "changed/image:1"}},
            ),
            constraint("WorkerImages", "image", match={"kinds": _POD}, parameters={"prefixes": ["changed/"]}),
        ],
        *(post(workload(kind, kind.lower())) for kind in workloads),
        post(pod()),
    )


def _metadata_of(below: str, value: Any = "yes", **spec: Any) -> Json:
    """Return a mutator that adds the label or annotation *below* metadata."""
    assign = value if isinstance(value, dict) else {"value": value}
    name = below.replace(".", "-").lower()
    spec = {"location": f"metadata.{below}", "parameters": {"assign": assign}, **spec}
    return mutator(name, "AssignMetadata", **spec)


_IMAGE: Final = {
    **mutator(
        "image",
        "AssignImage",
        location="spec.containers[name: *].image",
        parameters={"assignDomain": "registry.test", "assignPath": "mirror/image"},
    ),
    # The only version that Gatekeeper serves.
    "apiVersion": "mutations.gatekeeper.sh/v1alpha1",
}


def _mutators() -> Iterator[Scenario]:
    containers = [
        {"name": name, "image": image}
        for name, image in (("main", "nginx"), ("side", "a/b:1@sha256:" + "0" * 64))
    ]
    maps = [{"groups": [""], "versions": ["v1"], "kinds": ["ConfigMap"]}]
    yield _scenario(
        "mutators",
        [
            _metadata_of("labels.owner", value="nobody"),
            _metadata_of("annotations.name", value={"fromMetadata": {"field": "name"}}),
            _metadata_of("annotations.namespace", value={"fromMetadata": {"field": "namespace"}}),
            mutator(
                "pull",
                location="spec.containers[name: *].imagePullPolicy",
                parameters={"assign": {"value": "Always"}},
            ),
            mutator(
                "tested",
                location="spec.containers[name: main].securityContext.privileged",
                parameters={
                    "assign": {"value": False},
                    "pathTests": [
                        {"subPath": "spec.containers[name: main]", "condition": "MustExist"},
                        {
                            "subPath": "spec.containers[name: main].securityContext.privileged",
                            "condition": "MustNotExist",
                        },
                    ],
                },
            ),
            mutator(
                "added",
                location="spec.initContainers[name: first]",
                parameters={"assign": {"value": {"name": "first", "image": "first:1"}}},
                match={"labelSelector": {"matchLabels": {"first": "yes"}}},
            ),
            mutator(
                "host", location='spec.nodeSelector."host.test/a"', parameters={"assign": {"value": "b"}}
            ),
            mutator(
                "merge",
                "ModifySet",
                location="spec.containers[name: main].args",
                parameters={"operation": "merge", "values": {"fromList": ["--a", "--b"]}},
            ),
            mutator(
                "prune",
                "ModifySet",
                location="spec.containers[name: *].command",
                parameters={"operation": "prune", "values": {"fromList": ["sh"]}},
            ),
            {**_IMAGE, "metadata": {"name": "image"}},
            mutator("data", applyTo=maps, location="data.added", parameters={"assign": {"value": "yes"}}),
            owners("checked", match={"kinds": _ANY, "scope": "Namespaced"}),
        ],
        post(pod()),
        post(pod("two", {"owner": "a", "first": "yes"}, containers=containers)),
        post(
            pod(
                "set",
                containers=[{"name": "main", "image": "a:1", "args": ["--b", "c"], "command": ["sh", "-c"]}],
            ),
            dry=True,
        ),
        post(pod("generated-"), dry=True),
        post(config_map("map")),
        patch(within("configmaps/map"), {"data": {"added": "no"}}),
        patch(within("configmaps/map"), {"metadata": {"labels": {"owner": None}}}),
        patch(f"{PODS}/web", {"metadata": {"annotations": {"name": None}}}),
        patch(within("pods/web/ephemeralcontainers"), {"spec": {"ephemeralContainers": [_DEBUGGER]}}),
        Operation("POST", within("pods/web/eviction"), _EVICTION),
        post(deployment()),
        patch(deployments("shop/scale"), {"spec": {"replicas": 2}}),
        post(service("headless")),
        patch(within("services/headless/status"), {"metadata": {"labels": {"owner": None}}}),
        post(widget(name="first")),
        delete(within("configmaps/map")),
    )
    yield _scenario(
        "failing-mutators",
        [
            # A round of one undoes that of the other.
            mutator("one", location="spec.hostname", parameters={"assign": {"value": "one"}}),
            mutator("two", location="spec.hostname", parameters={"assign": {"value": "two"}}),
            mutator("map", applyTo=maps, location="data.a.b", parameters={"assign": {"value": "c"}}),
            mutator(
                "list", applyTo=maps, location="binaryData[name: a].b", parameters={"assign": {"value": "c"}}
            ),
            mutator(
                "object", applyTo=maps, location="binaryData.a", parameters={"assign": {"value": "Yg=="}}
            ),
        ],
        post(pod()),
        post(config_map()),
        post(config_map("text", a="b")),
        post(service("headless")),
    )


def _live() -> Iterator[Scenario]:
    """Yield scenarios that read objects which the operations make."""
    maps = within("configmaps")
    yield _scenario(
        "inventory",
        [constraint("WorkerUnique", match={"kinds": _CONFIG_MAP, "namespaces": ["inventory*"]})],
        post(config_map("first", host="a.test")),
        post(config_map("second", host="b.test")),
        post(config_map("again", host="a.test"), dry=True),
        post(config_map("elsewhere", host="a.test"), dry=True, inside="inventory-b"),
        post(config_map("other", host="c.test"), inside="inventory-b"),
        post(config_map("again", host="c.test"), dry=True),
        patch(f"{maps}/second", {"data": {"host": "a.test"}}),
        patch(f"{maps}/first", {"data": {"host": "d.test"}}),
        post(config_map("again", host="a.test"), dry=True),
        delete(f"{maps}/second"),
        post(config_map("again", host="b.test"), dry=True),
        post(config_map("space", namespace="draw-b")),
        post(config_map("space", namespace="draw-c")),
        post(config_map("taken", host="taken.test")),
        awaited={2: 403, 3: 403, 5: 403, 8: 201, 10: 201},
    )


_LABELS_OF: Final = ("a", "b", "c")
_FLAWS: Final = ("one", "two", "three", "four", "five", "six")


def _drawn_match(chosen: random.Random) -> Json:
    """Return a match with any of its fields."""
    kinds = (
        _ANY,
        _POD,
        [{"apiGroups": ["", "apps"], "kinds": ["Pod", "Deployment", "Service"]}],
        [{"apiGroups": ["*"], "kinds": ["ConfigMap", "Namespace", "Job"]}],
        [{"apiGroups": [GROUP, "batch"], "kinds": ["*"]}, *_POD],
        [
            {
                "apiGroups": ["rbac.authorization.k8s.io", ""],
                "kinds": ["ClusterRole", "Namespace", "ConfigMap"],
            }
        ],
        [{"apiGroups": ["autoscaling"], "kinds": ["Scale"]}],
    )
    expressions = (
        {"key": "team", "operator": "In", "values": ["a", "b"]},
        {"key": "team", "operator": "NotIn", "values": ["a"]},
        {"key": "free", "operator": "Exists"},
        {"key": "free", "operator": "DoesNotExist"},
    )
    spaces = (
        {"matchLabels": {"tier": "one"}},
        {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["one"]}]},
        {"matchExpressions": [{"key": "closed", "operator": "DoesNotExist"}]},
    )
    drawn: dict[str, tuple[float, Sequence[Any]]] = {
        "kinds": (0.7, kinds),
        "namespaces": (0.3, (["draw-*"], ["draw-a", "draw-wide"], ["*-b"], ["*raw-*"])),
        "excludedNamespaces": (0.3, (["draw-a"], ["*-b", "draw-c"], ["*-w*"])),
        "labelSelector": (0.3, [{"matchExpressions": [each]} for each in expressions]),
        "namespaceSelector": (0.3, spaces),
        "scope": (0.2, ("Cluster", "Namespaced", "Namespaced", "*")),
        "name": (0.2, ("o1*", "*3", "*o*", "o*")),
        "source": (0.3, ("All", "Original", "Generated")),
    }
    return {name: chosen.choice(of) for name, (share, of) in drawn.items() if chosen.random() < share}


def _drawn_constraint(chosen: random.Random, number: int) -> Json:
    spec: Json = {
        "match": _drawn_match(chosen),
        "parameters": {"flaws": chosen.sample(_FLAWS, 2)},
    }
    if chosen.random() < 0.5:
        spec["parameters"]["word"] = chosen.choice(("no", "wrong"))
    if chosen.random() < 0.5:
        actions: Sequence[Json] = (
            {"enforcementAction": "warn"},
            {"enforcementAction": "warn"},
            {"enforcementAction": "dryrun"},
            scoped(("warn", "*"), ("deny", "validation.gatekeeper.sh")),
            scoped(("deny", "audit.gatekeeper.sh"), ("warn", "validation.gatekeeper.sh")),
        )
        spec |= chosen.choice(actions)
    return constraint(chosen.choice(("FlawOld", "FlawNew", "FlawCel")), f"d{number}", **spec)


def _drawn_mutator(chosen: random.Random, number: int) -> Json:
    match = _drawn_match(chosen)
    selector = match.get("labelSelector", {})
    match["labelSelector"] = {**selector, "matchLabels": {"drawn": "yes"}}
    name = f"d{number}"
    kinds = {"groups": [""], "versions": ["v1"], "kinds": ["Pod"]}
    choice = chosen.randrange(6)
    if choice < 2:
        of = (
            {"fromMetadata": {"field": chosen.choice(("name", "namespace"))}}
            if choice
            else {"value": f"v{number}"}
        )
        below = chosen.choice(("labels", "annotations")) if not choice else "annotations"
        return {**_metadata_of(f"{below}.{name}", of, match=match), "metadata": {"name": name}}
    if choice == 2:
        kind = chosen.choice(("ConfigMap", "Secret"))
        return mutator(
            name,
            match=match,
            applyTo=[{"groups": [""], "versions": ["v1"], "kinds": [kind, "ConfigMap"]}],
            location=f"data.{name}",
            parameters={"assign": {"value": f"v{number}"}},
        )
    if choice == 3:
        return mutator(
            name,
            match=match,
            applyTo=[kinds, {"groups": ["apps"], "versions": ["v1"], "kinds": ["Deployment", "StatefulSet"]}],
            location=f"{chosen.choice(('spec.template.metadata.labels', 'spec.nodeSelector'))}.{name}",
            parameters={"assign": {"value": f"v{number}"}},
        )
    if choice == 4:
        values = {"fromList": chosen.sample(("--a", "--b", f"--{name}"), 2)}
        return mutator(
            name,
            "ModifySet",
            match=match,
            applyTo=[kinds],
            location=f"spec.containers[name: {chosen.choice(('*', 'c0', 'c1'))}].args",
            parameters={"operation": "merge", "values": values},
        )
    container = f"spec.containers[name: c{number % 2}]"
    tests = [{"subPath": container, "condition": "MustExist"}]
    return mutator(
        name,
        match=match,
        applyTo=[kinds],
        location=f"{container}.env[name: {name}].value",
        parameters={"assign": {"value": f"v{number}"}, "pathTests": tests},
    )


class _Draw:
    """Draws operations, each object with what is done with it."""

    def __init__(self, seed: int) -> None:
        self._chosen = random.Random(seed)

    def _labels(self) -> dict[str, str]:
        chosen = self._chosen
        found = {"drawn": "yes"} if chosen.random() < 0.8 else {}
        for key, share, values in (
            ("team", 0.6, _LABELS_OF),
            ("free", 0.3, ("yes",)),
            ("flaw", 0.5, _FLAWS),
        ):
            if chosen.random() < share:
                found[key] = chosen.choice(values)
        return found

    def _spec(self) -> Json:
        def container(index: int) -> Json:
            made: Json = {"name": f"c{index}", "image": self._chosen.choice(("a:1", "registry.test/b:2"))}
            if self._chosen.random() < 0.3:
                made["args"] = ["--a", "x"]
            return made

        return {"containers": [container(index) for index in range(self._chosen.choice((1, 1, 2)))]}

    def _object(self, name: str) -> Json:
        kinds = (*_PLURALS, *_OF_CLUSTER, "Pod", "Pod", "Deployment", "ConfigMap")
        kind, labels = self._chosen.choice(kinds), self._labels()
        if kind in ("Deployment", "StatefulSet", "Job", "CronJob"):
            made = workload(kind, name, **self._spec())
            spec = made["spec"] if kind != "CronJob" else made["spec"]["jobTemplate"]["spec"]
            of_template = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
            of_template |= self._labels()
        else:
            made = {
                "Pod": lambda: pod(name, **self._spec()),
                "ConfigMap": lambda: config_map(name, key="value"),
                "Service": lambda: service(name),
                "Widget": lambda: widget(self._chosen.choice(("v1", "v2")), name),
                "Namespace": lambda: namespace(name),
                "ClusterRole": lambda: cluster_role(name),
            }[kind]()
        made["metadata"]["labels"] = labels
        return made

    def operations(self) -> Iterator[Operation]:
        """Yield a creation for each object, and what is done with it then."""
        for number in range(DRAWN):
            made = self._object(f"o{number}")
            chosen = self._chosen
            inside = chosen.choice(tuple(name for name in SPACES if name.startswith("draw-")))
            is_dry = chosen.random() < 0.4
            # The end of a generated name could match a pattern for namespaces.
            if is_dry and made["kind"] != "Namespace" and chosen.random() < 0.3:
                made["metadata"] = {"generateName": f"o{number}-", "labels": made["metadata"]["labels"]}
            created = post(made, dry=is_dry, user=chosen.choice(("admin", ALICE)), inside=inside)
            yield created
            if not is_dry and made["kind"] not in _OF_CLUSTER and chosen.random() < 0.6:
                yield from self._more(made, f"{created.path}/{made['metadata']['name']}", inside)

    def _more(self, made: Json, path: str, inside: str) -> Iterator[Operation]:
        chosen = self._chosen
        labels: dict[str, str | None] = dict.fromkeys(made["metadata"]["labels"])
        choice = chosen.randrange(4)
        if choice == 0 and made["kind"] == "Pod":
            ephemeral = {"spec": {"ephemeralContainers": [_DEBUGGER]}}
            yield patch(f"{path}/ephemeralcontainers", ephemeral)
        elif choice == 0 and made["kind"] in ("Deployment", "StatefulSet", "Widget"):
            yield patch(f"{path}/scale", {"spec": {"replicas": chosen.randrange(1, 5)}})
        elif choice < 3 and inside in WIDER:
            yield delete(path)
        else:
            dry = DRY if chosen.random() < 0.4 else ""
            yield patch(path + dry, {"metadata": {"labels": {**labels, **self._labels()}}})
            if chosen.random() < 0.3 and made["kind"] in ("Pod", "ConfigMap", "Service"):
                replaced = {**made, "metadata": {**made["metadata"], "labels": self._labels()}}
                yield Operation("PUT", path, replaced, JSON)


def _drawn() -> Scenario:
    chosen = random.Random(35)
    documents = [
        *(_drawn_constraint(chosen, number) for number in range(40)),
        *(_drawn_mutator(chosen, number) for number in range(24)),
    ]
    return Scenario("draw", tuple(documents), tuple(_Draw(35).operations()))


WRITTEN: Final = (*_constraints(), *_requests(), *_matching(), *_expanded(), *_mutators())
SCENARIOS: Final = (*WRITTEN, _drawn())
LIVE: Final = tuple(_live())
"""Those that only a worker that follows the cluster can decide alike."""


@dataclass(frozen=True)
class Step:
    """A change of documents, and what the probes are answered then."""

    said: tuple[str, ...]
    """What ``summary`` says of each of ``PROBES``."""
    applied: tuple[Json, ...] = ()
    deleted: tuple[Json, ...] = ()


def summary(seen: Seen) -> str:
    """Return the parts of an answer to a probe that steps change."""
    labels = seen.stored["metadata"].get("labels", {}) if seen.stored is not None else {}
    texts = (*seen.denials, *seen.warnings, labels.get("stamp", ""))
    return " | ".join((str(seen.status), *filter(None, texts)))


_GONE: Final = rego("WorkerGone", 'violation[{"msg": "gone"}] { input.review.object.metadata.labels.gone }')
_STAMP: Final = _metadata_of("labels.stamp", value="first", match={"namespaces": ["changing"]})
CHANGING: Final = _scenario(
    "changing",
    [
        owners(match={"kinds": _POD}),
        {**_GONE, "metadata": dict(_GONE["metadata"])},
        constraint("WorkerGone", match={"kinds": _POD}),
        copy.deepcopy(_STAMP),
    ],
)
"""What steps change."""
PROBES: Final = (
    post(pod(), dry=True),
    post(labelled("owned", owner="a"), dry=True),
    post(labelled("gone", owner="a", gone="yes"), dry=True),
    post(deployment(), dry=True),
    post(config_map(host="taken.test"), dry=True, inside="inventory"),
)
"""Creations in the namespace of ``CHANGING``, the last one in that of the inventory."""


def _steps() -> Iterator[Step]:
    owned, template_, gone, stamp = CHANGING.documents
    lacks = '403 | [changing-c] bad: Pod web lacks ["owner"]'
    implied = '403 | [changing-c] [Implied by rego-deployments] bad: Pod shop-pod lacks ["owner"]'
    is_gone, free, taken = (
        "403 | [changing-c] gone",
        "201",
        "403 | [inventory-c] taken.test is the host of inventory/taken",
    )

    def changed(document: Json, **spec: Any) -> Json:
        return {**document, "spec": {**document["spec"], **spec}}

    first = (lacks, "201 | first", is_gone, implied, taken)
    yield Step(first)
    yield Step(
        (
            lacks.replace("owner", "team"),
            '403 | [changing-c] bad: Pod owned lacks ["team"]',
            '403 | [changing-c] bad: Pod gone lacks ["team"] | [changing-c] gone',
            implied.replace("owner", "team"),
            taken,
        ),
        (changed(owned, parameters={"labels": ["team"]}),),
    )
    warned = '201 | [changing-c] bad: Pod web lacks ["owner"] | first'
    of_pods = '201 | [changing-c] [Implied by rego-deployments] bad: Pod shop-pod lacks ["owner"] | first'
    yield Step((warned, "201 | first", is_gone, of_pods, taken), (changed(owned, enforcementAction="warn"),))
    yield Step(first, (owned,))
    again = rego("WorkerGone", 'violation[{"msg": "again"}] { input.review.object.metadata.labels.gone }')
    yield Step((*first[:2], "403 | [changing-c] again", *first[3:]), (again,))
    without = (*first[:2], "201 | first", *first[3:])
    yield Step(without, deleted=(template_,))
    yield Step(first, (template_, gone))
    second = tuple(each.replace("first", "second") for each in first)
    yield Step(second, (changed(stamp, parameters={"assign": {"value": "second"}}),))
    yield Step(tuple(each.replace(" | second", "") for each in second), deleted=(stamp,))
    yield Step(first, (stamp,))
    pods = _expansions()[0]
    pods["metadata"]["name"] = "rego-deployments"
    yield Step((*first[:3], "201 | first", taken), deleted=(pods,))
    yield Step(first, (pods,))
    excluded = _config(("chang*", "webhook"))
    yield Step(("201 | first",) * 4 + (taken,), (excluded,))
    yield Step((lacks, free, is_gone, implied, taken), (_config(("chang*", "mutation-webhook")),))
    yield Step(first, deleted=(CONFIG,))
    yield Step((*first[:4], free), deleted=(SYNC_SET,))
    yield Step(first, (SYNC_SET, CONFIG))


def _canaries() -> Iterator[Scenario]:
    name = "zz-worker"
    marked = {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": [name]}]
    }
    yield _scenario(
        name,
        [
            mutator(
                "zz",
                applyTo=[{"groups": [""], "versions": ["v1"], "kinds": ["ConfigMap"]}],
                location="data.host",
                parameters={"assign": {"value": "zz"}},
            ),
            rego("ZzCanary", 'violation[{"msg": "in force"}] { input.review.object.data.host == "zz" }'),
            constraint("ZzCanary", match={"namespaceSelector": marked}),
        ],
        post(config_map(), dry=True),
    )


CANARIES: Final = tuple(_canaries())
"""Each refuses its operation when it and all of its kind are in force: it is made after them."""
STEPS: Final = tuple(_steps())
