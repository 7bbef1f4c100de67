"""A list and watch that keeps no more of a kind than fits, whoever writes objects of it.

A list is read in small pages, and only as far as there is room. What does not fit is left out and said. As
long as something is, the objects are listed again at the end of each watch, which is every few minutes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from gateway.base.errors import ClusterError
from gateway.server.kubernetes.watch import Kind, Pace, Store, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.server.kubernetes.access import ClusterAccess
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.server.rollout.room import Room

PAGE: Final = 16
"""Objects per answer of a list."""
MAX_PAGE_BYTES: Final = 48 * 1024 * 1024
"""Bytes of such an answer: twice those of objects of 1.5 MiB, the most that etcd takes by default."""

log = logging.getLogger(__name__)


class Sized(Protocol):
    """An object with a size."""

    @property
    def name(self) -> str:
        """Unique in its namespace. Empty: it is not to be kept."""

    @property
    def size(self) -> int:
        """In bytes."""


T = TypeVar("T", bound=Sized)


class BoundedStore(Store[T]):
    """Objects by name, of which no more are kept than there is room for."""

    def __init__(
        self,
        read: Callable[[object], T],
        changed: Callable[[], None],
        noun: str,
        new_room: Callable[[], Room],
    ) -> None:
        """*noun* is the name of the kind. *new_room* returns the room for all objects."""
        super().__init__(read, changed)
        self._noun = noun
        self._new_room = new_room
        self._room = new_room()
        self.excess = ""
        """What is not kept. Empty if all is."""

    def begin(self) -> None:
        """See ``Store``."""
        super().begin()
        self._room = self._new_room()

    def fits(self, one: T) -> bool:
        """Make room for *one*, and return whether there is; otherwise say that it is left out."""
        if self._room.take(one.name, one.size):
            return True
        if not self.excess:
            self.excess = f"there are more {self._noun} than {self._room}: the others are not read"
            log.warning("rollout plans: %s", self.excess)
        return False

    def has_all(self) -> None:
        """Note that a list is complete, and all of it is kept."""
        if self.excess:
            self.excess = ""
            log.info("rollout plans: all %s are read again", self._noun)

    def _apply(self, read: T, *, is_deleted: bool) -> bool:
        if not read.name:
            return False
        if is_deleted:
            self._room.free(read.name)
        elif not self.fits(read):
            # What is kept of it is outdated.
            return read.name in self.by_name and super()._apply(read, is_deleted=True)
        return super()._apply(read, is_deleted=is_deleted)


class BoundedWatch(Watch[T]):
    """Keeps a bounded store equal to the objects of one kind, as far as they fit."""

    def __init__(self, access: ClusterAccess, kind: Kind, store: BoundedStore[T], pace: Pace) -> None:
        super().__init__(access, kind, store, pace)
        self._bounded = store

    async def read(self, api: ApiClient) -> str:
        """See ``Following``."""
        store, params, is_complete = self._bounded, {"limit": str(PAGE)}, True
        objects: list[T] = []
        store.begin()
        while is_complete:
            match await api.page(self.kind.path, params, MAX_PAGE_BYTES):
                case {"items": list(page), "metadata": {"resourceVersion": str(version)} as metadata}:
                    found = [one for one in map(store.read, page) if one.name]
                    kept = [one for one in found if store.fits(one)]
                    objects += kept
                    is_complete = len(kept) == len(found)
                case _:
                    raise ClusterError(
                        f"{api.url}: the answer for {self.kind.path} is not a {self.kind.list_kind}"
                    )
            following = metadata.get("continue")
            if not following:
                break
            params = {**params, "continue": str(following)}
        if is_complete:
            store.has_all()
        store.replace(objects)
        return version

    async def follow(self, api: ApiClient) -> None:
        """See ``Following``."""
        await super().follow(api)
        if self._bounded.excess:
            self._version = ""
