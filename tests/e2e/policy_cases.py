"""ValidatingAdmissionPolicies with objects that show the rules of the API server."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

from gateway.pure.cel.compile import compile_condition
from gateway.pure.cel.errors import InvalidExpression
from tests.cel import expressions as listed
from tests.cel.differences import KNOWN, PANICS
from tests.e2e.compare import Operation
from tests.e2e.objects import config_map, within
from tests.e2e.policy_comparison import LABEL, Scenario, binding, bound, policy
from tests.e2e.setups import rule


@dataclass(frozen=True)
class PolicyCase:
    """One policy with its bindings, and the objects that are created under it."""

    name: str
    spec: dict[str, Any]
    bindings: tuple[dict[str, Any], ...] = ({"validationActions": ["Deny"]},)
    objects: tuple[dict[str, Any], ...] = ({"a": "1"},)
    """The data of ConfigMaps."""
    needs_new_functions: bool = False

    def scenario(self) -> Scenario:
        """Return the policy with its bindings, and the creation of the objects."""
        match = {
            "resourceRules": [rule("configmaps", "CREATE")],
            "objectSelector": {"matchLabels": {LABEL: self.name}},
            **self.spec.get("matchConstraints", {}),
        }
        bindings = (
            binding(f"{self.name}-{number}", self.name, spec) for number, spec in enumerate(self.bindings)
        )
        operations = (
            Operation(
                "POST",
                within("configmaps?dryRun=All"),
                config_map(f"{self.name}-{number}", {LABEL: self.name}, **data),
            )
            for number, data in enumerate(self.objects)
        )
        return Scenario(
            self.name,
            (policy(self.name, {**self.spec, "matchConstraints": match}), *bindings),
            tuple(operations),
            self.needs_new_functions,
        )


def checks(*expressions: str | dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a policy with these validations."""
    return {"validations": [{"expression": each} if isinstance(each, str) else each for each in expressions]}


CONFIG_MAP: Final = {"apiVersion": "v1", "kind": "ConfigMap"}
PARAMS: Final = (
    config_map("limits", {"tier": "gold"}, max="3"),
    config_map("others", {"tier": "gold"}, max="1"),
)
"""Created in the namespace of the test, and written into the configuration."""


def ref(**fields: Any) -> dict[str, Any]:
    return {"paramRef": {"parameterNotFoundAction": "Deny", **fields}}


WITH_PARAMS: Final = {"paramKind": CONFIG_MAP, **checks("int(object.data.a) <= int(params.data.max)")}
SIZES: Final = ({"a": "1"}, {"a": "2"}, {"a": "9"})
BINDING_MATCH: Final = {
    "matchResources": {
        "excludeResourceRules": [{**rule("configmaps", "*"), "resourceNames": ["binding-match-0"]}]
    }
}

SIXTEEN: Final = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]"
LISTED: Final = (
    PolicyCase("plain", checks("object.data.a == '2'", "object.data.a != '1'"), objects=SIZES),
    PolicyCase(
        "messages",
        checks(
            {"expression": "false", "message": "  plain  "},
        ),
    ),
    PolicyCase(
        "message-expression", checks({"expression": "false", "messageExpression": "'a is ' + object.data.a"})
    ),
    PolicyCase(
        "message-expression-fails",
        checks(
            {"expression": "false", "messageExpression": "string(object.data.none)", "message": "instead"}
        ),
    ),
    PolicyCase(
        "message-with-lines",
        checks({"expression": "false", "messageExpression": r"'a\nb'", "message": "one"}),
    ),
    PolicyCase(
        "message-too-long",
        checks({"expression": "false", "messageExpression": "string(object.data.a)"}),
        objects=({"a": "x" * 6000},),
    ),
    PolicyCase("message-blank", checks({"expression": "false", "messageExpression": "'  '"})),
    *(
        PolicyCase(
            f"reason-{reason.lower()}", checks({"expression": "false", "message": "m", "reason": reason})
        )
        for reason in ("Forbidden", "Invalid", "RequestEntityTooLarge")
    ),
    *(
        PolicyCase(
            f"go-types-{number}",
            {**WITH_PARAMS, **checks(text)},
            (bound(**ref(name="limits")),),
        )
        for number, text in enumerate(
            (
                "object.data == ''",
                "params.data == ''",
                "dyn(request.userInfo.groups) == 1",
                "dyn(namespaceObject.metadata.labels) == 1",
                "1 in object.data",
                "[object.data] == ['']",
                "object == oldObject",
                "object.metadata == params.metadata",
            )
        )
    ),
    PolicyCase(
        "go-types-ignored",
        {"failurePolicy": "Ignore", **checks("object.data != '' && !(object.data == '')")},
    ),
    PolicyCase("error-fail", checks("object.data.none == 'x'")),
    PolicyCase(
        "error-ignore",
        {"failurePolicy": "Ignore", **checks("object.data.none == 'x'", "object.data.a == '1'")},
        objects=SIZES,
    ),
    PolicyCase("error-warns", checks("object.data.none == 'x'"), (bound("Warn"),)),
    PolicyCase("warns", checks({"expression": "false", "message": "w"}), (bound("Warn"),)),
    PolicyCase(
        "audits", checks({"expression": "false", "message": "w"}, "object.data.b == 'x'"), (bound("Audit"),)
    ),
    PolicyCase(
        "warns-and-audits", checks({"expression": "false", "message": "w"}), (bound("Audit", "Warn"),)
    ),
    PolicyCase(
        "denies-and-audits", checks({"expression": "false", "message": "w"}), (bound("Deny", "Audit"),)
    ),
    PolicyCase(
        "two-bindings", checks({"expression": "false", "message": "w"}), (bound("Warn"), bound("Deny"))
    ),
    PolicyCase(
        "conditions",
        {
            "matchConditions": [
                {"name": "one", "expression": "object.data.a != '1'"},
                {"name": "two", "expression": "request.userInfo.username != 'nobody'"},
            ],
            **checks("false"),
        },
        objects=SIZES,
    ),
    PolicyCase(
        "conditions-fail",
        {"matchConditions": [{"name": "one", "expression": "object.data.none != '1'"}], **checks("false")},
    ),
    PolicyCase(
        "conditions-ignored",
        {
            "failurePolicy": "Ignore",
            "matchConditions": [{"name": "one", "expression": "object.data.none != '1'"}],
            **checks("false"),
        },
    ),
    PolicyCase(
        "variables",
        {
            "variables": [
                {"name": "n", "expression": "int(object.data.a)"},
                {"name": "twice", "expression": "variables.n * 2"},
                {"name": "unused", "expression": "object.none.none"},
                {"name": "broken", "expression": "int(object.data.none)"},
            ],
            **checks(
                {
                    "expression": "variables.twice <= 3",
                    "messageExpression": "'twice is %d'.format([variables.twice])",
                },
                {"expression": "has(variables.n)", "message": "never"},
                {"expression": "variables.n == 1 || variables.broken == 1", "message": "broken"},
            ),
        },
        objects=SIZES,
    ),
    PolicyCase(
        "variables-of-all-types",
        {
            "variables": [
                {"name": "flag", "expression": "true || string(object.data.none) == 'x'"},
                {"name": "list", "expression": "[1, 2, int(object.data.a)]"},
                {"name": "map", "expression": "{'foo': 'bar', 'a': string(object.data.a)}"},
                {"name": "count", "expression": "variables.list[114514]"},
                {"name": "optional", "expression": "object.data[?'none']"},
            ],
            **checks(
                "variables.flag && variables.list.sum() > 4",
                "variables.map['foo'] == 'bar' && variables.map.a == '9'",
                "variables.optional.orValue('x') == 'x'",
                "variables.count > 0",
                "variables.count > 1 || true",
                {"expression": "false", "messageExpression": "string(variables.count)", "message": "instead"},
            ),
        },
        objects=SIZES,
    ),
    PolicyCase(
        "variables-cost-once",
        {
            "variables": [
                {
                    "name": "dear",
                    "expression": "".join(f"{SIXTEEN}.all({name}, " for name in "abcd")
                    + "a + b + c + d > 0))))",
                }
            ],
            **checks(*["variables.dear"] * 40, "!variables.dear"),
        },
    ),
    PolicyCase(
        "namespace",
        checks(
            "namespaceObject.metadata.name == request.namespace", "'x' in namespaceObject.metadata.labels"
        ),
    ),
    PolicyCase(
        "namespace-time",
        checks("namespaceObject.metadata.creationTimestamp < timestamp('2020-01-01T00:00:00Z')"),
    ),
    PolicyCase(
        "annotations",
        {
            "validations": [{"expression": "object.data.a != '9'"}],
            "auditAnnotations": [
                {"key": "text", "valueExpression": "' a=' + object.data.a"},
                {"key": "none", "valueExpression": "null"},
                {"key": "blank", "valueExpression": "'  '"},
            ],
        },
        (bound("Deny"), bound("Warn")),
        SIZES,
    ),
    PolicyCase(
        "annotation-of-a-time",
        {
            "auditAnnotations": [
                {
                    "key": "time",
                    "valueExpression": "string(namespaceObject.metadata.creationTimestamp < timestamp(0))",
                }
            ],
        },
    ),
    PolicyCase(
        "annotation-fails",
        {"auditAnnotations": [{"key": "k", "valueExpression": "string(object.data.none)"}]},
        (bound("Audit"),),
    ),
    PolicyCase(
        "annotation-ignored",
        {
            "failurePolicy": "Ignore",
            "auditAnnotations": [{"key": "k", "valueExpression": "string(object.data.none)"}],
        },
        (bound("Audit"),),
    ),
    PolicyCase("params-by-name", WITH_PARAMS, (bound(**ref(name="limits")),), SIZES),
    PolicyCase(
        "params-by-selector", WITH_PARAMS, (bound(**ref(selector={"matchLabels": {"tier": "gold"}})),), SIZES
    ),
    PolicyCase(
        "params-of-two-bindings",
        WITH_PARAMS,
        (bound("Warn", **ref(name="others")), bound(**ref(name="limits"))),
        SIZES,
    ),
    PolicyCase("params-not-found-deny", WITH_PARAMS, (bound(**ref(name="nothing")),)),
    PolicyCase("params-not-found-deny-warn", WITH_PARAMS, (bound("Warn", **ref(name="nothing")),)),
    PolicyCase(
        "params-not-found-allow",
        WITH_PARAMS,
        (bound(paramRef={"name": "nothing", "parameterNotFoundAction": "Allow"}),),
    ),
    PolicyCase(
        "params-not-found-ignore", {"failurePolicy": "Ignore", **WITH_PARAMS}, (bound(**ref(name="nothing")),)
    ),
    PolicyCase("params-without-ref", {"paramKind": CONFIG_MAP, **checks("params == null", "params != null")}),
    PolicyCase(
        "params-kind",
        {
            "paramKind": CONFIG_MAP,
            **checks(
                "params.kind == 'ConfigMap' && params.apiVersion == 'v1'", "params.metadata.name == 'x'"
            ),
        },
        (bound(**ref(name="limits")),),
    ),
    PolicyCase(
        "names",
        {
            "matchConstraints": {
                "resourceRules": [{**rule("configmaps", "CREATE"), "resourceNames": ["names-1"]}]
            },
            **checks("false"),
        },
        objects=SIZES,
    ),
    PolicyCase(
        "excluded",
        {
            "matchConstraints": {
                "excludeResourceRules": [{**rule("configmaps", "*"), "resourceNames": ["excluded-1"]}]
            },
            **checks("false"),
        },
        objects=SIZES,
    ),
    PolicyCase("binding-match", checks("false"), (bound(**BINDING_MATCH),), SIZES),
    PolicyCase(
        "binding-object-selector",
        checks("false"),
        (bound(matchResources={"objectSelector": {"matchLabels": {"never": "there"}}}),),
    ),
    PolicyCase(
        "request",
        checks(
            "request.operation == 'CREATE' && request.resource.resource == 'configmaps'",
            "request.kind.kind == 'ConfigMap' && request.dryRun",
            "request.name == 'x'",
        ),
    ),
    PolicyCase(
        "authorizer",
        checks(
            "authorizer.group('').resource('pods').namespace('default').check('create').allowed()",
            "authorizer.requestResource.check('get').reason() == 'x'",
        ),
    ),
    PolicyCase(
        "too-costly",
        checks(
            "".join(f"{SIXTEEN}.all({name}, " for name in "abcde") + "a + b + c + d + e > 0)))))",
        ),
    ),
)


def _is_accepted(expression: str) -> bool:
    try:
        compile_condition("one", expression)
    except InvalidExpression:
        return False
    return True


_EXPRESSIONS: Final = tuple(
    each
    for each in listed.EXPRESSIONS
    if each not in KNOWN
    and each not in PANICS
    and _is_accepted(each)
    and "object" not in each
    and "request" not in each
    and "authorizer" not in each
)


def drawn(seed: int) -> PolicyCase:
    """Return a random policy."""
    draw = random.Random(seed)
    spec: dict[str, Any] = checks(
        *(
            {
                "expression": draw.choice(_EXPRESSIONS),
                **draw.choice(({}, {"message": "m"}, {"messageExpression": "'n ' + string(1 + 1)"})),
            }
            for _ in range(draw.randint(1, 4))
        )
    )
    spec["failurePolicy"] = draw.choice(["Fail", "Ignore"])
    actions = draw.choice([["Deny"], ["Warn"], ["Audit"], ["Deny", "Audit"], ["Warn", "Audit"]])
    return PolicyCase(f"drawn-{seed}", spec, (bound(*actions),), needs_new_functions=True)


DRAWN: Final = tuple(map(drawn, range(60)))
CASES: Final = tuple(case.scenario() for case in (*LISTED, *DRAWN))
