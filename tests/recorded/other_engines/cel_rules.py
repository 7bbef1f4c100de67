"""Cases of rules with ``validate.cel`` in Kyverno's ClusterPolicy and Policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.recorded.other_engines.cases import (
    FOLDER,
    NAMESPACES,
    Case,
    check,
    create,
    delete,
    named,
    pod,
    pod_spec,
    request,
    thing,
    update,
    workload,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    Json = dict[str, Any]

FILE: Final = FOLDER / "cel-rules.json"
NO: Final = check("false", "no")
YES: Final = check("true")
MISSING: Final = check("object.spec.absent == 1")
TAGGED: Final = check("object.spec.containers.all(c, c.image.contains(':'))", "an image has no tag")
PODS: Final[Json] = {"any": [{"resources": {"kinds": ["Pod"]}}]}
CASES: Final[list[Case]] = []


def cel(*expressions: Json, name: str = "r", match: Json = PODS, **more: Any) -> Json:
    """Return a rule; of *more*, names that end in ``_`` are of ``validate``, and those in ``cel`` of it."""
    inside = {key[:-1]: value for key, value in more.items() if key.endswith("_")}
    outside = {key: value for key, value in more.items() if not key.endswith("_") and key != "cel"}
    validate = {**inside, "cel": {"expressions": list(expressions), **more.get("cel", {})}}
    return {"name": name, "match": match, **outside, "validate": validate}


def policy(
    *rules: Json, name: str = "p", inside: str = "", annotations: Json | None = None, **spec: Any
) -> Json:
    """Return a ClusterPolicy that is enforced, or a Policy if it is *inside* a namespace."""
    metadata = {"name": name, **({"namespace": inside} if inside else {})}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy" if inside else "ClusterPolicy",
        "metadata": metadata | ({"annotations": annotations} if annotations else {}),
        "spec": {"validationFailureAction": "Enforce", **spec, "rules": list(rules)},
    }


def case(name: str, shows: str, *policies: Json, on: Json | None = None, **more: Any) -> None:
    """Add a case: the request *on*, by default the creation of a Pod."""
    question = {"policies": list(policies), "namespaces": NAMESPACES, "request": on or create(pod()), **more}
    CASES.append(Case(name, shows, question))


# -- the verdict and its text ---------------------------------------------------------------------

case("passes", "A request whose expressions are true is allowed.", policy(cel(YES)))
case("fails", "The denial names the object, policies, rules and messages.", policy(cel(NO)))
case("no-message", "Without a message the denial has the expression.", policy(cel(check("1 == 2"))))
case(
    "rule-message",
    "The message of the rule is for expressions without one.",
    policy(cel(check("1 == 2"), NO, message_="of the rule")),
)
case(
    "own-message",
    "The message of an expression counts more than that of the rule.",
    policy(cel(NO, message_="of the rule")),
)
case(
    "message-expression",
    "A messageExpression makes the message.",
    policy(cel(check("false", "not this", by="'name is ' + object.metadata.name"))),
)
case(
    "message-expression-dyn",
    "A messageExpression whose type is not known to be string gives way to the message.",
    policy(cel(check("false", "this", by="object.metadata.name"))),
)
case(
    "message-expression-error",
    "A messageExpression without a value gives way to the message.",
    policy(cel(check("false", "this", by="string(object.spec.absent)"))),
)
case(
    "first-failure",
    "The first expression that is false is the only one in the denial.",
    policy(cel(YES, check("false", "one"), check("false", "two"))),
)
case("error", "An expression without a value is a failure.", policy(cel(MISSING)))
case(
    "error-ignore",
    "failurePolicy Ignore does not count for expressions without a value.",
    policy(cel(MISSING), failurePolicy="Ignore"),
)
case(
    "error-audit",
    "With Audit an expression without a value changes nothing.",
    policy(cel(MISSING), validationFailureAction="Audit"),
)
case(
    "compile-error",
    "An expression that does not compile is a failure.",
    policy(cel(check("nothing == 1", "no"))),
)
case("type-error", "An expression that is no bool is a failure.", policy(cel(check("1", "no"))))
case(
    "two-rules",
    "All rules that fail are in the denial.",
    policy(cel(check("false", "one"), name="b"), cel(check("false", "two"), name="a")),
)
case(
    "two-policies",
    "All policies that fail are in the denial.",
    policy(cel(check("false", "one")), name="b"),
    policy(cel(check("false", "two")), name="a"),
)
case(
    "passing-rule", "A rule that passes is not in the denial.", policy(cel(YES, name="a"), cel(NO, name="b"))
)
case(
    "fail-and-ignore",
    "Policies with failurePolicy Fail and Ignore answer in two webhooks.",
    policy(cel(NO), name="a"),
    policy(cel(NO), name="b", failurePolicy="Ignore"),
)
for index, text in enumerate(
    (
        "plain words",
        "with: colon",
        "with # hash",
        " leading",
        "trailing ",
        "'quoted'",
        '"double"',
        "it's",
        "two\nlines",
        "ends with a line\n",
        "- dash",
        "[list]",
        "{map}",
        "*star",
        "&and",
        "!bang",
        "%percent",
        "@at",
        "`tick`",
        "|pipe",
        "> more",
        "true",
        "null",
        "~",
        "12",
        "1.5",
        "0x1F",
        "2001-01-01",
        "yes",
        "é ü 日本",
        "tab\there",
        "back\\slash",
        "a: b: c",
        "ends with:",
        "comma, semicolon; dot.",
        "😀",
        "\u2028 line",
        "?question",
        "=equals",
        "x" * 200,
        "word " * 60 + "end",
        "a'b\"c: d",
        "line one: x\nline two\n\n",
        "\x07 bell",
    )
):
    case(f"text-{index:02}", "A message is quoted where YAML needs it.", policy(cel(check("false", text))))
case(
    "text-names",
    "Names are quoted where YAML needs it.",
    policy(cel(NO, name="12"), cel(NO, name="true"), name="null"),
)
case(
    "object-name",
    "An object without a name has none in the denial.",
    policy(cel(NO)),
    on=create(pod(name=None, generateName="web-")),
)
case(
    "object-cluster-scoped",
    "A cluster-scoped object has no namespace in the denial.",
    policy(cel(NO, match={"any": [{"resources": {"kinds": ["Namespace"]}}]})),
    on=create(thing("Namespace", name="n")),
)

# -- conditions, variables ------------------------------------------------------------------------

case(
    "precondition-false",
    "A celPrecondition that is false skips the rule.",
    policy(cel(NO, celPreconditions=named(a="false"))),
)
case(
    "precondition-true",
    "A celPrecondition that is true does not.",
    policy(cel(NO, celPreconditions=named(a="true"))),
)
case(
    "precondition-error",
    "A celPrecondition without a value is a failure.",
    policy(cel(YES, celPreconditions=named(a="object.spec.absent == 1"))),
)
case(
    "precondition-error-ignore",
    "failurePolicy Ignore does not count for celPreconditions.",
    policy(cel(YES, celPreconditions=named(a="object.spec.absent == 1")), failurePolicy="Ignore"),
)
case(
    "precondition-error-then-false",
    "A celPrecondition that is false counts more than an error.",
    policy(cel(NO, celPreconditions=named(a="object.spec.absent == 1", b="false"))),
)
case(
    "variables",
    "Expressions read variables.",
    policy(
        cel(
            check("variables.b == 3", by="string(variables.b)"),
            cel={"variables": named(a="object.spec.containers.size()", b="variables.a + 1")},
        )
    ),
)
case(
    "variable-error",
    "The error of a variable is that of the expression.",
    policy(cel(check("variables.a == 1", "no"), cel={"variables": named(a="object.spec.absent")})),
)
case(
    "annotation",
    "Audit annotations are not in the answer.",
    policy(cel(YES, cel={"auditAnnotations": [{"key": "k", "valueExpression": "'v'"}]})),
)
case(
    "annotation-error",
    "An audit annotation without a value changes nothing.",
    policy(
        cel(YES, cel={"auditAnnotations": [{"key": "k", "valueExpression": "string(object.spec.absent)"}]})
    ),
)
case(
    "or-value",
    "orValue takes any value.",
    policy(
        cel(check("object.metadata.name.orValue('a') == 'x' && object.?spec.?absent.orValue(true)", "no"))
    ),
)
case(
    "library",
    "There are no functions of Kyverno.",
    policy(cel(check("parseServiceAccount('a').Name == ''", "no"))),
)
for name, expression in {
    "old": "oldObject == null",
    "object": "object == null",
    "request": "request.operation == 'CREATE' && request.userInfo.username == 'jane' && request.name == 'x'",
    "dry-run": "request.dryRun == false",
    "subresource": "request.subResource == ''",
    "namespace": "namespaceObject.metadata.labels.team == 'red'",
    "options": "has(request.options)",
    "params": "params == null",
}.items():
    case(f"see-{name}", f"What expressions see: {expression}.", policy(cel(check(expression, "other"))))
case(
    "see-deleted",
    "The object of a DELETE is null.",
    policy(cel(check("object == null && oldObject.metadata.name == 'x'", "other"))),
    on=delete(pod()),
)
case(
    "see-unknown-namespace",
    "An unknown namespace is an error, which refuses the request.",
    policy(cel(YES)),
    on=create(pod(namespace="nowhere")),
)
case(
    "see-unknown-namespace-ignore",
    "Under failurePolicy Ignore it does not.",
    policy(cel(YES), failurePolicy="Ignore"),
    on=create(pod(namespace="nowhere")),
)
case(
    "see-update",
    "An UPDATE has both objects.",
    policy(cel(check("oldObject.metadata.labels.a != object.metadata.labels.a", "same"))),
    on=update(pod(labels={"a": "b"}), pod(labels={"a": "b"})),
)

# -- what matches ---------------------------------------------------------------------------------


def match(
    name: str, shows: str, block: Json, on: Json | None = None, exclude: Json | None = None, **more: Any
) -> None:
    """Add a case in which a rule with *block* denies what it matches."""
    members: Json = {"exclude": exclude} if exclude else {}
    case(f"match-{name}", shows, policy(cel(NO, match=block, **members)), on=on, **more)


def any_of(*blocks: Json, **members: Any) -> Json:
    return {"any": [{"resources": {"kinds": ["Pod"], **each}} for each in (blocks or ({},))], **members}


for name, kinds in {
    "version": ["v1/Pod"],
    "group": ["apps/v1/Deployment"],
    "star": ["*"],
    "glob": ["Po*"],
    "question": ["P?d"],
    "group-glob": ["*/Pod"],
    "all-parts": ["*/*/Pod"],
    "subresource": ["Pod/exec"],
    "any-subresource": ["*/*"],
    "two": ["Service", "Pod"],
    "other": ["Service"],
}.items():
    match(f"kind-{name}", f"Kinds: {kinds}.", {"any": [{"resources": {"kinds": kinds}}]})
EPHEMERAL: Final = request("UPDATE", pod(), subresource="ephemeralcontainers", oldObject=pod())
match("ephemeral", "Pod has pods/ephemeralcontainers too.", PODS, EPHEMERAL)
match(
    "status",
    "Pod does not have pods/status.",
    PODS,
    request("UPDATE", pod(), subresource="status", oldObject=pod()),
)
match("name", "A name may have wildcards.", any_of({"name": "x*"}))
match("names", "One of several names is enough.", any_of({"names": ["y", "?"]}))
match("names-no", "No name matches.", any_of({"names": ["y", "xx*"]}))
match(
    "names-generated",
    "generateName stands for an empty name.",
    any_of({"names": ["web-*"]}),
    create(pod(name=None, generateName="web-")),
)
match("namespaces", "Namespaces may have wildcards.", any_of({"namespaces": ["def*"]}))
match("namespaces-no", "No namespace matches.", any_of({"namespaces": ["prod"]}))
match(
    "namespaces-of-namespace",
    "A Namespace is in itself.",
    {"any": [{"resources": {"kinds": ["Namespace"], "namespaces": ["n"]}}]},
    create(thing("Namespace", name="n")),
)
match(
    "annotations",
    "Annotations may have wildcards.",
    any_of({"annotations": {"a*": "b?"}}),
    create(pod(annotations={"ab": "bc"})),
)
match(
    "annotations-no",
    "All annotations have to be there.",
    any_of({"annotations": {"a": "b", "c": "d"}}),
    create(pod(annotations={"a": "b"})),
)
match(
    "selector",
    "A selector looks at the labels.",
    any_of({"selector": {"matchLabels": {"a": "b"}}}),
    create(pod(labels={"a": "b"})),
)
match(
    "selector-glob",
    "A selector may have wildcards.",
    any_of({"selector": {"matchLabels": {"a*": "b*"}}}),
    create(pod(labels={"ab": "bc"})),
)
match(
    "selector-expression",
    "A selector may have expressions.",
    any_of({"selector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}),
)
match(
    "namespace-selector",
    "A namespaceSelector looks at the namespace.",
    any_of({"namespaceSelector": {"matchLabels": {"team": "red"}}}),
)
match(
    "namespace-selector-no",
    "A namespaceSelector looks at the namespace.",
    any_of({"namespaceSelector": {"matchLabels": {"team": "blue"}}}),
)
match(
    "namespace-selector-namespace",
    "A namespaceSelector has no Namespaces.",
    {
        "any": [
            {
                "resources": {
                    "kinds": ["Namespace"],
                    "namespaceSelector": {"matchExpressions": [{"key": "q", "operator": "DoesNotExist"}]},
                }
            }
        ]
    },
    create(thing("Namespace", name="n")),
)
match("operations", "A rule may have operations.", any_of({"operations": ["UPDATE"]}))
match("operations-yes", "A rule may have operations.", any_of({"operations": ["UPDATE", "CREATE"]}))
match("delete", "Without operations a rule has DELETE too.", PODS, delete(pod()))
match(
    "old-object",
    "An UPDATE does not match by its old object.",
    any_of({"selector": {"matchLabels": {"a": "b"}}}),
    update(pod(), pod(labels={"a": "b"})),
)
match("any-second", "One block of any is enough.", any_of({"names": ["y"]}, {"namespaces": ["default"]}))
match(
    "all",
    "All blocks of all are needed.",
    {"all": any_of({"names": ["x"]}, {"namespaces": ["default"]})["any"]},
)
match(
    "all-no",
    "All blocks of all are needed.",
    {"all": any_of({"names": ["x"]}, {"namespaces": ["prod"]})["any"]},
)
match("plain", "A block may stand alone.", {"resources": {"kinds": ["Pod"], "names": ["x"]}})
match(
    "block-and", "What is in a block has to match together.", any_of({"names": ["x"], "namespaces": ["prod"]})
)
match("exclude", "exclude leaves out what it matches.", PODS, exclude=any_of({"names": ["x"]}))
match("exclude-no", "exclude leaves out what it matches.", PODS, exclude=any_of({"names": ["y"]}))
match(
    "exclude-any",
    "One block of any excludes.",
    PODS,
    exclude=any_of({"names": ["y"]}, {"namespaces": ["default"]}),
)
match(
    "exclude-all",
    "All blocks of all are needed to exclude.",
    PODS,
    exclude={"all": any_of({"names": ["x"]}, {"namespaces": ["prod"]})["any"]},
)
match(
    "exclude-all-yes",
    "All blocks of all exclude.",
    PODS,
    exclude={"all": any_of({"names": ["x"]}, {"namespaces": ["default"]})["any"]},
)
match(
    "exclude-block-and",
    "What is in a block has to match together to exclude.",
    PODS,
    exclude=any_of({"names": ["x"], "namespaces": ["prod"]}),
)
SUBJECTS: Final[dict[str, Json]] = {
    "user": {"kind": "User", "name": "jane"},
    "user-glob": {"kind": "User", "name": "ja*"},
    "group": {"kind": "Group", "name": "devs"},
    "group-glob": {"kind": "Group", "name": "system:*"},
    "other": {"kind": "User", "name": "joe"},
    "service-account": {"kind": "ServiceAccount", "name": "sa", "namespace": "ns"},
}
for name, subject in SUBJECTS.items():
    blocks = {"any": [{"resources": {"kinds": ["Pod"]}, "subjects": [subject]}]}
    match(f"subject-{name}", f"A rule may be for {name}.", blocks)
    match(f"subject-{name}-excluded", f"A rule may exclude {name}.", PODS, exclude=blocks)
ACCOUNT: Final = {"username": "system:serviceaccount:ns:sa", "groups": ["system:serviceaccounts"]}
match(
    "subject-account",
    "A ServiceAccount is its user.",
    {"any": [{"resources": {"kinds": ["Pod"]}, "subjects": [SUBJECTS["service-account"]]}]},
    create(pod(), user=ACCOUNT),
)
match(
    "exclude-subject-alone",
    "exclude may have subjects alone.",
    PODS,
    exclude={"any": [{"subjects": [SUBJECTS["user"]]}]},
)


def bound(role: str, *subjects: Json, inside: str = "", kind: str = "ClusterRole") -> Json:
    """Return a binding of *role*, of the cluster unless it is *inside* a namespace."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding" if inside else "ClusterRoleBinding",
        "metadata": {"name": role, **({"namespace": inside} if inside else {})},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": list(subjects or [SUBJECTS["user"]]),
    }


def roles(
    name: str, shows: str, *bindings: Json, on: Json | None = None, kind: str = "Pod", **members: Any
) -> None:
    """Add a case of a block with *members*, by default a cluster role, for a user with *bindings*."""
    block = {"resources": {"kinds": [kind]}, **(members or {"clusterRoles": ["view", "admin"]})}
    match(f"role-{name}", shows, {"any": [block]}, on=on, bindings=list(bindings))


PLAIN_ACCOUNT: Final = {"kind": "ServiceAccount", "name": "sa"}
BY_ACCOUNT: Final = create(pod(), user=ACCOUNT)
ROLE_OF_DEFAULT: Final = bound("dev", inside="default", kind="Role")
roles("of-user", "A rule may be for a cluster role of the user.", bound("admin"))
roles("of-group", "The groups of the user have roles.", bound("admin", SUBJECTS["group"]))
roles("of-account", "A ServiceAccount has roles.", bound("admin", SUBJECTS["service-account"]), on=BY_ACCOUNT)
roles("of-other", "Others have other roles.", bound("admin", SUBJECTS["other"]))
roles("of-group-as-user", "A user is no group.", bound("admin", {"kind": "User", "name": "devs"}))
roles("glob-subject", "Subjects of bindings have no wildcards.", bound("admin", SUBJECTS["user-glob"]))
roles("several-subjects", "One subject is enough.", bound("admin", SUBJECTS["other"], SUBJECTS["group"]))
roles("no-subjects", "A binding may have no subject.", {**bound("admin"), "subjects": []})
roles("other", "Only the named roles count.", bound("edit"))
roles("several-bindings", "One of the roles is enough.", bound("edit"), bound("view"))
roles("glob", "Names of roles have no wildcards.", bound("admin"), clusterRoles=["adm*"])
roles("as-written", "A star is itself.", bound("adm*"), clusterRoles=["adm*"])
roles("inside", "A RoleBinding gives a cluster role in its namespace.", bound("admin", inside="default"))
roles("inside-other", "It gives none in others.", bound("admin", inside="prod"))
roles(
    "inside-of-namespace",
    "A request about a Namespace is in it.",
    bound("admin", inside="n"),
    on=create(thing("Namespace", name="n")),
    kind="Namespace",
)
roles(
    "inside-of-cluster",
    "A request about a cluster-scoped object is in none.",
    bound("admin", inside="default"),
    on=create(thing("Node")),
    kind="Node",
)
roles(
    "account-here",
    "A ServiceAccount may be that of the namespace of its RoleBinding.",
    bound("dev", PLAIN_ACCOUNT, inside="ns", kind="Role"),
    on=BY_ACCOUNT,
    roles=["ns:dev"],
)
roles(
    "account-nowhere",
    "In a ClusterRoleBinding it needs a namespace.",
    bound("admin", PLAIN_ACCOUNT),
    on=BY_ACCOUNT,
)
roles("namespaced", "A rule may be for a role.", ROLE_OF_DEFAULT, roles=["default:dev"])
roles(
    "namespaced-elsewhere",
    "It may be one of another namespace than the request's.",
    bound("dev", inside="prod", kind="Role"),
    roles=["prod:dev"],
)
roles(
    "namespaced-other",
    "A role has a namespace.",
    bound("dev", inside="prod", kind="Role"),
    roles=["default:dev"],
)
roles("namespaced-glob", "Its name has no wildcards.", ROLE_OF_DEFAULT, roles=["*:dev", "default:*"])
roles(
    "namespaced-of-cluster",
    "A cluster role is no role.",
    bound("dev", inside="default"),
    roles=["default:dev"],
)
roles("role-as-cluster-role", "A role is no cluster role.", ROLE_OF_DEFAULT, clusterRoles=["dev"])
roles(
    "role-everywhere", "A ClusterRoleBinding gives no role.", bound("dev", kind="Role"), clusterRoles=["dev"]
)
for name, given in {
    "both": [bound("admin"), ROLE_OF_DEFAULT],
    "first": [bound("admin")],
    "second": [ROLE_OF_DEFAULT],
}.items():
    roles(
        f"and-{name}",
        "Roles and cluster roles of a block are needed both.",
        *given,
        clusterRoles=["admin"],
        roles=["default:dev"],
    )
roles(
    "and-subject",
    "Roles and subjects of a block are needed both.",
    ROLE_OF_DEFAULT,
    roles=["default:dev"],
    subjects=[SUBJECTS["other"]],
)
roles("nobody", "A request without a user matches.", bound("admin"), on=create(pod(), userInfo={}))
ADMINS: Final = {"any": [{"clusterRoles": ["admin"]}]}
for name, role in (("excluded", "admin"), ("not-excluded", "edit")):
    match(f"role-{name}", "exclude may have roles alone.", PODS, exclude=ADMINS, bindings=[bound(role)])
    match(
        f"role-{name}-workload",
        "What autogen makes of a rule excludes the same users.",
        PODS,
        create(workload("Deployment")),
        exclude=ADMINS,
        bindings=[bound(role)],
    )
match(
    "role-excluded-all",
    "All blocks of all are needed to exclude.",
    PODS,
    exclude={"all": [{"clusterRoles": ["admin"]}, {"roles": ["default:dev"]}]},
    bindings=[bound("admin")],
)

# -- actions --------------------------------------------------------------------------------------

for action in ("Enforce", "enforce", "Audit", "audit"):
    case(
        f"action-{action}",
        f"validationFailureAction {action}.",
        policy(cel(NO), validationFailureAction=action),
    )
case(
    "action-of-rule",
    "The action of a rule counts more than that of the policy.",
    policy(cel(NO, failureAction_="Audit")),
)
case(
    "action-of-rule-enforce",
    "The action of a rule counts more than that of the policy.",
    policy(cel(NO, failureAction_="Enforce"), validationFailureAction="Audit"),
)
case(
    "action-mixed",
    "A denial has no rules with Audit.",
    policy(
        cel(check("false", "one"), name="a", failureAction_="Audit"), cel(check("false", "two"), name="b")
    ),
)


def overrides(*entries: tuple[str, Json]) -> list[Json]:
    return [{"action": action, **entry} for action, entry in entries]


OVERRIDES: Final[dict[str, list[tuple[str, Json]]]] = {
    "namespace": [("Audit", {"namespaces": ["default"]})],
    "namespace-glob": [("Audit", {"namespaces": ["def*"]})],
    "other": [("Audit", {"namespaces": ["prod"]})],
    "first": [("Enforce", {"namespaces": ["def*"]}), ("Audit", {"namespaces": ["default"]})],
    "selector": [("Audit", {"namespaceSelector": {"matchLabels": {"team": "red"}}})],
    "selector-no": [("Audit", {"namespaceSelector": {"matchLabels": {"team": "blue"}}})],
    "both": [("Audit", {"namespaces": ["default"], "namespaceSelector": {"matchLabels": {"team": "red"}}})],
    "either": [
        ("Audit", {"namespaces": ["default"], "namespaceSelector": {"matchLabels": {"team": "blue"}}})
    ],
    "selector-alone": [
        ("Audit", {"namespaces": ["prod"], "namespaceSelector": {"matchLabels": {"team": "red"}}})
    ],
    "global": [("Audit", {})],
}
for name, entries in OVERRIDES.items():
    case(
        f"override-{name}",
        "An override changes the action in namespaces.",
        policy(cel(NO), validationFailureActionOverrides=overrides(*entries)),
    )
    enforced = [("Enforce", entry) for _, entry in entries]
    case(
        f"override-{name}-enforce",
        "An override may enforce.",
        policy(
            cel(NO), validationFailureAction="Audit", validationFailureActionOverrides=overrides(*enforced)
        ),
    )
case(
    "override-of-rule",
    "Where overrides of rule and policy disagree, the failure is a warning.",
    policy(
        cel(NO, failureActionOverrides_=overrides(("Audit", {"namespaces": ["prod"]}))),
        validationFailureActionOverrides=overrides(("Audit", {"namespaces": ["default"]})),
    ),
)
case(
    "override-of-rule-enforce",
    "An override of a rule may enforce.",
    policy(
        cel(NO, failureActionOverrides_=overrides(("Enforce", {"namespaces": ["default"]}))),
        validationFailureAction="Audit",
    ),
)
case(
    "override-cluster-scoped",
    "An override for any namespace has cluster-scoped objects, which are then warned about.",
    policy(
        cel(NO, match={"any": [{"resources": {"kinds": ["Node"]}}]}),
        validationFailureActionOverrides=overrides(("Audit", {"namespaces": ["*"]})),
    ),
    on=create(thing("Node")),
)

# -- warnings, other settings ---------------------------------------------------------------------

case(
    "warn",
    "With emitWarning what is only audited is a warning.",
    policy(cel(NO), validationFailureAction="Audit", emitWarning=True),
)
case("warn-pass", "A rule that passes gives no warning.", policy(cel(YES), emitWarning=True))
case(
    "warn-audit-pass",
    "A rule that passes gives no warning.",
    policy(cel(YES), validationFailureAction="Audit", emitWarning=True),
)
case(
    "warn-deny",
    "A denial has no warnings.",
    policy(cel(NO), emitWarning=True),
    policy(cel(NO), name="q", validationFailureAction="Audit", emitWarning=True),
)
case(
    "warn-skip",
    "A rule that is skipped gives no warning.",
    policy(cel(NO, celPreconditions=named(a="false")), validationFailureAction="Audit", emitWarning=True),
)
case(
    "warn-mixed",
    "The audited rules of an enforced policy give warnings.",
    policy(
        cel(check("false", "one"), name="a", failureAction_="Audit"), cel(YES, name="b"), emitWarning=True
    ),
)
case(
    "apply-one",
    "applyRules One ends after the first rule that applied.",
    policy(cel(YES, name="a"), cel(NO, name="b"), applyRules="One"),
)
case(
    "apply-one-skip",
    "A rule that is skipped does not count for applyRules One.",
    policy(cel(NO, name="a", celPreconditions=named(a="false")), cel(NO, name="b"), applyRules="One"),
)
case(
    "match-conditions",
    "webhookConfiguration.matchConditions leave a policy out.",
    policy(cel(NO), webhookConfiguration={"matchConditions": named(a="object.metadata.name == 'y'")}),
)
CONDITIONS: Final[dict[str, tuple[list[Json], Json | None]]] = {
    "true": (named(a="object.metadata.name == 'x'", b="request.operation == 'CREATE'"), None),
    "one-false": (named(a="true", b="object.metadata.name == 'y'"), None),
    "absent": (named(a="oldObject == null"), None),
    "absent-member": (named(a="oldObject == null || oldObject.metadata.name == 'x'"), None),
    "absent-kind": (named(a="oldObject == null || oldObject.kind == 'Pod'"), None),
    "false-and-error": (named(a="object.spec.absent == 1", b="false"), None),
    "workload": (named(a="object.kind == 'Pod'"), create(workload("Deployment"))),
    "workload-true": (named(a="object.kind == 'Deployment'"), create(workload("Deployment"))),
    "delete": (named(a="object == null && oldObject.metadata.name == 'x'"), delete(pod())),
}
for name, (conditions, on) in CONDITIONS.items():
    case(
        f"match-conditions-{name}",
        "webhookConfiguration.matchConditions are those of a webhook, for workloads too.",
        policy(cel(NO), webhookConfiguration={"matchConditions": conditions}),
        on=on,
    )
case("policy", "A Policy has the objects of its namespace.", policy(cel(NO), inside="default"))
case("policy-other", "A Policy has no objects of other namespaces.", policy(cel(NO), inside="prod"))


def excepted(
    name: str,
    shows: str,
    rules: list[str],
    *,
    of: Json | None = None,
    on: Json | None = None,
    bindings: Sequence[Json] = (),
    **spec: Any,
) -> None:
    exception = {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": "exceptions"},
        "spec": {"exceptions": [{"policyName": "p", "ruleNames": rules}], "match": PODS, **spec},
    }
    more = {"bindings": list(bindings)} if bindings else {}
    case(f"exception-{name}", shows, of or policy(cel(NO)), on=on, exceptions=[exception], **more)


excepted("rule", "An exception skips a rule.", ["r"])
excepted("rule-glob", "Names of rules may have wildcards.", ["r*"])
excepted("rule-other", "An exception is of the rules that it names.", ["q"])
excepted("match", "An exception has a match block.", ["r"], match=any_of({"names": ["y"]}))
for name, role in (("role", "admin"), ("role-other", "edit")):
    excepted(name, "An exception may be for a cluster role.", ["r"], match=ADMINS, bindings=[bound(role)])

# -- variants for workloads -----------------------------------------------------------------------

KINDS: Final = (
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "Job",
    "CronJob",
    "ReplicationController",
)
for kind in KINDS:
    case(
        f"variant-{kind}",
        f"A rule for Pods has one for {kind}.",
        policy(cel(TAGGED)),
        on=create(workload(kind, pod_spec("nginx"))),
    )
    case(
        f"variant-{kind}-passes",
        f"The rule for {kind} evaluates the template.",
        policy(cel(TAGGED)),
        on=create(workload(kind)),
    )


def variant(
    name: str, shows: str, rules: Json, on: Json | None = None, controllers: str | None = None, **spec: Any
) -> None:
    """Add a case of *rules* at the creation of a Deployment whose image has no tag."""
    annotations = (
        {"pod-policies.kyverno.io/autogen-controllers": controllers} if controllers is not None else None
    )
    made = policy(rules, annotations=annotations, **spec)
    case(f"variant-{name}", shows, made, on=on or create(workload("Deployment", pod_spec("nginx"))))


variant("none", "The annotation switches variants off.", cel(TAGGED), controllers="none")
variant("listed", "The annotation lists the workloads.", cel(TAGGED), controllers="Job,Deployment")
variant("not-listed", "The annotation lists the workloads.", cel(TAGGED), controllers="Job,CronJob")
variant(
    "only-cron-job",
    "The annotation may have CronJob alone.",
    cel(TAGGED),
    controllers="CronJob",
    on=create(workload("CronJob", pod_spec("nginx"))),
)
variant("blank", "Names in the annotation are taken as they are.", cel(TAGGED), controllers="Job, Deployment")
for name, block in {
    "name": any_of({"name": "*"}),
    "names": any_of({"names": ["*"]}),
    "selector": any_of({"selector": {}}),
    "annotations": any_of({"annotations": {"a": "*"}}),
    "kinds": {"any": [{"resources": {"kinds": ["Pod", "Service"]}}]},
}.items():
    variant(f"not-{name}", f"A rule with {name} has no variants.", cel(TAGGED, match=block))
variant(
    "namespaces",
    "Namespaces do not prevent variants.",
    cel(TAGGED, match=any_of({"namespaces": ["default"]})),
)
variant("exclude-name", "A name in exclude prevents variants.", cel(TAGGED, exclude=any_of({"names": ["y"]})))
variant(
    "exclude-namespace",
    "exclude is that of variants too.",
    cel(TAGGED, exclude=any_of({"namespaces": ["default"]})),
)
variant("long-name", "The name of a variant is cut.", cel(TAGGED, name="a" * 60))
variant(
    "name-of-object",
    "object.metadata.name is that of the template.",
    cel(check("object.metadata.name == 'x'", "no")),
)
variant(
    "namespace-of-object",
    "object.metadata.namespace is that of the template.",
    cel(check("object.metadata.namespace == 'default'", "no")),
)
variant(
    "optional", "object.?spec stays.", cel(check("object.?spec.?containers.orValue([]).size() == 0", "some"))
)
variant("message", "Messages change.", cel(check("false", "set object.spec.x and spec.containers")))
variant("rule-message", "The message of a rule changes.", cel(check("false"), message_="set object.spec.x"))
variant(
    "precondition",
    "celPreconditions change.",
    cel(TAGGED, celPreconditions=named(a="object.spec.containers.size() == 1")),
)
variant(
    "variable",
    "Variables change.",
    cel(
        check("variables.n == 2", by="string(variables.n)"),
        cel={"variables": named(n="object.spec.containers.size()")},
    ),
)
variant(
    "request-object",
    "There is no request.object.",
    cel(check("request.object.spec.containers.size() == 2", "no")),
)
variant("audit", "Variants have the action of their rule.", cel(TAGGED, failureAction_="Audit"))
variant("kind", "object.kind stays.", cel(check("object.kind == 'Pod'", by="string(object.kind)")))
