"""ValidatingAdmissionPolicy and ValidatingAdmissionPolicyBinding, with the API server's defaults and checks.

The checks are those of the API server for a new object.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go, v1/defaults.go; k8s.io/api
admissionregistration types.go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

import orjson

from gateway.base.text import shown
from gateway.config.kinds.matching import FAILURE_POLICIES, MATCH_POLICIES, MAX_MATCH_CONDITIONS, read_rule
from gateway.config.kinds.metadata import read_metadata, read_selector
from gateway.config.kinds.names import (
    configuration_name,
    dns_1035_label,
    dns_1123_subdomain,
    group_version,
    qualified_name,
)
from gateway.config.yaml.documents import ADMISSION_GROUP
from gateway.config.yaml.fields import child
from gateway.pure.admission_policies.model import (
    MatchResources,
    NamedRule,
    NotFoundAction,
    ParamRef,
    ValidatingBinding,
    ValidatingPolicy,
    ValidationAction,
)
from gateway.pure.admission_policies.policy import FAILURES_KEY
from gateway.pure.admission_policies.validating import AuditAnnotation, Rules, Validation
from gateway.pure.cel.compile import Condition, Expression, compile_expression
from gateway.pure.cel.environment import policy_environment
from gateway.pure.cel.errors import InvalidExpression
from gateway.pure.cel.parse import RESERVED
from gateway.pure.cel.types import BOOL, DYN, NULL, STRING
from gateway.pure.core.policy import ParamKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from gateway.config.yaml.fields import Fields
    from gateway.pure.cel.types import Type
    from gateway.pure.core.webhook import FailurePolicy, MatchPolicy

ACTIONS: tuple[ValidationAction, ...] = get_args(ValidationAction)
NOT_FOUND_ACTIONS: tuple[NotFoundAction, ...] = get_args(NotFoundAction)
REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_V1ALPHA1: Final = f"{ADMISSION_GROUP}/v1alpha1"
MODE: Final = "admission-gateway.io/mode"
"""The annotation with the mode of the binding of a mutating policy."""
MAX_AUDIT_ANNOTATIONS: Final = 20
MAX_VALUE_EXPRESSION_BYTES: Final = 5 * 1024
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")


def read_validating_policy(fields: Fields) -> ValidatingPolicy:
    """Return the policy behind *fields*; apiVersion and kind are read already."""
    name = read_metadata(fields, configuration_name).name
    fields.accept("status")
    spec = fields.required_group("spec")
    fields.finish()
    begin = read_spec_head(spec)
    expressions = begin.expressions
    validations = tuple(_validation(each, expressions) for each in spec.mappings("validations"))
    annotations = tuple(_annotations(spec, name, expressions))
    if not validations and not annotations:
        spec.problem("validations", "found neither validations nor auditAnnotations, expected at least one")
    spec.finish()
    rules = Rules(begin.failure_policy, expressions.variables, validations, annotations)
    return ValidatingPolicy(name, begin.match, begin.param_kind, begin.conditions, spec_json(spec), rules)


class SpecHead(NamedTuple):
    """The part of a spec that policies of both kinds have."""

    failure_policy: FailurePolicy
    param_kind: ParamKind | None
    match: MatchResources
    conditions: tuple[Condition, ...]
    expressions: Expressions
    """With all variables."""


def read_spec_head(spec: Fields, check: Callable[[Fields], None] = lambda _: None) -> SpecHead:
    """Return what policies of both kinds have in *spec*; *check* gets matchConstraints, which were read."""
    failure_policy = spec.choice("failurePolicy", FAILURE_POLICIES, "Fail")
    param_kind = _param_kind(spec)
    constraints = spec.required_group("matchConstraints")
    match = read_match_resources(constraints)
    check(constraints)
    if not match.named_rules:
        constraints.problem("resourceRules", "is required with at least one entry")
    expressions = Expressions(has_params=param_kind is not None)
    conditions = tuple(_conditions(spec, expressions))
    for variable in spec.mappings("variables"):
        expressions.read_variable(variable)
    return SpecHead(failure_policy, param_kind, match, conditions, expressions)


def default_not_found(fields: Fields) -> NotFoundAction | None:
    """Return the default of parameterNotFoundAction in the version of the document behind *fields*."""
    return "Deny" if fields.content.get("apiVersion") == _V1ALPHA1 else None


def read_validating_binding(fields: Fields) -> ValidatingBinding:
    """Return the binding behind *fields*; apiVersion and kind are read already."""
    default = default_not_found(fields)
    metadata = read_metadata(fields, configuration_name)
    if MODE in metadata.annotations:
        path = child(child(fields.at("metadata"), "annotations"), MODE)
        fields.problems.warn(path, "has no effect: this binding has validationActions instead of a mode")
    spec = fields.required_group("spec")
    fields.finish()
    match = spec.mapping("matchResources")
    binding = ValidatingBinding(
        metadata.name,
        spec.required_string("policyName", dns_1123_subdomain),
        None if match is None else read_match_resources(match),
        read_param_ref(spec, default),
        spec_json(spec),
        _actions(spec),
    )
    spec.finish()
    return binding


def spec_json(spec: Fields) -> bytes:
    """Return the JSON of *spec*, with sorted keys."""
    return orjson.dumps(spec.content, option=orjson.OPT_SORT_KEYS)


class Expressions:
    """Compiles the expressions of one policy. Each variable is known to the expressions after it."""

    def __init__(self, *, has_params: bool) -> None:
        self._has_params = has_params
        self._types: dict[str, Type] = {}
        self.variables: dict[str, Expression] = {}

    def read(
        self,
        fields: Fields,
        name: str,
        types: Collection[Type] = (),
        *,
        has_variables: bool = True,
        has_authorizer: bool = True,
        has_structs: bool = False,
        is_trimmed: bool = False,
    ) -> Expression | None:
        """Return the expression in the field *name*, which has one of *types*; None after a problem."""
        text = fields.optional_string(name)
        if not text.strip():
            if isinstance(fields.content.get(name), str | None):
                fields.problem(name, "is required, expected a CEL expression")
            return None
        variables = self._types if has_variables and self._types else None
        environment = policy_environment(
            variables,
            has_params=self._has_params,
            has_authorizer=has_authorizer,
            has_structs=has_structs,
        )
        try:
            return compile_expression(text.strip() if is_trimmed else text, environment, types)
        except InvalidExpression as error:
            fields.problem(name, str(error))
            return None

    def read_variable(self, fields: Fields) -> None:
        """Read one of ``variables``."""
        name = fields.required_string("name")
        if name and (not _IDENTIFIER.fullmatch(name) or name in RESERVED):
            fields.problem("name", f"found {shown(name)}, expected a CEL identifier")
        expression = self.read(fields, "expression")
        fields.finish()
        # An expression that uses a wrong variable is not a problem of its own.
        self._types[name] = DYN if expression is None else expression.type
        if expression is not None:
            self.variables[name] = expression


def _conditions(spec: Fields, expressions: Expressions) -> Iterator[Condition]:
    """Yield the matchConditions of the policy behind *spec*."""
    found = spec.mappings("matchConditions")
    if len(found) > MAX_MATCH_CONDITIONS:
        spec.problem("matchConditions", f"found {len(found)}, expected at most {MAX_MATCH_CONDITIONS}")
    seen: set[str] = set()
    for fields in found:
        name = fields.required_string("name", qualified_name)
        if name and name in seen:
            fields.problem("name", f"found {shown(name)} again, expected unique names")
        seen.add(name)
        expression = expressions.read(fields, "expression", (BOOL,), has_variables=False, is_trimmed=True)
        fields.finish()
        if expression is not None:
            yield Condition(name, expression)


def _validation(fields: Fields, expressions: Expressions) -> Validation:
    expression = expressions.read(fields, "expression", (BOOL,))
    message = fields.optional_string("message", _one_line)
    message_expression = None
    if fields.optional_string("messageExpression"):
        message_expression = expressions.read(fields, "messageExpression", (STRING,), has_authorizer=False)
    reason = fields.choice("reason", REASONS, "Invalid") if fields.has("reason") else ""
    fields.finish()
    # After a problem the result is dropped.
    return Validation(expression or ALWAYS_TRUE, message, message_expression, reason)


def _annotations(spec: Fields, policy: str, expressions: Expressions) -> Iterator[AuditAnnotation]:
    found = spec.mappings("auditAnnotations")
    if len(found) > MAX_AUDIT_ANNOTATIONS:
        spec.problem("auditAnnotations", f"found {len(found)}, expected at most {MAX_AUDIT_ANNOTATIONS}")
    seen: set[str] = set()
    for fields in found:
        key = fields.required_string("key", lambda text: qualified_name(f"{policy}/{text}"))
        if key and key in seen:
            fields.problem("key", f"found {shown(key)} again, expected unique keys")
        seen.add(key)
        if key == FAILURES_KEY:
            lost = "where a validation with the action Audit fails, its failures replace this annotation"
            fields.problems.warn(fields.at("key"), f"is the key of failures: {lost}")
        size = len(fields.optional_string("valueExpression").strip().encode())
        if size > MAX_VALUE_EXPRESSION_BYTES:
            expected = f"expected at most {MAX_VALUE_EXPRESSION_BYTES}"
            fields.problem("valueExpression", f"found {size} bytes, {expected}")
        expression = expressions.read(fields, "valueExpression", (STRING, NULL), is_trimmed=True)
        fields.finish()
        yield AuditAnnotation(key, expression or ALWAYS_TRUE)


ALWAYS_TRUE: Final = compile_expression("true", policy_environment(None, has_params=False))
"""In place of an expression with a problem."""


def _one_line(text: str) -> str | None:
    if text and not text.strip():
        return "is blank, expected a message"
    return "has line breaks, expected one line" if re.search(r"[\n\r]", text.strip()) else None


def read_match_resources(fields: Fields) -> MatchResources:
    """Return ``matchConstraints`` or ``matchResources`` behind *fields*."""
    match_policy = fields.choice("matchPolicy", MATCH_POLICIES, "Equivalent")
    match = MatchResources(
        tuple(_named_rule(each, match_policy) for each in fields.mappings("resourceRules")),
        tuple(_named_rule(each, match_policy) for each in fields.mappings("excludeResourceRules")),
        match_policy,
        read_selector(fields.mapping("namespaceSelector")),
        read_selector(fields.mapping("objectSelector")),
    )
    fields.finish()
    return match


def _named_rule(fields: Fields, match_policy: MatchPolicy) -> NamedRule:
    names = fields.strings("resourceNames", _path_segment)
    for name in {name for name in names if names.count(name) > 1}:
        fields.problem("resourceNames", f"found {shown(name)} twice")
    return NamedRule((read_rule(fields),), names, match_policy)


def _path_segment(text: str) -> str | None:
    """Check a name. Source: k8s.io/apimachinery pkg/api/validate/content (IsPathSegmentName)."""
    if text in (".", ".."):
        return f"found {shown(text)}, which is not a name"
    wrong = next((character for character in "/%" if character in text), None)
    return None if wrong is None else f"found {shown(text)}, which contains {shown(wrong)}"


def _param_kind(spec: Fields) -> ParamKind | None:
    """Return the paramKind of the policy behind *spec*."""
    fields = spec.mapping("paramKind")
    if fields is None:
        return None
    kind = ParamKind(
        fields.required_string("apiVersion", group_version).removeprefix("/"),
        fields.required_string("kind", lambda text: dns_1035_label(text.lower())),
    )
    fields.finish()
    return kind


def read_param_ref(spec: Fields, default: NotFoundAction | None = None) -> ParamRef | None:
    """Return the paramRef of the binding behind *spec*; *default* is that of parameterNotFoundAction."""
    fields = spec.mapping("paramRef")
    if fields is None:
        return None
    name, selector = fields.optional_string("name", _path_segment), fields.mapping("selector")
    if bool(name) == (selector is not None):
        fields.problems.add(fields.path, "expected one of name and selector")
    ref = ParamRef(
        name,
        fields.optional_string("namespace"),
        None if selector is None else read_selector(selector),
        fields.choice("parameterNotFoundAction", NOT_FOUND_ACTIONS, default),
    )
    fields.finish()
    return ref


def _actions(spec: Fields) -> tuple[ValidationAction, ...]:
    found: list[ValidationAction] = []
    for path, text in spec.indexed_strings("validationActions"):
        action = next((one for one in ACTIONS if one == text), None)
        if action is None:
            spec.problems.add(path, f"found {shown(text)}, expected Deny, Warn or Audit")
        elif action in found:
            spec.problems.add(path, f"found {action} twice")
        else:
            found.append(action)
    if not spec.content.get("validationActions"):
        spec.problem("validationActions", "is required with at least one entry")
    if "Deny" in found and "Warn" in found:
        spec.problem("validationActions", "found Deny and Warn, expected one of them")
    return tuple(found)
