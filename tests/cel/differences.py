"""Where the gateway's CEL differs from kube-apiserver's on purpose, and by how much."""

from __future__ import annotations

from typing import Final

_MESSAGE = "messages of protobuf cannot be made: nobody needs one in a matchCondition"
_KEYS = "a map cannot have both 1 and true as keys, which no JSON has"
_CONTAINERS = "cel-go takes lists and maps as keys, and finds none of them again"
_HIDDEN = "cel-go takes all names in brackets after .object for global ones"
KNOWN: Final[dict[str, tuple[str, str]]] = {
    "google.protobuf.Duration{seconds: 1} == duration('1s')": ("compile error", _MESSAGE),
    """'%s'.format([{1: 'x', true: b'y'}]) == '{1:"x", true:b"y"}'""": ("false", _KEYS),
    "{[1]: 1}.size() == 1": ("compile error", _CONTAINERS),
    "{{}: 1}.size() == 1": ("compile error", _CONTAINERS),
    "object.all(object, .object[object] == .object[object])": ("true", _HIDDEN),
}
"""Expression to what it decides here, and why."""

COSTS: Final[dict[str, tuple[int, str]]] = {}
"""Expression with a value to the units that it costs more here, and why. There is none."""
ERROR_COSTS_MORE: Final = 3
"""Units that an expression without a value may cost more here.

It may cost less by any number: an error ends an operation here, where cel-go goes on with the other operands.
"""
DRAWN_ERRORS_COST_MORE: Final = 50
"""The same for long random expressions, also for those whose errors || and the like absorb.

The other arguments of a call with three or more are paid for here, though one before them is an error.
"""

_GO = "the text is of Go's runtime"
_RECEIVER = "the text depends on how cel-go has the function declared"
TEXTS: Final[dict[str, tuple[str, str]]] = {
    "object.spec.replicas.sort() == []": ("no such overload: sort(int)", _RECEIVER),
    "object.spec.text.sort() == []": ("no such overload: sort(string)", _RECEIVER),
    "object.spec.replicas.flatten() == []": ("no such overload: flatten(int)", _RECEIVER),
    "object.spec.replicas.distinct() == []": ("no such overload: distinct(int)", _GO),
    "object.spec.numbers.flatten(object.spec.text) == []": ("no such overload: flatten(list, string)", _GO),
}
"""Expression to the text of its error here, and why."""
