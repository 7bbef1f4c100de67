"""Policies that interact, and the operations under them."""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.client import APPLY, JSON, MERGE_PATCH
from tests.e2e.cluster import ALICE
from tests.e2e.compare import Case, Operation
from tests.e2e.objects import GROUP, config_map, deployment, pod, widget, within
from tests.e2e.setups import Hook, rule

STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

WRITES: Final = ("CREATE", "UPDATE")
OBJECTS: Final = (
    rule("pods configmaps", *WRITES),
    rule("deployments", *WRITES, group="apps"),
    rule("widgets", *WRITES, group=GROUP),
)
EVERYTHING: Final = (
    rule("pods pods/* configmaps"),
    rule("deployments deployments/*", group="apps"),
    rule("widgets widgets/*", group=GROUP),
)
RECORD: Final = {"record": True}


def mutate(name: str, script: dict[str, Any], *rules: dict[str, Any], **fields: Any) -> Hook:
    return Hook("mutate", name, script, rules or OBJECTS, fields=fields)


def validate(name: str, script: dict[str, Any], *rules: dict[str, Any], **fields: Any) -> Hook:
    return Hook("validate", name, script, rules or OBJECTS, fields=fields)


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def create(document: dict[str, Any], query: str = "", user: str = ALICE) -> Operation:
    kinds = {"Pod": "pods", "ConfigMap": "configmaps", "Deployment": "deployments", "Widget": "widgets"}
    path = within(kinds[document["kind"]], document["apiVersion"])
    return Operation("POST", path + query, document, JSON, user)


def patch(path: str, document: Any, content_type: str = MERGE_PATCH) -> Operation:
    return Operation("PATCH", path, document, content_type, ALICE)


def delete(path: str, options: Any = None) -> Operation:
    return Operation("DELETE", path, options, JSON, ALICE)


def relabelled(name: str, **labels: str | None) -> Operation:
    return patch(within(name), {"metadata": {"labels": labels}})


def applied(document: dict[str, Any], query: str = "") -> Operation:
    kinds = {"Pod": "pods", "ConfigMap": "configmaps", "Deployment": "deployments", "Widget": "widgets"}
    path = within(f"{kinds[document['kind']]}/{document['metadata']['name']}", document["apiVersion"])
    return patch(f"{path}?fieldManager=tester{query}", document, APPLY)


BARE: Final = {"name": "sidecar", "image": "registry.test/sidecar:1"}
SIDECAR: Final = {
    **BARE,
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}
"""A container in which the API server fills in nothing."""
POD_WRITES: Final = rule("pods", "CREATE")
WIDGET_WRITES: Final = rule("widgets", "CREATE", group=GROUP)
IF_NEEDED: Final = {"reinvocationPolicy": "IfNeeded"}

BUILDING: Final = Case(
    "building",
    (
        mutate("label", {"label": "first"}),
        mutate("sidecar", {"patch": [add("/spec/containers/-", SIDECAR)]}, POD_WRITES),
        mutate(
            "change",
            {
                "patch": [
                    {"op": "test", "path": "/spec/containers/1/name", "value": "sidecar"},
                    {"op": "replace", "path": "/spec/containers/1/image", "value": "registry.test/sidecar:2"},
                    add("/metadata/labels/first", "changed"),
                ]
            },
            POD_WRITES,
        ),
        mutate("insert", {"patch": [add("/spec/containers/0", {**SIDECAR, "name": "zeroth"})]}, POD_WRITES),
        mutate("echo", {"echo": "seen"}),
        mutate(
            "escape",
            {"patch": [add("/spec/a~1b~0c~01", "x"), add("/metadata/labels/odd~1key", "value")]},
            WIDGET_WRITES,
        ),
        mutate(
            "escaped",
            {
                "patch": [
                    {"op": "remove", "path": "/metadata/labels/odd~1key"},
                    {"op": "test", "path": "/spec/a~1b~0c~01", "value": "x"},
                ]
            },
            WIDGET_WRITES,
        ),
        mutate(
            "move",
            {
                "patch": [
                    {"op": "move", "from": "/data/old", "path": "/data/new"},
                    {"op": "copy", "from": "/data/new", "path": "/metadata/annotations/copied"},
                ]
            },
            rule("configmaps", "CREATE"),
        ),
        validate("see", RECORD),
    ),
    (
        create(pod()),
        create(pod("labelled", {"app": "web", "first": "mine"})),
        create(config_map(old="value")),
        create(deployment()),
        create(widget()),
        relabelled("pods/web", first=None, second="x"),
        relabelled("configmaps/settings", first=None),
    ),
)

NO_NET_CHANGE: Final = Case(
    "no-net-change",
    (
        mutate("add", {"patch": [add("/data/extra", "x")]}, rule("configmaps")),
        mutate("remove", {"patch": [{"op": "remove", "path": "/data/extra"}]}, rule("configmaps")),
        mutate("same", {"patch": [add("/data/key", "value")]}, rule("configmaps")),
        mutate("empty", {"patch": []}, rule("configmaps")),
    ),
    (create(config_map(key="value")),),
)

NO_EFFECT: Final = Case(
    "no-effect",
    (
        mutate("before", RECORD, reinvocationPolicy="IfNeeded"),
        mutate("same", {"patch": [add("/metadata/labels/app", "web")]}),
        mutate("after", RECORD),
        mutate("test", {"patch": [{"op": "test", "path": "/metadata/name", "value": "web"}]}),
    ),
    (create(pod("web", {"app": "web"})),),
)

REINVOCATIONS: Final = [
    Case(f"reinvocation-{name}", tuple(hooks), (create(pod()), create(config_map(key="value"))))
    for name, hooks in {
        "before-a-change": [mutate("a", {"count": "a"}, **IF_NEEDED), mutate("b", {"label": "b"})],
        "after-a-change": [mutate("a", {"label": "a"}), mutate("b", {"count": "b"}, **IF_NEEDED)],
        "never": [mutate("a", {"count": "a"}), mutate("b", {"label": "b"})],
        "without-a-change": [mutate("a", {"count": "a"}, **IF_NEEDED), mutate("b", RECORD)],
        "chain": [
            mutate("a", {"count": "a"}, **IF_NEEDED),
            mutate("b", {"count": "b"}, **IF_NEEDED),
            mutate("c", {"label": "c"}),
            mutate("d", {"echo": "d", **RECORD}, **IF_NEEDED),
            mutate("e", {"count": "e"}),
        ],
        "of-what-matches-no-more": [
            mutate(
                "a",
                {"count": "a"},
                objectSelector={"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]},
                **IF_NEEDED,
            ),
            mutate("b", {"label": "b"}),
            mutate("c", {"count": "c"}, **IF_NEEDED),
        ],
        "not-of-what-did-not-match": [
            mutate("a", {"count": "a"}, objectSelector={"matchLabels": {"b": "set"}}, **IF_NEEDED),
            mutate("b", {"label": "b"}),
        ],
        "that-denies": [
            mutate("a", {"count": "a"}, **IF_NEEDED),
            mutate("b", {"deny": {"code": 403, "message": "no"}, "when": "z"}, **IF_NEEDED),
            mutate("c", {"count": "c"}, **IF_NEEDED),
            mutate("z", {"label": "z"}),
        ],
    }.items()
]

REFUSALS: Final = Case(
    "refusals",
    (
        mutate("label", {"label": "first", "warnings": ["first was added"]}),
        mutate(
            "deny",
            {
                "deny": {
                    "code": 422,
                    "reason": "Invalid",
                    "message": 'two\nlines: "quoted"',
                    "causes": [
                        {"reason": "FieldValueInvalid", "message": "bad", "field": "spec"},
                        {"message": "worse"},
                    ],
                },
                "warnings": ["and a warning"],
            },
            objectSelector={"matchLabels": {"refused": "mutating"}},
        ),
        mutate("later", {"label": "later", "warnings": ["too late"]}),
        validate(
            "code",
            {"deny": {"code": 403, "message": "forbidden"}},
            objectSelector={"matchLabels": {"refused": "403"}},
        ),
        validate("bare", {"deny": {}}, objectSelector={"matchLabels": {"refused": "bare"}}),
        validate(
            "quota",
            {
                "deny": {
                    "code": 429,
                    "reason": "TooManyRequests",
                    "message": "slow",
                    "retry_after_seconds": 7,
                    "kind": "ConfigMap",
                    "name": "is-429",
                    "group": "core",
                    "uid": "u-1",
                }
            },
            objectSelector={"matchLabels": {"refused": "429"}},
        ),
        validate(
            "named",
            {"deny": {"code": 422, "reason": "Invalid", "message": "no", "kind": "ConfigMap", "name": "x"}},
            objectSelector={"matchLabels": {"refused": "named"}},
        ),
        mutate(
            "wait",
            {"deny": {"code": 503, "message": "later", "retry_after_seconds": 1}},
            objectSelector={"matchLabels": {"refused": "wait"}},
        ),
        validate(
            "teapot",
            {"deny": {"code": 418, "message": "teapot"}},
            objectSelector={"matchLabels": {"refused": "418"}},
        ),
        validate(
            "patched",
            {"deny": {"code": 404, "reason": "NotFound", "message": "by what a mutating one added"}},
            objectSelector={"matchLabels": {"later": "set", "refused": "later"}},
        ),
        validate(
            "gone",
            {"deny": {"code": 409, "reason": "Conflict", "message": "stays"}, **RECORD},
            rule("configmaps", "DELETE"),
        ),
    ),
    (
        *(
            create(config_map(f"is-{how}", {"refused": how}))
            for how in ("mutating", "403", "bare", "429", "named", "wait", "418", "later", "not")
        ),
        patch(within("configmaps/is-not"), {"metadata": {"labels": {"refused": "403"}}}),
        create(config_map("dry", {"refused": "403"}), "?dryRun=All"),
        delete(within("configmaps/is-not")),
        delete(within("configmaps")),
    ),
)

SEVERAL_REFUSE: Final = Case(
    "several-refuse",
    (
        validate(
            "a",
            {
                "deny": {
                    "code": 409,
                    "reason": "Conflict",
                    "message": "a says no",
                    "causes": [{"message": "a's", "field": "data"}],
                },
                "delay_ms": 150,
            },
        ),
        validate("b", {"deny": {"code": 403, "message": "b says no", "causes": [{"message": "b's"}]}}),
        validate("c", {"warnings": ["c only warns"]}),
        validate("d", {"status": "UNAVAILABLE"}),
        validate("e", {"deny": {"message": "e says\nno"}, "delay_ms": 100}),
    ),
    (create(config_map()), create(pod())),
)
"""Not recorded: which answer the API server reports is a matter of time."""

BROKEN: Final = Case(
    "broken",
    (
        mutate("status", {"status": "UNAVAILABLE"}, failurePolicy="Ignore"),
        mutate("label", {"label": "first"}),
        mutate("nonsense", {"garbage": True}, failurePolicy="Ignore"),
        mutate("fail", {"status": "INTERNAL"}, objectSelector={"matchLabels": {"broken": "mutating"}}),
        mutate(
            "test",
            {"patch": [{"op": "test", "path": "/metadata/name", "value": "other"}]},
            objectSelector={"matchLabels": {"broken": "test"}},
        ),
        mutate(
            "missing",
            {"patch": [{"op": "remove", "path": "/metadata/labels/none"}]},
            objectSelector={"matchLabels": {"broken": "remove"}},
        ),
        mutate(
            "denies",
            {"deny": {"message": "whatever the policy"}},
            objectSelector={"matchLabels": {"broken": "denied"}},
            failurePolicy="Ignore",
        ),
        validate("garbage", {"garbage": True}, failurePolicy="Ignore"),
        validate(
            "refuse",
            {"status": "PERMISSION_DENIED"},
            objectSelector={"matchLabels": {"broken": "validating"}},
        ),
        validate(
            "patches", {"patch": [add("/data", {})]}, objectSelector={"matchLabels": {"broken": "patches"}}
        ),
    ),
    tuple(
        create(config_map(f"is-{how}", {"broken": how}, key="value"))
        for how in ("ignored", "mutating", "test", "remove", "denied", "validating", "patches")
    ),
)

SELECTORS: Final = Case(
    "selectors",
    (
        mutate("gold", {"label": "gold"}, namespaceSelector={"matchLabels": {"tier": "gold"}}),
        mutate("silver", {"label": "silver"}, namespaceSelector={"matchLabels": {"tier": "silver"}}),
        mutate(
            "in",
            {"label": "in"},
            namespaceSelector={
                "matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold", "iron"]}]
            },
        ),
        mutate(
            "absent",
            {"label": "absent"},
            namespaceSelector={
                "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]
            },
        ),
        mutate("opened", {"label": "opened"}, objectSelector={"matchLabels": {"gold": "set"}}),
        mutate(
            "close",
            {"patch": [{"op": "remove", "path": "/metadata/labels/opened"}]},
            rule("configmaps pods", "CREATE"),
        ),
        mutate("closed", {"label": "closed"}, objectSelector={"matchLabels": {"opened": "set"}}),
        validate("seen", {**RECORD, "warnings": ["gold"]}, objectSelector={"matchLabels": {"gold": "set"}}),
        validate(
            "unseen",
            {"warnings": ["unlabelled"]},
            objectSelector={"matchExpressions": [{"key": "gold", "operator": "DoesNotExist"}]},
        ),
        validate(
            "old",
            {"warnings": ["old or new has it"]},
            rule("configmaps", "UPDATE", "DELETE"),
            objectSelector={"matchLabels": {"mark": "x"}},
        ),
    ),
    (
        create(config_map(labels={"mark": "x"})),
        create(pod()),
        relabelled("configmaps/settings", mark=None),
        relabelled("configmaps/settings", other="x"),
        relabelled("configmaps/settings", mark="x"),
        delete(within("configmaps/settings")),
    ),
    {"tier": "gold"},
)

WORDS: Final = Case(
    "words",
    (
        mutate(
            "a",
            {
                "warnings": ["one", "two", "one", "", "new\nline", "tab\tbed", 'quo"ted \\ back'],
                "annotations": {"k": "a", "K": "upper"},
            },
        ),
        mutate(
            "b",
            {
                "warnings": ["two", "three", "é ☃"],
                "annotations": {"k": "b", "not valid!": "x", "dash-ed_key": "ok", "-odd": "x"},
                "label": "b",
            },
        ),
        mutate("c", {"warnings": ["c"], "annotations": {"empty": ""}, "count": "c"}, **IF_NEEDED),
        validate("d", {"warnings": ["one", "four"], "annotations": {"k": "d"}}),
        validate("e", {"warnings": ["four", "five"], "annotations": {"j": "x" * 2000}}),
    ),
    (create(config_map()), create(pod()), create(config_map("dry"), "?dryRun=All")),
)

ORDER: Final = Case(
    "order",
    (
        Hook("mutate", "z", {"echo": "z"}, OBJECTS, configuration="a-first"),
        Hook("mutate", "a", {"label": "a"}, OBJECTS, configuration="b-second"),
        Hook("mutate", "m", {"echo": "m"}, OBJECTS, configuration="b-second"),
        Hook("mutate", "b", {"label": "b"}, OBJECTS, configuration="a-first"),
    ),
    (create(pod()), create(config_map())),
)

DEFAULTS: Final = Case(
    "defaults",
    (
        mutate("add", {"patch": [add("/spec/containers/-", BARE)]}, POD_WRITES),
        mutate("between", RECORD, POD_WRITES),
        validate("after", RECORD, POD_WRITES),
    ),
    (create(pod()),),
)
LONG_WARNING: Final = Case(
    "long-warning",
    (mutate("long", {"warnings": [f"{letter * 300} ends" for letter in "ab"], "label": "x"}),),
    (create(config_map()),),
)

POLICIES: Final = [
    BUILDING,
    NO_NET_CHANGE,
    NO_EFFECT,
    *REINVOCATIONS,
    REFUSALS,
    BROKEN,
    SELECTORS,
    WORDS,
    ORDER,
]
