"""``orValue`` of Kyverno, which takes values that are not optional, too.

Source: github.com/kyverno/kyverno pkg/cel/compiler/env.go (OrValueCompatEnvOptions).
"""

from __future__ import annotations

from typing import Final

from gateway.pure.cel.functions import Function, function
from gateway.pure.cel.values import Optional

OR_VALUE: Final = "__orValueCompat__"
"""The name of the function in Kyverno."""


def _or_value(value: object, other: object) -> object:
    if not isinstance(value, Optional):
        return value
    return value.value if value.present else other


FUNCTIONS: Final[tuple[Function, ...]] = (
    function(f"{OR_VALUE}_dyn_dyn", f"{OR_VALUE}(dyn, dyn) -> dyn", _or_value, 1),
)
