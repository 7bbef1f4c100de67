"""Which requests a webhook or a policy is for: rules, matchConditions, and what the two have in common.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go (validateRuleWithOperations,
validateResources, and for matchConditions names and limits), and the warnings beside it (warnings.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from gateway.base.text import one_of, shown
from gateway.config.kinds.names import qualified_name
from gateway.config.kinds.rule_warnings import rule_warnings
from gateway.pure.core.review import OPERATIONS
from gateway.pure.core.rules import NEVER_SENT_RESOURCES
from gateway.pure.core.webhook import FailurePolicy, MatchPolicy, Rule, Scope

if TYPE_CHECKING:
    from gateway.config.yaml.fields import Check, Fields
    from gateway.pure.conditions.match_conditions import CompiledConditions

MAX_MATCH_CONDITIONS = 64
FAILURE_POLICIES: tuple[FailurePolicy, ...] = get_args(FailurePolicy)
MATCH_POLICIES: tuple[MatchPolicy, ...] = get_args(MatchPolicy)
SCOPES: tuple[Scope, ...] = get_args(Scope)
_OPERATIONS = (*OPERATIONS, "*")


def read_rule(fields: Fields) -> Rule:
    """Return the rule behind *fields*."""
    rule = Rule(
        operations=_with_lone_wildcard(fields, "operations", _operation),
        api_groups=_with_lone_wildcard(fields, "apiGroups"),
        api_versions=_with_lone_wildcard(fields, "apiVersions", _not_empty),
        resources=_read_resources(fields),
        scope=fields.choice("scope", SCOPES, "*"),
    )
    for group in rule.api_groups:
        for resource in rule.resources:
            if (group, resource) in NEVER_SENT_RESOURCES:
                fields.problems.warn(
                    fields.path,
                    f"{resource}.{group} is excluded from admission webhooks; this rule will have no effect",
                )
    for path, message in rule_warnings(rule):
        fields.problems.warn(f"{fields.path}.{path}", message)
    fields.finish()
    return rule


def _operation(text: str) -> str | None:
    return None if text in _OPERATIONS else f"found {shown(text)}, expected {one_of(_OPERATIONS)}"


def _not_empty(text: str) -> str | None:
    return None if text else "is empty, expected a name"


def _with_lone_wildcard(fields: Fields, name: str, check: Check | None = None) -> tuple[str, ...]:
    _require_one(fields, name)
    values = fields.strings(name, check)
    if "*" in values and len(values) > 1:
        fields.problem(name, 'found "*" together with other values, expected "*" alone')
    return values


def _require_one(fields: Fields, name: str) -> None:
    if fields.content.get(name) in (None, []):
        fields.problem(name, "is required with at least one entry")


def _read_resources(fields: Fields) -> tuple[str, ...]:
    """Return the resources of a rule, with exactly the checks of the API server.

    These are not symmetric: an overlap is found only in entries after the wildcard, and of the entries
    without a subresource only the last one is compared with ``*``. A stricter check would refuse
    configurations that API servers accept.
    """
    _require_one(fields, "resources")
    entries = fields.indexed_strings("resources", _not_empty)
    all_subresources_of: set[str] = set()
    subresource_of_all: set[str] = set()
    is_last_plain_named = False
    for path, entry in entries:
        resource, slash, subresource = entry.partition("/")
        if not slash:
            is_last_plain_named = entry != "*" if entry else is_last_plain_named
            continue
        for wildcard, covers in (
            (f"{resource}/*", resource in all_subresources_of),
            (f"*/{subresource}", subresource in subresource_of_all),
        ):
            if covers:
                fields.problems.add(path, f'found {shown(entry)}, which the earlier "{wildcard}" covers')
        if subresource == "*":
            all_subresources_of.add(resource)
        if resource == "*":
            subresource_of_all.add(subresource)
    resources = tuple(entry for _, entry in entries)
    if "*/*" in resources and len(resources) > 1:
        fields.problem("resources", 'found "*/*" together with other resources, expected "*/*" alone')
    if "*" in resources and is_last_plain_named:
        message = 'found "*" together with resources without subresource, which "*" covers'
        fields.problem("resources", message)
    return resources


def read_match_conditions(fields: Fields) -> CompiledConditions | None:
    """Return the ``matchConditions`` of the webhook behind *fields*, compiled; None if there are none."""
    conditions = fields.mappings("matchConditions")
    if not conditions:
        return None
    # The import takes 60 ms and 6 MB, which a configuration without conditions does not need.
    from gateway.pure.cel.compile import compile_condition
    from gateway.pure.cel.errors import InvalidExpression
    from gateway.pure.conditions.match_conditions import CompiledConditions

    if len(conditions) > MAX_MATCH_CONDITIONS:
        fields.problem("matchConditions", f"found {len(conditions)}, expected at most {MAX_MATCH_CONDITIONS}")
    compiled = []
    seen: set[str] = set()
    for condition in conditions:
        name = condition.required_string("name", qualified_name)
        if name and name in seen:
            condition.problem("name", f"found {shown(name)} again, expected unique names")
        seen.add(name)
        expression = condition.required_string("expression")
        if expression and not expression.strip():
            condition.problem("expression", "is blank, expected a CEL expression")
        elif expression:
            try:
                compiled.append(compile_condition(name, expression.strip()))
            except InvalidExpression as error:
                condition.problem("expression", str(error))
        condition.finish()
    return CompiledConditions(compiled)
