"""Policies as documents: refused with their problems, or evaluated, and always with the same result.

An input selects valid documents, changes in them, and expressions of the target ``expression``; or it is the
content of a file.

Policies that load decide on requests of several kinds, on the event loop and in the thread.
"""

from __future__ import annotations

import atexit
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
import yaml

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from gateway.engine.object_review import RequestOptions, request_for, review_of
from gateway.pure.admission_policies import in_force as bound_policies
from gateway.pure.admission_policies.in_force import PolicyInForce
from gateway.pure.admission_policies.policy import FAILURES_KEY, MAX_ANNOTATION_BYTES, MAX_FAILURES
from gateway.pure.cel import meter
from gateway.pure.core.conditions import (
    AccessDecision,
    ConditionInput,
    Excluded,
    FoundParam,
    NotMatched,
    PolicyResult,
    Unresolved,
)
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.policy import PolicyInput
from gateway.pure.core.review import decode
from gateway.pure.core.verdict import ALLOWED, Allowed, Denied, Failed, FailureReason
from tests.cel.expressions import EXPRESSIONS
from tests.fuzz.configuration import WORDS as SYNTAX
from tests.fuzz.configuration import check_problems
from tests.fuzz.documents import dumped, edited, spliced, words_of
from tests.fuzz.expressions import WORDS as PIECES
from tests.fuzz.expressions import text_of
from tests.fuzz.laws import Faults, bounded
from tests.fuzz.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gateway.config.merge.model import Config
    from gateway.pure.core.conditions import Evaluated
    from gateway.pure.core.review import AdmissionRequest

    Json = dict[str, Any]

MODULES: Final = (
    "gateway/config/kinds/validating_policy.py",
    "gateway/config/merge/policy_documents.py",
    "gateway/pure/admission_policies/in_force.py",
    "gateway/pure/admission_policies/evaluation.py",
    "gateway/pure/admission_policies/mutating.py",
    "gateway/pure/admission_policies/mutations.py",
    "gateway/pure/admission_policies/params.py",
    "gateway/pure/admission_policies/policy.py",
    "gateway/pure/admission_policies/validating.py",
    "gateway/pure/cel/lazy.py",
)
MAX_BYTES: Final = 1024
WORDS: Final = [*SYNTAX, *PIECES, b"variables.", b"params.", b"namespaceObject.", b"[Deny, Warn]"]

HEAD: Final = {"apiVersion": "admissionregistration.k8s.io/v1"}
_RULE: Final = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
_POLICY: Final[dict[str, Any]] = {
    **HEAD,
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "first"},
    "spec": {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [{**_RULE, "resourceNames": ["settings"]}, _RULE],
            "excludeResourceRules": [{**_RULE, "resources": ["secrets"], "scope": "Namespaced"}],
            "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]},
            "objectSelector": {},
            "matchPolicy": "Equivalent",
        },
        "matchConditions": [{"name": "c", "expression": "request.operation != 'x'"}],
        "variables": [
            {"name": "a", "expression": "object == null ? oldObject : object"},
            {"name": "b", "expression": "variables.a.metadata.name"},
        ],
        "validations": [
            {
                "expression": "variables.b == params.data.name",
                "messageExpression": "'found ' + variables.b",
                "message": "m",
                "reason": "Forbidden",
            },
            {"expression": "namespaceObject.metadata.name == request.namespace"},
            {"expression": "authorizer.requestResource.check('get').allowed()", "message": "no"},
        ],
        "auditAnnotations": [{"key": "k", "valueExpression": "string(params.metadata.name)"}],
    },
}
_DOCUMENTS: Final[list[Json]] = [
    _POLICY,
    {
        **_POLICY,
        "metadata": {"name": "lenient"},
        "spec": {**_POLICY["spec"], "failurePolicy": "Ignore"},
    },
    {
        **HEAD,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "second"},
        "spec": {
            "matchConstraints": {"resourceRules": [_RULE]},
            "validations": [{"expression": "object.metadata.name != 'x'"}, {"expression": "false"}],
        },
    },
]
_MUTATING: Final[list[Json]] = [
    {
        **HEAD,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "third"},
        "spec": {
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": {"resourceRules": [_RULE]},
            "variables": [{"name": "a", "expression": "object.metadata.name"}],
            "mutations": [
                {
                    "patchType": "JSONPatch",
                    "jsonPatch": {
                        "expression": "[JSONPatch{op: 'add', path: '/data', value: {'a': variables.a}}]"
                    },
                },
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {
                        "expression": "Object{metadata: Object.metadata{labels: {'a': variables.a}}}"
                    },
                },
            ],
        },
    },
    {
        **HEAD,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "of-third"},
        "spec": {"policyName": "third"},
    },
]
_BINDINGS: Final[list[Json]] = [
    {
        **HEAD,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": f"{name}-{actions[0].lower()}"},
        "spec": {"policyName": name, "validationActions": actions, **more},
    }
    for name, actions, more in (
        ("first", ["Deny", "Audit"], {"paramRef": {"name": "p", "parameterNotFoundAction": "Deny"}}),
        (
            "first",
            ["Audit", "Warn"],
            {
                "paramRef": {"selector": {}, "namespace": "default", "parameterNotFoundAction": "Allow"},
                "matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}},
            },
        ),
        ("lenient", ["Deny"], {"paramRef": {"name": "p", "parameterNotFoundAction": "Allow"}}),
        ("second", ["Deny"], {}),
        ("second", ["Warn", "Audit"], {"matchResources": {"resourceRules": [_RULE]}}),
    )
]
_PARAM: Final = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "p", "namespace": "default", "labels": {"a": "b"}},
    "data": {"name": "settings"},
}
_OTHERS: Final[list[Json]] = [
    _PARAM,
    {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration", "kubernetes": {}},
]
_TEXTS: Final = list(map(orjson.dumps, [*_DOCUMENTS, *_BINDINGS, *_MUTATING]))
_KEYS: Final = [
    *words_of(*_DOCUMENTS, *_BINDINGS, *_MUTATING),
    *("Warn", "Invalid", "RequestEntityTooLarge", "params", "variables", "a/b", "v1beta1", "Exact", "Allow"),
]
_SPACE: Final = Namespace("default", {"a": "b"}, b'{"metadata":{"name":"default","labels":{"a":"b"}}}')
BOUNDS: Final[Sequence[tuple[Any, Mapping[str, int]]]] = [
    (meter, {"EXPRESSION_LIMIT": 50_000}),
    (bound_policies, {"HOOK_LIMIT": 120_000}),
]
_FOLDER: Final = tempfile.TemporaryDirectory(prefix="fuzz-")
atexit.register(_FOLDER.cleanup)
_FILE: Final = Path(_FOLDER.name) / "policies.yaml"
_faults = Faults()


def _request(document: Json, **options: Any) -> AdmissionRequest:
    return decode(review_of(request_for(document, RequestOptions(**options))))


_OBJECT: Final = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings"},
    "data": {"a": "1"},
}
REQUESTS: Final = (
    _request(_OBJECT),
    _request(_OBJECT, operation="UPDATE", old=_OBJECT),
    _request(_OBJECT, operation="DELETE"),
    _request({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}),
    _request({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}),
)


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
    else:
        assert all(str(problem).isprintable() for problem in config.warnings)
        decide(config, request, _check)


def _written(source: Source, *, as_json: bool) -> bytes:
    left_out = source.byte()
    documents = [orjson.loads(text) for number, text in enumerate(_TEXTS) if not left_out >> number & 1]
    for number, document in enumerate(documents):
        _reword(source, document)
        if source.chance(6):
            documents[number] = edited(source, document, _KEYS)
    documents += _OTHERS
    if as_json or any(len(dumped(each)) > 5000 or b"[[[[[[" in dumped(each) for each in documents):
        return spliced(source, b"\n---\n".join(map(dumped, documents)))
    return spliced(source, yaml.safe_dump_all(documents).encode("utf-8", "replace"))


def _reword(source: Source, document: Json) -> None:
    """Give the policy *document* up to two other expressions."""
    for _ in range(source.below(3)):
        found = document["spec"].get(source.one_of(("validations", "variables", "matchConditions")))
        if found:
            text = text_of(source).encode("utf-8", "replace").decode()
            found[source.below(len(found))]["expression"] = text


def decide(config: Config, request: AdmissionRequest, check: Callable[[PolicyResult], None]) -> None:
    """Let each policy of *config* decide on *request*, twice; *check* takes what it decides."""
    for hook in (*config.mutating, *config.validating):
        bound = hook.policy
        assert isinstance(bound, PolicyInForce)
        before = orjson.dumps(request.document)
        found = _result(bound, request)
        if bound.can_allow_fast and bound.allow_fast(input_of(request)) is not None:
            assert isinstance(found, PolicyResult)
            assert found.verdict == ALLOWED
        assert orjson.dumps(request.document) == before, "it changed the request"
        again = _result(bound, request)
        if not isinstance(found, PolicyResult) or not isinstance(again, PolicyResult):
            assert again == found
            continue
        assert replace(again, elapsed_s=found.elapsed_s) == found
        check(found)


def input_of(request: AdmissionRequest) -> PolicyInput:
    """Return what a policy sees of *request*."""
    conditions = ConditionInput(request.document, request.object, request.old_object)
    return PolicyInput(conditions, request, _SPACE if request.namespace == "default" else None)


def _result(
    bound: PolicyInForce[Any, Any], request: AdmissionRequest
) -> PolicyResult | NotMatched | Excluded:
    """Return the decision, after all its tasks."""
    seen = input_of(request)
    decisions: dict[Any, AccessDecision] = {}
    result: Evaluated = bound.evaluate(seen, decisions)
    while not isinstance(result, PolicyResult | NotMatched | Excluded):
        assert isinstance(result, Unresolved), result
        assert not set(result.checks) & set(decisions), "a check with a known decision"
        decisions.update((check, AccessDecision(allowed=len(check.spec) % 2 == 0)) for check in result.checks)
        seen.found_params = {**seen.found_params, **{each: FoundParam() for each in result.lookups}}
        result = bound.evaluate(seen, decisions) if result.evaluation is None else result.evaluation()
    return result


def _check(found: PolicyResult) -> None:
    verdict = found.verdict
    if isinstance(verdict, Denied):
        assert verdict.code in (403, 413, 422)
        for line in verdict.causes:
            assert "denied request: " in line.message
    elif isinstance(verdict, Failed):
        assert verdict.reason in (FailureReason.POLICY, FailureReason.NAMESPACE)
        assert verdict.cause
    else:
        assert isinstance(verdict, Allowed)
    for key, value in () if found.reported is None else found.reported.audit_annotations:
        if key == FAILURES_KEY:
            assert len(json.loads(value)) <= MAX_FAILURES
        else:
            # The bindings and parameters of a test are few.
            assert len(value.encode("utf-8", "surrogatepass")) <= 20 * MAX_ANNOTATION_BYTES


def seeds() -> Iterator[bytes]:
    yield b""
    for number, text in enumerate(_TEXTS):
        yield bytes([number * 4, 1 << number % 8])
        yield bytes([number * 4 + 2, 255 ^ 1 << number % 8, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8])
        if len(text) < MAX_BYTES:
            yield b"\3" + text
    for number in range(0, len(EXPRESSIONS), 40):
        yield bytes([number % 5 * 4, 0, 1, number % 3, 0, number >> 8, number % 256, 0, number % 3, 0, 0, 0])
