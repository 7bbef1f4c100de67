"""What the specs of validating and mutating policies have in common, and the compiler of their expressions.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go, v1/defaults.go; k8s.io/api
admissionregistration types.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from gateway.base.text import shown
from gateway.config.kinds.declare import Choice, Declared, Group, Groups, Text, declare, optional, required
from gateway.config.kinds.matching import (
    CONDITIONS,
    FAILURE_POLICIES,
    CelText,
    ConditionEntry,
    PlacedEntry,
    report_twice,
)
from gateway.config.kinds.metadata import annotated
from gateway.config.kinds.names import (
    LABEL_LENGTH,
    SUBDOMAIN,
    SUBDOMAIN_LENGTH,
    dns_1035_label,
    group_version,
)
from gateway.config.kinds.policy_matching import ConstraintsEntry
from gateway.config.kinds.policy_settings import PLACEMENT, PLACEMENTS
from gateway.pure.cel import environment
from gateway.pure.cel.compile import Condition, Expression, compile_expression
from gateway.pure.cel.errors import InvalidExpression
from gateway.pure.cel.parse import RESERVED
from gateway.pure.cel.types import BOOL, DYN
from gateway.pure.core.policy import ParamKind

if TYPE_CHECKING:
    from collections.abc import Collection

    from gateway.config.kinds.metadata import Metadata
    from gateway.config.yaml.fields import Fields
    from gateway.pure.admission_policies.model import MatchResources, PlacementChoice
    from gateway.pure.cel.functions import Environment
    from gateway.pure.cel.types import Type
    from gateway.pure.core.webhook import FailurePolicy

MAX_EXPRESSION_CHARS: Final = 65536
MAX_EXPRESSIONS: Final = 200
"""Expressions in each list of a policy, and characters of one, in a custom resource."""
_IDENTIFIER: Final = re.compile("[_a-zA-Z][_a-zA-Z0-9]*")


class Expressions:
    """Compiles the expressions of one policy. Each variable is known to the expressions after it."""

    def __init__(
        self,
        *,
        has_params: bool,
        dialect: environment.Dialect = environment.KUBERNETES,
        known: Expressions | None = None,
        has_structs: bool = False,
        has_programs: bool = True,
    ) -> None:
        """With *known*, the variables of that compiler are known, too.

        With *has_structs*, all expressions have the types and functions of patches. Without *has_programs*,
        programs are built when they are needed.
        """
        self._has_params = has_params
        self._has_structs = has_structs
        self._has_programs = has_programs
        self._dialect = dialect
        self._environments: dict[tuple[bool, bool, bool], Environment] = {}
        """By whether there are variables, the authorizer, and structs."""
        self.types: dict[str, Type] = {} if known is None else known.types
        self.variables: dict[str, Expression] = {} if known is None else known.variables

    def compiled(
        self,
        fields: Fields,
        name: str,
        text: str,
        types: Collection[Type] = (),
        *,
        has_variables: bool = True,
        has_authorizer: bool = True,
        has_structs: bool = False,
        is_trimmed: bool = False,
    ) -> Expression | None:
        """Return the expression *text* of the field *name*, which has one of *types*; None after a problem.

        Also if it is empty, which has been reported.
        """
        if not text.strip():
            if text:
                fields.problem(name, "is required, expected a CEL expression")
            return None
        names = self._environment(
            has_variables=has_variables and bool(self.types),
            has_authorizer=has_authorizer,
            has_structs=has_structs or self._has_structs,
        )
        text = text.strip() if is_trimmed else text
        try:
            return compile_expression(text, names, types, has_program=self._has_programs)
        except InvalidExpression as error:
            fields.problem(name, str(error))
            return None

    def _environment(self, *, has_variables: bool, has_authorizer: bool, has_structs: bool) -> Environment:
        """Return the environment with these parts. Variables that are declared later are added to it."""
        key = has_variables, has_authorizer, has_structs
        if key not in self._environments:
            self._environments[key] = environment.policy_environment(
                self.types if has_variables else None,
                has_params=self._has_params,
                has_authorizer=has_authorizer,
                has_structs=has_structs,
                dialect=self._dialect,
            )
        return self._environments[key]

    def add(self, variable: VariableEntry) -> None:
        """Add one of ``variables``."""
        self.declare(variable.name, self.compiled(variable.source, "expression", variable.expression))

    def declare(self, name: str, expression: Expression | None) -> None:
        """Add the variable *name*. Its *expression* is None after a problem."""
        if name in self.types:
            # A second variable of the name: expressions compiled so far keep the first one's type.
            self.types = self.types.copy()
            self._environments.clear()
        # An expression that uses a wrong variable is not a problem of its own.
        self.types[name] = DYN if expression is None else expression.type
        if expression is not None:
            self.variables[name] = expression


ALWAYS_TRUE: Final = compile_expression("true", environment.policy_environment(None, has_params=False))
"""In place of an expression with a problem."""


@dataclass(frozen=True, slots=True)
class ParamKindEntry(Declared):
    """``paramKind``."""

    api_version: str = required(
        Text(
            check=group_version,
            maxLength=SUBDOMAIN_LENGTH + 1 + LABEL_LENGTH,
            pattern=f"^(({SUBDOMAIN})?/)?[a-z]([-a-z0-9]*[a-z0-9])?$",
        ),
        "`VERSION` or `GROUP/VERSION`",
    )
    kind: str = required(
        Text(
            check=lambda text: dns_1035_label(text.lower()),
            maxLength=LABEL_LENGTH,
            pattern="^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$",
        ),
        "Kind",
    )

    @property
    def param_kind(self) -> ParamKind:
        """The kind itself."""
        return ParamKind(self.api_version.removeprefix("/"), self.kind)


def _identifier(text: str) -> str | None:
    is_right = _IDENTIFIER.fullmatch(text) and text not in RESERVED
    return None if is_right else f"found {shown(text)}, expected a CEL identifier"


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableEntry(PlacedEntry):
    """One of ``variables``."""

    name: str = required(
        Text(check=_identifier, maxLength=LABEL_LENGTH, pattern=f"^{_IDENTIFIER.pattern}$"),
        "Name, behind `variables`",
    )
    expression: str = required(
        CelText("of any type", MAX_EXPRESSION_CHARS), "Later expressions can use its value"
    )


class SpecHead(NamedTuple):
    """The part of a spec that policies of both kinds have."""

    param_kind: ParamKind | None
    match: MatchResources
    conditions: tuple[Condition, ...]
    expressions: Expressions
    """With all variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec(Declared):
    """What the specs of both kinds of policies have."""

    DIALECT = environment.KUBERNETES
    param_kind: ParamKindEntry | None = optional(
        Group(ParamKindEntry), "The kind of its parameters, which the GatewayConfiguration has to list"
    )
    match_constraints: ConstraintsEntry = required(Group(ConstraintsEntry), "The requests that it matches")
    match_conditions: tuple[ConditionEntry, ...] = declare(
        CONDITIONS, "Conditions that all have to hold", default=()
    )
    variables: tuple[VariableEntry, ...] = declare(
        Groups(VariableEntry, key="name", maxItems=MAX_EXPRESSIONS),
        "In order. Each can use those before it",
        default=(),
    )
    failure_policy: FailurePolicy = declare(
        Choice(FAILURE_POLICIES),
        "Whether a failure of the policy refuses the request (Fail) or is skipped (Ignore)",
        default="Fail",
    )

    def head(self) -> SpecHead:
        """Return this part, compiled, after reporting problems of expressions."""
        kind = self.param_kind
        expressions = Expressions(has_params=kind is not None, dialect=self.DIALECT)
        report_twice(((each.source, each.name) for each in self.match_conditions), "name")
        conditions = []
        for each in self.match_conditions:
            expression = expressions.compiled(
                each.source, "expression", each.expression, (BOOL,), has_variables=False, is_trimmed=True
            )
            if expression is not None:
                conditions.append(Condition(each.name, expression))
        for variable in self.variables:
            expressions.add(variable)
        return SpecHead(
            None if kind is None else kind.param_kind,
            self.match_constraints.resources,
            tuple(conditions),
            expressions,
        )


def placement_of(fields: Fields, metadata: Metadata) -> PlacementChoice | None:
    """Return the placement of the policy behind *fields* with *metadata*; None without the annotation."""
    return annotated(fields, metadata, PLACEMENT, PLACEMENTS)


def spec_json(content: object) -> bytes:
    """Return the JSON of *content*, which decides what a policy does, with sorted keys."""
    # The bytes are kept, and behind them orjson leaves the rest of the kilobytes that it reserved.
    return bytes(memoryview(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)))
