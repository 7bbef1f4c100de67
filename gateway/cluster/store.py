"""The namespaces of a cluster as the API server last told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from gateway.core.namespace import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TYPE: Final = {"apiVersion": "v1", "kind": "Namespace"}
"""Left out by lists, which say once what holds for all."""


class UnreadableError(Exception):
    """What was told is no Namespace, or no change of one."""


class Store:
    """Namespaces by name, brought up to date by lists and events."""

    def __init__(self) -> None:
        self._by_name: dict[str, Namespace] = {}
        self.by_name: Mapping[str, Namespace] = self._by_name
        """Always the same mapping, which changes."""

    def replace(self, namespaces: Iterable[Namespace]) -> None:
        """Hold *namespaces*, those of a list, and nothing else."""
        self._by_name.clear()
        self._by_name.update((namespace.name, namespace) for namespace in namespaces)

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
            namespace = namespace_of(written)
            self._by_name[namespace.name] = namespace
        elif kind == "DELETED":
            self._by_name.pop(namespace_of(written).name, None)
        elif kind != "BOOKMARK":
            raise UnreadableError(f"a watch event of the unknown type {kind:.40}")
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
