"""Label selectors → ``gateway.pure.core.labels``.

Source: k8s.io/apimachinery pkg/apis/meta/v1/validation/validation.go (ValidateLabelSelector).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from gateway.config.names import check_labels, label_value, qualified_name
from gateway.pure.core.labels import EVERYTHING, Operator, Requirement, Selector

if TYPE_CHECKING:
    from gateway.config.fields import Fields

OPERATORS: tuple[Operator, ...] = get_args(Operator)


def read_selector(fields: Fields | None) -> Selector:
    """Return the selector behind *fields*; an absent selector, None, selects everything."""
    if fields is None:
        return EVERYTHING
    match_labels = fields.string_map("matchLabels")
    check_labels(match_labels, fields.at("matchLabels"), fields.report)
    requirements = [Requirement(key, "In", frozenset({value})) for key, value in match_labels.items()]
    requirements.extend(map(_read_requirement, fields.mappings("matchExpressions")))
    fields.finish()
    return Selector(tuple(requirements))


def _read_requirement(fields: Fields) -> Requirement:
    key = fields.required_string("key", qualified_name)
    operator = fields.choice("operator", OPERATORS)
    is_known = fields.content.get("operator") in OPERATORS
    values = fields.strings("values", label_value)
    has_values = bool(fields.content.get("values"))
    if is_known and operator in {"In", "NotIn"} and not has_values:
        fields.problem("values", f"is required with the operator {operator}")
    if is_known and operator in {"Exists", "DoesNotExist"} and has_values:
        fields.problem("values", f"is not allowed with the operator {operator}")
    fields.finish()
    return Requirement(key, operator, frozenset(values))
