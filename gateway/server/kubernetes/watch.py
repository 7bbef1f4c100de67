"""List and watch: keeps a store equal to the cluster's objects of one kind.

One list, then a watch from the list's resourceVersion. The server ends a watch every few minutes, and a new
one starts from the last event or bookmark. If the API server no longer has that version (410), or answers any
other error than that it is busy, all objects are listed again. Failed attempts are repeated with exponential
back-off and jitter. The store keeps its objects during that time, as the API server's own informers do.

A line is logged when the objects were first read, when the watch is lost, and when it is restored, not for
each attempt.

Source: kubernetes.io/docs/reference/using-api/api-concepts, "Efficient detection of changes";
k8s.io/client-go tools/cache/reflector.go.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import orjson

from gateway.base.errors import ClusterError
from gateway.base.json_depth import without_depth
from gateway.server.kubernetes.api_client import status_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gateway.server.kubernetes.access import ClusterAccess
    from gateway.server.kubernetes.api_client import ApiClient

log = logging.getLogger(__name__)

ALL_OBJECTS: Final = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
"""Parameters of a watch that begins with all objects, if the API server has ``WatchList`` (KEP-3157)."""
_PAGE: Final = "500"
"""Objects per answer of a list, as client-go requests."""
_MAX_DOUBLINGS: Final = 10
_NOT_FOUND, _TOO_MANY_REQUESTS = 404, 429


class UnreadableError(Exception):
    """The API server sent something other than an object of the kind or a watch event."""


class Named(Protocol):
    """An object with a name."""

    @property
    def name(self) -> str:
        """Unique in its namespace."""


T = TypeVar("T", bound=Named)
T_contra = TypeVar("T_contra", bound=Named, contravariant=True)


class Index(Protocol[T_contra]):
    """What is made of the objects of a store besides. A list is added page by page, not to block reviews."""

    def begin(self) -> None:
        """Begin a list, from which the objects of :meth:`add` are."""

    def add(self, objects: Iterable[T_contra]) -> None:
        """Add *objects*, a part of the list."""

    def complete(self) -> None:
        """Replace what is there by the list."""

    def change(self, before: T_contra | None, after: T_contra | None) -> None:
        """Replace one object that is there, as it was *before*, or None, by what it is *after*, or None."""


def stored_json(document: object) -> bytes:
    """Return *document* as JSON that takes no more memory than its length.

    orjson writes into several kilobytes, and what it does not use of them stays lost behind the text.

    Raises:
        TypeError: it cannot be written, such as one that nests too deep.
    """
    return bytes(memoryview(orjson.dumps(document)))


class Store(Generic[T]):
    """Objects by name, updated by lists and events."""

    def __init__(
        self,
        read: Callable[[object], T],
        changed: Callable[[], None] = lambda: None,
        key: Callable[[T], str] = lambda one: one.name,
        indexes: Sequence[Index[T]] = (),
    ) -> None:
        """*read* converts an object of the API server, or raises UnreadableError.

        *changed* is called after every list and event, unless *read* returns the object that is there. *key*
        returns the name in ``by_name``, which has to be unique among the objects. *indexes* are kept equal to
        the objects.
        """
        self.read = read
        self._key = key
        self._changed = changed
        self._indexes = indexes
        self._by_name: dict[str, T] = {}
        self.by_name: Mapping[str, T] = self._by_name
        """The current objects; the mapping changes."""

    def begin(self) -> None:
        """Begin a list of all objects."""
        for index in self._indexes:
            index.begin()

    def read_page(self, page: Iterable[object]) -> list[T]:
        """Return the objects of *page*, which is a part of the list, converted.

        Raises:
            UnreadableError: one of them is none.
        """
        found = [*map(self.read, page)]
        for index in self._indexes:
            index.add(found)
        return found

    def replace(self, objects: Iterable[T]) -> None:
        """Replace all objects by *objects*, all of the list."""
        found = {self._key(one): one for one in objects}
        gone = self._by_name.keys() - found.keys()
        # Another thread may read them: those that stay are there at any time.
        self._by_name.update(found)
        for key in gone:
            del self._by_name[key]
        for index in self._indexes:
            index.complete()
        self._changed()

    def apply(self, event: object) -> str:
        """Apply *event*, one of a watch other than an error, and return its resourceVersion.

        Raises:
            UnreadableError: it is not an event; nothing has changed.
        """
        match event:
            case {"type": str(kind), "object": {"metadata": {"resourceVersion": str(version)}} as document}:
                pass
            case _:
                raise UnreadableError("a watch event without a type or a resourceVersion")
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            if self._apply(self.read(document), is_deleted=kind == "DELETED"):
                self._changed()
        elif kind != "BOOKMARK":
            raise UnreadableError(f"a watch event of the unknown type {kind:.40}")
        return version

    def _apply(self, read: T, *, is_deleted: bool) -> bool:
        """Apply an event about *read*, and return whether anything changed."""
        key = self._key(read)
        before = self._by_name.pop(key, None) if is_deleted else self._by_name.get(key)
        if not is_deleted:
            if before is read:
                return False
            self._by_name[key] = read
        for index in self._indexes:
            index.change(before, None if is_deleted else read)
        return True


@dataclass(frozen=True, slots=True)
class Kind:
    """The objects that are followed."""

    path: str
    """The path of their list."""
    noun: str
    """Their name in messages."""
    list_kind: str
    missing: str = ""
    """Advice if the API server does not have the kind (404)."""
    absent_on: tuple[int, ...] = ()
    """Statuses on which the kind counts as one without objects: 404 if it may not exist, 403 if it may not be
    readable."""
    selector: str = ""
    """The ``fieldSelector`` of the objects. Empty for all."""

    @property
    def params(self) -> dict[str, str]:
        """The parameters that select the objects."""
        return {"fieldSelector": self.selector} if self.selector else {}


@dataclass(frozen=True, slots=True)
class Pace:
    """Durations in seconds."""

    watch_s: tuple[int, int] = (240, 300)
    """Range of ``timeoutSeconds``; random, so that not all watches end at the same time."""
    silence_s: float = 15.0
    """After ``timeoutSeconds`` and this, the connection is considered dead."""
    steady_s: float = 5.0
    """A watch that has lasted this long, or received an event, has recovered."""
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0


class ExpiredWatchError(ClusterError):
    """The watch cannot continue from its resourceVersion."""


class Following(ABC):
    """The task that follows the objects of one kind. Make it on a running event loop."""

    def __init__(self, access: ClusterAccess, kind: Kind, pace: Pace) -> None:
        self._access = access
        self.kind = kind
        self._pace = pace
        self._version = ""
        """The resourceVersion to continue from. If it is empty, the objects are listed again."""
        self._url = ""
        """The API server that the version is from."""
        self._failures = 0
        """Failed attempts since the watch last worked."""
        self._has_warned = False
        """Whether the loss of the watch is in the log."""
        self.is_connected = False
        """Whether changes arrive; also true if the kind is optional and does not exist."""
        self.synced = asyncio.Event()
        """Set once all objects have been read."""
        self.last_error = "the API server has not answered yet"

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._failures > 0

    @property
    @abstractmethod
    def number(self) -> int:
        """How many objects are known."""

    @abstractmethod
    async def read(self, api: ApiClient) -> str:
        """Read all objects, and return the resourceVersion from which a watch goes on.

        If it is empty, the watch itself begins with all objects (``sendInitialEvents``).

        Raises:
            ClusterError, UnreadableError: they cannot be read.
        """

    @abstractmethod
    def take(self, event: object) -> str:
        """Apply *event*, one of a watch other than an error, and return the resourceVersion to go on from.

        Raises:
            UnreadableError: it is not an event; nothing has changed.
        """

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        while True:
            try:
                async with self._access.api() as api:
                    if api.url != self._url:
                        # The kubeconfig names another cluster now, which has other versions.
                        self._url, self._version = api.url, ""
                    if not self._version:
                        self._version = await self.read(api)
                        if self._version:
                            self.has_read(api)
                    await self.follow(api)
            except Exception as error:
                if isinstance(error, UnreadableError):
                    error = ExpiredWatchError(f"the API server sent {error}")
                elif not isinstance(error, ClusterError):
                    # The task must not end: the objects would become stale unnoticed.
                    log.exception("watch of %s failed, starting again: internal error", self.kind.noun)
                    error = ExpiredWatchError("internal error: the gateway's log has the details")
                self._failed(error)
                # Jitter, so that many clients do not return to a restarted server at the same moment.
                pause_s = self._pace.first_pause_s * 2 ** min(self._failures - 1, _MAX_DOUBLINGS)
                jitter = random.uniform(0.5, 1)  # noqa: S311
                await asyncio.sleep(min(pause_s, self._pace.longest_pause_s) * jitter)

    def has_read(self, api: ApiClient) -> None:
        """Note that all objects have been read."""
        if not self.synced.is_set():
            self.synced.set()
            log.info("%s synced: %d from %s", self.kind.noun, self.number, api.url)

    async def follow(self, api: ApiClient) -> None:
        """Apply events until the server ends the watch.

        Raises:
            ClusterError, UnreadableError: it ended otherwise.
        """
        pace = self._pace
        watch_s = random.randint(*pace.watch_s)  # noqa: S311
        params = {
            "watch": "true",
            **({"resourceVersion": self._version} if self._version else ALL_OBJECTS),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(watch_s),
            **self.kind.params,
        }
        is_steady = False

        def steady() -> None:
            nonlocal is_steady
            is_steady = True
            self._recovered()

        async with api.lines(self.kind.path, params, watch_s + pace.silence_s) as lines:
            self.is_connected = True
            timer = asyncio.get_running_loop().call_later(pace.steady_s, steady)
            try:
                async for line in lines:
                    await self._apply(line)
                    if not is_steady:
                        steady()
            finally:
                timer.cancel()
        if not is_steady:
            raise ClusterError(f"{api.url}: the watch ended immediately")

    async def _apply(self, line: bytes) -> None:
        try:
            event = orjson.loads(line)
        except ValueError:
            event = await self._parsed_without_depth(line)
        if isinstance(event, dict) and event.get("type") == "ERROR":
            raise ExpiredWatchError(str(status_error(event.get("object"), 500)))
        self._version = self.take(event)

    @staticmethod
    async def _parsed_without_depth(line: bytes) -> object:
        """Return the event in *line*, one object of which may nest deeper than is read.

        Otherwise the author of such an object would keep the changes of all others away.
        """
        try:
            return orjson.loads(await asyncio.to_thread(without_depth, line))
        except ValueError:
            raise UnreadableError("a watch event that is not JSON") from None

    def _failed(self, error: ClusterError) -> None:
        kind, noun = self.kind, self.kind.noun
        self.is_connected = False
        hint = f" ({self.kind.missing})" if error.status == _NOT_FOUND and self.kind.missing else ""
        self.last_error = f"{error}{hint}"
        self._failures += 1
        was_synced = self.synced.is_set()
        if error.status in kind.absent_on:
            # Objects that were read before and cannot be read any more stay.
            self.is_connected = error.status == _NOT_FOUND
            self.synced.set()
        if isinstance(error, ExpiredWatchError) or error.status not in (0, _TOO_MANY_REQUESTS):
            self._version = ""
        # A first failure is not logged: the next attempt usually works. Nor is the end of an empty kind.
        is_gone = error.status == _NOT_FOUND and _NOT_FOUND in kind.absent_on and not self.number
        if self._has_warned or (was_synced and (self._failures == 1 or is_gone)):
            log.debug("watch still interrupted: %s: %s", noun, self.last_error)
            return
        self._has_warned = True
        if was_synced:
            log.warning("watch of %s lost, the last known ones stay in force: %s", noun, self.last_error)
        else:
            log.warning("%s cannot be read yet: %s", noun, self.last_error)

    def _recovered(self) -> None:
        self._failures = 0
        if self._has_warned:
            self._has_warned = False
            log.info("watch of %s restored", self.kind.noun)


class Watch(Following, Generic[T]):
    """Keeps a store equal to the objects of one kind."""

    def __init__(self, access: ClusterAccess, kind: Kind, store: Store[T], pace: Pace) -> None:
        super().__init__(access, kind, pace)
        self._store = store

    @property
    def number(self) -> int:
        """How many objects are known."""
        return len(self._store.by_name)

    async def read(self, api: ApiClient) -> str:
        """See ``Following``."""
        kind = self.kind
        objects: list[T] = []
        version = ""
        self._store.begin()
        async for answer in api.pages(kind.path, {"limit": _PAGE, **kind.params}):
            match answer:
                case {"items": list(page), "metadata": {"resourceVersion": str(version)}}:
                    # Page by page: thousands of objects at once would block reviews.
                    objects += self._store.read_page(page)
                case _:
                    raise ClusterError(f"{api.url}: the answer for {kind.path} is not a {kind.list_kind}")
        self._store.replace(objects)
        return version

    def take(self, event: object) -> str:
        """See ``Following``."""
        return self._store.apply(event)
