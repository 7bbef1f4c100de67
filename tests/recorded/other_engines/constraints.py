"""Cases of Gatekeeper's templates in CEL, constraints and Config.

Templates are for all operations: which requests Gatekeeper gets is in its registration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.gatekeeper.documents import constraint, excluding, template
from tests.recorded.other_engines.cases import (
    FOLDER,
    NAMESPACES,
    Case,
    check,
    create,
    delete,
    named,
    pod,
    thing,
    update,
    workload,
)

if TYPE_CHECKING:
    Json = dict[str, Any]

FILE: Final = FOLDER / "constraints.json"
NO: Final = template("No", check("false", "no"), operations=["*"])
SCHEMA: Final[Json] = {"type": "object", "properties": {"n": {"type": "integer"}}}
MISSING: Final = "object.spec.absent == 1"
CASES: Final[list[Case]] = []


def case(
    name: str, shows: str, templates: list[Json], constraints: list[Json], on: Json | None = None, **more: Any
) -> None:
    """Add a case: the request *on*, by default the creation of a Pod."""
    question = {"templates": templates, "constraints": constraints, "namespaces": NAMESPACES}
    CASES.append(Case(name, shows, {**question, "request": on or create(pod()), **more}))


def says(
    name: str, shows: str, *validations: Json, on: Json | None = None, parameters: Any = None, **source: Any
) -> None:
    """Add a case of a template with *validations* and one constraint."""
    spec = {} if parameters is None else {"parameters": parameters}
    case(
        name,
        shows,
        [template("T", *validations, schema=SCHEMA, operations=["*"], **source)],
        [constraint("T", **spec)],
        on,
    )


says("passes", "A request whose validations are true is allowed.", check("true"))
says("fails", "The message has the name of the constraint before it.", check("false", "no"))
says("no-message", "Without a message the violation has the expression.", check("1 == 2"))
says(
    "violations",
    "Every validation that is false is a violation, sorted by text.",
    check("false", "b"),
    check("true"),
    check("false", "a"),
)
says(
    "message-expression",
    "A messageExpression makes the message.",
    check("false", "no", by="'name is ' + object.metadata.name"),
)
says(
    "message-expression-error",
    "A messageExpression without a value gives way to the message.",
    check("false", "no", by="string(object.spec.absent)"),
)
says("message-lines", "A message of several lines is one violation.", check("false", by=r"'two\nlines'"))
says("error", "A validation without a value is a violation.", check(MISSING, "no"))
says("error-ignore", "With failurePolicy Ignore it is none.", check(MISSING, "no"), failurePolicy="Ignore")
says("error-and-failure", "An error does not end the evaluation.", check(MISSING), check("false", "no"))
says(
    "error-ignore-and-failure",
    "An error that is ignored does not end the evaluation.",
    check(MISSING),
    check("false", "no"),
    failurePolicy="Ignore",
)
says(
    "parameters",
    "variables.params are the parameters.",
    check("variables.params.n == 2", by="string(variables.params.n)"),
    parameters={"n": 1},
)
says(
    "parameters-none",
    "Without parameters variables.params is null.",
    check("variables.params == null", "some"),
)
says(
    "parameters-none-read",
    "A field of absent parameters is an error.",
    check("variables.params.n == 1", "no"),
)
says(
    "any-object",
    "variables.anyObject is the object.",
    check("variables.anyObject.metadata.name == 'y'", by="string(variables.anyObject.metadata.name)"),
)
says(
    "any-object-delete",
    "At DELETE variables.anyObject is the old object.",
    check("variables.anyObject.metadata.name == 'y'", by="string(variables.anyObject.metadata.name)"),
    on=delete(pod()),
)
says("object-delete", "At DELETE the object is null.", check("object != null", "null"), on=delete(pod()))
says("old-object", "At CREATE the old object is null.", check("oldObject != null", "null"))
says(
    "old-object-update",
    "At UPDATE both objects are there.",
    check("oldObject.metadata.labels.a == object.metadata.labels.a", "changed"),
    on=update(pod(labels={"a": "b"}), pod(labels={"a": "c"})),
)
says(
    "request",
    "The request is that of the API server.",
    check("request.operation != 'CREATE' || request.userInfo.username != 'jane'", "jane"),
)
says(
    "namespace-object",
    "namespaceObject is the namespace of the request.",
    check("namespaceObject.metadata.labels.team != 'red'", "red"),
)
says(
    "variables",
    "Variables are evaluated in their order.",
    check("variables.b == 3", by="string(variables.b)"),
    variables=named(a="object.spec.containers.size()", b="variables.a + 1"),
)
says(
    "variable-error",
    "The error of a variable is that of the validation.",
    check("variables.v == 1", "no"),
    variables=named(v="object.spec.absent"),
)
says(
    "condition-false",
    "A matchCondition that is false ends the evaluation.",
    check("false", "no"),
    matchCondition=named(a="false"),
)
says(
    "condition-true",
    "A matchCondition that is true does not.",
    check("false", "no"),
    matchCondition=named(a="true"),
)
says(
    "condition-error",
    "A matchCondition without a value is a violation.",
    check("true"),
    matchCondition=named(a=MISSING),
)
says(
    "condition-error-ignore",
    "With failurePolicy Ignore it is none.",
    check("false", "no"),
    matchCondition=named(a=MISSING),
    failurePolicy="Ignore",
)
says(
    "condition-error-then-false",
    "A matchCondition that is false counts more than an error.",
    check("false", "no"),
    matchCondition=named(a=MISSING, b="false"),
)
says("reserved-variable", "A variable may not be called params.", check("true"), variables=named(params="1"))
says(
    "reserved-prefix",
    "Names may not begin as Gatekeeper's own.",
    check("true"),
    variables=named(gatekeeper_internal_x="1"),
)
says("failure-policy", "failurePolicy is Fail or Ignore.", check("true"), failurePolicy="Maybe")

# -- constraints ----------------------------------------------------------------------------------

case(
    "two-constraints",
    "Violations of all constraints are in one answer, sorted by text.",
    [template("A", check("false", "z")), template("B", check("false", "a"))],
    [constraint("A", "c1"), constraint("B", "c2")],
)
for action in ("deny", "warn", "dryrun", "other", ""):
    case(
        f"action-{action or 'empty'}",
        f"enforcementAction {action or 'empty'}.",
        [NO],
        [constraint("No", enforcementAction=action)],
    )
case(
    "actions",
    "A denial and the warning of another constraint are in one answer.",
    [NO],
    [
        constraint("No", "a"),
        constraint("No", "b", enforcementAction="warn"),
        constraint("No", "d", enforcementAction="dryrun"),
    ],
)
case(
    "warning-long",
    "A warning may be longer than 256 characters.",
    [template("Long", check("false", "w" * 1000))],
    [constraint("Long", enforcementAction="warn")],
)
POINT: Final = "validation.gatekeeper.sh"
SCOPED: Final[dict[str, list[tuple[str, list[str]]]]] = {
    "deny": [("deny", [POINT])],
    "warn": [("warn", [POINT])],
    "both": [("deny", [POINT]), ("warn", [POINT])],
    "any": [("warn", ["*"])],
    "audit": [("deny", ["audit.gatekeeper.sh"])],
    "two": [("deny", ["audit.gatekeeper.sh"]), ("warn", [POINT, "gator.gatekeeper.sh"])],
    "dryrun": [("dryrun", [POINT])],
    "unknown": [("other", [POINT])],
    "unknown-beside": [("other", [POINT]), ("deny", [POINT])],
    "twice": [("warn", [POINT]), ("warn", ["*"])],
    "none": [],
}
for name, entries in SCOPED.items():
    actions = [
        {"action": action, "enforcementPoints": [{"name": point} for point in points]}
        for action, points in entries
    ]
    case(
        f"scoped-{name}",
        "Scoped actions are those of the webhook.",
        [NO],
        [constraint("No", enforcementAction="scoped", scopedEnforcementActions=actions)],
    )
case(
    "scoped-without-scoped",
    "Scoped actions count only with the action scoped.",
    [NO],
    [
        constraint(
            "No",
            enforcementAction="warn",
            scopedEnforcementActions=[{"action": "deny", "enforcementPoints": [{"name": POINT}]}],
        )
    ],
)

# -- match ----------------------------------------------------------------------------------------

LABEL: Final[Json] = {"matchLabels": {"a": "b"}}
NODE: Final = create(thing("Node"))
SPACE: Final = create(thing("Namespace", name="n", labels={"env": "new"}))
UNKNOWN: Final = create(pod(namespace="nowhere"))
GENERATED: Final = create(pod(name=None, generateName="web-"))
OLD: Final = update(pod(), pod(labels={"a": "b"}))
MATCHES: Final[dict[str, tuple[Json, Json | None]]] = {
    "none": ({}, None),
    "kinds": ({"kinds": [{"apiGroups": [""], "kinds": ["Pod"]}]}, None),
    "kinds-no": ({"kinds": [{"apiGroups": ["apps"], "kinds": ["Pod"]}]}, None),
    "kinds-any": ({"kinds": [{"apiGroups": ["*"], "kinds": ["*"]}]}, None),
    "kinds-empty": ({"kinds": [{}]}, None),
    "kinds-second": ({"kinds": [{"kinds": ["Service"]}, {"kinds": ["Pod"]}]}, None),
    "kinds-group": ({"kinds": [{"apiGroups": ["apps"]}]}, create(workload("Deployment"))),
    "scope-cluster": ({"scope": "Cluster"}, None),
    "scope-cluster-yes": ({"scope": "Cluster"}, NODE),
    "scope-cluster-namespace": ({"scope": "Cluster"}, SPACE),
    "scope-namespaced": ({"scope": "Namespaced"}, None),
    "scope-namespaced-no": ({"scope": "Namespaced"}, SPACE),
    "scope-typo": ({"scope": "cluster"}, None),
    "namespaces": ({"namespaces": ["default"]}, None),
    "namespaces-no": ({"namespaces": ["prod", "x"]}, None),
    "namespaces-prefix": ({"namespaces": ["def*"]}, None),
    "namespaces-suffix": ({"namespaces": ["*ault"]}, None),
    "namespaces-inside": ({"namespaces": ["*fau*"]}, None),
    "namespaces-middle": ({"namespaces": ["d*t"]}, None),
    "namespaces-cluster-scoped": ({"namespaces": ["prod"]}, NODE),
    "namespaces-of-namespace": ({"namespaces": ["n"]}, SPACE),
    "excluded": ({"excludedNamespaces": ["def*"]}, None),
    "excluded-no": ({"excludedNamespaces": ["prod"]}, None),
    "excluded-namespace": ({"excludedNamespaces": ["n"]}, SPACE),
    "excluded-cluster-scoped": ({"excludedNamespaces": ["*"]}, NODE),
    "labels": ({"labelSelector": LABEL}, None),
    "labels-yes": ({"labelSelector": LABEL}, create(pod(labels={"a": "b"}))),
    "labels-old": ({"labelSelector": LABEL}, OLD),
    "labels-deleted": ({"labelSelector": LABEL}, delete(pod(labels={"a": "b"}))),
    "namespace-labels": ({"namespaceSelector": {"matchLabels": {"team": "red"}}}, None),
    "namespace-labels-no": ({"namespaceSelector": {"matchLabels": {"team": "blue"}}}, None),
    "namespace-labels-cluster-scoped": ({"namespaceSelector": LABEL}, NODE),
    "namespace-labels-namespace": ({"namespaceSelector": {"matchLabels": {"env": "new"}}}, SPACE),
    "namespace-unknown": ({}, UNKNOWN),
    "namespace-labels-unknown": ({"namespaceSelector": LABEL}, UNKNOWN),
    "name": ({"name": "x"}, None),
    "name-prefix": ({"name": "x*"}, None),
    "name-no": ({"name": "y"}, None),
    "name-generated": ({"name": "web-*"}, GENERATED),
    "name-generated-exact": ({"name": "web-"}, GENERATED),
    "source-all": ({"source": "All"}, None),
    "source-original": ({"source": "Original"}, None),
    "source-generated": ({"source": "Generated"}, None),
    "together": ({"namespaces": ["default"], "name": "y"}, None),
}
for name, (match, on) in MATCHES.items():
    case(f"match-{name}", "All members of match have to hold.", [NO], [constraint("No", match=match)], on)

# -- Config ---------------------------------------------------------------------------------------

for name, names, processes in (
    ("all", ["default"], ("*",)),
    ("webhook", ["def*"], ("webhook",)),
    ("audit", ["default"], ("audit", "sync")),
    ("mutation", ["default"], ("mutation-webhook",)),
    ("other", ["prod"], ("*",)),
):
    case(
        f"config-{name}",
        "A Config excludes namespaces from processes.",
        [NO],
        [constraint("No")],
        config=excluding(*names, processes=processes),
    )
case("config-namespace", "A Namespace is in itself.", [NO], [constraint("No")], SPACE, config=excluding("n"))
case(
    "config-cluster-scoped",
    "A cluster-scoped object is excluded by a name that matches no text.",
    [NO],
    [constraint("No")],
    NODE,
    config=excluding("*"),
)
case(
    "config-delete",
    "At DELETE the old object counts.",
    [NO],
    [constraint("No")],
    delete(pod()),
    config=excluding("default"),
)
