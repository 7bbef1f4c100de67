"""Exceptions against a second implementation, which reads the documents as they are written.

The second implementation has no index, no parsed patterns and no shortcuts: it compares JSON with JSON.
"""

from __future__ import annotations

import fnmatch
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.json_patch.steps import finish
from gateway.config.kinds.policy_exception import read_policy_exception
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.exemptions import Match, PolicyException, by_webhook
from gateway.pure.core.labels import Selector
from gateway.pure.core.matching import Selection
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import decode, decode_in_steps
from gateway.pure.core.verdict import ALLOWED
from tests.core.build import body, document, resource, webhook
from tests.properties.driving import drive
from tests.properties.strategies import Case, cases, orders, some_selectors

if TYPE_CHECKING:
    from gateway.pure.core.labels import Operator

Json = dict[str, Any]

NOW = "2026-06-01T00:00:00Z"
WEBHOOKS = ("a.policies.test", "b.policies.test")
NAMESPACES: dict[str, Json] = {"red": {"tier": "dev"}, "reddish": {"tier": "prod"}, "blue": {}}

labels = st.dictionaries(st.sampled_from(["tier", "team"]), st.sampled_from(["dev", "prod"]), max_size=2)
expressions = st.one_of(
    *(
        st.fixed_dictionaries(
            {"key": st.sampled_from(["tier", "team"]), "operator": st.just(operator), **values}
        )
        for operator, values in (
            ("In", {"values": st.lists(st.sampled_from(["dev", "prod"]), min_size=1, max_size=2)}),
            ("NotIn", {"values": st.just(["dev"])}),
            ("Exists", {}),
            ("DoesNotExist", {}),
        )
    )
)
selectors = st.fixed_dictionaries(
    {}, optional={"matchLabels": labels, "matchExpressions": st.lists(expressions, max_size=2)}
)


def entries(*texts: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(texts), min_size=1, max_size=3)


NAMES = ("web", "web-", "web-1", "we*", "web-*", "*")
matches = st.fixed_dictionaries(
    {},
    optional={
        "namespaces": entries("red", "blue", "red*", "*"),
        "names": entries(*NAMES),
        "kinds": entries("Pod", "Pod.apps", "Deployment", "Deployment.apps", "Namespace"),
        "namespaceSelector": selectors,
        "objectSelector": selectors,
        "users": entries("bot", "system:*", "b*"),
        "groups": entries("admins", "dev*"),
        "owners": entries("Pod/web-*", "Deployment.apps/web", "ReplicaSet/web-1", "Deployment/*"),
        "images": entries("docker.io/library/nginx", "r.example/shop/*", "docker.io/*"),
    },
)
exceptions = st.builds(
    lambda name, namespace, match, names, end: {
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {
            "webhooks": names,
            "match": match if not namespace else {k: v for k, v in match.items() if k != "namespaces"},
            "reason": "r",
            "owner": "o",
            **({"expires": end} if end else {"permanent": True}),
        },
    },
    st.sampled_from("abc"),
    st.sampled_from(["", "", "red", "blue"]),
    matches,
    st.lists(st.sampled_from(WEBHOOKS), min_size=1, max_size=2),
    st.sampled_from(
        ["", "", NOW, "2026-06-01T00:00:00.5Z", "2026-06-01T01:59:59+02:00", "2027-01-01T00:00:00Z"]
    ),
)
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "controller": True}
IMAGES = {
    "nginx:1": "docker.io/library/nginx",
    "shop/web": "docker.io/shop/web",
    "r.example/shop/web:2": "r.example/shop/web",
}
objects = st.builds(
    lambda metadata, images: {
        "metadata": metadata,
        **({"spec": {"containers": [{"image": one} for one in images]}} if images else {}),
    },
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.sampled_from(["web", "web-1"]),
            "generateName": st.just("web-"),
            "labels": labels,
            "ownerReferences": st.just([OWNER]),
        },
    ),
    st.lists(st.sampled_from(sorted(IMAGES)), max_size=2),
) | st.just({"options": 1})


@st.composite
def requests(draw: st.DrawFn) -> Json:
    operation = draw(st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT"]))
    kind = draw(st.sampled_from(["Pod", "Deployment", "Namespace", "Node"]))
    group = "apps" if kind == "Deployment" else ""
    namespace = draw(st.sampled_from([*NAMESPACES, "gone"])) if kind != "Node" else ""
    user = {
        "username": draw(st.sampled_from(["bot", "system:x", "carol"])),
        "groups": draw(entries("admins", "developers")),
    }
    return document(
        operation=operation,
        kind={"group": group, "version": "v1", "kind": kind},
        resource=resource(f"{group}/v1/{kind.lower()}s"),
        namespace=namespace,
        name=draw(st.sampled_from(["", "web", "web-1"])),
        userInfo=user,
        object=None if operation == "DELETE" else draw(objects),
        oldObject=draw(objects) if operation in ("UPDATE", "DELETE") else None,
    )


def selects(selector: Json, found: Json) -> bool:
    for key, value in selector.get("matchLabels", {}).items():
        if found.get(key) != value:
            return False
    for one in selector.get("matchExpressions", ()):
        here, key = one["key"] in found, one["key"]
        holds = {
            "In": here and found.get(key) in one.get("values", ()),
            "NotIn": not here or found[key] not in one.get("values", ()),
            "Exists": here,
            "DoesNotExist": not here,
        }[one["operator"]]
        if not holds:
            return False
    return True


def has_condition(selector: Json) -> bool:
    return bool(selector.get("matchLabels") or selector.get("matchExpressions"))


def covers(exception: Json, webhook_name: str, review: Json) -> bool:  # noqa: C901 - as the page has them
    """The rules of docs/exceptions.md, one after another."""
    spec = exception["spec"]
    match = spec["match"]
    if webhook_name not in spec["webhooks"]:
        return False
    if "expires" in spec and datetime.fromisoformat(spec["expires"]) <= datetime.fromisoformat(NOW):
        return False
    namespace, kind = review["namespace"], review["kind"]
    own = exception["metadata"].get("namespace")
    if own and (namespace != own or kind["kind"] == "Namespace"):
        return False
    if "namespaces" in match and not (
        namespace and any(fnmatch.fnmatchcase(namespace, p) for p in match["namespaces"])
    ):
        return False
    if "kinds" in match and not {kind["kind"], f"{kind['kind']}.{kind['group']}"} & set(match["kinds"]):
        return False
    user = review["userInfo"]
    if "users" in match and not any(fnmatch.fnmatchcase(user["username"], p) for p in match["users"]):
        return False
    if "groups" in match and not any(
        fnmatch.fnmatchcase(g, p) for g in user["groups"] for p in match["groups"]
    ):
        return False
    states = [state for state in (review["object"], review["oldObject"]) if state is not None]
    if "names" in match and not named(match["names"], review):
        return False
    if "owners" in match and not belongs(match["owners"], review, states):
        return False
    if "images" in match and not runs_only(match["images"], kind["kind"], states):
        return False
    metadata = [state["metadata"].get("labels", {}) for state in states if "metadata" in state]
    selector = match.get("objectSelector", {})
    if has_condition(selector) and not (metadata and all(selects(selector, found) for found in metadata)):
        return False
    selector = match.get("namespaceSelector", {})
    if has_condition(selector):
        if kind["kind"] == "Namespace" and review["operation"] in ("CREATE", "UPDATE"):
            found = [state.get("metadata", {}).get("labels", {}) for state in states]
            return all(selects(selector, one) for one in found)
        return namespace in NAMESPACES and selects(selector, NAMESPACES[namespace])
    return True


def named(allowed: list[str], review: Json) -> bool:
    old = (review["oldObject"] or {}).get("metadata", {}).get("name", "")
    name = review["name"] or old
    if "*" in allowed:
        return True
    if name:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in allowed)
    prefix = (review["object"] or {}).get("metadata", {}).get("generateName", "")
    if review["operation"] != "CREATE" or not prefix:
        return False
    # Whatever five characters the API server appends.
    return any(all(fnmatch.fnmatchcase(prefix + end, p) for end in ("bcdfg", "56789")) for p in allowed)


def runs_only(allowed: list[str], kind: str, states: list[Json]) -> bool:
    found = [[one["image"] for one in state.get("spec", {}).get("containers", ())] for state in states]
    if kind != "Pod" or not states or not all(found):
        return False
    names = [IMAGES[image] for each in found for image in each]
    return all(any(fnmatch.fnmatchcase(name, pattern) for pattern in allowed) for name in names)


def belongs(owners: list[str], review: Json, states: list[Json]) -> bool:
    kind = review["kind"]
    for owner in owners:
        of_kind, _, name = owner.partition("/")
        if of_kind in (kind["kind"], f"{kind['kind']}.{kind['group']}") and named([name], review):
            return True
    # Of the owners that are drawn, that of objects with an ownerReference.
    is_owned = ["ownerReferences" in state.get("metadata", {}) for state in states]
    return bool(states) and all(is_owned) and "ReplicaSet/web-1" in owners


def parsed(one: Json) -> PolicyException | None:
    problems = Problems("e")
    found = read_policy_exception(Fields(one, "", problems), "PolicyException")
    return None if problems.found else found


@given(
    review=requests(),
    written=st.lists(
        exceptions, max_size=6, unique_by=lambda e: (e["metadata"]["name"], e["metadata"].get("namespace"))
    ),
)
def test_the_webhooks_that_are_left_out_are_those_of_a_second_implementation(
    review: Json, written: list[Json]
) -> None:
    valid = [one for one in written if parsed(one) is not None]
    read = [exception for one in valid if (exception := parsed(one)) is not None]
    hooks = [webhook(name, phase="validate") for name in WEBHOOKS]
    namespace = review["namespace"]
    known = Namespace(namespace, NAMESPACES[namespace], b"") if namespace in NAMESPACES else None
    now = datetime.fromisoformat(NOW).timestamp()
    expected = []
    for name in WEBHOOKS:
        ids = [
            "/".join(filter(None, (one["metadata"].get("namespace"), one["metadata"]["name"])))
            for one in valid
            if covers(one, name, review)
        ]
        if ids:
            expected.append((name, min(ids)))
    for request in (decode(body(review)), finish(decode_in_steps(body(review)))):
        evaluation = Evaluation(Selection("validate", hooks, by_webhook(read)), request, known, None, now)
        for call in evaluation.start():
            evaluation.receive(call, ALLOWED)
        found = [(one.invocation.webhook.name, one.exception.id) for one in evaluation.exemptions]
        assert found == expected


OPPOSITE: dict[Operator, Operator] = {
    "In": "NotIn",
    "NotIn": "In",
    "Exists": "DoesNotExist",
    "DoesNotExist": "Exists",
}


@given(
    case=cases(),
    order=orders,
    other=orders,
    selector=st.sampled_from(some_selectors),
    place=st.integers(0, 4),
    remembering=st.booleans(),
)
def test_an_exception_acts_as_the_opposite_selector_of_the_webhook_does(
    case: Case, order: list[int], other: list[int], selector: Selector, place: int, remembering: bool
) -> None:
    if place >= len(case.webhooks) or not case.webhooks[place].object_selector.is_empty:
        return
    hook = case.webhooks[place]
    (requirement,) = selector.requirements
    opposite = Selector((replace(requirement, operator=OPPOSITE[requirement.operator]),))
    exception = PolicyException(
        "e", "", (hook.name,), Match(object_selector=selector), "reason", "owner", "", None
    )
    with_exception = drive(replace(case, exceptions=(exception,)), order, remembering=remembering)
    again = drive(replace(case, exceptions=(exception,)), other, remembering=not remembering)
    assert with_exception.answer() == again.answer()
    hooks = [replace(hook, object_selector=opposite) if one is hook else one for one in case.webhooks]
    with_selector = drive(replace(case, webhooks=hooks), other, remembering=remembering)
    states = [*with_exception.shown, *with_selector.shown, with_exception.request.old_object]
    if any(state is not None and "metadata" not in state for state in states):
        # An object without metadata matches no selector, neither that of an exception nor that of a webhook.
        return
    if case.phase == "validate":
        # Their annotations have the number of the matching webhook.
        assert with_exception.answer("None") == with_selector.answer("None")
    ours, expected = (orjson.loads(trace.answer())["response"] for trace in (with_exception, with_selector))
    noted = [key for key in ours.get("auditAnnotations", {}) if key.startswith("exception.")]
    assert len(noted) == len(with_exception.evaluation.exemptions)
    for key in noted:
        del ours["auditAnnotations"][key]
    assert (ours.pop("auditAnnotations", None) or {}) == (expected.pop("auditAnnotations", None) or {})
    assert ours == expected
