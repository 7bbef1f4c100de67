"""Objects of one kind, such as a cluster's namespaces, as the API server last told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import orjson

from gateway.core.namespace import Namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_TYPE: Final = {"apiVersion": "v1", "kind": "Namespace"}
"""Left out by lists, which say once what holds for all."""


class UnreadableError(Exception):
    """What was told is no object of the kind, or no change of one."""


class Named(Protocol):
    """What has a name."""

    @property
    def name(self) -> str:
        """What no other object of the kind has."""


T = TypeVar("T", bound=Named)


class Store(Generic[T]):
    """Objects by name, brought up to date by lists and events."""

    def __init__(self, read: Callable[[object], T], changed: Callable[[], None] = lambda: None) -> None:
        """*read* makes of what the API server wrote what is kept, or raises UnreadableError.

        *changed* is told after every list and event, whatever was in it.
        """
        self.read = read
        self._changed = changed
        self._by_name: dict[str, T] = {}
        self.by_name: Mapping[str, T] = self._by_name
        """Always the same mapping, which changes."""

    def replace(self, objects: Iterable[T]) -> None:
        """Hold *objects*, those of a list, and nothing else."""
        self._by_name.clear()
        self._by_name.update((one.name, one) for one in objects)
        self._changed()

    def take(self, event: object) -> str:
        """Take an event of a watch, but for errors, and return the resourceVersion to go on from.

        Raises:
            UnreadableError: it is none; nothing has changed.
        """
        match event:
            case {"type": str(kind), "object": {"metadata": {"resourceVersion": str(version)}} as written}:
                pass
            case _:
                raise UnreadableError("a watch event without a type or a resourceVersion")
        if kind in ("ADDED", "MODIFIED"):
            read = self.read(written)
            self._by_name[read.name] = read
        elif kind == "DELETED":
            self._by_name.pop(self.read(written).name, None)
        elif kind != "BOOKMARK":
            raise UnreadableError(f"a watch event of the unknown type {kind:.40}")
        if kind != "BOOKMARK":
            self._changed()
        return version


def namespace_of(written: object) -> Namespace:
    """Return the Namespace that the API server wrote.

    Workers are shown it without ``managedFields``, which say who wrote what and are most of its bytes.

    Raises:
        UnreadableError: it is none.
    """
    metadata = written.get("metadata") if isinstance(written, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(written, dict) or not isinstance(metadata, dict) or not isinstance(name, str):
        raise UnreadableError("something without a name where a Namespace should be")
    labels = metadata.get("labels")
    shown = {key: value for key, value in metadata.items() if key != "managedFields"}
    document = {**_TYPE, **written, "metadata": shown}
    return Namespace(name, labels if isinstance(labels, dict) else {}, orjson.dumps(document))
