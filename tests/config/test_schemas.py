"""The schemas of custom resources, with their rules, accept and refuse what the gateway's reader does."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.kinds import webhook_configuration
from gateway.config.kinds.cache import _MAX_KEY_CHARS
from gateway.config.kinds.mutating_policy import MutatingBindingSpec, MutatingPolicySpec
from gateway.config.kinds.policy_exception import (
    CLUSTER_WIDE,
    NAMESPACED,
    ClusterExceptionSpec,
    ExceptionSpec,
)
from gateway.config.kinds.validating_policy import ValidatingBindingSpec, ValidatingPolicySpec
from gateway.config.kinds.validation import _evaluated
from gateway.config.kinds.worker_pool import WorkerPool
from gateway.config.merge.custom_resource import CustomResource, read_resource
from gateway.config.yaml.documents import PHASES
from tests.config.test_policies import mutating, policy
from tests.config.test_webhooks import WEBHOOK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.kinds.declare import Declared, Schema

KINDS: dict[str, type[Declared]] = {
    "WorkerPool": WorkerPool,
    NAMESPACED: ExceptionSpec,
    CLUSTER_WIDE: ClusterExceptionSpec,
    "ValidatingAdmissionPolicyBinding": ValidatingBindingSpec,
    "MutatingAdmissionPolicyBinding": MutatingBindingSpec,
    "ValidatingAdmissionPolicy": ValidatingPolicySpec,
    "MutatingAdmissionPolicy": MutatingPolicySpec,
}
SCHEMAS = {kind: cls.schema(is_custom=True) for kind, cls in KINDS.items()}
SCHEMAS |= {kind: webhook_configuration.schema(phase) for kind, phase in PHASES.items()}
# The type of an expression, the key of an annotation, which resources of a rule cover which others.
MATCHING = (
    r".*([eE]xpression|\.cache\.key): \d+:\d+: ",
    r".*\.resources(\[\d+\])?: .*covers",
)
# Durations, certificates, and how the stages of a plan follow each other.
WEBHOOKS = (
    r".*: .*expected a duration such as",
    r".*\.caBundle: holds no PEM certificate",
    r".*\.rollout\.plan\.stages\[\d+\]\.mode: (Enforce holds in every namespace|found \w+, which is weaker)",
    r".*\.rollout\.plan\.stages\[\d+\]\.percentOfNamespaces: .*which is below",
    r".*\.rollout\.plan\.stages\[\d+\]\.groups\[\d+\]: .*(the name of one of plan\.groups|it stays enforced)",
    r".*\.rollout\.plan\.stages\[\d+\]\.gates\.\w+: (is never known|requires rollout\.candidate)",
    r".*\.rollout\.plan\.groups(\[\d+\]\.namespaceSelector)?: .*(every namespace|conditions and values)",
    r".*\.rollout\.plan\.rollback: found critical true",
)
ONLY_HERE = {
    "WorkerPool": (
        # Which host and which port of a gRPC name exist.
        r"spec\.targets?(\[\d+\])?: .*expected (dns:///HOST:PORT|a port from 1 to 65535)",
        r"spec\.tls\.serverName: .*expected a DNS name or an IP address",
        r"spec\.tls\.caBundle: holds no PEM certificate",
    ),
    NAMESPACED: (
        r"spec\.match\.namespaces\[\d+\]: .*the exception is in this namespace",
        # Letters that are not printable, and the length of a label within a name.
        r"spec\.(reason|owner|(match\.\w+|webhooks)\[\d+\]): .*printable characters",
        r"spec\.webhooks\[\d+\]: .*expected a name of at most",
        r"spec\.match\.namespaces\[\d+\]: .*expected a name of at most 63",
    ),
    CLUSTER_WIDE: (
        r"spec\.(reason|owner|(match\.\w+|webhooks)\[\d+\]): .*printable characters",
        r"spec\.webhooks\[\d+\]: .*expected a name of at most",
        r"spec\.match\.namespaces\[\d+\]: .*expected a name of at most 63",
        r"spec\.match: selects everything",
    ),
    **dict.fromkeys(PHASES, (*MATCHING, *WEBHOOKS)),
    **dict.fromkeys(("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"), MATCHING),
    **dict.fromkeys(
        ("ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding"),
        # Which resources of a rule cover which others.
        (r"spec\.matchResources\.\w+\[\d+\]\.resources(\[\d+\])?: .*covers",),
    ),
}
"""Problems that no schema can find: paths and messages."""
VALID: dict[str, Any] = {
    **{kind: [WEBHOOK] for kind in PHASES},
    "ValidatingAdmissionPolicy": policy()["spec"],
    "MutatingAdmissionPolicy": mutating()["spec"],
}
"""Kinds with so many fields that nearly all documents that are drawn as a whole would be refused."""
EXAMPLES = (
    "shop",
    "a.hooks.example",
    "p95",
    "20ms",
    "dns:///a.example:1",
    "b:2",
    "ipv4:10.0.0.1:1,10.0.0.2:2",
    "https://a.example:8443/b",
    "/b",
    "apps/v1",
    "a.example/b",
    "A",
)
BUNDLE = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()


EXPRESSIONS = st.sampled_from(
    ("true", "object.a == 1", "'a'", "null", "[]", "Object{}", "[JSONPatch{op: 'test'}]")
)


def texts(schema: Schema) -> st.SearchStrategy[str]:
    """Return texts within *schema*."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("format"):
        case "byte":
            return st.sampled_from([BUNDLE, "", "AA=="])
        case "date-time":
            return st.datetimes().map(lambda time: f"{time.isoformat(timespec='seconds')}Z")
    least, most = schema.get("minLength", 0), schema["maxLength"]
    pattern: str = schema.get("pattern", "")
    examples = st.sampled_from([text for text in EXAMPLES if re.search(pattern, text)])
    if not pattern:
        return examples | st.text(min_size=least, max_size=min(most, 8))
    return examples | st.from_regex(pattern, fullmatch=True).filter(lambda text: least <= len(text) <= most)


MADE: dict[tuple[int, str], st.SearchStrategy[Any]] = {}


def values(schema: Schema, name: str = "") -> st.SearchStrategy[Any]:
    """Return values of the field *name* within *schema*, apart from its rules; made once for each schema."""
    key = id(schema), name
    if key not in MADE:
        MADE[key] = made(schema, name)
    return MADE[key]


def made(schema: Schema, name: str) -> st.SearchStrategy[Any]:
    if name.lower().endswith("expression") or schema.get("maxLength") == _MAX_KEY_CHARS:
        return EXPRESSIONS
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema["minimum"], schema["maximum"])
        case "number":
            exclusive = schema.get("exclusiveMinimum", False)
            return st.floats(schema["minimum"], schema["maximum"], exclude_min=exclusive)
        case "array":
            items, least = values(schema["items"]), schema.get("minItems", 0)
            if schema.get("x-kubernetes-list-type") == "set":
                return st.lists(items, min_size=least, max_size=3, unique=True)
            # Of entries with the same key the API server refuses one, the reader not always.
            keys = schema.get("x-kubernetes-list-map-keys", ())
            different = (lambda entry: tuple(entry.get(key) for key in keys)) if keys else None
            return st.lists(items, min_size=least, max_size=3, unique_by=different)
        case "object" if "additionalProperties" in schema:
            keys = st.from_regex(r"[a-z]{1,3}(/[a-z])?", fullmatch=True) | st.sampled_from(["", "-"])
            return st.dictionaries(keys, values(schema["additionalProperties"]), max_size=2)
        case "object" if "properties" not in schema:
            return st.dictionaries(st.sampled_from("ab"), st.integers(), max_size=2)
        case "object":
            fields = {name: values(one, name) for name, one in schema["properties"].items()}
            needed = {name: fields[name] for name in schema.get("required", ())}
            others = {name: one for name, one in fields.items() if name not in needed}
            return st.fixed_dictionaries(needed, optional=others)
    return texts(schema)


def broken(schema: Schema, value: Any) -> Iterator[str]:
    """Yield the messages of the rules of *schema* that do not hold for *value*."""
    for rule in schema.get("x-kubernetes-validations", ()):
        if _evaluated(rule["rule"], value) is not True:
            yield rule["message"]
    if isinstance(value, dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        of_one = schema.get("additionalProperties")
        for name, one in value.items():
            yield from broken(of_one or schema["properties"][name], one)
    elif isinstance(value, list):
        for one in value:
            yield from broken(schema["items"], one)


@st.composite
def changed(draw: st.DrawFn, schema: Schema, value: Any, name: str = "") -> Any:
    """Return *value* with one of its parts drawn anew, within *schema*, or left out."""
    if isinstance(value, dict) and "properties" in schema and draw(st.integers(0, 5)) != 0:
        fields = schema["properties"]
        chosen = draw(st.sampled_from(sorted(fields)))
        if chosen not in value:
            return {**value, chosen: draw(values(fields[chosen], chosen))}
        if draw(st.integers(0, 5)) == 0 and chosen not in schema.get("required", ()):
            return {name: one for name, one in value.items() if name != chosen}
        return {**value, chosen: draw(changed(fields[chosen], value[chosen], chosen))}
    if isinstance(value, list) and value and draw(st.integers(0, 5)) != 0:
        return [draw(changed(schema["items"], value[0])), *value[1:]]
    return draw(values(schema, name))


@pytest.mark.parametrize("kind", SCHEMAS)
def test_schema_and_reader_accept_the_same_documents(kind: str) -> None:
    accepted = 0
    field = "webhooks" if kind in PHASES else "spec"
    schema = SCHEMAS[kind]

    @given(changed(schema, VALID[kind]) if kind in VALID else values(schema))
    def holds(spec: Any) -> None:
        nonlocal accepted
        namespace = "shop" if kind == NAMESPACED else ""
        read = read_resource(CustomResource(kind, "a", {"kind": kind, field: spec}, namespace))
        found = [f"{one.field}: {one.message}" for one in read.problems]
        others = [one for one in found if not any(re.match(known, one) for known in ONLY_HERE.get(kind, ()))]
        is_refused = any(broken(SCHEMAS[kind], spec))
        assert found if is_refused else not others, (found, list(broken(schema, spec)))
        accepted += not is_refused

    holds()
    assert accepted > 5
