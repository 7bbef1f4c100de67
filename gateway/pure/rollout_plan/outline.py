"""The outline of a plan in its state: what is in force in each stage, without what decides about it.

So a stage can hold after its plan was removed from the configuration, also in a process that never had it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

from gateway.pure.core.labels import Operator, Requirement, Selector
from gateway.pure.rollout_plan.model import (
    MAX_CONDITIONS,
    MAX_GROUPS,
    MAX_SALT,
    MAX_STAGES,
    STRENGTH,
    Group,
    Plan,
    Stage,
    problems,
)
from gateway.pure.rollout_plan.reading import InvalidState, count, items, mapping, one_from, text

if TYPE_CHECKING:
    Json = dict[str, Any]

_OPERATORS: Final[tuple[Operator, ...]] = get_args(Operator)
_MAX_NAME: Final = 317
"""Characters of the key of a label."""


def as_json(outline: Plan) -> Json:
    """Return *outline* as JSON."""
    return {
        "stages": [
            {
                "mode": one.mode,
                "percentOfNamespaces": one.percent_of_namespaces,
                "groups": list(one.groups),
                "needsApproval": one.needs_approval,
            }
            for one in outline.stages
        ],
        "groups": [{"name": one.name, "labels": _labels(one.selector)} for one in outline.groups],
        "salt": outline.salt,
    }


def from_json(document: object) -> Plan:
    """Return the outline in *document*.

    Raises:
        InvalidState: *document* is not what ``as_json`` makes.
    """
    found = mapping(document, "outline")
    groups = [_group(mapping(one, "groups")) for one in items(found, "groups", 0, MAX_GROUPS)]
    stages = [_stage(mapping(one, "stages")) for one in items(found, "stages", 1, MAX_STAGES)]
    for path, message in problems(stages, groups):
        raise InvalidState(f"outline.{path}: {message}")
    return Plan.of(stages, groups, salt=text(found, "salt", MAX_SALT))


def _labels(selector: Selector) -> list[Json]:
    return [
        {"key": one.key, "operator": one.operator, "values": sorted(one.values)}
        for one in selector.requirements
    ]


def _group(found: Json) -> Group:
    labels = [mapping(one, "labels") for one in items(found, "labels", 0, MAX_CONDITIONS)]
    selector = Selector(
        tuple(
            Requirement(
                text(one, "key", _MAX_NAME),
                one_from(one, "operator", _OPERATORS),
                frozenset(_texts(one, "values")),
            )
            for one in labels
        )
    )
    return Group(text(found, "name", _MAX_NAME), selector)


def _stage(found: Json) -> Stage:
    mode, percent = one_from(found, "mode", STRENGTH), count(found, "percentOfNamespaces", 100)
    needs_approval = found.get("needsApproval")
    if not isinstance(needs_approval, bool):
        raise InvalidState("needsApproval: expected true or false")
    return Stage(mode, percent, groups=tuple(_texts(found, "groups")), needs_approval=needs_approval)


def _texts(found: Json, name: str) -> list[str]:
    values = items(found, name, 0, MAX_CONDITIONS)
    if not all(isinstance(one, str) and len(one) <= _MAX_NAME for one in values):
        raise InvalidState(f"{name}: expected texts of at most {_MAX_NAME} characters")
    return [str(one) for one in values]
