"""The parts of expressions that older API servers do not accept in a new object.

An API server of Kubernetes 1.N compiles the expressions of a new object with the libraries that 1.N-1 had
already, so that it can be downgraded.

Source: k8s.io/apiserver pkg/cel/environment/base.go (IntroducedVersion, DefaultCompatibilityVersion).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.cel.parse import parse
from gateway.pure.cel.syntax import Call, Comprehension, Ident, nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

_ADDRESSES, _FORMATS, _SELECTORS, _TWO_VARIABLES, _VERSIONS, _LISTS = 31, 32, 32, 33, 34, 35
_ABSOLUTE_NAMES: Final = 37
"""The first version that is known to find a name with a leading dot outside of all macros; 1.33 does not."""
_ACCEPTED_FROM: Final = {
    **dict.fromkeys(("ip", "isIP", "isCanonical", "cidr", "isCIDR"), _ADDRESSES),
    **dict.fromkeys(("fieldSelector", "labelSelector"), _SELECTORS),
    **dict.fromkeys(("semver", "isSemver"), _VERSIONS),
    **dict.fromkeys(("slice", "flatten", "sort", "@sortByAssociatedKeys", "range"), _LISTS),
    **dict.fromkeys(("reverse", "distinct", "first", "last"), _LISTS),
}
"""By name of a function, the first minor version that accepts it. Functions of the same library that need a
value which only these make are left out."""
_SHOWN: Final = {"@sortByAssociatedKeys": "sortBy"}
_FORMAT: Final = "format"
"""Functions in this namespace are those of the library of formats."""


def introduced(text: str) -> Iterator[tuple[str, int]]:
    """Yield what *text*, a valid expression, uses and older API servers do not accept, each with the first
    minor version of Kubernetes 1 that accepts it in a new object.
    """
    for node in nodes(parse(text)):
        if isinstance(node, Comprehension):
            if node.variable2 is not None:
                yield f"{node.macro} with two variables", _TWO_VARIABLES
            hidden = {f".{node.variable}", f".{node.variable2}"}
            for name in sorted({one.name for one in nodes(node) if isinstance(one, Ident)} & hidden):
                yield f"{name} where a macro has a variable {name[1:]}", _ABSOLUTE_NAMES
        elif isinstance(node, Call):
            if node.function in _ACCEPTED_FROM:
                yield f"{_SHOWN.get(node.function, node.function)}()", _ACCEPTED_FROM[node.function]
            elif isinstance(node.target, Ident) and node.target.name == _FORMAT:
                yield f"{_FORMAT}.{node.function}()", _FORMATS
