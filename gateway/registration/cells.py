"""What requests rules have in common: how the space of all requests is divided by them.

A cell is a set of requests that the same rules are for, their versions left aside, since ``Equivalent``
reaches across those. Names that no rule gives are all alike to rules, and stand as ``*`` here: only a rule
with ``*`` has them.

Source: kubernetes/apiserver plugin/webhook/predicates/rules/rules.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.core.overlap import has, parts
from gateway.core.webhook import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gateway.core.webhook import Rule

    Cell = tuple[int, ...]
    """Places in the list of rules, ascending."""


def cells(rules: Sequence[Rule]) -> set[Cell]:
    """Return, for every request that any of *rules* is for, which of them are: each set of places once."""
    found = {tuple(range(len(rules)))}
    found = _divide(found, lambda _: OPERATIONS, lambda place, name: has(rules[place].operations, name))
    found = _divide(
        found, lambda _: ("Namespaced", "Cluster"), lambda place, name: has((rules[place].scope,), name)
    )
    found = _divide(
        found,
        lambda cell: {"*"}.union(*(rules[place].api_groups for place in cell)),
        lambda place, name: has(rules[place].api_groups, name),
    )
    return {part for cell in found for part in _by_resource(rules, cell) if part}


def _divide(
    cells: set[Cell], names_in: Callable[[Cell], Iterable[str]], stands_for: Callable[[int, str], bool]
) -> set[Cell]:
    return {
        tuple(place for place in cell if stands_for(place, name)) for cell in cells for name in names_in(cell)
    }


def _by_resource(rules: Sequence[Rule], cell: Cell) -> set[Cell]:
    entries = {place: [parts(entry) for entry in rules[place].resources] for place in cell}
    names = {"*"}.union(*([name for name, _ in of_rule] for of_rule in entries.values()))
    found = set()
    for name in names:
        sub_names = {
            place: {sub_name for own, sub_name in of_rule if own in ("*", name)}
            for place, of_rule in entries.items()
        }
        for sub_name in {"", "*"}.union(*sub_names.values()):
            found.add(tuple(place for place in cell if has(sub_names[place], sub_name)))
    return found
