"""The fields of Kyverno's policies in CEL that validating and mutating policies share.

The three versions of the API group have the same fields.

Source: github.com/kyverno/api policies.kyverno.io v1alpha1 (v1beta1 and v1 are the same types).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.base.text import shown
from gateway.config.kinds.declare import (
    Boolean,
    Choice,
    Declared,
    Group,
    Groups,
    Integer,
    Text,
    Texts,
    declare,
    optional,
    required,
)
from gateway.config.kinds.matching import FAILURE_POLICIES, CelText, PlacedEntry, report_twice
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import dns_1123_subdomain
from gateway.config.kinds.policy_matching import ConstraintsEntry
from gateway.config.kinds.policy_rollout import read_policy_rollout
from gateway.config.kinds.policy_spec import ALWAYS_TRUE, MAX_EXPRESSION_CHARS, VariableEntry
from gateway.config.yaml.fields import child
from gateway.pure.admission_policies.validating import AuditAnnotation
from gateway.pure.cel.compile import Condition
from gateway.pure.cel.types import BOOL, NULL, STRING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gateway.config.kinds.metadata import Metadata
    from gateway.config.kinds.policy_spec import Expressions
    from gateway.config.yaml.fields import Fields
    from gateway.pure.core.webhook import FailurePolicy, PolicyRollout, Webhook
    from gateway.pure.kyverno.in_force import OtherDocuments

    Entry = Callable[[OtherDocuments], Webhook]
    """Makes a policy an entry of a phase."""

VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
MAX_ENTRIES: Final = 1_000
"""Of each list of expressions, which Kyverno does not bound: the time to compile them grows faster."""
NAMESPACED: Final = "Namespaced"
"""The beginning of the kinds of policies of one namespace."""


def _evaluation_mode(text: str) -> str | None:
    if text in ("", "Kubernetes"):
        return None
    if text == "JSON":
        return "found JSON: such a policy is for payloads that are no Kubernetes objects; expected Kubernetes"
    return f"found {shown(text)}, expected Kubernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionEntry(PlacedEntry):
    """One of ``matchConditions``. Unlike in the API server, its name may be any text."""

    name: str = required(Text(minLength=1), "Name of the condition")
    expression: str = required(CelText("of type bool", MAX_EXPRESSION_CHARS), "Has to be true")


CONDITIONS: Final = Groups(ConditionEntry, MAX_ENTRIES, key="name")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Enabled(Declared):
    enabled: bool = declare(Boolean(), "Whether it is on", default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationEntry(Declared):
    """``evaluation``."""

    mode: str = declare(Text(check=_evaluation_mode), "`Kubernetes`", default="")
    admission: _Enabled | None = optional(Group(_Enabled), "Whether requests are reviewed")
    background: _Enabled | None = optional(
        Group(_Enabled), "Not used: the gateway does not scan stored objects"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Controllers(Declared):
    controllers: tuple[str, ...] = declare(Texts(), "Plural names", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class AutogenEntry(Declared):
    """``autogen``, which ``gateway.pure.kyverno.autogen`` reads."""

    pod_controllers: _Controllers | None = optional(Group(_Controllers), "Controllers of Pods")
    validating_admission_policy: _Enabled | None = optional(Group(_Enabled), "Not used")
    mutating_admission_policy: _Enabled | None = optional(Group(_Enabled), "Not used")


@dataclass(frozen=True, slots=True, kw_only=True)
class _WebhookEntry(Declared):
    timeout_seconds: int | None = optional(Integer(1, 30, "seconds"), "Timeout of the policy")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationEntry(PlacedEntry):
    """One validation: of ``validations``, or of ``validate.cel.expressions``."""

    expression: str = required(CelText("of type bool", MAX_EXPRESSION_CHARS), "Has to be true")
    message: str = declare(Text(), "The message if it is false", default="")
    message_expression: str = declare(Text(), "Instead of `message`", default="")
    reason: str = declare(Text(), "Not used by Kyverno", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditAnnotationEntry(PlacedEntry):
    """One of ``auditAnnotations``."""

    key: str = required(Text(), "Key")
    value_expression: str = required(CelText("of type string or null", MAX_EXPRESSION_CHARS), "Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class KyvernoSpec(Declared):
    """What the specs of validating and mutating policies have in common."""

    match_constraints: ConstraintsEntry = required(Group(ConstraintsEntry), "The requests that it matches")
    match_conditions: tuple[ConditionEntry, ...] = declare(CONDITIONS, "All have to hold", default=())
    variables: tuple[VariableEntry, ...] = declare(
        Groups(VariableEntry, MAX_ENTRIES), "Variables, in order", default=()
    )
    failure_policy: FailurePolicy = declare(Choice(FAILURE_POLICIES), "Effect of failures", default="Fail")
    audit_annotations: tuple[AuditAnnotationEntry, ...] = declare(
        Groups(AuditAnnotationEntry, MAX_ENTRIES), "Not written: Kyverno has them in reports", default=()
    )
    autogen: AutogenEntry | None = optional(Group(AutogenEntry), "Policies for controllers of Pods")
    webhook_configuration: _WebhookEntry = declare(
        Group(_WebhookEntry), "Not used: a policy in the gateway is no call", default=_WebhookEntry()
    )
    evaluation: EvaluationEntry | None = optional(Group(EvaluationEntry), "Where it is evaluated")

    @property
    def without_effect(self) -> tuple[str, str] | None:
        """A field, and why the policy reviews no requests because of it. None if it does."""
        return unless_for_admission(self.evaluation)

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield fields, each with what it does otherwise than the author may expect."""
        yield from ()

    def entry(self, head: PolicyHead, document: bytes) -> Entry:
        """Return what makes the policy, after reporting problems of expressions.

        *document* is the JSON of the spec.
        """
        raise NotImplementedError

    def annotations(self, expressions: Expressions) -> tuple[AuditAnnotation, ...]:
        """Return ``auditAnnotations``, compiled, after reporting their problems."""
        types, found = (STRING, NULL), []
        for each in self.audit_annotations:
            compiled = expressions.compiled(each.source, "valueExpression", each.value_expression, types)
            found.append(AuditAnnotation(each.key, compiled or ALWAYS_TRUE))
        return tuple(found)


def unless_for_admission(evaluation: EvaluationEntry | None) -> tuple[str, str] | None:
    """Return a field, and what its value means, if *evaluation* leaves out requests."""
    if evaluation is None or evaluation.admission is None or evaluation.admission.enabled:
        return None
    return "evaluation", "admission is not enabled: the policy has no effect"


class PolicyHead(NamedTuple):
    """What is known of a policy beside its spec."""

    kind: str
    id: str
    """``NAMESPACE/NAME``, or ``NAME`` without a namespace."""
    name: str
    namespace: str
    """Empty unless the policy is of one namespace."""
    rollout: PolicyRollout | None
    """That of the gateway's annotations. None without them."""
    is_on_templates: bool = False
    """Whether it is about the Pod templates in objects, see ``gateway.pure.kyverno.extraction``."""


def read_head(fields: Fields, kind: str) -> tuple[PolicyHead, Fields]:
    """Return the head and the spec of the policy of *kind* behind *fields*."""
    is_namespaced = kind.startswith(NAMESPACED)
    metadata = read_metadata(fields, dns_1123_subdomain, is_namespaced=True)
    path = child(fields.at("metadata"), "namespace")
    if is_namespaced and metadata.name and not metadata.namespace:
        fields.problems.add(path, f"is required: a {kind} is for the requests of one namespace")
    elif metadata.namespace and not is_namespaced:
        # Source: k8s.io/apiserver pkg/registry/rest/meta.go (EnsureObjectNamespaceMatchesRequestNamespace).
        fields.problems.warn(path, f"has no effect: a {kind} is cluster-scoped, and API servers remove it")
        metadata = replace(metadata, namespace="")
    rollout = read_policy_rollout(fields, metadata)
    fields.accept("status")
    spec = fields.required_group("spec")
    fields.finish()
    return PolicyHead(kind, id_of(metadata), metadata.name, metadata.namespace, rollout), spec


def compiled_conditions(
    entries: tuple[ConditionEntry, ...], expressions: Expressions
) -> tuple[Condition, ...]:
    """Return the conditions *entries*, compiled, after reporting their problems."""
    report_twice(((each.source, each.name) for each in entries), "name")
    compiled = (
        (each.name, expressions.compiled(each.source, "expression", each.expression, (BOOL,)))
        for each in entries
    )
    return tuple(Condition(name, found) for name, found in compiled if found is not None)


def id_of(metadata: Metadata) -> str:
    """Return ``NAMESPACE/NAME``, or ``NAME`` without a namespace."""
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
