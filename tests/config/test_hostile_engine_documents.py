"""Documents for the workers of other engines of which parts were replaced: refused with a reason, or used.

In the cluster they cost only themselves: policies of other documents stay in force.
"""

from __future__ import annotations

import copy
import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.kinds.engine_settings import EngineEntry, EnginesEntry
from gateway.config.kinds.gateway_configuration import GatewaySettings
from gateway.config.kinds.policy_settings import PolicySettings
from gateway.config.merge.load import load
from gateway.config.merge.merged import merge
from gateway.config.merge.model import Config
from tests.config.documents import load_documents, load_text
from tests.config.test_loaded_resources import reasons, resource
from tests.gatekeeper.documents import constraint, expansion, mutator, rego_template
from tests.gatekeeper.test_hostile_documents import JUNK, places
from tests.kyverno.test_worker_rules import mutate, policy, validate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.base.errors import Problem

Json = dict[str, Any]

POOL: Final = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "WorkerPool",
    "metadata": {"name": "pool"},
    "spec": {"target": "127.0.0.1:1"},
}
SETTINGS: Final = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "GatewayConfiguration",
    "policies": {"engines": {engine: {"pool": "pool"} for engine in ("gatekeeper", "kyverno", "kubewarden")}},
}
POD: Final = {"kinds": [{"apiGroups": [""], "kinds": ["Pod"]}], "namespaces": ["a-*"], "scope": "*"}
MATCH: Final = {
    "any": [
        {
            "resources": {
                "kinds": ["Pod", "apps/v1/Deployment", "Pod/exec"],
                "names": ["a*"],
                "namespaces": ["n"],
                "operations": ["CREATE"],
                "selector": {"matchLabels": {"a": "b"}},
            },
            "subjects": [{"kind": "User", "name": "u"}],
        }
    ]
}
OVERRIDES: Final = [{"action": "Audit", "namespaces": ["n"]}]


def kubewarden(name: str = "k", namespace: str = "", **spec: Any) -> Json:
    """A policy of Kubewarden with all that the gateway reads."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return {
        "apiVersion": "policies.kubewarden.io/v1",
        "kind": "AdmissionPolicy" if namespace else "ClusterAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "module": "registry://a/b:v1",
            "mutating": True,
            "rules": [rule],
            "mode": "monitor",
            "settings": {"a": [1]},
            "matchConditions": [{"name": "c", "expression": "true"}],
            "objectSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
            "timeoutSeconds": 3,
            **spec,
        },
    }


def documents(of: str) -> list[Json]:
    """Documents of all engines, whose names begin with *of*."""
    kind = f"{of.capitalize()}Kind"
    made = [
        rego_template(kind),
        constraint(kind, f"{of}-c", mode="Audit", match=POD, parameters={"a": 1}),
        mutator(f"{of}-m", match=POD, location="spec.x", parameters={"assign": {"value": 1}}),
        mutator(f"{of}-n", "AssignMetadata", match=POD),
        {**expansion("Pod", "Deployment", name=f"{of}-e")},
        policy(
            validate("r", match=MATCH, rule={"exclude": MATCH}),
            mutate("s", foreach=[{"list": "x", "patchesJson6902": "[]"}]),
            {
                "name": "t",
                "match": MATCH,
                "validate": {"deny": {}, "failureAction": "Audit", "failureActionOverrides": OVERRIDES},
                "context": [{"name": "c", "apiCall": {"urlPath": "/x"}}],
                "preconditions": {"all": []},
            },
            name=f"{of}-p",
            webhookConfiguration={"timeoutSeconds": 3, "matchConditions": []},
        ),
        policy(validate("r"), validate("s"), name=f"{of}-q", namespace="n", applyRules="One"),
        kubewarden(f"{of}-k", namespaceSelector={"matchLabels": {"a": "b"}}),
        kubewarden(f"{of}-l", "n"),
    ]
    return copy.deepcopy(made)


@st.composite
def changed(draw: st.DrawFn) -> list[Json]:
    found = documents("bad")
    for _ in range(draw(st.integers(1, 4))):
        container, key = draw(st.sampled_from(list(places(found[draw(st.integers(0, len(found) - 1))]))))
        if draw(st.booleans()):
            container[key] = copy.deepcopy(draw(JUNK))
        elif isinstance(container, dict):
            container[draw(st.text(max_size=5))] = container.pop(key)
        else:
            container.append(container[key])
    return [each for each in found if isinstance(each, dict)]


def problems_of(read: Callable[[], object]) -> Sequence[Problem]:
    """Return why the documents are refused; empty if they are not."""
    try:
        read()
    except ConfigError as error:
        assert error.problems, "it is refused without a reason"  # noqa: PT017 - there may be no error
        return error.problems
    return ()


def load_documents_as_json(*found: Json) -> Config:
    """Load documents that no UTF-8 can have."""
    return load_text("\n---\n".join(map(json.dumps, found)), "a.json")


def told(problems: Sequence[Problem]) -> bool:
    """Whether each problem has a reason and its place."""
    return all(each.message and (each.where or each.field) for each in problems)


@given(changed())
def test_files_are_refused_with_place_and_reason_or_used(
    tmp_path_factory: pytest.TempPathFactory, found: list[Json]
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    listed = {"apiVersion": "v1", "kind": "List", "items": [POOL, SETTINGS, *found]}
    (folder / "documents.json").write_text(json.dumps(listed))
    assert told(problems_of(partial(load, [folder])))


NATIVE: Final[list[Json]] = [
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "w"},
        "webhooks": [],
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "v"},
        "spec": {"auditAnnotations": [{"key": "k", "valueExpression": "'x'"}]},
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "m"},
        "spec": {"failurePolicy": "Fail"},
    },
    {**POOL, "spec": {"target": "unix:x"}},
]


@pytest.mark.parametrize("index", range(len(documents("bad")) + len(NATIVE)))
def test_half_of_a_character_is_refused_wherever_it_stands(index: int) -> None:
    document = copy.deepcopy((documents("bad") + NATIVE)[index])
    document["metadata"].setdefault("annotations", {"a": "b"})
    for container, key in places(document):
        before = container[key]
        if isinstance(before, dict | list):
            continue
        container[key] = "\ud800"
        assert problems_of(partial(load_documents_as_json, POOL, SETTINGS, document))
        container[key] = before


FILES: Final = Config(
    gateway=GatewaySettings(
        policies=PolicySettings(
            custom_resources_of=("Kyverno", "Gatekeeper", "Kubewarden"),
            engines=EnginesEntry(
                gatekeeper=EngineEntry(place="", pool="pool"),
                kyverno=EngineEntry(place="", pool="pool"),
                kubewarden=EngineEntry(place="", pool="pool"),
            ),
        )
    ),
    pools=load_documents(POOL).pools,
)


def is_object(document: Json) -> bool:
    """Whether an API server can have the object *document* of another engine."""
    match document:
        case {"apiVersion": str(version), "kind": str(), "metadata": {"name": str(name)}}:
            return "/" in version and bool(name)
    return False


@given(changed(), st.booleans())
def test_one_in_the_cluster_costs_itself_alone(found: list[Json], is_change: bool) -> None:
    good = [resource(each) for each in documents("good")]
    before = merge(FILES, good, None)
    wanted = {one.name: one for one in before.config.webhooks}
    assert len(wanted) >= 7
    if is_change:
        before = merge(FILES, [*good, *(resource(each) for each in documents("bad"))], before)
    bad = [resource(each) for each in found if is_object(each)]
    after = merge(FILES, [*good, *bad], before)
    statuses = reasons(after)
    entries = {one.name: one for one in after.config.webhooks}
    for each in good:
        assert statuses[each.name] == "Accepted", after.statuses
    for name, one in wanted.items():
        assert name in entries
        assert (entries[name].client, entries[name].rollout) == (one.client, one.rollout)
    for status in after.statuses:
        assert status.reason == "Accepted" or status.note or (status.problems and told(status.problems))


MAX_CHARS: Final = 3000
"""Of a problem that is printed."""
LONG: Final = "a" * 1_000_000
TEXTS: Final[dict[str, Callable[[str], str | bytes]]] = {
    "aliases": lambda text: (
        "x: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"x{each}: &b{each} [*{'a' if not each else f'b{each - 1}'}, *a]\n" for each in range(60))
        + text
    ),
    "itself": lambda text: text.replace("spec:", "spec: &s\n  self: *s\n  more:"),
    "deep": lambda text: text + "\nextra: " + "[" * 50_000 + "]" * 50_000,
    "deep mappings": lambda text: text + "\nextra: " + "{a: " * 50_000 + "}" * 50_000,
    "twice": lambda text: text + "\nkind: Other\n",
    "number": lambda text: text.replace("timeoutSeconds: 3", f"timeoutSeconds: {'9' * 5000}"),
    "exponent": lambda text: text.replace("timeoutSeconds: 3", "timeoutSeconds: 1e999999999"),
    "octal": lambda text: text.replace("timeoutSeconds: 3", f"timeoutSeconds: 0x{'f' * 5000}"),
    "date": lambda text: text.replace("timeoutSeconds: 3", "timeoutSeconds: 9999-99-99"),
    "sixty": lambda text: text.replace("timeoutSeconds: 3", "timeoutSeconds: " + ":".join(["59"] * 500)),
    "long": lambda text: text.replace("bad-", LONG),
    "control": lambda text: text.replace("bad-", r'"\e[2Jbad"#'),
    "nul": lambda text: text.replace("bad-", "bad\0"),
    "not UTF-8": lambda text: text.encode().replace(b"bad-", b"\xff\xfe"),
    "object": lambda text: text.replace("spec:", "spec: !!python/object/apply:os.system [true]\nother:"),
    "binary": lambda text: text.replace("spec:", "spec: !!binary =\nother:"),
    "merge": lambda text: text.replace("spec:", "spec:\n  <<: [1, {a: b}]\nother:"),
    "key": lambda text: text.replace("spec:", "? [a, {b: c}]\n: 1\nspec:"),
    "many": lambda text: text + "\n---\n" * 20_000,
    "cut": lambda text: text[: len(text) // 2] + "\n  - {",
    "expression": lambda text: text.replace("expression: 'true'", "expression: '" + "(" * 20_000 + "'"),
    "pattern": lambda text: text.replace("namespaces:\n", "namespaces:\n- '" + "*?[" * 20_000 + "'\n"),
}


@pytest.mark.parametrize("change", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("index", range(len(documents("bad"))))
def test_texts_are_refused_with_place_and_reason_or_used(
    index: int, change: Callable[[str], str | bytes]
) -> None:
    text = change(yaml.safe_dump(documents("bad")[index]))
    head = f"{json.dumps(POOL)}\n---\n{json.dumps(SETTINGS)}\n---\n"
    problems = problems_of(
        partial(load_text, head.encode() + text if isinstance(text, bytes) else head + text)
    )
    assert told(problems)
    assert all(len(str(each)) < MAX_CHARS for each in problems)
