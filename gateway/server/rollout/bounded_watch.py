"""A list and watch of one kind of objects with a bound on what is kept of them. Others may write any number.

A list is read in small pages, and only as far as there is room. What does not fit is left out and said. As
long as something is, the objects are listed again at the end of each watch, which is every few minutes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from gateway.base.errors import ClusterError
from gateway.server.kubernetes.api_client import MAX_LINE_BYTES, TooLargeError
from gateway.server.kubernetes.watch import Kind, Pace, Store, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.server.kubernetes.access import ClusterAccess
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.server.rollout.room import Room
    from gateway.server.rollout.store import Json

PAGE: Final = 64
"""Objects per answer of a list, or fewer if they are large."""
MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of such an answer: hostile JSON takes up to twenty times as much memory once it is parsed."""

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
        self._bounded.begin()
        objects: list[T] = []
        version, following, limit = "", "", PAGE
        while True:
            params = {"limit": str(limit), **({"continue": following} if following else {})}
            most = MAX_PAGE_BYTES if limit > 1 else MAX_LINE_BYTES
            try:
                # The answer is gone before the next one comes.
                version, following, is_kept = self._take(
                    api, await api.page(self.kind.path, params, most), objects
                )
            except TooLargeError:
                if limit == 1:
                    raise
                limit //= 4
                continue
            if not (is_kept and following):
                break
        if is_kept:
            self._bounded.has_all()
        self._bounded.replace(objects)
        return version

    def _take(self, api: ApiClient, answer: Json, objects: list[T]) -> tuple[str, str, bool]:
        """Add what fits of *answer* to *objects*; return version, ``continue``, and whether all has."""
        match answer:
            case {"items": list(page), "metadata": {"resourceVersion": str(version)} as metadata}:
                found = [one for one in map(self._bounded.read, page) if one.name]
                kept = [one for one in found if self._bounded.fits(one)]
                objects += kept
                return version, str(metadata.get("continue") or ""), len(kept) == len(found)
        raise ClusterError(f"{api.url}: the answer for {self.kind.path} is not a {self.kind.list_kind}")

    async def follow(self, api: ApiClient) -> None:
        """See ``Following``."""
        await super().follow(api)
        if self._bounded.excess:
            self._version = ""
