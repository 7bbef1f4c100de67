"""Intended differences between the gateway's CEL and kube-apiserver's."""

from __future__ import annotations

from typing import Final

_MESSAGE = "protobuf messages cannot be constructed: a matchCondition does not need them"
_KEYS = "a map cannot have both 1 and true as keys, which no JSON has"
_CONTAINERS = "cel-go accepts lists and maps as keys, and never finds them"
_HIDDEN = "cel-go treats all names in brackets after .object as global"
KNOWN: Final[dict[str, tuple[str, str]]] = {
    "google.protobuf.Duration{seconds: 1} == duration('1s')": ("compile error", _MESSAGE),
    """'%s'.format([{1: 'x', true: b'y'}]) == '{1:"x", true:b"y"}'""": ("false", _KEYS),
    "{[1]: 1}.size() == 1": ("compile error", _CONTAINERS),
    "{{}: 1}.size() == 1": ("compile error", _CONTAINERS),
    "object.all(object, .object[object] == .object[object])": ("true", _HIDDEN),
}
"""By expression: the decision here, and the reason."""

COSTS: Final[dict[str, tuple[int, str]]] = {}
"""By expression with a value: the additional cost here, and the reason."""
ERROR_COSTS_MORE: Final = 3
"""The additional cost that an expression without a value can have here, also if ``||`` absorbs its error.

It can cost less: an error ends an operation here, while cel-go may count the operation.
"""
UNASKED_COSTS_MORE: Final = 50
"""The same for expressions that use the authorizer.

Here a check whose decision does not count is not made: to find that out, the rest is evaluated.
"""

_GO = "the text is of Go's runtime"
_RECEIVER = "the text depends on the declaration of the function in cel-go"
TEXTS: Final[dict[str, tuple[str, str]]] = {
    "object.spec.replicas.sort() == []": ("no such overload: sort(int)", _RECEIVER),
    "object.spec.text.sort() == []": ("no such overload: sort(string)", _RECEIVER),
    "object.spec.replicas.flatten() == []": ("no such overload: flatten(int)", _RECEIVER),
    "object.spec.replicas.distinct() == []": ("no such overload: distinct(int)", _GO),
    "object.spec.numbers.flatten(object.spec.text) == []": ("no such overload: flatten(list, string)", _GO),
}
"""By expression: the text of its error here, and the reason."""

PANICS: Final = frozenset(
    {
        "{b'a': 1}[b'a'] == 1",
        "{b'a': 1}.size() == 1",
        "b'a' in {b'a': 1}",
        "[?object.spec.text] == []",
        "{?'a': object.spec.text} == {}",
    }
)
"""Storing a webhook with one of these makes the API server panic and end the connection."""
