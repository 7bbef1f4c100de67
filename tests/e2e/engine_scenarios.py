"""Policies of other engines, and operations under them, each scenario in a namespace of its own name.

All scenarios are in force at the same time: the policies of a scenario match its namespace only.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.client import MERGE_PATCH
from tests.e2e.cluster import ALICE
from tests.e2e.compare import Operation
from tests.e2e.objects import config_map, deployment, deployments, pod, within
from tests.gatekeeper.documents import constraint, scoped, template
from tests.recorded.other_engines import cel_rules
from tests.recorded.other_engines.cases import (
    check,
    exception,
    matching,
    mutating,
    named,
    rule,
    validating,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Json = dict[str, Any]

PODS: Final = within("pods")
DRY: Final = "?dryRun=All"
KYVERNO: Final = ("policies.kyverno.io", "kyverno.io")
GATEKEEPER: Final = ("templates.gatekeeper.sh", "constraints.gatekeeper.sh")
RBAC: Final = "rbac.authorization.k8s.io"
DELETIONS: Final = "deletions-gatekeeper"
"""The namespace in which Gatekeeper has to be registered for DELETE: by default it is not."""
DRAWN: Final = 100


@dataclass(frozen=True)
class Scenario:
    """Documents that match the namespace *name* only, and operations to do one after another in it."""

    name: str
    documents: tuple[Json, ...]
    operations: tuple[Operation, ...]
    awaited: Mapping[int, int] = field(default_factory=dict)
    """By number of an operation, the status until which it is repeated: it depends on what watches show."""


def post(document: Json, *, dry: bool = False, user: str = "admin") -> Operation:
    """Create *document* in the namespace of the scenario."""
    plurals = {"Pod": PODS, "Deployment": deployments(), "ConfigMap": within("configmaps")}
    plurals |= {"CronJob": within("cronjobs", "batch/v1"), "Job": within("jobs", "batch/v1")}
    plurals |= {"StatefulSet": within("statefulsets", "apps/v1")}
    path = plurals[document["kind"]] + (DRY if dry else "")
    return Operation("POST", path, document, user=user)


def patch(path: str, document: Json) -> Operation:
    """Change an object by a merge patch."""
    return Operation("PATCH", path, document, MERGE_PATCH)


def labelled(name: str, **labels: str) -> Json:
    """Return a Pod with *labels*."""
    return pod(name, labels)


def workload(kind: str, name: str, **spec: Any) -> Json:
    """Return a workload of *kind* whose Pods have *spec*."""
    made = deployment(name)
    made["spec"]["template"]["spec"] |= spec
    if kind == "Deployment":
        return made
    if kind == "StatefulSet":
        return {**made, "kind": kind}
    template = {**made["spec"]["template"]}
    template["spec"] = {**template["spec"], "restartPolicy": "Never"}
    job: Json = {"template": template}
    if kind == "CronJob":
        job = {"schedule": "@daily", "jobTemplate": {"spec": job}}
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": name}, "spec": job}


def _kyverno(name: str, documents: list[Json], *operations: Operation) -> Scenario:
    """Return a scenario whose policies match its namespace, and have names that begin with its own."""
    for document in documents:
        document["metadata"]["name"] = f"{name}-{document['metadata']['name']}"
        if document["kind"] == "PolicyException":
            document["metadata"]["namespace"] = "default"
            for reference in document["spec"]["policyRefs"]:
                reference["name"] = f"{name}-{reference['name']}"
        elif "namespace" in document["metadata"]:
            document["metadata"]["namespace"] = name
        elif document["kind"] == "ClusterPolicy":
            for each in document["spec"]["rules"]:
                ((resources,),) = (entry.values() for entry in each["match"]["any"])
                each["match"] = {"any": [{"resources": {**resources, "namespaces": [name]}}]}
        else:
            here = {"matchLabels": {"kubernetes.io/metadata.name": name}}
            constraints = {**document["spec"]["matchConstraints"], "namespaceSelector": here}
            document["spec"]["matchConstraints"] = constraints
    return Scenario(name, tuple(documents), operations)


def _gatekeeper(name: str, documents: list[Json], *operations: Operation) -> Scenario:
    """Return a scenario whose constraints match its namespace, and have names that begin with its own."""
    for document in documents:
        if document["kind"] != "ConstraintTemplate":
            document["metadata"]["name"] = f"{name}-{document['metadata']['name']}"
            match = document["spec"].setdefault("match", {})
            if "namespaces" not in match and "name" not in match:
                match["namespaces"] = [name]
    return Scenario(name, tuple(documents), operations)


LABEL: Final = "object.metadata.?labels[?'%s'].orValue('') != 'yes'"
MISSING: Final = "object.spec.absent == 1"
UNPRIVILEGED: Final = check(
    "object.spec.containers.all(c, !c.?securityContext.?privileged.orValue(false))",
    "a container is privileged",
)
PRIVILEGED: Final = [
    {"name": "main", "image": "registry.test/main:1", "securityContext": {"privileged": True}}
]
ADDED: Final = "Object{metadata: Object.metadata{labels: Object.metadata.labels{added: 'yes'}}}"


def _validating() -> Iterator[Scenario]:
    no = check("false", "no")
    yield _kyverno(
        "first-failure",
        [validating(check("true"), check("false", "one"), check("false", "two"))],
        post(pod()),
        post(pod(), dry=True),
        post(deployment()),
        post(config_map()),
    )
    yield _kyverno(
        "actions",
        [
            validating(check(LABEL % "deny", "denied"), name="a"),
            validating(check(LABEL % "warn", "warned"), name="b", validationActions=["Warn"]),
            validating(check(LABEL % "audit", "audited"), name="c", validationActions=["Audit"]),
            validating(check(LABEL % "both", "both"), name="d", validationActions=["Deny", "Warn"]),
        ],
        *(post(labelled(name, **{name: "yes"})) for name in ("deny", "warn", "audit", "both", "none")),
        post(labelled("many", deny="yes", warn="yes", audit="yes", both="yes")),
        patch(f"{PODS}/none", {"metadata": {"labels": {"deny": "yes", "warn": "yes"}}}),
        patch(f"{PODS}/none{DRY}", {"metadata": {"labels": {"warn": "yes"}}}),
        patch(f"{PODS}/none", {"metadata": {"labels": {"audit": "yes"}}}),
    )
    yield _kyverno("error", [validating(check(MISSING, "no"))], post(pod()))
    yield _kyverno("error-ignore", [validating(check(MISSING), failurePolicy="Ignore")], post(pod()))
    yield _kyverno(
        "error-warn",
        [validating(check(MISSING), validationActions=["Warn"])],
        post(pod()),
        post(deployment()),
    )
    yield _kyverno("no-message", [validating(check("true"), check("1 == 2"))], post(pod()))
    yield _kyverno(
        "message-expression",
        [
            validating(check("false", "not this", by="'name is ' + object.metadata.name"), name="a"),
            validating(check("false", "not this", by="string(object.spec.absent)"), name="b"),
        ],
        post(pod()),
        post(deployment()),
    )
    yield _kyverno(
        "conditions",
        [
            validating(
                no,
                matchConditions=named(user="request.userInfo.username != 'alice'", all=LABEL % "skip"),
            )
        ],
        post(labelled("a", skip="yes")),
        post(labelled("b"), user=ALICE),
        post(labelled("c")),
        post(deployment()),
    )
    yield _kyverno(
        "variables",
        [
            validating(
                check("variables.size < 2", by="'containers: ' + string(variables.size)"),
                variables=named(size="object.spec.containers.size()", bad=MISSING),
            )
        ],
        post(pod()),
        post(pod("two", containers=[{"name": each, "image": "a"} for each in ("a", "b")])),
    )
    yield _kyverno(
        "deletion",
        [
            validating(
                check("request.operation != 'DELETE' || !('keep' in oldObject.metadata.?labels.orValue({}))"),
                check("has(object.metadata) || oldObject.metadata.name != 'other'", "no object"),
            )
        ],
        *(post(each) for each in (labelled("kept", keep="yes"), labelled("other"), labelled("gone"))),
        *(Operation("DELETE", f"{PODS}/{name}") for name in ("kept", "other", "gone")),
        Operation("DELETE", f"{PODS}/kept{DRY}"),
    )
    yield _kyverno(
        "config-maps",
        [
            validating(
                check(
                    "oldObject.?data.?fixed.orValue('') == object.?data.?fixed.orValue('')", "fixed changes"
                ),
                matchConstraints=matching(rule("configmaps", operations=["UPDATE"])),
            )
        ],
        post(config_map(fixed="1")),
        patch(within("configmaps/settings"), {"data": {"fixed": "2"}}),
        patch(within("configmaps/settings"), {"data": {"free": "2"}}),
    )
    yield _kyverno(
        "autogen",
        [validating(UNPRIVILEGED)],
        post(pod(containers=PRIVILEGED)),
        *(
            post(workload(kind, f"{kind.lower()}-{bool(spec)}".lower(), **spec))
            for kind in ("Deployment", "StatefulSet", "Job", "CronJob")
            for spec in ({}, {"containers": PRIVILEGED})
        ),
        patch(deployments("deployment-false"), {"spec": {"template": {"spec": {"containers": PRIVILEGED}}}}),
    )
    yield _kyverno(
        "autogen-name", [validating(check("object.metadata.name != 'shop'", "name"))], post(deployment())
    )
    yield _kyverno(
        "autogen-some",
        [validating(UNPRIVILEGED, autogen={"podControllers": {"controllers": ["deployments"]}})],
        post(workload("Deployment", "d", containers=PRIVILEGED)),
        post(workload("StatefulSet", "s", containers=PRIVILEGED)),
    )
    yield _kyverno(
        "scale",
        [
            validating(
                check("object.spec.replicas <= 3", by="'replicas: ' + string(object.spec.replicas)"),
                matchConstraints=matching(rule("apps:deployments", "apps:deployments/scale")),
            )
        ],
        post(deployment()),
        patch(deployments("shop/scale"), {"spec": {"replicas": 2}}),
        patch(deployments("shop/scale"), {"spec": {"replicas": 4}}),
        patch(deployments("shop"), {"spec": {"replicas": 5}}),
    )
    yield _kyverno(
        "exceptions",
        [exception("object.metadata.name == 'excepted'"), validating(no)],
        post(labelled("excepted")),
        post(labelled("other")),
    )
    # Without conditions Kyverno v1.19.0 does not register the variants of a namespaced policy.
    yield _kyverno(
        "namespaced",
        [validating(no, inside="namespaced", matchConditions=named(a="true"))],
        post(pod()),
        post(deployment()),
    )
    yield _kyverno(
        "functions",
        [
            validating(
                check(
                    "image(object.spec.containers[0].image).registry() == 'other.test'",
                    by="image(object.spec.containers[0].image).registry() + ' '"
                    " + parseServiceAccount('system:serviceaccount:a:b').Name + ' ' + sha256('a')",
                )
            )
        ],
        post(pod()),
        post(pod("other", containers=[{"name": "a", "image": "other.test/a/b@sha256:" + "0" * 64}])),
        post(pod("bad", containers=[{"name": "a", "image": "A B"}])),
    )


def _requests() -> Iterator[Scenario]:
    """Yield scenarios about what a policy matches, and what it reads of a request."""
    no, config_maps = check("false", "no"), rule("configmaps")
    yield _kyverno(
        "selector",
        [
            validating(no, name="a", matchConstraints=matching(config_maps, objectSelector=_labels(a="b"))),
            validating(
                no,
                name="b",
                matchConstraints=matching(
                    config_maps, excludeResourceRules=[rule("configmaps", resourceNames=["free"])]
                ),
            ),
        ],
        post(config_map("free")),
        post(config_map("bound")),
        post(config_map("free", {"a": "b"})),
        patch(within("configmaps/free"), {"metadata": {"labels": {"a": "b"}}}),
        Operation("DELETE", within("configmaps/free")),
    )
    members = ("userInfo.username", "operation", "namespace", "resource.resource", "name")
    shown = " + ' ' + ".join(f"request.{member}" for member in members)
    yield _kyverno(
        "request",
        [validating(check("false", by=f"{shown} + ' ' + string(request.dryRun)"))],
        post(pod()),
        post(pod(), dry=True, user=ALICE),
        post(deployment()),
    )
    yield _kyverno(
        "subresource",
        [
            validating(
                check("false", by="string(object.spec.ephemeralContainers.size())"),
                matchConstraints=matching(rule("pods/ephemeralcontainers")),
            )
        ],
        post(pod()),
        patch(within("pods/web/ephemeralcontainers"), {"spec": {"ephemeralContainers": [_CONTAINER]}}),
    )
    allowed = "object.spec.containers.all(c, c.image in exceptions.allowedImages)"
    yield _kyverno(
        "excepted-images",
        [exception(images=["registry.test/main:1"]), validating(check(allowed, "not an allowed image"))],
        post(pod()),
        post(pod("other", containers=[_CONTAINER])),
        post(deployment()),
    )


_CONTAINER: Final = {"name": "debugger", "image": "debugger:1"}


def _labels(**labels: str) -> Json:
    return {"matchLabels": labels}


def _mutating() -> Iterator[Scenario]:
    yield _kyverno(
        "label",
        [
            mutating(ADDED, name="a", autogen={"podControllers": {"controllers": []}}),
            validating(check("object.metadata.?labels.?added.orValue('') == 'yes'", "not added"), name="b"),
        ],
        post(pod()),
        post(pod("dry"), dry=True),
        patch(f"{PODS}/web", {"metadata": {"labels": {"added": "no"}}}),
        post(deployment()),
    )
    containers = (
        "Object{spec: Object.spec{containers: object.spec.containers.map(c, "
        "Object.spec.containers{name: c.name, imagePullPolicy: 'Always'})}}"
    )
    yield _kyverno(
        "mutating-autogen",
        [mutating(containers)],
        post(pod()),
        post(deployment()),
        post(workload("CronJob", "c")),
    )
    yield _kyverno(
        "json-patch",
        [
            mutating(
                "[JSONPatch{op: 'test', path: '/kind', value: 'Pod'}, "
                "JSONPatch{op: 'add', path: '/metadata/annotations', "
                "value: {'n': string(object.spec.containers.size())}}]",
                "[JSONPatch{op: 'add', path: '/spec/containers/-', "
                "value: dyn({'name': dyn('b'), 'image': variables.first})}]",
                variables=named(first="object.spec.containers[0].image"),
                autogen={"podControllers": {"controllers": []}},
                matchConstraints=matching(rule("pods", operations=["CREATE"])),
            )
        ],
        post(pod()),
    )
    yield _kyverno(
        "mutating-error", [mutating(f"Object{{spec: Object.spec{{hostNetwork: {MISSING}}}}}")], post(pod())
    )
    yield _kyverno(
        "mutating-error-ignore",
        [mutating(f"Object{{spec: Object.spec{{hostNetwork: {MISSING}}}}}", failurePolicy="Ignore")],
        post(pod()),
    )
    yield _kyverno(
        "mutating-atomic",
        [
            mutating(
                "Object{spec: Object.spec{containers: ["
                "Object.spec.containers{name: 'main', command: ['a']}]}}"
            )
        ],
        post(pod()),
    )


def _mutated_requests() -> Iterator[Scenario]:
    """Yield scenarios about which requests are changed, and about the object that a mutation sees."""
    alone: Json = {"autogen": {"podControllers": {"controllers": []}}}
    config_maps = matching(rule("configmaps"))
    yield _kyverno(
        "namespaced-mutating",
        [mutating(ADDED, inside="namespaced-mutating", **alone)],
        post(pod()),
        post(deployment()),
    )
    old = "Object.metadata.annotations{old: oldObject.?data.?a.orValue('none')}"
    yield _kyverno(
        "mutating-update",
        [
            mutating(
                f"Object{{metadata: Object.metadata{{annotations: {old}}}}}", matchConstraints=config_maps
            )
        ],
        post(config_map(a="1")),
        patch(within("configmaps/settings"), {"data": {"a": "2"}}),
        patch(within("configmaps/settings"), {"data": {"a": "3"}}),
    )
    yield _kyverno(
        "mutating-deletion",
        [mutating(ADDED, matchConstraints=config_maps)],
        post(config_map()),
        Operation("DELETE", within("configmaps/settings")),
    )
    yield _kyverno(
        "mutating-scale",
        [
            mutating(
                "[JSONPatch{op: 'replace', path: '/spec/replicas', value: 1}]",
                matchConstraints=matching(rule("apps:deployments/scale")),
            )
        ],
        post(deployment()),
        patch(deployments("shop/scale"), {"spec": {"replicas": 3}}),
    )
    yield _kyverno(
        "failing-patch",
        [mutating("[JSONPatch{op: 'remove', path: '/metadata/labels/absent'}]")],
        post(pod()),
        post(labelled("labelled", a="b")),
        post(deployment()),
    )


def _cel_rules() -> Iterator[Scenario]:
    cel, policy = cel_rules.cel, cel_rules.policy
    deployed = {"any": [{"resources": {"kinds": ["Pod", "Deployment"], "operations": ["CREATE"]}}]}
    labels = {"any": [{"resources": {"kinds": ["ConfigMap"], "selector": {"matchLabels": {"a": "b"}}}}]}
    no = check("false", "no")
    yield _kyverno(
        "rule",
        [
            policy(
                cel(UNPRIVILEGED, name="privileged", message_="not this"),
                cel(check("!object.spec.?hostNetwork.orValue(false)"), name="host", message_="host network"),
            )
        ],
        post(pod()),
        post(pod("host", hostNetwork=True)),
        post(pod("both", hostNetwork=True, containers=PRIVILEGED)),
        post(deployment()),
        *(
            post(workload(kind, kind.lower(), hostNetwork=True, containers=PRIVILEGED))
            for kind in ("Deployment", "CronJob")
        ),
        patch(deployments("shop"), {"spec": {"template": {"spec": {"containers": PRIVILEGED}}}}),
    )
    yield _kyverno(
        "rule-audit", [policy(cel(no), validationFailureAction="Audit")], post(pod()), post(deployment())
    )
    yield _kyverno(
        "rule-warn", [policy(cel(no), validationFailureAction="Audit", emitWarning=True)], post(pod())
    )
    yield _kyverno("rule-error", [policy(cel(check(MISSING, "no")))], post(pod()))
    yield _kyverno(
        "rule-match",
        [
            policy(
                cel(no, name="deployed", match=deployed, exclude=_named("free*")),
                cel(check("object.data.size() < 2", by="string(object.data.size())"), name="a", match=labels),
            )
        ],
        *(post(pod(name)) for name in ("free", "free-2", "bound")),
        post(workload("Deployment", "free")),
        post(deployment()),
        post(workload("StatefulSet", "s")),
        post(config_map("one", {"a": "b"}, x="1")),
        post(config_map("two", {"a": "b"}, x="1", y="2")),
        post(config_map("three", {"a": "c"}, x="1", y="2")),
        patch(within("configmaps/one"), {"data": {"y": "2"}}),
        Operation("DELETE", within("configmaps/three")),
    )
    yield _kyverno(
        "rule-condition",
        [policy(cel(no, celPreconditions=named(a="object.metadata.name != 'skipped'")))],
        post(pod("skipped")),
        post(pod()),
    )
    bindings = within("rolebindings", f"{RBAC}/v1")
    alice = {"kind": "User", "name": ALICE, "apiGroup": RBAC}
    freed = cel_rules.bound("rule-roles-freed", alice, inside="rule-roles")
    config_maps = {"any": [{"resources": {"kinds": ["ConfigMap"]}}]}
    # Kyverno takes no roles in policies that scan stored objects.
    by_role = policy(
        cel(no, match=config_maps, exclude={"clusterRoles": ["rule-roles-freed"]}), background=False
    )
    by_alice = post(config_map(), dry=True, user=ALICE)
    yield replace(
        _kyverno(
            "rule-roles",
            [by_role],
            by_alice,
            Operation("POST", bindings, freed),
            by_alice,
            post(config_map(), dry=True),
            Operation("DELETE", within("rolebindings/rule-roles-freed", f"{RBAC}/v1")),
            by_alice,
        ),
        awaited={2: 201, 5: 400},
    )
    yield _kyverno("rule-inside", [policy(cel(no), inside="rule-inside")], post(pod()), post(deployment()))


def _named(pattern: str) -> Json:
    return {"any": [{"resources": {"names": [pattern]}}]}


def _constraints() -> Iterator[Scenario]:
    labels = {"labels": {"type": "array", "items": {"type": "string"}, "default": ["owner"]}}
    needs = template(
        "NeedsLabels",
        {
            "expression": "variables.missing.size() == 0",
            "messageExpression": "'missing labels: ' + variables.missing.join(', ')",
        },
        {"expression": "variables.labels.all(key, key != 'wrong')", "message": "a wrong label"},
        {"expression": "!('text' in variables.labels)"},
        schema={"type": "object", "properties": labels},
        variables=named(
            labels="variables.anyObject.metadata.?labels.orValue({})",
            missing="variables.params.labels.filter(key, !(key in variables.labels))",
        ),
    )
    pods = [{"apiGroups": [""], "kinds": ["Pod"]}]
    both = [{"apiGroups": ["", "apps"], "kinds": ["Pod", "Deployment"]}]

    def owners(name: str = "c", **spec: Any) -> Json:
        known = {"match": {"kinds": both}, "parameters": {}}
        return constraint("NeedsLabels", name, **{**known, **spec})

    yield _gatekeeper(
        "violations",
        [needs, owners(), owners("b", parameters={"labels": ["team", "cost"]})],
        post(pod()),
        post(labelled("wrong", wrong="", text="")),
        post(labelled("right", owner="a", team="b", cost="c")),
        post(deployment()),
        post(config_map()),
        patch(f"{PODS}/right", {"metadata": {"labels": {"owner": None, "wrong": "a"}}}),
        patch(f"{PODS}/right{DRY}", {"metadata": {"labels": {"other": "a"}}}),
        Operation("DELETE", f"{PODS}/right"),
    )
    yield _gatekeeper(
        "warned", [owners(enforcementAction="warn")], post(pod()), post(labelled("o", owner="a"))
    )
    yield _gatekeeper("dry-run", [owners(enforcementAction="dryrun")], post(pod()))
    yield _gatekeeper("unknown-action", [owners(enforcementAction="reject")], post(pod()))
    webhook = "validation.gatekeeper.sh"
    yield _gatekeeper(
        "scoped",
        [
            owners("a", **scoped(("warn", webhook), ("deny", "*"))),
            owners("b", **scoped(("deny", "audit.gatekeeper.sh"))),
            owners("c", **scoped(("warn", "*")), parameters={"labels": ["team"]}),
        ],
        post(pod()),
        post(deployment(), dry=True),
    )
    selected = {"matchExpressions": [{"key": "free", "operator": "DoesNotExist"}]}
    yield _gatekeeper(
        "matching",
        [
            owners("a", match={"kinds": pods, "labelSelector": selected}),
            owners("b", match={"namespaces": ["match*"], "name": "special*"}),
            owners("c", match={"namespaces": ["*ching"], "excludedNamespaces": ["matching"]}),
            owners("d", match={"scope": "Cluster", "namespaces": ["matching"]}),
        ],
        post(labelled("special", free="yes")),
        post(labelled("other", free="yes")),
        post(labelled("bound")),
        post(labelled("owned", owner="a")),
        patch(f"{PODS}/owned", {"metadata": {"labels": {"owner": None, "free": "yes"}}}),
        post(labelled("special-", free="yes")),
    )
    yield _gatekeeper(
        "conditioned",
        [
            template(
                "Conditioned",
                {"expression": "object.spec.hostNetwork == false", "message": "not reached"},
                "variables.params == null",
                matchCondition=named(named="variables.anyObject.metadata.name != 'skipped'"),
            ),
            constraint("Conditioned", match={"kinds": pods}),
        ],
        post(pod("skipped")),
        post(pod()),
        post(pod("host", hostNetwork=True)),
    )
    yield _gatekeeper(
        "forgiving",
        [
            template("Forgiving", "object.spec.hostNetwork == false", failurePolicy="Ignore"),
            constraint("Forgiving", match={"kinds": pods}),
        ],
        post(pod()),
        post(pod("host", hostNetwork=True)),
    )
    yield _gatekeeper(
        DELETIONS,
        [
            template(
                "Undeletable",
                {"expression": "!has(oldObject.metadata.labels)", "message": "it has labels"},
                "request.operation == 'DELETE' && object == null",
                operations=["DELETE"],
            ),
            constraint("Undeletable", match={"kinds": pods}),
        ],
        *(post(each) for each in (labelled("kept", keep="yes"), pod("gone"))),
        *(Operation("DELETE", f"{PODS}/{name}") for name in ("kept", "gone")),
    )
    yield _gatekeeper(
        "namespaces",
        [constraint("NeedsLabels", match={"name": "special-ns*"}, parameters={"labels": ["owner"]})],
        *(
            Operation(
                "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": each}
            )
            for each in ({"name": "special-ns1"}, {"name": "special-ns2", "labels": {"owner": "a"}})
        ),
        patch("/api/v1/namespaces/special-ns2", {"metadata": {"labels": {"owner": None}}}),
        Operation("POST", "/api/v1/namespaces/special-ns2/pods", pod("special-ns3")),
        Operation("POST", "/api/v1/namespaces/special-ns2/pods", pod("other")),
    )


def _texts() -> Iterator[Scenario]:
    """Yield scenarios about messages, parameters and the request in Gatekeeper."""
    pods = [{"apiGroups": [""], "kinds": ["Pod"]}]
    by = "messageExpression"
    texts = template(
        "Texts",
        {"expression": "false", by: "string(object.spec.absent)", "message": "fallback"},
        {"expression": "false", by: "''", "message": "of the message"},
        {"expression": "false", by: r"'one\ntwo'"},
        {"expression": "false", by: "'  blanks '"},
        {"expression": MISSING, "message": "error"},
    )
    yield _gatekeeper("texts", [texts, constraint("Texts", match={"kinds": pods})], post(pod()))
    warned = constraint("Texts", match={"kinds": pods}, enforcementAction="warn")
    yield _gatekeeper("warned-texts", [warned], post(pod()))
    inner = {"b": {"type": "integer", "default": 3}, "c": {"type": "string", "default": "d"}}
    nested = {"a": {"type": "object", "default": {}, "properties": inner}}
    defaults = template(
        "Defaults",
        {"expression": "false", by: "string(variables.params.a.b) + variables.params.a.c"},
        schema={"type": "object", "properties": nested},
    )
    yield _gatekeeper(
        "defaults",
        [
            defaults,
            constraint("Defaults", "a", match={"kinds": pods}, parameters={}),
            constraint("Defaults", "b", match={"kinds": pods}, parameters={"a": {"b": 5}}),
        ],
        post(pod()),
    )
    members = ("userInfo.username", "operation", "namespace", "resource.resource", "name")
    shown = " + ' ' + ".join(f"request.{member}" for member in members)
    yield _gatekeeper(
        "request-gatekeeper",
        [
            template("Shown", {"expression": "false", by: f"{shown} + ' ' + string(request.dryRun)"}),
            constraint("Shown", match={"kinds": [{"apiGroups": ["*"], "kinds": ["*"]}]}),
        ],
        post(pod()),
        post(pod(), dry=True, user=ALICE),
        post(deployment()),
    )
    cost = "object.metadata.name != ''"
    for name in "edcba":
        cost = f"[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].all({name}, {cost})"
    yield _gatekeeper(
        "cost",
        [
            template("Cost", {"expression": cost}, {"expression": "false", "message": "after"}),
            constraint("Cost", match={"kinds": pods}),
        ],
        post(pod()),
    )


_CHECKS: Final = {
    "privileged": "{spec}.containers.all(c, !c.?securityContext.?privileged.orValue(false))",
    "latest": "{spec}.containers.all(c, !c.image.endsWith(':latest') && c.image.contains(':'))",
    "limits": "{spec}.containers.all(c, has(c.resources) && has(c.resources.limits)"
    " && 'memory' in c.resources.limits)",
    "host": "!{spec}.?hostNetwork.orValue(false) && !{spec}.?hostPID.orValue(false)",
    "owner": "has(object.metadata.labels) && object.metadata.labels.owner.startsWith('team-')",
}


def _drawn_object(chosen: random.Random, number: int) -> Json:
    def container(index: int) -> Json:
        made: Json = {
            "name": f"c{index}",
            "image": chosen.choice(
                ("a", "a:1", "a:latest", "registry.test:5000/a:1", "registry.test/b:2", "b:3")
            ),
        }
        if chosen.random() < 0.5:
            made["securityContext"] = chosen.choice(
                ({"privileged": True}, {"privileged": False}, {"runAsNonRoot": True}, {}, {"runAsUser": 1})
            )
        if chosen.random() < 0.8:
            made["resources"] = chosen.choice(
                ({"limits": {"memory": "64Mi"}}, {"limits": {"cpu": "1"}}, {"requests": {"cpu": "1"}})
            )
        return made

    spec: Json = {"containers": [container(index) for index in range(chosen.choice((1, 1, 2, 3)))]}
    if chosen.random() < 0.3:
        spec[chosen.choice(("hostNetwork", "hostPID"))] = chosen.random() < 0.7
    if chosen.random() < 0.5:
        made = pod(f"o{number}", **spec)
    else:
        made = workload("Deployment", f"o{number}", **spec)
    if chosen.random() < 0.9:
        owner = chosen.choice(("team-a", "team-b", "nobody"))
        made["metadata"]["labels"] = chosen.choice(
            ({"owner": owner}, {"owner": owner, "x": "y"}, {"owner": owner}, {"x": "y"})
        )
    return made


def drawn(namespace: str, seed: int = 34) -> tuple[Operation, ...]:
    """Return creations of drawn Pods and Deployments, most of them dry runs."""
    chosen = random.Random(f"{namespace} {seed}")
    return tuple(
        post(_drawn_object(chosen, number), dry=chosen.random() < 0.7, user=chosen.choice(("admin", ALICE)))
        for number in range(DRAWN)
    )


def _drawn() -> Iterator[Scenario]:
    actions = {"limits": ["Warn"], "host": ["Audit"]}
    policies = [
        validating(
            check(text.format(spec="object.spec"), f"violates {name}"),
            name=name,
            validationActions=actions.get(name, ["Deny"]),
        )
        for name, text in _CHECKS.items()
    ]
    containers = (
        "Object{spec: Object.spec{containers: object.spec.containers.filter(c, !has(c.resources)).map(c, "
        "Object.spec.containers{name: c.name, imagePullPolicy: 'Always'})}}"
    )
    yield _kyverno("drawn-kyverno", [*policies, mutating(containers, name="pull")], *drawn("drawn-kyverno"))
    spec = "variables.spec"
    variables = named(
        spec="variables.anyObject.kind == 'Pod'"
        " ? variables.anyObject.spec : variables.anyObject.spec.template.spec"
    )
    templates = [
        template(
            f"Drawn{name.title()}",
            {"expression": text.format(spec=spec), "message": f"violates {name}"},
            variables=variables,
        )
        for name, text in _CHECKS.items()
    ]
    kinds = [{"apiGroups": ["*"], "kinds": ["Pod", "Deployment"]}]
    listed = [
        constraint(
            f"Drawn{name.title()}",
            match={"kinds": kinds},
            enforcementAction={"limits": "warn", "host": "dryrun"}.get(name, "deny"),
        )
        for name in _CHECKS
    ]
    yield _gatekeeper("drawn-gatekeeper", [*templates, *listed], *drawn("drawn-gatekeeper"))


SCENARIOS: Final = (
    *_validating(),
    *_requests(),
    *_mutating(),
    *_mutated_requests(),
    *_cel_rules(),
    *_constraints(),
    *_texts(),
    *_drawn(),
)


def _canaries() -> Iterator[Scenario]:
    yield _kyverno(
        "zz-validating",
        [validating(check("false", "in force"), matchConstraints=matching(rule("configmaps")))],
        post(config_map(), dry=True),
    )
    yield _kyverno(
        "zz-namespaced",
        [
            validating(
                check("false", "in force"),
                matchConstraints=matching(rule("configmaps")),
                inside="zz-namespaced",
            )
        ],
        post(config_map(), dry=True),
    )
    yield _kyverno(
        "zz-mutating",
        [
            mutating(
                "[JSONPatch{op: 'add', path: '/data', value: object.spec.absent}]",
                matchConstraints=matching(rule("configmaps")),
            )
        ],
        post(config_map(), dry=True),
    )
    config_maps = {"any": [{"resources": {"kinds": ["ConfigMap"]}}]}
    for inside in ("", "zz-rule-inside"):
        yield _kyverno(
            inside or "zz-rule",
            [cel_rules.policy(cel_rules.cel(check("false"), match=config_maps), inside=inside)],
            post(config_map(), dry=True),
        )
    yield _gatekeeper(
        "zz-constraint", [template("ZzCanary", "false"), constraint("ZzCanary")], post(config_map(), dry=True)
    )


CANARIES: Final = tuple(_canaries())
"""Each refuses its operation, when it and all of its kind are in force: it is made after them."""


@dataclass(frozen=True)
class Step:
    """Changes of the cluster, and operations under its new state, which change nothing."""

    changes: tuple[Operation, ...]
    operations: tuple[Operation, ...]


LIMITS: Final = 'resource.Get("v1", "configmaps", "reading", "limits")'


def _reading() -> Scenario:
    """Return policies that read ConfigMaps of their namespace, and the namespace itself.

    At most one of them refuses an operation: Kyverno registers those with matchConditions by themselves, and
    the API server shows the denial of one webhook.
    """
    limits = named(limits=LIMITS)
    others = "object.metadata.?labels[?'team'].orValue('') != 'nobody'"
    return _kyverno(
        "reading",
        [
            validating(
                check("dyn(variables.limits) != null", "there are no limits"),
                check("object.metadata.labels.team in variables.limits.data", "the team has no limit"),
                name="get",
                variables=limits,
                matchConditions=named(others=others),
            ),
            validating(
                check('resource.List("v1", "configmaps", "reading").items.size() < 4', "too many"),
                check(
                    'resource.list("v1", "configmaps", "reading", {"open": "no"}).items.size() == 0',
                    by='"closed by " + resource.List("v1", "configmaps", "reading", {"open": "no"})'
                    ".items[0].metadata.name",
                ),
                name="list",
            ),
            validating(
                check(
                    'dyn(resource.List("v1", "configmaps")).items.all(c, c.metadata.name != "stop")',
                    "stopped",
                ),
                check('dyn(resource.Get("v1", "configmaps", "never")) == null', "never"),
                inside="reading",
                name="own",
            ),
            validating(
                check(
                    'resource.Get("v1", "namespaces", "", "reading").metadata.?labels[?"tier"]'
                    '.orValue("") != "closed"',
                    "the namespace is closed",
                ),
                name="namespace",
            ),
            validating(
                check('resource.Get("v1", "configmaps", "reading", "none").data.a == "b"', "no"),
                name="nobody",
                matchConditions=named(nobody=f"!({others})"),
            ),
            mutating(
                f"[JSONPatch{{op: 'add', path: '/metadata/labels/most', value: {LIMITS}.data.shop}}]",
                name="label",
                matchConditions=named(
                    given=f"dyn({LIMITS}) != null && 'shop' in {LIMITS}.data", others=others
                ),
            ),
        ],
    )


def _steps() -> Iterator[Step]:
    maps, space = within("configmaps"), "/api/v1/namespaces/{namespace}"
    probes = tuple(post(labelled("web", team=team), dry=True) for team in ("shop", "search"))
    yield Step((), (*probes, post(labelled("web", team="nobody"), dry=True)))
    yield Step((post(config_map("limits", shop="3")),), probes)
    yield Step((patch(f"{maps}/limits", {"data": {"shop": "4", "search": "1"}}),), probes)
    yield Step((post(config_map("door", {"open": "no"})),), probes)
    yield Step((patch(f"{maps}/door", {"metadata": {"labels": {"open": "yes"}}}),), probes)
    yield Step((patch(space, {"metadata": {"labels": {"tier": "closed"}}}),), probes)
    yield Step((patch(space, {"metadata": {"labels": {"tier": None}}}),), probes)
    yield Step((post(config_map("stop")),), probes)
    yield Step((Operation("DELETE", f"{maps}/stop"),), probes)
    yield Step((post(config_map("a")), post(config_map("b"))), probes)
    yield Step((Operation("DELETE", f"{maps}/limits"),), probes)


READING: Final = _reading()
READ: Final[list[Json]] = [
    {"apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps"},
    {"apiVersion": "v1", "kind": "Namespace", "resource": "namespaces"},
]
"""The kinds that the policies of ``READING`` read."""
STEPS: Final = tuple(_steps())
"""What is done in its namespace."""


def of_engine(scenarios: tuple[Scenario, ...], *groups: str) -> list[Scenario]:
    """Return those of *scenarios* whose documents are of one of *groups*."""
    return [each for each in scenarios if each.documents[0]["apiVersion"].partition("/")[0] in groups]
