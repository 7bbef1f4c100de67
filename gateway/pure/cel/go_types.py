"""Values of Go types: from Kubernetes 1.37 on they behave otherwise than lists and maps of an expression.

The variables of an expression refer to Go structs, maps and slices in the API server. Here they are plain
JSON, as all other values. Which of them have a Go type is found out by identity, and only where it matters:
where a list or map meets a value of another kind, a key that is not text, or a list or map with lists or
maps in it.

Source: k8s.io/apiserver pkg/cel/common/valuesschemalesstyped.go.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

from gateway.pure.cel.meter import METER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    GoTypes = Callable[[Sequence[object]], Mapping[int, str]]
    """Returns the Go types of the values of a frame and of all their parts, by the ``id`` of each."""

SLOT: Final = 8
"""The place of the ``GoTypes`` in a frame; None there: no value has a Go type."""
LIST: Final = "list"
MAP: Final = "map"
"""The types of all slices and of all maps. Every other type is the name of a struct."""


def type_in_go(value: object) -> str:
    """Return the Go type of *value*, a list or map; empty if it has none."""
    found = METER.inputs
    if found is None:
        return ""
    if not isinstance(found, dict):
        types = cast("GoTypes | None", found[SLOT])
        found = METER.inputs = {} if types is None else dict(types(found))
    return found.get(id(value), "")


@contextmanager
def typed_by(frame: Sequence[object]) -> Iterator[None]:
    """Let :func:`type_in_go` know the values of *frame*, which an expression knows while it is evaluated."""
    METER.inputs = frame
    try:
        yield
    finally:
        METER.inputs = None


def is_struct(name: str) -> bool:
    """Return whether the Go type *name* is a struct."""
    return name not in ("", LIST, MAP)
