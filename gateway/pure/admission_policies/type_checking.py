"""Type checking of a ValidatingAdmissionPolicy by the schemas of the kinds that it matches.

Source: k8s.io/apiserver pkg/admission/plugin/policy/validating/typechecking.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.pure.cel.compile import type_of_expression
from gateway.pure.cel.environment import policy_environment
from gateway.pure.cel.errors import InvalidExpression
from gateway.pure.cel.functions import Environment
from gateway.pure.cel.types import DYN
from gateway.pure.openapi.declared_types import ObjectFields
from gateway.pure.openapi.schemas import GroupVersionKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gateway.pure.admission_policies.model import ValidatingPolicy
    from gateway.pure.cel.types import Type
    from gateway.pure.core.policy import ParamKind
    from gateway.pure.core.webhook import Rule
    from gateway.pure.openapi.schemas import Schemas

    KindsOf = Callable[[str, str, str], Iterable[GroupVersionKind]]
    """Returns the kinds of a group, version and resource."""

MAX_KINDS: Final = 10


class TypeCheckError(NamedTuple):
    """An expression that has no value for any object of a kind."""

    field: str
    """The path of the expression in the policy."""
    kind: GroupVersionKind
    message: str
    """With line and column in the expression."""
    expression: str


def type_errors(policy: ValidatingPolicy, schemas: Schemas, kinds_of: KindsOf) -> Iterator[TypeCheckError]:
    """Yield the first error of each expression of *policy*, for each kind that it matches.

    Rules with a wildcard for groups or versions are not checked, nor are wildcards for resources and
    subresources, kinds without a schema, and errors of variables.
    """
    found = set(schemas.kinds)
    kinds = [kind for kind in matched_kinds(policy, kinds_of) if kind in found]
    texts = [
        (f"spec.validations[{number}].{name}", expression.text)
        for number, each in enumerate(policy.rules.validations)
        for name, expression in (
            ("expression", each.expression),
            ("messageExpression", each.message_expression),
        )
        if expression is not None
    ]
    environments = [(kind, _environment_of(policy, schemas, kind)) for kind in kinds]
    for field, text in texts:
        for kind, environment in environments:
            try:
                type_of_expression(text, environment)
            except InvalidExpression as error:
                yield TypeCheckError(field, kind, str(error), text)


def matched_kinds(policy: ValidatingPolicy, kinds_of: KindsOf) -> list[GroupVersionKind]:
    """Return the kinds that the rules of *policy* name, at most about ``MAX_KINDS``, in order."""
    kinds: set[GroupVersionKind] = set()
    for named in policy.match.named_rules:
        for rule in named.rules:
            for number, kind in enumerate(_of_rule(rule, kinds_of), 1):
                kinds.add(kind)
                if number == MAX_KINDS:
                    return sorted(kinds)
    return sorted(kinds)


def _of_rule(rule: Rule, kinds_of: KindsOf) -> Iterator[GroupVersionKind]:
    if any("*" in each for each in (*rule.api_groups, *rule.api_versions)):
        return
    for group in sorted(rule.api_groups):
        for version in sorted(rule.api_versions):
            for resource in sorted(rule.resources):
                if not {"*", "/"} & {*resource}:
                    yield from kinds_of(group, version, resource)


def _environment_of(policy: ValidatingPolicy, schemas: Schemas, kind: GroupVersionKind) -> Environment:
    """Return the environment of the expressions of *policy* for objects of *kind*."""
    variables: dict[str, Type] = {}
    for name, expression in policy.rules.variables.items():
        try:
            found = type_of_expression(expression.text, _environment(policy, schemas, kind, variables))
        except InvalidExpression:
            found = DYN
        variables[name] = found
    return _environment(policy, schemas, kind, variables)


def _environment(
    policy: ValidatingPolicy, schemas: Schemas, kind: GroupVersionKind, variables: Mapping[str, Type]
) -> Environment:
    base = policy_environment(variables or None, has_params=policy.param_kind is not None)
    fields = ObjectFields(base.fields)
    names = dict.fromkeys(("object", "oldObject"), fields.add(schemas.definition(kind)))
    if policy.param_kind is not None:
        params = _kind_of(policy.param_kind)
        names["params"] = fields.add(schemas.definition(params)) if params in schemas.kinds else DYN
    return Environment(
        {**base.variables, **names}, fields, base.functions, policy_variables=base.policy_variables
    )


def _kind_of(param: ParamKind) -> GroupVersionKind:
    group, _, version = param.api_version.rpartition("/")
    return GroupVersionKind(group, version, param.kind)
