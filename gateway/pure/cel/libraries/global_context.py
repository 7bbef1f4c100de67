"""``globalContext``: the variable with which Kyverno's expressions read the data of GlobalContextEntries.

Source: github.com/kyverno/sdk extensions/cel/libs/globalcontext.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from gateway.pure.cel.functions import function
from gateway.pure.cel.types import Type

if TYPE_CHECKING:
    from collections.abc import Callable

GLOBAL_CONTEXT: Final = "globalContext"
"""The name of the variable."""
CONTEXT: Final = Type("globalcontext.Context")
"""Its type."""


@dataclass(frozen=True, slots=True, eq=False)
class GlobalContext:
    """The entries that the expressions of one policy can read: the value of ``globalContext``."""

    cel_type: ClassVar[str] = CONTEXT.name
    get: Callable[[str, str], object]
    """Returns the data of the entry of this name, or its projection unless that is empty. None for an unknown
    entry.

    Raises EvaluationError: it cannot be read."""


def _get(context: GlobalContext, name: str, projection: str = "") -> object:
    return context.get(name, projection)


FUNCTIONS: Final = tuple(
    function(f"globalcontext_{name}_{given}", f"{CONTEXT.name}::{name}({given}) -> dyn", _get, 1)
    for name in ("get", "Get")
    for given in ("string", "string, string")
)
