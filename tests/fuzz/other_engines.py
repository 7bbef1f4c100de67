"""Documents of Kyverno and Gatekeeper: refused with problems, or evaluated, always with the same result.

An input selects valid documents, changes in them, and expressions of the target ``expression``; or it is the
content of a file.
"""

from __future__ import annotations

import atexit
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
import yaml

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from gateway.pure.admission_policies.in_force import PolicyInForce
from gateway.pure.core.verdict import Allowed, Denied, Failed
from tests.cel.expressions import EXPRESSIONS
from tests.fuzz.configuration import WORDS as SYNTAX
from tests.fuzz.configuration import check_problems
from tests.fuzz.documents import dumped, edited, spliced, words_of
from tests.fuzz.expressions import WORDS as PIECES
from tests.fuzz.expressions import text_of
from tests.fuzz.laws import Faults, bounded
from tests.fuzz.policies import BOUNDS, REQUESTS, decide
from tests.fuzz.source import Source
from tests.gatekeeper.documents import constraint, excluding, scoped, template
from tests.kyverno.documents import PODS, condition, exception, mutating, validating

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.merge.model import Config
    from gateway.pure.core.conditions import PolicyResult

    Json = dict[str, Any]

MODULES: Final = (
    "gateway/config/loaders/cluster_actions.py",
    "gateway/config/loaders/cluster_exception.py",
    "gateway/config/loaders/cluster_filters.py",
    "gateway/config/loaders/cluster_policy.py",
    "gateway/config/loaders/cluster_rule.py",
    "gateway/config/loaders/cluster_spec.py",
    "gateway/config/loaders/documents.py",
    "gateway/config/loaders/gatekeeper.py",
    "gateway/config/loaders/gatekeeper_constraint.py",
    "gateway/config/loaders/gatekeeper_template.py",
    "gateway/config/loaders/kyverno.py",
    "gateway/config/loaders/kyverno_exception.py",
    "gateway/config/loaders/kyverno_mutating.py",
    "gateway/config/loaders/kyverno_spec.py",
    "gateway/config/loaders/kyverno_validating.py",
    "gateway/config/loaders/part.py",
    "gateway/pure/gatekeeper/constraint.py",
    "gateway/pure/gatekeeper/matching.py",
    "gateway/pure/gatekeeper/registration.py",
    "gateway/pure/gatekeeper/schema.py",
    "gateway/pure/kyverno/autogen.py",
    "gateway/pure/kyverno/cluster_autogen.py",
    "gateway/pure/kyverno/cluster_policy.py",
    "gateway/pure/kyverno/cluster_rules.py",
    "gateway/pure/kyverno/evaluator.py",
    "gateway/pure/kyverno/exceptions.py",
    "gateway/pure/kyverno/extraction.py",
    "gateway/pure/kyverno/matching.py",
    "gateway/pure/kyverno/mutating.py",
    "gateway/pure/kyverno/mutations.py",
    "gateway/pure/kyverno/validating.py",
)
MAX_BYTES: Final = 1024
WORDS: Final = [
    *SYNTAX,
    *PIECES,
    b"variables.",
    b"variables.params.",
    b"exceptions.allowedImages",
    b"object.spec",
]

_STRING: Final = {"type": "string"}
_SCHEMA: Final[Json] = {
    "type": "object",
    "required": ["labels"],
    "properties": {
        "labels": {
            "type": "array",
            "maxItems": 3,
            "items": {"type": "object", "properties": {"key": {**_STRING, "pattern": "^[a-z]+$"}}},
        },
        "more": {"type": "object", "default": {"a": "b"}, "additionalProperties": _STRING},
        "level": {"type": "integer", "minimum": 1, "enum": [1, 2, 3], "nullable": True, "default": 2},
        "any": {"x-kubernetes-preserve-unknown-fields": True, "anyOf": [{"required": ["a"]}, {"not": {}}]},
    },
}
_KYVERNO: Final[list[Json]] = [
    validating(
        "object.metadata.name != 'x'",
        {"expression": "variables.a != 'settings'", "messageExpression": "'found ' + variables.a"},
        variables=[{"name": "a", "expression": "object.metadata.name"}],
        matchConditions=condition("request.operation != 'CONNECT'"),
        auditAnnotations=[{"key": "k", "valueExpression": "variables.a"}],
        validationActions=["Warn", "Audit"],
        failurePolicy="Ignore",
        autogen={"podControllers": {"controllers": ["jobs", "cronjobs"]}},
    ),
    validating(
        "object.spec.hostNetwork != true",
        "!exceptions.allowedValues.exists(each, each == object.metadata.labels.a)",
        name="pods",
        matchConstraints={"resourceRules": [PODS]},
        autogen={"podControllers": {"controllers": ["jobs", "deployments.v1.apps", "widgets"]}},
    ),
    validating("object.data.a == '1'", name="spaced", namespace="default"),
    mutating(
        "Object{metadata: Object.metadata{labels: {'a': variables.a}}}",
        "[JSONPatch{op: 'add', path: '/data', value: {'a': variables.a}}]",
        name="m",
        variables=[{"name": "a", "expression": "object.metadata.name"}],
        evaluation={"useServerSideApply": True},
    ),
    mutating(
        "Object{spec: Object.spec{hostNetwork: false}}", name="n", matchConstraints={"resourceRules": [PODS]}
    ),
    exception("full", matchConditions=condition("object.metadata.name == 'settings'")),
    exception("part", of="pods", images=["a*"], allowedValues=["b"], expiresAt="2020-01-01T00:00:00Z"),
    exception("of-m", of="m", kind="MutatingPolicy"),
]
_GATEKEEPER: Final[list[Json]] = [
    template(
        "NeedsLabels",
        {
            "expression": "variables.params.labels.all(l, l.key in variables.anyObject.metadata)",
            "message": "m",
        },
        {"expression": "variables.a == null", "messageExpression": "'found ' + string(variables.a)"},
        schema=_SCHEMA,
        operations=["*"],
        variables=[{"name": "a", "expression": "variables.params.level"}],
        matchCondition=[{"name": "c", "expression": "request.operation != 'CONNECT'"}],
        failurePolicy="Ignore",
    ),
    template("Old", "object != null", version="v1beta1", legacy=True),
    constraint(
        parameters={"labels": [{"key": "app"}], "level": 3, "any": {"a": 1}},
        match={
            "kinds": [{"apiGroups": ["", "apps"], "kinds": ["ConfigMap", "Deployment", "Widget"]}],
            "scope": "Namespaced",
            "namespaces": ["def*"],
            "excludedNamespaces": ["kube-*", "*-system"],
            "labelSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]},
            "namespaceSelector": {"matchLabels": {"a": "b"}},
            "name": "set*",
        },
    ),
    constraint(name="d", enforcementAction="dryrun", parameters={"labels": []}),
    constraint(
        "Old", "e", parameters={"x": [None, 1]}, **scoped(("warn", "*"), ("deny", "audit.gatekeeper.sh"))
    ),
    excluding("kube-*", "x"),
]
_CLUSTER: Final[list[Json]] = [
    {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {
            "name": "p",
            "annotations": {"pod-policies.kyverno.io/autogen-controllers": "Job,CronJob"},
        },
        "spec": {
            "validationFailureAction": "Enforce",
            "rules": [
                {
                    "name": "pods",
                    "match": {"any": [{"resources": {"kinds": ["Pod"], "operations": ["CREATE"]}}]},
                    "exclude": {"any": [{"resources": {"names": ["kube-*"]}}]},
                    "celPreconditions": condition("object.metadata.name != 'x'"),
                    "validate": {
                        "failureAction": "Audit",
                        "cel": {
                            "variables": [{"name": "a", "expression": "object.spec"}],
                            "expressions": [
                                {"expression": "variables.a.hostNetwork != true", "message": "m"}
                            ],
                            "auditAnnotations": [{"key": "k", "valueExpression": "object.metadata.name"}],
                        },
                    },
                },
                {
                    "name": "settings",
                    "match": {"all": [{"resources": {"kinds": ["v1/ConfigMap"], "namespaces": ["def*"]}}]},
                    "validate": {"cel": {"expressions": [{"expression": "object.data.a == '1'"}]}},
                },
            ],
        },
    },
    {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": "x"},
        "spec": {
            "match": {"any": [{"resources": {"kinds": ["*"], "names": ["s?t*"]}}]},
            "exceptions": [{"policyName": "p", "ruleNames": ["set*"]}],
        },
    },
]
_TEXTS: Final = tuple(list(map(orjson.dumps, documents)) for documents in (_KYVERNO, _GATEKEEPER, _CLUSTER))
_KEYS: Final = [
    *words_of(*_KYVERNO, *_GATEKEEPER, *_CLUSTER),
    *(
        "Deny",
        "deny",
        "scoped",
        "v1alpha1",
        "v1beta1",
        "*",
        "**",
        "JSON",
        "targetMatchConstraints",
        "default",
    ),
]
_LISTS: Final = ("validations", "variables", "matchConditions", "matchCondition", "mutations", "expressions")
_FOLDER: Final = tempfile.TemporaryDirectory(prefix="fuzz-")
atexit.register(_FOLDER.cleanup)
_FILE: Final = Path(_FOLDER.name) / "policies.yaml"
_faults = Faults()


def run(data: bytes) -> None:
    source = Source(data)
    with _faults, bounded(BOUNDS):
        _run(source)


def _run(source: Source) -> None:
    kind = source.byte()
    request = REQUESTS[kind // 4 % len(REQUESTS)]
    _FILE.write_bytes(source.rest() if kind % 4 == 3 else _written(source, as_json=kind % 4 != 2))
    try:
        config = load([_FILE])
    except ConfigError as error:
        check_problems(error, _FILE)
        return
    assert all(str(problem).isprintable() for problem in config.warnings)
    assert _documents(load([_FILE])) == _documents(config)
    decide(config, request, _check)


def _written(source: Source, *, as_json: bool) -> bytes:
    left_out = source.byte()
    texts = source.one_of(_TEXTS)
    documents = [orjson.loads(text) for number, text in enumerate(texts) if not left_out >> number & 1]
    for number, document in enumerate(documents):
        _reword(source, document)
        if source.chance(6):
            documents[number] = edited(source, document, _KEYS)
    if as_json or any(len(dumped(each)) > 5000 or b"[[[[[[" in dumped(each) for each in documents):
        return spliced(source, b"\n---\n".join(map(dumped, documents)))
    return spliced(source, yaml.safe_dump_all(documents).encode("utf-8", "replace"))


def _reword(source: Source, document: Json) -> None:
    """Give the policy *document* up to two other expressions."""
    spec = document["spec"]
    for target in spec.get("targets", ()):
        spec = target["code"][0]["source"]
    for rule in spec.get("rules", ()):
        spec = rule["validate"]["cel"]
    for _ in range(source.below(3)):
        found = spec.get(source.one_of(_LISTS))
        if found:
            entry = found[source.below(len(found))]
            text = text_of(source).encode("utf-8", "replace").decode()
            entry.get("applyConfiguration", entry.get("jsonPatch", entry))["expression"] = text


def _documents(config: Config) -> list[Any]:
    hooks = (*config.mutating, *config.validating)
    return [
        (each.name, each.rules, each.policy.expressions)
        for each in hooks
        if isinstance(each.policy, PolicyInForce)
    ]


def _check(found: PolicyResult) -> None:
    verdict = found.verdict
    if isinstance(verdict, Denied):
        assert verdict.code in (400, 403)
        assert verdict.message
    elif isinstance(verdict, Failed):
        assert verdict.cause
    else:
        assert isinstance(verdict, Allowed)


def seeds() -> Iterator[bytes]:
    yield b""
    for of_engine, texts in enumerate(_TEXTS):
        for number, text in enumerate(texts):
            yield bytes([number * 4, 1 << number % 8, of_engine])
            yield bytes([number * 4 + 2, 255 ^ 1 << number % 8, of_engine, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8])
            if len(text) < MAX_BYTES:
                yield b"\3" + text
        for number in range(0, len(EXPRESSIONS), 80):
            yield bytes([number % 5 * 4, 0, of_engine, 1, number % 3, 0, number >> 8, number % 256, 0, 0, 0])
