"""Admission policies and their bindings as the gateway uses them.

Source: k8s.io/api admissionregistration/v1 types.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gateway.pure.admission_policies.mutations import Mutations
    from gateway.pure.admission_policies.validating import Rules
    from gateway.pure.cel.compile import Condition, Expression
    from gateway.pure.cel.constant_calls import Arguments
    from gateway.pure.cel.object_reads import Resource
    from gateway.pure.cel.paths import Paths
    from gateway.pure.core.labels import Selector
    from gateway.pure.core.policy import ParamKind
    from gateway.pure.core.webhook import MatchPolicy, Mode, PolicyRollout, Rule

ValidationAction = Literal["Deny", "Warn", "Audit"]
NotFoundAction = Literal["Allow", "Deny"]
PlacementChoice = Literal["Gateway", "APIServer", "Auto"]
"""Where a policy is to be evaluated. ``Auto``: by the API server if that has the same outcome."""
TemplateMode = Literal["Warn", "Deny"]
"""What a refusal of the Pods of a workload's template does to the workload."""


@dataclass(frozen=True, slots=True)
class NamedRule:
    """A rule for resources, and for objects of some names only: a ``RuleMatch``."""

    rules: tuple[Rule, ...]
    """One."""
    names: tuple[str, ...]
    """Empty for all."""
    match_policy: MatchPolicy


@dataclass(frozen=True, slots=True)
class MatchResources:
    """The requests that a policy or a binding matches."""

    named_rules: tuple[NamedRule, ...]
    """Empty in a binding: all."""
    excluded: tuple[NamedRule, ...]
    match_policy: MatchPolicy
    namespace_selector: Selector
    object_selector: Selector


@dataclass(frozen=True, slots=True)
class ParamRef:
    """The parameters of a binding: by name or by selector."""

    name: str
    namespace: str
    """Empty for that of the request, if the kind is namespaced."""
    selector: Selector | None
    not_found: NotFoundAction


@dataclass(frozen=True, slots=True, eq=False)
class _Policy:
    name: str
    match: MatchResources
    param_kind: ParamKind | None
    conditions: Sequence[Condition]
    document: bytes
    """JSON of its spec, with sorted keys."""
    rules: Rules | Mutations
    placement: PlacementChoice | None = field(default=None, kw_only=True)
    """That of its annotation. None: that of the GatewayConfiguration."""
    help: str = field(default="", kw_only=True)
    """That of its annotation, see ``Webhook``."""
    templates: TemplateMode | None = field(default=None, kw_only=True)
    """How it applies to the Pods of workloads, by its annotation. None: not at all."""

    @property
    def variables(self) -> Mapping[str, Expression]:
        """Its variables, each of which can use those before it."""
        return self.rules.variables

    @property
    def expressions(self) -> Sequence[Expression]:
        """All expressions."""
        return (*(each.compiled for each in self.conditions), *self.rules.expressions)

    @property
    def is_built(self) -> bool:
        """Whether :meth:`build` was called."""
        return self.rules.is_built

    def build(self) -> None:
        """Make what evaluates the usual case fast, once."""
        self.rules.build()

    @property
    def needs_authorizer(self) -> bool:
        """Whether any expression uses ``authorizer``."""
        return any(each.needs_authorizer for each in self.expressions)

    @property
    def needs_namespace(self) -> bool:
        """Whether any expression uses ``namespaceObject``."""
        return any(each.needs_namespace for each in self.expressions)

    def object_reads(self, more: Iterable[Expression] = ()) -> Mapping[Resource, Paths]:
        """Return what its expressions, and *more* of them, read of other objects, see ``object_reads``."""
        from gateway.pure.cel.object_reads import object_reads

        variables = {name: each.text for name, each in self.variables.items()}
        used = {id(each) for each in self.variables.values()}
        texts = [each.text for each in (*self.expressions, *more) if id(each) not in used]
        return object_reads(texts, variables)

    def calls(
        self,
        variable: str,
        functions: Collection[str],
        more: Iterable[Expression] = (),
        mention: str = "",
    ) -> frozenset[Arguments]:
        """Return what its expressions, and *more*, give to *functions* of *variable*: ``constant_calls``."""
        from gateway.pure.cel.constant_calls import constant_calls

        return constant_calls(
            (each.text for each in (*self.expressions, *more)), variable, functions, mention
        )

    def param_paths(self, bindings: Iterable[_Binding]) -> Paths:
        """Return the parts of its parameters that its expressions, and the selectors of *bindings*, read."""
        # Documents are sorted out with this module where no policy is, and then nothing of CEL is loaded.
        from gateway.pure.cel.paths import joined

        has_selector = any(each.param_ref and each.param_ref.selector for each in bindings)
        of_expressions = (each.param_paths for each in self.expressions)
        return joined([*of_expressions, [("metadata", "labels")] if has_selector else ()])


@dataclass(frozen=True, slots=True, eq=False)
class _Binding:
    name: str
    policy: str
    """The name of its policy."""
    match: MatchResources | None
    param_ref: ParamRef | None
    document: bytes
    """JSON of its spec, with sorted keys."""
    rollout: PolicyRollout | None = field(default=None, kw_only=True)
    """How far it is in force. None: everywhere, in its mode if it has one."""


@dataclass(frozen=True, slots=True, eq=False)
class ValidatingPolicy(_Policy):
    """One ValidatingAdmissionPolicy."""

    rules: Rules


@dataclass(frozen=True, slots=True, eq=False)
class ValidatingBinding(_Binding):
    """One ValidatingAdmissionPolicyBinding."""

    actions: tuple[ValidationAction, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MutatingPolicy(_Policy):
    """One MutatingAdmissionPolicy."""

    rules: Mutations


@dataclass(frozen=True, slots=True, eq=False)
class MutatingBinding(_Binding):
    """One MutatingAdmissionPolicyBinding."""

    mode: Mode


P = TypeVar("P", ValidatingPolicy, MutatingPolicy)
B = TypeVar("B", ValidatingBinding, MutatingBinding)
