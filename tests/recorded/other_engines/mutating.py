"""Cases of Kyverno's MutatingPolicy, NamespacedMutatingPolicy and their exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.recorded.other_engines.cases import (
    FOLDER,
    NAMESPACES,
    PODS,
    Case,
    create,
    delete,
    exception,
    matching,
    mutating,
    named,
    pod,
    pod_spec,
    rule,
    thing,
    update,
    workload,
)

if TYPE_CHECKING:
    Json = dict[str, Any]

FILE: Final = FOLDER / "mutating.json"
LABEL: Final = "Object{metadata: Object.metadata{labels: Object.metadata.labels{added: 'yes'}}}"
HOST: Final = "Object{spec: Object.spec{hostNetwork: true}}"
ERROR: Final = "Object{spec: Object.spec{hostNetwork: object.spec.absent}}"
APPEND: Final = "[JSONPatch{op: 'add', path: '/spec/containers/-', value: dyn({'name': 'b', 'image': 'b'})}]"
COUNT: Final = "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'n': string(%s)}}]"
CONTAINERS: Final = (
    "Object{spec: Object.spec{containers: object.spec.containers.map(c, "
    "Object.spec.containers{name: c.name, imagePullPolicy: 'Never'})}}"
)
DEPLOYMENT: Final = create(workload("Deployment"))
CASES: Final[list[Case]] = []


def case(name: str, shows: str, *policies: Json, on: Json | None = None, **more: Any) -> None:
    """Add a case: the request *on*, by default the creation of a Pod."""
    question = {"policies": list(policies), "namespaces": NAMESPACES, "request": on or create(pod()), **more}
    CASES.append(Case(name, shows, question))


# -- mutations ------------------------------------------------------------------------------------

case("apply", "An ApplyConfiguration is merged into the object.", mutating(LABEL))
case("apply-spec", "An ApplyConfiguration is merged into the object.", mutating(HOST))
case(
    "apply-list",
    "Items of a list with keys are merged by their keys.",
    mutating(
        "Object{spec: Object.spec{containers: ["
        "Object.spec.containers{name: 'c0', imagePullPolicy: 'Always'}]}}"
    ),
)
case(
    "apply-list-new",
    "Items with new keys are added.",
    mutating(
        "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'i', image: 'i'}]}}"
    ),
)
case(
    "apply-computed",
    "An ApplyConfiguration may be computed from the object.",
    mutating(CONTAINERS),
    on=create(pod("a", "b")),
)
case(
    "apply-labels-literal",
    "Labels may be a map.",
    mutating("Object{metadata: Object.metadata{labels: {'a': 'b'}}}"),
)
case(
    "apply-atomic",
    "A list that is replaced as a whole is refused.",
    mutating("Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c0', command: ['a']}]}}"),
)
case("apply-same", "A mutation that changes nothing leaves the object.", mutating("Object{}"))
case(
    "apply-type-name",
    "A type has the name of the path of its field.",
    mutating("Object{spec: Object.metadata{}}"),
)
case(
    "apply-kind",
    "A kind without a schema has no ApplyConfiguration.",
    mutating(LABEL, matchConstraints=matching(rule("example.io:widgets"))),
    on=create(thing("Widget", {})),
)
case(
    "patch",
    "A JSON Patch is applied.",
    mutating("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]"),
)
case("patch-append", "A JSON Patch appends to a list.", mutating(APPEND))
case("patch-empty", "An empty list is not known to be a JSON Patch.", mutating("[]"))
case(
    "patch-remove",
    "A JSON Patch removes.",
    mutating("[JSONPatch{op: 'remove', path: '/metadata/labels/a'}]"),
    on=create(pod(labels={"a": "b", "c": "d"})),
)
case(
    "patch-remove-absent",
    "A path that does not exist is an error.",
    mutating("[JSONPatch{op: 'remove', path: '/metadata/labels/a'}]"),
)
case(
    "patch-test",
    "A test that fails voids its patch, and the next mutation goes on.",
    mutating(
        "[JSONPatch{op: 'test', path: '/kind', value: 'Node'}, "
        "JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]",
        HOST,
    ),
)
case(
    "patch-test-holds",
    "A test that holds changes nothing.",
    mutating(
        "[JSONPatch{op: 'test', path: '/kind', value: 'Pod'}, "
        "JSONPatch{op: 'remove', path: '/metadata/labels'}]"
    ),
    on=create(pod(labels={"a": "b"})),
)
case(
    "patch-copy-move",
    "A JSON Patch copies and moves.",
    mutating(
        "[JSONPatch{op: 'copy', from: '/metadata/name', path: '/metadata/generateName'}, "
        "JSONPatch{op: 'move', from: '/metadata/labels/a', path: '/metadata/labels/z'}]"
    ),
    on=create(pod(labels={"a": "b"})),
)
case(
    "patch-escape",
    "jsonpatch.escapeKey escapes a key.",
    mutating(
        "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a.b/c~d'), value: 'e'}]"
    ),
    on=create(pod(labels={"a": "b"})),
)
case(
    "patch-number",
    "A value may be a number or a list.",
    mutating("[JSONPatch{op: 'add', path: '/spec/terminationGracePeriodSeconds', value: 5}]"),
)
case(
    "patch-conditional",
    "A JSON Patch may be conditional.",
    mutating(
        "[true].filter(x, !has(object.spec.hostNetwork)).map(x, "
        "JSONPatch{op: 'add', path: '/spec/hostNetwork', value: x})"
    ),
)
case(
    "both",
    "Mutations see the object as those before them left it.",
    mutating(APPEND, COUNT % "object.spec.containers.size()"),
)
case(
    "both-kinds",
    "Both types of mutations follow each other.",
    mutating(
        LABEL, "[JSONPatch{op: 'add', path: '/metadata/labels/b', value: object.metadata.labels.added}]"
    ),
)
case(
    "request-object",
    "request.object stays as it was.",
    mutating(APPEND, COUNT % "request.object.spec.containers.size()"),
)

# -- variables ------------------------------------------------------------------------------------

COUNTED: Final = named(n="object.spec.containers.size()")
case("variable", "A mutation reads variables.", mutating(COUNT % "variables.n", variables=COUNTED))
case(
    "variable-cached",
    "A variable keeps the value that it had when it was first read.",
    mutating(
        "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'n': string(variables.n)}}]",
        APPEND,
        COUNT % "variables.n",
        variables=COUNTED,
    ),
)
case(
    "variable-late",
    "A variable that is first read after a mutation sees its result.",
    mutating(APPEND, COUNT % "variables.n", variables=COUNTED),
)
case(
    "variable-in-condition",
    "Conditions know variables, whose values stay.",
    mutating(APPEND, COUNT % "variables.n", variables=COUNTED, matchConditions=named(a="variables.n == 1")),
)
case(
    "variable-unused",
    "A variable that nobody reads is not evaluated.",
    mutating(LABEL, variables=named(v="object.spec.absent")),
)
case(
    "variable-error",
    "The error of a variable is that of the mutation.",
    mutating(COUNT % "variables.v", variables=named(v="object.spec.absent")),
)

# -- errors and conditions ------------------------------------------------------------------------

case("error", "A mutation without a value refuses the request.", mutating(ERROR))
case(
    "error-ignore",
    "Under failurePolicy Ignore the policy is left out.",
    mutating(ERROR, failurePolicy="Ignore"),
)
case("error-after", "An error drops the mutations before it.", mutating(LABEL, ERROR, failurePolicy="Ignore"))
case("error-before", "An error drops the mutations after it.", mutating(ERROR, LABEL, failurePolicy="Ignore"))
case(
    "error-and-other",
    "Other policies go on after an error.",
    mutating(ERROR, name="a", failurePolicy="Ignore"),
    mutating(LABEL, name="b"),
)
case(
    "errors",
    "The errors of several policies are in one answer.",
    mutating(ERROR, name="a"),
    mutating(LABEL, name="b"),
    mutating(ERROR, name="c"),
    mutating(ERROR, name="d", failurePolicy="Ignore"),
)
case(
    "error-name",
    "The answer names the object of the request.",
    mutating(ERROR),
    on=create(pod(name=None, generateName="web-")),
)
case(
    "condition-false",
    "A condition that is false skips the policy.",
    mutating(LABEL, matchConditions=named(a="false")),
)
case(
    "condition-error",
    "A condition without a value refuses the request.",
    mutating(LABEL, matchConditions=named(a="object.spec.absent == 1")),
)
case(
    "condition-error-ignore",
    "Under failurePolicy Ignore such a condition leaves the policy out.",
    mutating(LABEL, matchConditions=named(a="object.spec.absent == 1"), failurePolicy="Ignore"),
)
case(
    "condition-error-then-false",
    "A condition that is false counts more than an error.",
    mutating(LABEL, matchConditions=named(a="object.spec.absent == 1", b="false")),
)
case(
    "condition-errors",
    "The errors of conditions are joined by a semicolon.",
    mutating(LABEL, matchConditions=named(a="object.spec.absent == 1", b="object.spec.other == 1")),
)
case(
    "annotation",
    "Audit annotations are not in the answer.",
    mutating(LABEL, auditAnnotations=[{"key": "k", "valueExpression": "'a' + object.metadata.labels.added"}]),
)
case(
    "annotation-error",
    "An audit annotation without a value drops the mutations.",
    mutating(LABEL, auditAnnotations=[{"key": "k", "valueExpression": "string(object.spec.absent)"}]),
)
case(
    "annotation-error-ignore",
    "An audit annotation without a value drops the mutations.",
    mutating(
        LABEL,
        auditAnnotations=[{"key": "k", "valueExpression": "string(object.spec.absent)"}],
        failurePolicy="Ignore",
    ),
)
case("refused-type", "A mutation has to be an Object or a list of JSONPatch.", mutating("1"))
case(
    "refused-unknown",
    "A mutation with an unknown variable does not compile.",
    mutating(COUNT % "variables.v"),
)
case(
    "refused-authorizer",
    "There is no authorizer.",
    mutating(LABEL, matchConditions=named(a="authorizer.path('/x').check('get').allowed()")),
)

# -- several policies -----------------------------------------------------------------------------

case(
    "in-order",
    "Policies see the object as those before them left it.",
    mutating(APPEND, name="a"),
    mutating(COUNT % "object.spec.containers.size()", name="b"),
)
case(
    "in-order-condition",
    "Conditions see the object as policies before left it.",
    mutating(APPEND, name="a"),
    mutating(LABEL, name="b", matchConditions=named(a="object.spec.containers.size() == 2")),
)
case(
    "in-order-selector",
    "Selectors see the object as policies before left it.",
    mutating(LABEL, name="a"),
    mutating(HOST, name="b", matchConstraints=matching(objectSelector={"matchLabels": {"added": "yes"}})),
)
case(
    "in-order-reverse",
    "A policy does not see what a later one makes.",
    mutating(LABEL, name="b"),
    mutating(HOST, name="a", matchConstraints=matching(objectSelector={"matchLabels": {"added": "yes"}})),
)
case(
    "not-again",
    "Policies are not applied a second time.",
    mutating(COUNT % "object.spec.containers.size()", name="a", reinvocationPolicy="IfNeeded"),
    mutating(APPEND, name="b"),
)
case(
    "old-object",
    "oldObject stays as it was.",
    mutating(LABEL, name="a"),
    mutating(COUNT % "oldObject.metadata.name", name="b"),
    on=update(pod(labels={"a": "b"}), pod()),
)
case("namespaced", "A namespaced policy has the objects of its namespace.", mutating(LABEL, inside="default"))
case(
    "namespaced-other",
    "A namespaced policy has no objects of other namespaces.",
    mutating(LABEL, inside="prod"),
)
case(
    "namespaced-after",
    "Namespaced policies come after the others, in a webhook of their own.",
    mutating(APPEND, name="z"),
    mutating(COUNT % "request.object.spec.containers.size()", name="a", inside="default"),
)
case(
    "targets",
    "A policy with targets does nothing to the object of the request.",
    mutating(LABEL, targetMatchConstraints=matching(rule("configmaps"))),
)
case(
    "mutate-existing",
    "evaluation.mutateExisting does not keep a policy from the request.",
    mutating(LABEL, evaluation={"mutateExisting": {"enabled": True}}),
)

# -- what matches, and what is absent -------------------------------------------------------------

case(
    "match-operation",
    "Operations are those of the rule.",
    mutating(LABEL, matchConstraints=matching(rule("pods", operations=["UPDATE"]))),
)
case(
    "match-namespace",
    "namespaceSelector looks at the namespace.",
    mutating(LABEL, matchConstraints=matching(namespaceSelector={"matchLabels": {"team": "blue"}})),
)
case(
    "namespace-object",
    "namespaceObject is the namespace of the request.",
    mutating(COUNT % "namespaceObject.metadata.labels.team"),
)
case(
    "namespace-unknown",
    "namespaceObject of an unknown namespace is null.",
    mutating(COUNT % "namespaceObject == null"),
    on=create(pod(namespace="nowhere")),
)
case(
    "absent",
    "The old object of a CREATE is an empty object.",
    mutating(COUNT % "oldObject == null) + string(size(oldObject) == 0) + string(request.oldObject == null"),
)
case(
    "delete",
    "At DELETE a condition sees an empty object.",
    mutating(LABEL, matchConditions=named(a="size(object) != 0")),
    on=delete(pod()),
)
case(
    "or-value",
    "orValue takes any value.",
    mutating(COUNT % "object.metadata.name.orValue('a') + object.?spec.?absent.orValue('b')"),
)

# -- exceptions -----------------------------------------------------------------------------------

MUTATING: Final = "MutatingPolicy"
case(
    "exception",
    "An exception without conditions always applies.",
    mutating(LABEL),
    exceptions=[exception(kind=MUTATING)],
)
case(
    "exception-false",
    "A condition that is false ends an exception.",
    mutating(LABEL),
    exceptions=[exception("false", kind=MUTATING)],
)
case(
    "exception-error",
    "A condition of an exception without a value refuses the request.",
    mutating(LABEL),
    exceptions=[exception("object.spec.absent == 1", kind=MUTATING)],
)
case(
    "exception-error-ignore",
    "Under failurePolicy Ignore such an exception leaves the policy out.",
    mutating(LABEL, failurePolicy="Ignore"),
    exceptions=[exception("object.spec.absent == 1", kind=MUTATING)],
)
case(
    "exception-values",
    "Values of an exception are for the policy to use.",
    mutating(COUNT % "exceptions.allowedValues.size()"),
    exceptions=[exception(kind=MUTATING, allowedValues=["a", "b"])],
)
case(
    "exception-values-in-conditions",
    "matchConditions of the policy can use values of an exception.",
    mutating(LABEL, matchConditions=named(a="!('a' in exceptions.allowedValues)")),
    exceptions=[exception(kind=MUTATING, allowedValues=["a"])],
)
case(
    "exception-running",
    "Conditions of exceptions see the object as policies before left it.",
    mutating(LABEL, name="a"),
    mutating(HOST),
    exceptions=[exception("object.metadata.labels.added == 'yes'", kind=MUTATING)],
)

# -- variants for workloads -----------------------------------------------------------------------

for kind in (
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "Job",
    "CronJob",
    "ReplicationController",
):
    case(
        f"variant-{kind}",
        f"A policy of Pods has a variant for {kind}, or none.",
        mutating(HOST),
        on=create(workload(kind)),
    )


def variant(name: str, shows: str, *mutations: str, on: Json = DEPLOYMENT, **spec: Any) -> None:
    """Add a case of a policy of Pods with *mutations* at the creation of a Deployment."""
    case(f"variant-{name}", shows, mutating(*mutations, **spec), on=on)


variant("labels", "Labels keep the name of their type, which is wrong in a template.", LABEL)
variant(
    "labels-literal",
    "Labels as a map keep it too.",
    "Object{metadata: Object.metadata{labels: {'a': 'b'}}}",
)
variant(
    "annotations",
    "Annotations keep it too.",
    "Object{metadata: Object.metadata{annotations: Object.metadata.annotations{a: 'b'}}}",
)
variant(
    "containers",
    "Containers are those of the template.",
    CONTAINERS,
)
variant(
    "patch", "Paths of a JSON Patch stay.", "[JSONPatch{op: 'add', path: '/spec/hostNetwork', value: true}]"
)
variant(
    "patch-expression",
    "Expressions of a JSON Patch stay.",
    "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'n': string(object.spec.containers.size())}}]",
)
variant("patch-container", "A JSON Patch of containers fails at a Deployment.", APPEND)
variant(
    "variables",
    "Variables stay.",
    "Object{metadata: Object.metadata{labels: Object.metadata.labels{n: string(variables.n)}}}",
    variables=COUNTED,
)
variant(
    "condition", "Conditions change.", HOST, matchConditions=named(a="object.spec.containers.size() == 1")
)
variant(
    "condition-labels",
    "Labels in conditions are those of the template.",
    HOST,
    matchConditions=named(a="object.metadata.labels.app == 'x'"),
)
variant(
    "condition-name",
    "object.metadata.name stays.",
    HOST,
    matchConditions=named(a="object.metadata.name == 'x'"),
)
variant(
    "condition-old",
    "oldObject changes.",
    HOST,
    matchConditions=named(a="oldObject.spec.containers.size() == 1"),
    on=update(workload("Deployment"), workload("Deployment")),
)
variant(
    "condition-longer",
    "A longer word before the dot stays.",
    HOST,
    matchConditions=named(a="myobject.spec == 1"),
)
variant(
    "blank-object",
    "A blank after Object does not prevent the change.",
    "Object {spec: Object.spec{hostNetwork: true}}",
)
variant(
    "not-object-first",
    "An expression that does not begin with Object is not wrapped.",
    "true ? Object{spec: Object.spec{hostNetwork: true}} : Object{}",
)
variant(
    "listed", "controllers lists the workloads.", HOST, autogen={"podControllers": {"controllers": ["jobs"]}}
)
variant("none", "An empty list switches variants off.", HOST, autogen={"podControllers": {"controllers": []}})
variant(
    "selector",
    "A policy with an objectSelector has no variants.",
    HOST,
    matchConstraints=matching(objectSelector={"matchLabels": {"app": "x"}}),
)
variant(
    "two-rules",
    "A policy with two rules has no variants.",
    HOST,
    matchConstraints=matching(PODS, rule("services")),
)
variant(
    "cron-job-labels", "The name of the type is longer for a CronJob.", LABEL, on=create(workload("CronJob"))
)
variant(
    "node-selector",
    "A map that is replaced as a whole is refused.",
    "Object{spec: Object.spec{nodeSelector: Object.spec.nodeSelector{a: 'b'}}}",
    on=create(workload("Deployment", pod_spec(nodeSelector={"c": "d"}))),
)
variant(
    "two",
    "A mutation that fails at a workload drops all of the policy.",
    HOST,
    APPEND,
    failurePolicy="Ignore",
)
