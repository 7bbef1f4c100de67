"""Cases of Kyverno's ValidatingPolicy, NamespacedValidatingPolicy and their exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.recorded.other_engines.cases import (
    FOLDER,
    NAMESPACES,
    PODS,
    Case,
    check,
    create,
    delete,
    exception,
    matching,
    named,
    pod,
    pod_spec,
    request,
    rule,
    thing,
    update,
    validating,
    workload,
)

if TYPE_CHECKING:
    Json = dict[str, Any]

FILE: Final = FOLDER / "validating.json"
NO = check("false", "no")
YES = check("true")
MISSING = "object.spec.absent == 1"
"""An expression without a value for each object of a case."""
TAGGED = check("object.spec.containers.all(c, c.image.contains(':'))", "an image has no tag")
CASES: Final[list[Case]] = []


def case(name: str, shows: str, *policies: Json, on: Json | None = None, **more: Any) -> None:
    """Add a case: the request *on*, by default the creation of a Pod."""
    question = {"policies": list(policies), "namespaces": NAMESPACES, "request": on or create(pod()), **more}
    CASES.append(Case(name, shows, question))


def all_of(name: str, shows: str, *expressions: str, on: Json | None = None, **more: Any) -> None:
    """Add a case with a policy for each of *expressions*, which shows whether it is true."""
    policies = [
        validating(check(each, "false"), name=f"p{number:02}") for number, each in enumerate(expressions)
    ]
    case(name, shows, *policies, on=on, **more)


# -- the verdict ----------------------------------------------------------------------------------

case("passes", "A request whose validations are true is allowed.", validating(YES))
case("fails", "The message of a validation that is false is in the denial.", validating(NO))
case(
    "first-failure",
    "Evaluation stops at the first validation that is false.",
    validating(YES, check("false", "one"), check("false", "two")),
)
case(
    "no-message",
    "Without a message the denial has the number of the validation.",
    validating(YES, check("1 == 2")),
)
case(
    "message-expression",
    "A messageExpression makes the message.",
    validating(check("false", "not this", by="'name is ' + object.metadata.name")),
)
case(
    "message-expression-error",
    "A messageExpression without a value has its error in place of the message.",
    validating(check("false", "not this", by="string(object.spec.absent)")),
)
case(
    "message-expression-empty",
    "An empty messageExpression gives the message with the number.",
    validating(check("false", "not this", by="''")),
)
case(
    "message-expression-blank",
    "A messageExpression of blanks is the message.",
    validating(check("false", "not this", by="'  '")),
)
case(
    "message-expression-lines",
    "A message of several lines is not changed.",
    validating(check("false", by=r"'one\ntwo: \"three\" é'")),
)
case(
    "message-expression-type",
    "A messageExpression that is no string does not compile.",
    validating(check("false", by="1")),
)
case(
    "message-expression-dyn",
    "A messageExpression whose type is not known to be string does not compile.",
    validating(check("false", by="object.metadata.name")),
)
case("expression-type", "A validation that is no bool does not compile.", validating(check("1")))
case(
    "expression-dyn-type",
    "A validation whose type is not known to be bool does not compile.",
    validating(check("object.metadata.name", "no")),
)
case("error", "A validation without a value refuses the request.", validating(check(MISSING, "no")))
case(
    "error-ignore",
    "failurePolicy Ignore does not count for validations without a value.",
    validating(check(MISSING, "no"), failurePolicy="Ignore"),
)
case("error-first", "An error ends the evaluation.", validating(check(MISSING), NO))
case(
    "fail-ignore",
    "failurePolicy Ignore does not count for a failure.",
    validating(NO, failurePolicy="Ignore"),
)
for index, actions in enumerate(
    (["Deny"], ["Audit"], ["Warn"], ["Deny", "Warn"], ["Audit", "Warn"], ["Audit", "Deny"])
):
    shows = f"What validationActions {', '.join(actions)} make of a failure and of an error."
    case(f"actions-{index}-fail", shows, validating(NO, validationActions=actions))
    case(f"actions-{index}-error", shows, validating(check(MISSING), validationActions=actions))
case("actions-none", "Without validationActions a failure is denied.", validating(NO, validationActions=[]))
case(
    "reason",
    "The reason of a validation is not in the answer.",
    validating({**NO, "reason": "Unauthorized"}),
)
case(
    "two-policies",
    "Denials of several policies are joined by a semicolon.",
    validating(check("false", "one"), name="b"),
    validating(check("false", "two"), name="a"),
)
case(
    "denial-and-warning",
    "A denial and the warning of another policy are in one answer.",
    validating(check("false", "one"), name="a"),
    validating(check("false", "two"), name="b", validationActions=["Warn"]),
)
case(
    "warning-long",
    "A warning may be longer than 256 characters.",
    validating(check("false", "w" * 1000), validationActions=["Warn"]),
)
case(
    "three-policies",
    "A policy that passes adds nothing to the denial.",
    validating(YES, name="a"),
    validating(check(MISSING), name="b"),
    validating(check("false", "x; y"), name="c"),
)

# -- matchConditions ------------------------------------------------------------------------------

case(
    "condition-false",
    "A condition that is false skips the policy.",
    validating(NO, matchConditions=named(a="false")),
)
case("condition-true", "A condition that is true does not.", validating(NO, matchConditions=named(a="true")))
case(
    "condition-error",
    "A condition without a value refuses the request under failurePolicy Fail.",
    validating(YES, matchConditions=named(a=MISSING)),
)
case(
    "condition-error-ignore",
    "A condition without a value skips the policy under failurePolicy Ignore.",
    validating(NO, matchConditions=named(a=MISSING), failurePolicy="Ignore"),
)
case(
    "condition-error-then-false",
    "A condition that is false counts more than an error before it.",
    validating(NO, matchConditions=named(a=MISSING, b="false")),
)
case(
    "condition-false-then-error",
    "A condition that is false ends the evaluation.",
    validating(NO, matchConditions=named(a="false", b=MISSING)),
)
case(
    "condition-errors",
    "The errors of conditions are joined by a semicolon.",
    validating(NO, matchConditions=named(a=MISSING, b="object.spec.other == 1")),
)
case(
    "condition-error-warn",
    "A condition without a value is a warning with Warn.",
    validating(YES, matchConditions=named(a=MISSING), validationActions=["Warn"]),
)
case(
    "condition-error-audit",
    "A condition without a value changes nothing with Audit.",
    validating(YES, matchConditions=named(a=MISSING), validationActions=["Audit"]),
)
case(
    "condition-variables",
    "Conditions do not know the variables.",
    validating(YES, matchConditions=named(a="variables.v"), variables=named(v="true")),
)
case(
    "condition-authorizer",
    "There is no authorizer.",
    validating(YES, matchConditions=named(a="authorizer.path('/x').check('get').allowed()")),
)

# -- variables and audit annotations --------------------------------------------------------------

case(
    "variable-unused",
    "A variable that nobody reads is not evaluated.",
    validating(YES, variables=named(v=MISSING)),
)
case(
    "variable-error",
    "The error of a variable is that of the validation.",
    validating(check("variables.v"), variables=named(v=MISSING)),
)
case(
    "variable-after-failure",
    "A variable of a later validation is not evaluated after a failure.",
    validating(NO, check("variables.v"), variables=named(v=MISSING)),
)
case(
    "variable-chain",
    "A variable reads those before it.",
    validating(
        check("variables.b == 3", by="string(variables.b)"),
        variables=named(a="object.spec.containers.size()", b="variables.a + 1"),
    ),
)
case(
    "variable-later",
    "A variable cannot read one after it.",
    validating(YES, variables=named(a="variables.b", b="1")),
)
case("variable-unknown", "An unknown variable does not compile.", validating(check("variables.x == 1")))
case(
    "variable-type",
    "A variable has the type of its expression.",
    validating(check("variables.v == 'a'"), variables=named(v="1")),
)
case(
    "variable-types",
    "Variables may be of any type.",
    validating(
        check(
            "variables.l[0] == 1 && variables.m.a == 'b' && variables.o.orValue('x') == 'x' && !variables.n"
        ),
        check("variables.d == 'x'", by="'d is ' + variables.d"),
        variables=named(
            l="[1, 2]",
            m="{'a': 'b'}",
            o="object.?spec.?absent",
            n="has(object.status)",
            d="object.metadata.name",
        ),
    ),
)
case(
    "variable-twice",
    "A policy cannot have two variables of one name with different types.",
    validating(check("variables.v == 1"), variables=[*named(v="'a'"), *named(v="1")]),
)
NOTES: Final = [{"key": "k", "valueExpression": "'seen ' + object.metadata.name"}]
case("annotation", "An audit annotation is not in the answer.", validating(YES, auditAnnotations=NOTES))
case("annotation-fail", "An audit annotation changes no denial.", validating(NO, auditAnnotations=NOTES))
BROKEN: Final = [{"key": "k", "valueExpression": "string(object.spec.absent)"}]
case(
    "annotation-error",
    "An audit annotation without a value refuses what the validations allow.",
    validating(YES, auditAnnotations=BROKEN),
)
case(
    "annotation-error-ignore",
    "failurePolicy Ignore does not count for audit annotations.",
    validating(YES, auditAnnotations=BROKEN, failurePolicy="Ignore"),
)
case(
    "annotation-error-fail",
    "The error of an audit annotation takes the place of the failure.",
    validating(NO, auditAnnotations=BROKEN),
)
case(
    "annotation-null",
    "An audit annotation that is null refuses the request.",
    validating(YES, auditAnnotations=[{"key": "k", "valueExpression": "null"}]),
)
case(
    "annotation-type",
    "An audit annotation that is neither string nor null does not compile.",
    validating(YES, auditAnnotations=[{"key": "k", "valueExpression": "1"}]),
)
case(
    "annotation-dyn-type",
    "An audit annotation whose type is not known to be string does not compile.",
    validating(YES, auditAnnotations=[{"key": "k", "valueExpression": "object.spec"}]),
)

# -- what expressions see -------------------------------------------------------------------------

ABSENT: Final = (
    "object == null",
    "oldObject == null",
    "size(object) == 0",
    "size(oldObject) == 0",
    "has(object.metadata)",
    "has(oldObject.metadata)",
    "request.object == null",
    "request.oldObject == null",
    "object.?metadata.?name.orValue('none') == 'none'",
    "object.metadata.name == 'x'",
    "oldObject.metadata.name == 'x'",
)
for operation, about in (
    ("create", create(pod())),
    ("update", update(pod(labels={"a": "b"}), pod())),
    ("delete", delete(pod())),
):
    all_of(
        f"absent-{operation}", f"What is absent at {operation.upper()} is an empty object.", *ABSENT, on=about
    )
all_of(
    "request",
    "The request has the fields that the API server sends.",
    "request.operation == 'CREATE'",
    "request.userInfo.username == 'jane'",
    "'devs' in request.userInfo.groups",
    "request.namespace == 'default' && request.name == 'x'",
    "request.kind.kind == 'Pod' && request.resource.resource == 'pods'",
    "request.dryRun",
    "has(request.dryRun)",
    "has(request.subResource)",
    "request.subResource == ''",
    "request.options.kind == 'CreateOptions'",
    "has(request.userInfo.uid)",
    "request.object.spec.containers[0].image == 'nginx:1'",
    "request.requestKind.kind == 'Pod'",
)
NAMESPACE_OBJECT: Final = (
    "namespaceObject == null",
    "namespaceObject.metadata.labels.team == 'red'",
    "namespaceObject.metadata.name == request.namespace",
    "has(namespaceObject.metadata)",
)
all_of("namespace-object", "namespaceObject is the namespace of the request.", *NAMESPACE_OBJECT)
all_of(
    "namespace-unknown",
    "namespaceObject of an unknown namespace is null.",
    *NAMESPACE_OBJECT,
    on=create(pod(namespace="nowhere")),
)
case(
    "namespace-of-cluster-scoped",
    "namespaceObject of a cluster-scoped object is null.",
    validating(check("namespaceObject == null"), matchConstraints=matching(rule("nodes"))),
    on=create(thing("Node")),
)
all_of(
    "or-value",
    "orValue takes an optional or any other value; a missing field without a question mark stays an error.",
    "object.?spec.?absent.orValue('a') == 'a'",
    "object.metadata.name.orValue('a') == 'x'",
    "object.spec.absent.orValue('a') == 'a'",
    "object.spec.containers[?0].image.orValue('a') == 'nginx:1'",
    "object.metadata.?labels.orValue({}) == {}",
    "object.metadata.?labels[?'a'].orValue('b') == 'b'",
    "object.spec.containers.orValue([]).size() == 1",
    "'s'.orValue('t') == 's'",
    "(1 + 1).orValue(3) == 2",
    "optional.none().orValue(1) == 1",
    "optional.of(2).orValue(1) == 2",
    "object.?metadata.labels.orValue({'a': 'b'}).a == 'b'",
    "object.spec.?containers.orValue([]).all(c, c.?name.orValue('') != '')",
)
all_of(
    "libraries",
    "Expressions have Kubernetes' libraries and some of their own.",
    "cel.bind(x, object.spec.containers, x.size() == 1)",
    "base64.encode(b'a') == 'YQ=='",
    "math.greatest(1, 2, 3) == 3",
    "regex.replace('abc', 'b', 'x') == 'axc'",
    "regex.extract('abc', 'b').orValue('') == 'b'",
    "regex.extractAll('abcb', 'b').size() == 2",
    "quantity('1Gi').isGreaterThan(quantity('1Mi'))",
    "isQuantity('x')",
    "ip('10.0.0.1').family() == 4",
    "cidr('10.0.0.0/8').containsIP('10.1.2.3')",
    "semver('1.2.3').isGreaterThan(semver('1.2.2'))",
    "!format.dns1123Label().validate('a-b').hasValue()",
    "sets.contains([1, 2], [1])",
    "['a', 'b'].isSorted() && [1, 2].sum() == 3",
    "'a,b'.split(',').join('-') == 'a-b'",
    "url('https://example.org/x').getHost() == 'example.org'",
    "'abc'.find('b') == 'b'",
    "[1, 2].all(i, v, v == i + 1)",
    "{'a': 1}.all(k, v, k == 'a' && v == 1)",
    "parseServiceAccount('system:serviceaccount:ns:sa').Name == 'sa'",
    "parseServiceAccount('jane').Namespace == ''",
    "image('nginx').registry() == 'index.docker.io'",
    "image('ghcr.io/a/b:1').tag() == '1'",
    "isImage('UPPER/x') == false",
    "md5('a') == '0cc175b9c0f1b6a831c399e269772661'",
    "sha256('a').startsWith('ca978112')",
    "math.round(1.256, 2) == 1.26",
    "json.unmarshal('{\"a\": 1}').a == 1",
    "yaml.parse('a: [1]').a.size() == 1",
    "listObjToMap([{'a': 'k'}], [{'b': 'v'}], 'a', 'b') == {'k': 'v'}",
)
for name, expression in {
    "params": "params == null",
    "authorizer": "authorizer.group('').resource('pods').check('get').allowed()",
    "images": "images.containers.size() == 0",
    "mixed-list": "[1, 'a'].size() == 2",
    "mixed-map": "{'a': 1, 'b': 'c'}.size() == 2",
    "unknown": "nothing.here == 1",
    "uid": "request.uid == 'u'",
    "map-and-null": "resource.get('v1', 'configmaps', 'default', 'd') == null",
    "syntax": "object.",
}.items():
    case(f"refused-{name}", f"Expressions with {name} do not compile.", validating(check(expression)))
case(
    "allowed-values-empty",
    "Without an exception the lists of exceptions are empty.",
    validating(check("exceptions.allowedImages.size() == 0 && exceptions.allowedValues == []", "some")),
)
FOUND: Final = [{"resource": "configmaps", "object": {**thing("ConfigMap", name="c"), "data": {"a": "b"}}}]
case(
    "resource-get",
    "resource.Get reads an object, and is null if there is none.",
    validating(check("resource.Get('v1', 'configmaps', 'default', 'c').data.a == 'b'", "get"), name="a"),
    validating(check("dyn(resource.get('v1', 'configmaps', 'default', 'd')) == null", "null"), name="b"),
    validating(check("resource.List('v1', 'configmaps', 'default').items.size() == 2", "list"), name="c"),
    objects=FOUND,
)

# -- what matches ---------------------------------------------------------------------------------


def match(name: str, shows: str, constraints: Json, on: Json | None = None) -> None:
    """Add a case in which a policy with *constraints* denies what it matches."""
    case(f"match-{name}", shows, validating(NO, matchConstraints=constraints), on=on)


match("operation", "Operations are those of the rule.", matching(rule("pods", operations=["UPDATE"])))
match(
    "operation-any", "An asterisk is any operation.", matching(rule("pods", operations=["*"])), delete(pod())
)
match("resource", "Resources are those of the rule.", matching(rule("services")))
match("any-resource", "An asterisk is any resource.", matching(rule("*")))
match("any-version", "An asterisk is any version.", matching(rule("pods", apiVersions=["*"])))
match(
    "other-version", "A version that is not named does not match.", matching(rule("pods", apiVersions=["v2"]))
)
match("any-group", "An asterisk is any group.", matching(rule("pods", apiGroups=["*"])))
match("scope", "scope Cluster leaves out Pods.", matching(rule("pods", scope="Cluster")))
match("scope-namespaced", "scope Namespaced has Pods.", matching(rule("pods", scope="Namespaced")))
EPHEMERAL: Final = request("UPDATE", pod(), subresource="ephemeralcontainers", oldObject=pod())
match("subresource", "A resource does not have its subresources.", matching(), EPHEMERAL)
match(
    "subresource-named",
    "A subresource has to be named.",
    matching(rule("pods/ephemeralcontainers")),
    EPHEMERAL,
)
match("subresource-any", "pods/* is every subresource.", matching(rule("pods/*")), EPHEMERAL)
match("any-subresource", "*/* is everything.", matching(rule("*/*")), EPHEMERAL)
match("two-rules", "One of several rules is enough.", matching(rule("services"), PODS))
LABEL: Final = {"matchLabels": {"a": "b"}}
match("object-selector", "objectSelector looks at the labels.", matching(objectSelector=LABEL))
match(
    "object-selector-yes",
    "objectSelector looks at the labels.",
    matching(objectSelector=LABEL),
    create(pod(labels={"a": "b"})),
)
match(
    "object-selector-old",
    "The old object is enough for the objectSelector.",
    matching(objectSelector=LABEL),
    update(pod(), pod(labels={"a": "b"})),
)
match(
    "object-selector-deleted",
    "At DELETE the old object has the labels.",
    matching(objectSelector=LABEL),
    delete(pod(labels={"a": "b"})),
)
ABSENCE: Final = {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}
match(
    "object-selector-absence",
    "An empty object beside the real one has no labels.",
    matching(objectSelector=ABSENCE),
    create(pod(labels={"a": "b"})),
)
match(
    "namespace-selector",
    "namespaceSelector looks at the namespace.",
    matching(namespaceSelector={"matchLabels": {"team": "red"}}),
)
match(
    "namespace-selector-no",
    "namespaceSelector looks at the namespace.",
    matching(namespaceSelector={"matchLabels": {"team": "blue"}}),
)
match(
    "namespace-selector-unknown",
    "An unknown namespace has no labels but its name.",
    matching(namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "nowhere"}}),
    create(pod(namespace="nowhere")),
)
match(
    "namespace-selector-unknown-no",
    "An unknown namespace has no labels but its name.",
    matching(namespaceSelector={"matchLabels": {"team": "red"}}),
    create(pod(namespace="nowhere")),
)
match(
    "namespace-selector-cluster-scoped",
    "A namespaceSelector has all cluster-scoped objects.",
    matching(rule("nodes"), namespaceSelector={"matchLabels": {"team": "red"}}),
    create(thing("Node")),
)
match(
    "namespace-selector-namespace",
    "A Namespace has its own labels.",
    matching(rule("namespaces"), namespaceSelector={"matchLabels": {"env": "new"}}),
    create(thing("Namespace", name="n", labels={"env": "new"})),
)
match(
    "namespace-selector-namespace-delete",
    "A Namespace that is deleted has the labels that it has in the cluster.",
    matching(rule("namespaces"), namespaceSelector={"matchLabels": {"env": "prod"}}),
    delete(thing("Namespace", name="prod")),
)
match("names", "resourceNames has the name.", matching(rule("pods", resourceNames=["x"])))
match("names-no", "resourceNames does not have the name.", matching(rule("pods", resourceNames=["y", "xx"])))
GENERATED: Final = create(pod(name=None, generateName="web-"))
match(
    "names-generated",
    "An empty name matches a listed name that generateName begins with.",
    matching(rule("pods", resourceNames=["web"])),
    GENERATED,
)
match(
    "names-generated-longer",
    "A listed name longer than generateName does not match.",
    matching(rule("pods", resourceNames=["web-1"])),
    GENERATED,
)
match(
    "names-generated-empty",
    "An empty listed name matches any generateName.",
    matching(rule("pods", resourceNames=[""])),
    GENERATED,
)
match("excluded", "excludeResourceRules count more.", matching(rule("*"), excludeResourceRules=[PODS]))
match(
    "excluded-other",
    "excludeResourceRules of others do not count.",
    matching(rule("*"), excludeResourceRules=[rule("services")]),
)
match(
    "excluded-name",
    "excludeResourceRules may have names.",
    matching(excludeResourceRules=[rule("pods", resourceNames=["x"])]),
)
match(
    "excluded-name-no",
    "excludeResourceRules may have names.",
    matching(excludeResourceRules=[rule("pods", resourceNames=["y"])]),
)
match(
    "excluded-operation",
    "excludeResourceRules may have operations.",
    matching(excludeResourceRules=[rule("pods", operations=["DELETE"])]),
)
match(
    "equivalent",
    "There is no conversion to other versions.",
    matching(rule("example.io:widgets", apiVersions=["v2"])),
    create(thing("Widget")),
)

# -- exceptions -----------------------------------------------------------------------------------


def excepted(
    name: str, shows: str, *exceptions: Json, on: Json | None = None, policy: Json | None = None
) -> None:
    """Add a case of *policy*, by default one that denies everything, with *exceptions*."""
    case(f"exception-{name}", shows, policy or validating(NO), on=on, exceptions=list(exceptions))


excepted("always", "An exception without conditions always applies.", exception())
excepted(
    "true",
    "An exception applies if all its conditions are true.",
    exception("true", "object.metadata.name == 'x'"),
)
excepted("false", "A condition that is false ends an exception.", exception("true", "false"))
excepted("other-policy", "An exception is of one policy.", exception(of="q"))
excepted("other-kind", "An exception names the kind.", exception(kind="MutatingPolicy"))
excepted(
    "error",
    "A condition without a value refuses the request under failurePolicy Fail.",
    exception(MISSING),
    policy=validating(YES),
)
excepted(
    "error-ignore",
    "A condition without a value ends the exception under failurePolicy Ignore.",
    exception(MISSING),
    policy=validating(NO, failurePolicy="Ignore"),
)
excepted(
    "error-after",
    "After an exemption the errors of others do not count.",
    exception(name="a"),
    exception(MISSING, name="b"),
)
excepted(
    "error-before", "An error before an exemption counts.", exception(MISSING, name="a"), exception(name="b")
)
excepted(
    "false-after-error", "A condition that is false counts more than an error.", exception(MISSING, "false")
)
excepted(
    "before-conditions",
    "Exceptions come before matchConditions.",
    exception(),
    policy=validating(NO, matchConditions=named(a=MISSING)),
)
excepted(
    "conditions-after",
    "An exception that does not apply leaves matchConditions.",
    exception("false"),
    policy=validating(NO, matchConditions=named(a="false")),
)
excepted(
    "variables",
    "Conditions of exceptions compile with variables, which have no value.",
    exception("variables.v == 1"),
    policy=validating(YES, variables=named(v="1")),
)
IMAGES: Final = validating(
    check("object.spec.containers.all(c, c.image in exceptions.allowedImages)", "image")
)
excepted(
    "images",
    "Images of an exception are for the policy to use.",
    exception(images=["nginx:1"]),
    policy=IMAGES,
)
excepted(
    "images-other",
    "Images of an exception are for the policy to use.",
    exception(images=["other"]),
    policy=IMAGES,
)
excepted(
    "images-unused", "An exception with images exempts from nothing by itself.", exception(images=["nginx:1"])
)
excepted(
    "images-of-two",
    "Images are those of all exceptions that apply.",
    exception(name="a", images=["x"]),
    exception("false", name="b", images=["y"]),
    exception(name="c", images=["z"]),
    policy=validating(check("false", by="exceptions.allowedImages.join(' ')")),
)
excepted(
    "values",
    "Values of an exception are for the policy to use.",
    exception(allowedValues=["x"]),
    policy=validating(check("object.metadata.name in exceptions.allowedValues", "value")),
)
excepted(
    "values-and-full",
    "A full exemption counts more than images.",
    exception(name="a", images=["q"]),
    exception(name="b"),
)
excepted(
    "values-of-parts",
    "Images and values of exceptions whose conditions are false are not there.",
    exception(name="a", images=["x"], allowedValues=["y"]),
    exception("false", name="b", images=["z"], allowedValues=["z"]),
    policy=validating(
        check("false", by="exceptions.allowedImages.join(' ') + '/' + exceptions.allowedValues.join(' ')")
    ),
)
excepted(
    "values-in-conditions",
    "matchConditions of the policy can use images and values.",
    exception(allowedValues=["x"]),
    policy=validating(NO, matchConditions=named(a="!(object.metadata.name in exceptions.allowedValues)")),
)
excepted(
    "values-in-variables",
    "Variables can use images and values.",
    exception(allowedValues=["x"]),
    policy=validating(
        check("object.metadata.name in variables.names", "value"),
        variables=named(names="exceptions.allowedValues"),
    ),
)
excepted(
    "values-in-exceptions",
    "Conditions of exceptions have no images and values.",
    exception("exceptions.allowedValues.size() == 0", allowedValues=["x"]),
    policy=validating(YES),
)
excepted(
    "values-before-error",
    "An error of another exception counts after images and values.",
    exception(name="a", allowedValues=["x"]),
    exception(MISSING, name="b"),
    policy=validating(YES),
)
excepted(
    "values-of-one-policy-twice",
    "An exception that names a policy twice gives its images and values twice.",
    {**exception(), "spec": {"policyRefs": [{"name": "p", "kind": "ValidatingPolicy"}] * 2, "images": ["a"]}},
    policy=validating(check("false", by="exceptions.allowedImages.join(' ')")),
)
excepted(
    "images-of-template",
    "The variant for workloads has images and values of the exceptions of its policy.",
    exception(images=["nginx:1"]),
    policy=IMAGES,
    on=create(workload("Deployment")),
)
excepted("pass", "reportResult changes reports only.", exception(reportResult="pass"))
excepted(
    "no-match",
    "An exception of a policy that does not match changes nothing.",
    exception(MISSING),
    policy=validating(NO, matchConstraints=matching(rule("services"))),
)
excepted(
    "library",
    "Conditions have the libraries of the policy.",
    exception("object.metadata.?labels.orValue({}) == {}"),
)
excepted(
    "compile-error",
    "A condition of an exception that does not compile leaves the policy out.",
    exception("nothing"),
)
excepted(
    "namespaced",
    "An exception names the namespaced kind.",
    exception(kind="NamespacedValidatingPolicy"),
    policy=validating(NO, inside="default"),
)
excepted(
    "namespaced-wrong",
    "An exception of the other kind does not apply.",
    exception(),
    policy=validating(NO, inside="default"),
)

# -- namespaced policies --------------------------------------------------------------------------

case("namespaced", "A namespaced policy has the objects of its namespace.", validating(NO, inside="default"))
case(
    "namespaced-other",
    "A namespaced policy has no objects of other namespaces.",
    validating(NO, inside="prod"),
)
case(
    "namespaced-cluster-scoped",
    "A namespaced policy has no cluster-scoped objects.",
    validating(NO, inside="default", matchConstraints=matching(rule("nodes"))),
    on=create(thing("Node")),
)
case(
    "namespaced-both",
    "Policies and namespaced policies answer in two webhooks.",
    validating(check("false", "one")),
    validating(check("false", "two"), inside="default"),
)

# -- variants for workloads -----------------------------------------------------------------------

WORKLOADS: Final = (
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "Job",
    "CronJob",
    "ReplicationController",
)
for kind in WORKLOADS:
    case(
        f"variant-{kind}",
        f"A policy of Pods has a variant for {kind}, or none.",
        validating(TAGGED),
        on=create(workload(kind, pod_spec("nginx"))),
    )
    case(
        f"variant-{kind}-passes",
        f"The variant for {kind} evaluates the template.",
        validating(TAGGED),
        on=create(workload(kind)),
    )


def variant(name: str, shows: str, policy: Json, on: Json | None = None, **more: Any) -> None:
    """Add a case of *policy* at the creation of a Deployment whose image has no tag."""
    case(f"variant-{name}", shows, policy, on=on or create(workload("Deployment", pod_spec("nginx"))), **more)


def controllers(*names: str) -> Json:
    return {"autogen": {"podControllers": {"controllers": list(names)}}}


variant("listed", "controllers lists the workloads.", validating(TAGGED, **controllers("deployments")))
variant(
    "not-listed", "A workload that is not listed has no variant.", validating(TAGGED, **controllers("jobs"))
)
variant("none", "An empty list switches variants off.", validating(TAGGED, **controllers()))
variant(
    "kind-name", "The name of a kind is none of the names.", validating(TAGGED, **controllers("Deployment"))
)
variant("unknown-beside", "Unknown names are ignored.", validating(TAGGED, **controllers("deployments", "x")))
variant("empty-autogen", "autogen without a list is all workloads.", validating(TAGGED, autogen={}))
for name, constraints in {
    "two-rules": matching(PODS, rule("services")),
    "two-resources": matching(rule("pods", "services")),
    "subresource": matching(rule("pods", "pods/ephemeralcontainers")),
    "any-version": matching(rule("pods", apiVersions=["*"])),
    "any-resource": matching(rule("*")),
    "object-selector": matching(objectSelector=LABEL),
    "excluded": matching(excludeResourceRules=[rule("pods", resourceNames=["y"])]),
    "names": matching(rule("pods", resourceNames=["x"])),
}.items():
    variant(
        f"not-{name}",
        f"A policy with {name} has no variants.",
        validating(TAGGED, matchConstraints=constraints),
    )
variant(
    "empty-selector",
    "An empty objectSelector does not prevent variants.",
    validating(TAGGED, matchConstraints=matching(objectSelector={})),
)
variant(
    "namespace-selector",
    "A namespaceSelector is that of variants too.",
    validating(TAGGED, matchConstraints=matching(namespaceSelector={"matchLabels": {"team": "blue"}})),
)
variant(
    "scope",
    "A scope is not that of variants.",
    validating(TAGGED, matchConstraints=matching(rule("pods", scope="Cluster"))),
)
variant(
    "operations",
    "Operations are those of variants too.",
    validating(TAGGED, matchConstraints=matching(rule("pods", operations=["DELETE"]))),
)
variant(
    "name",
    "object.metadata.name is that of the template, which has none.",
    validating(check("object.metadata.name == 'x'")),
)
variant(
    "namespace",
    "object.metadata.namespace stays.",
    validating(check("object.metadata.namespace == 'default'", "ns")),
)
variant(
    "namespace-longer",
    "A longer name than namespace does not stay.",
    validating(check("object.metadata.namespaceX == 'default'", "ns")),
)
variant(
    "spec-namespace",
    "object.spec.namespace stays.",
    validating(check("object.spec.namespace == 'default'", "ns")),
)
variant(
    "labels",
    "Labels are those of the template.",
    validating(check("object.metadata.labels.app == 'x'", "app")),
)
variant(
    "optional",
    "object.?spec stays.",
    validating(check("object.?spec.?containers.orValue([]).size() == 0", "some")),
)
variant("index", "object['spec'] stays.", validating(check("has(object['spec'].template)", "none")))
variant(
    "request-object",
    "request.object.spec changes.",
    validating(check("request.object.spec.containers.size() == 2", "size")),
)
variant(
    "old-object",
    "oldObject.spec changes.",
    validating(check("oldObject.spec.containers.size() == 2", "size")),
    on=update(workload("Deployment"), workload("Deployment")),
)
variant("kind", "object.kind stays.", validating(check("object.kind == 'Pod'", by="string(object.kind)")))
variant(
    "longer-name", "A field whose name begins with spec changes.", validating(check("has(object.specX)", "x"))
)
variant("message", "A message changes.", validating(check("false", "set object.spec.x, not object.spec.y")))
variant(
    "literal", "A literal changes.", validating(check("false", by="'object.metadata.name of ' + object.kind"))
)
variant(
    "escaped",
    "Special characters of messages stay.",
    validating(check("false", 'a < b & object.spec > "c" é\u2028')),
)
variant(
    "variables",
    "Variables change.",
    validating(
        check("variables.c.size() == 2", by="string(variables.c.size())"),
        variables=named(c="object.spec.containers"),
    ),
)
variant(
    "conditions",
    "matchConditions change.",
    validating(TAGGED, matchConditions=named(a="object.spec.containers.size() == 2")),
)
variant(
    "condition-name",
    "A condition about the name refuses workloads.",
    validating(TAGGED, matchConditions=named(a="object.metadata.name != 'y'")),
)
variant(
    "condition-name-ignore",
    "Under failurePolicy Ignore it skips them.",
    validating(TAGGED, matchConditions=named(a="object.metadata.name != 'y'"), failurePolicy="Ignore"),
)
variant(
    "annotations",
    "Audit annotations change.",
    validating(
        YES, auditAnnotations=[{"key": "k", "valueExpression": "string(object.spec.containers[0].image)"}]
    ),
)
variant("actions", "Variants have the actions of the policy.", validating(TAGGED, validationActions=["Warn"]))
variant(
    "blank",
    "A blank before the dot prevents the change.",
    validating(check("has(object .spec.template)", "none")),
)
variant(
    "delete",
    "At DELETE a variant sees an empty object.",
    validating(check("size(object) == 0 && oldObject.spec.containers.size() == 1", "x")),
    on=delete(workload("Deployment")),
)
variant("has", "has(object.spec.x) changes.", validating(check("has(object.spec.containers)", "none")))
variant("excepted", "An exception is one of variants too.", validating(TAGGED), exceptions=[exception()])
variant(
    "exception-condition",
    "Conditions of exceptions do not change.",
    validating(YES),
    exceptions=[exception("object.spec.containers.size() == 1")],
)
variant(
    "exception-condition-ignore",
    "Under failurePolicy Ignore such an exception does not apply.",
    validating(TAGGED, failurePolicy="Ignore"),
    exceptions=[exception("object.spec.containers.size() == 1")],
)
variant(
    "exception-name",
    "A condition about the name is about the workload.",
    validating(TAGGED),
    exceptions=[exception("object.metadata.name == 'x'")],
)
variant("namespaced", "A namespaced policy has variants.", validating(TAGGED, inside="default"))
variant(
    "cron-job",
    "The path of a CronJob is longer.",
    validating(check("false", "object.spec and object.metadata.labels")),
    on=create(workload("CronJob")),
)
