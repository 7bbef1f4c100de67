"""The rules in CEL of a ClusterPolicy or Policy of Kyverno, and their results.

Source: github.com/kyverno/kyverno api/kyverno/v1/rule_types.go, pkg/engine/api/ruleresponse.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from gateway.pure.admission_policies.evaluation import OutOfBudgetError, evaluate_all
from gateway.pure.admission_policies.model import ValidatingBinding, ValidatingPolicy
from gateway.pure.admission_policies.validating import Rules
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.meter import HOOK_LIMIT
from gateway.pure.conditions.match_conditions import aggregated
from gateway.pure.core.conditions import Excluded
from gateway.pure.kyverno.cluster_autogen import PREFIX, RuleVariants
from gateway.pure.kyverno.resource_match import Filters
from gateway.pure.kyverno.user_roles import RoleSource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from gateway.pure.admission_policies.evaluation import Allowance
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.admission_policies.validating import Values
    from gateway.pure.cel.compile import Condition, Expression
    from gateway.pure.kyverno.failure_action import FailureAction
    from gateway.pure.kyverno.resource_match import MatchInput

    Json = dict[str, Any]

NO_BINDING: Final = ValidatingBinding("", "", None, None, b"{}", ("Deny",))


@dataclass(frozen=True, slots=True, eq=False)
class RuleException:
    """A PolicyException of one rule."""

    id: str
    """``NAMESPACE/NAME``."""
    match: Filters
    document: bytes
    """JSON of its spec, with sorted keys."""


@dataclass(frozen=True, slots=True, eq=False)
class CelRule:
    """One rule, or what autogen made of it."""

    name: str
    match: Filters
    exclude: Filters | None
    rules: Rules
    """Its validations, whose failurePolicy is Fail."""
    conditions: Sequence[Condition]
    binding: ValidatingBinding
    """With its parameters, or ``NO_BINDING``."""
    missing_param: str
    """What Kyverno says if the parameter that is named does not exist. Empty if none is named."""
    action: FailureAction
    exceptions: tuple[RuleException, ...] = ()

    @property
    def expressions(self) -> Iterator[Expression]:
        """All its expressions."""
        yield from (each.compiled for each in self.conditions)
        yield from self.rules.expressions

    @property
    def is_plain(self) -> bool:
        """Whether nothing but its validations decides, once it matches."""
        return not (
            self.conditions
            or self.exceptions
            or self.rules.audit_annotations
            or self.binding is not NO_BINDING
            or any(each.needs_authorizer for each in self.expressions)
        )

    def matches(self, found: MatchInput) -> bool:
        """Whether it is for the request."""
        return self.match.include(found) and not (self.exclude is not None and self.exclude.exclude(found))


@dataclass(frozen=True, slots=True, eq=False)
class ClusterPolicy(ValidatingPolicy):
    """One ClusterPolicy or Policy. Its ``rules`` have nothing but the failurePolicy.

    Its ``conditions`` are those of the webhook that Kyverno registers for it.
    """

    cel_rules: Sequence[RuleVariants[CelRule]] = field(kw_only=True)
    controllers: Collection[str] = field(kw_only=True)
    """The kinds for which autogen makes rules."""
    emits_warnings: bool = field(kw_only=True)
    applies_one: bool = field(kw_only=True)
    """Whether the first rule that applies is the last."""

    @property
    def all_rules(self) -> Iterator[CelRule]:
        """All rules, with those that autogen made."""
        for each in self.cel_rules:
            yield each.own
            yield from (one for one in (each.for_workloads, each.for_cron_jobs) if one is not None)

    @property
    def filters(self) -> list[Filters]:
        """What ``match`` and ``exclude`` of all rules have, and their exceptions."""
        found = (
            filters
            for rule in self.all_rules
            for filters in (rule.match, rule.exclude, *(each.match for each in rule.exceptions))
        )
        return [each for each in found if each is not None]

    def role_source(self, params: FixedParams) -> RoleSource:
        """Return where the roles of users come from; *params* are the objects in files."""
        return RoleSource(params, is_needed=any(each.needs_roles for each in self.filters))

    @property
    def expressions(self) -> Sequence[Expression]:
        """All its expressions."""
        of_rules = (expression for rule in self.all_rules for expression in rule.expressions)
        return [*(each.compiled for each in self.conditions), *of_rules]

    @property
    def is_built(self) -> bool:
        """See ``ValidatingPolicy``."""
        return all(each.rules.is_built for each in self.all_rules)

    def build(self) -> None:
        """See ``ValidatingPolicy``."""
        for each in self.all_rules:
            each.rules.build()


def rule_elsewhere(
    name: str, action: FailureAction, *, is_fit: bool, needs_variants: bool
) -> RuleVariants[CelRule]:
    """Return what stands for the rule *name* that another program evaluates: it is for no request here."""
    own = CelRule(name, Filters("any", ()), None, Rules("Fail", {}, (), ()), (), NO_BINDING, "", action)
    return RuleVariants(
        own,
        None,
        None,
        is_named_as_made=name.startswith(PREFIX),
        is_fit=is_fit,
        needs_variants=needs_variants,
        is_elsewhere=True,
    )


class RuleResult(NamedTuple):
    """The result of one rule that is for the request."""

    rule: str
    status: Literal["pass", "fail", "error", "skip"]
    message: str
    refuses: bool
    """Whether it refuses the request if it fails."""


def unmet_precondition(rule: CelRule, values: Values, allowance: Allowance) -> str | Excluded | None:
    """Return None if all preconditions of *rule* are true, else the first that is false, or an error."""
    expressions = [each.compiled for each in rule.conditions]
    try:
        results, _ = evaluate_all(expressions, rule.rules.variables, values, HOOK_LIMIT, allowance)
    except OutOfBudgetError as error:
        return str(error)
    if (False,) in results:
        return Excluded(rule.conditions[results.index((False,))].name)
    errors = [str(each) for each in results if isinstance(each, EvaluationError)]
    return aggregated(errors) if errors else None
