"""The objects of a store by namespace, in order, and those that selectors match: an ``Index``.

A change costs what its own namespace has: lists of others stay. Another thread may read the lists while the
event loop changes the objects. What it makes of earlier objects is forgotten with them.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gateway.pure.core.labels import Selector


class Placed(Protocol):
    """An object with its place."""

    @property
    def key(self) -> str:
        """Namespace and name, with a slash between them."""

    @property
    def namespace(self) -> str:
        """The namespace. Empty if it is in none."""


T = TypeVar("T", bound=Placed)


class _Space(Generic[T]):
    """The objects of one namespace, or all."""

    __slots__ = ("lists", "objects")

    def __init__(self, objects: Mapping[str, T]) -> None:
        self.objects = objects
        self.lists: dict[Selector | None, list[T]] = {}
        """All objects, and those that were selected since the last change."""


_Spaces = dict[str, tuple[dict[str, T], _Space[T]]]
"""Each with its objects, which change."""


class ObjectLists(Generic[T]):
    """The objects of one kind. It is made when the objects of a namespace are first asked for."""

    def __init__(self, everything: Callable[[], Mapping[str, T]]) -> None:
        """*everything* returns all objects by key, in a mapping that changes."""
        self._everything = everything
        self._changes = 0
        self._lock = Lock()
        """While another thread makes it, the event loop may change objects."""
        self._all: _Space[T] | None = None
        self._spaces: _Spaces[T] | None = None
        """By namespace."""
        self._next: _Spaces[T] | None = None
        """By the part of the list that has been read. None if nothing was asked for when it began."""

    def begin(self) -> None:
        """See ``Index``."""
        self._next = None if self._spaces is None else {}

    def add(self, objects: Iterable[T]) -> None:
        """See ``Index``."""
        if self._next is not None:
            _fill(self._next, objects)

    def complete(self) -> None:
        """See ``Index``."""
        with self._lock:
            self._changes += 1
            self._spaces, self._next, self._all = self._next, None, None

    def change(self, before: T | None, after: T | None) -> None:
        """See ``Index``."""
        with self._lock:
            self._changes += 1
            self._all = None
        one = before if after is None else after
        if self._spaces is None or one is None:
            return
        if after is not None:
            _fill(self._spaces, (after,))
        elif one.namespace in self._spaces:
            objects, space = self._spaces[one.namespace]
            objects.pop(one.key, None)
            space.lists = {}
            if not objects:
                del self._spaces[one.namespace]

    def count(self, namespace: str) -> int:
        """Return the number of the objects in *namespace*, or of all if it is empty."""
        space = self._space(namespace)
        return 0 if space is None else len(space.objects)

    def select(self, namespace: str, selector: Selector, matches: Callable[[T], bool]) -> Sequence[T]:
        """Return the objects in *namespace*, or all, that *matches* takes for those of *selector*, by key."""
        space = self._space(namespace)
        if space is None:
            return ()
        lists = space.lists
        found = lists.get(selector)
        if found is None:
            ordered = lists.get(None)
            if ordered is None:
                ordered = lists[None] = sorted([*space.objects.values()], key=_key)
            found = ordered if selector.is_empty else [one for one in ordered if matches(one)]
            lists[selector] = found
        return found

    def _space(self, namespace: str) -> _Space[T] | None:
        if not namespace:
            found = self._all
            if found is None:
                found = self._all = _Space(self._everything())
            return found
        spaces = self._spaces
        if spaces is None:
            spaces, changes = {}, self._changes
            _fill(spaces, [*self._everything().values()])
            with self._lock:
                if changes == self._changes:
                    self._spaces = spaces
        one = spaces.get(namespace)
        return None if one is None else one[1]


def _fill(spaces: _Spaces[T], objects: Iterable[T]) -> None:
    for one in objects:
        found = spaces.get(one.namespace)
        if found is None:
            by_key: dict[str, T] = {}
            found = spaces[one.namespace] = by_key, _Space(by_key)
        found[0][one.key] = one
        found[1].lists = {}


def _key(one: Placed) -> str:
    return one.key
