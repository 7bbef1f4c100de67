"""Keeps a store equal to the cluster's objects of one kind, through whatever happens to the connection.

One list, then a watch that goes on from the list's resourceVersion. The server ends it every few minutes, and
it is taken up again from the last event or bookmark. Where that version is no longer known (410), or the
server says anything else than that it is busy, all is listed again. Between a failure and the next attempt
lies a growing, random pause; the store stays as it was, as it does in the API server's own informers.

The log has a line when the objects were first read, when they can no longer be followed, and when they can
again; not one for each attempt.

Source: kubernetes.io/docs/reference/using-api/api-concepts, "Efficient detection of changes";
k8s.io/client-go tools/cache/reflector.go.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import orjson

from gateway.errors import ClusterError
from gateway.kubernetes.api_client import status_error
from gateway.kubernetes.store import Named, UnreadableError

if TYPE_CHECKING:
    from gateway.kubernetes.access import ClusterAccess
    from gateway.kubernetes.api_client import ApiClient
    from gateway.kubernetes.store import Store

log = logging.getLogger(__name__)

_PAGE: Final = "500"
"""Objects per answer of a list, as client-go asks."""
_MOST_DOUBLINGS: Final = 10
_NOT_FOUND, _TOO_MANY_REQUESTS = 404, 429

T = TypeVar("T", bound=Named)


@dataclass(frozen=True, slots=True)
class Kind:
    """Which objects are followed."""

    path: str
    """Of the list of all of them."""
    noun: str
    """What the log calls them."""
    list_kind: str
    missing: str = ""
    """What to do where the API server knows none such (404)."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take, in seconds."""

    watch_s: tuple[int, int] = (240, 300)
    """The server is asked to end a watch after a time between these, so that not all end at once."""
    silence_s: float = 15.0
    """After the end of that time the connection is taken for dead."""
    steady_s: float = 5.0
    """A watch that has lasted this long, or brought something, is in order again."""
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0


class LostPlaceError(ClusterError):
    """The watch cannot go on from where it was."""


class Watch(Generic[T]):
    """The task that follows the objects of one kind. Make it on a running event loop."""

    def __init__(self, access: ClusterAccess, kind: Kind, store: Store[T], pace: Pace) -> None:
        self._access = access
        self.kind = kind
        self._store = store
        self._pace = pace
        self._version = ""
        """Where the watch goes on; empty: with a list."""
        self._url = ""
        """Whose version that is."""
        self._failures = 0
        """Attempts that failed since the watch was last in order."""
        self._is_told = False
        """Whether the log says that the objects cannot be followed."""
        self.is_connected = False
        self.synced = asyncio.Event()
        """Set once all objects have been read."""
        self.last_error = "the API server has not answered yet"

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        while True:
            try:
                async with self._access.api() as api:
                    if api.url != self._url:
                        # Versions of one cluster mean nothing to another, which a kubeconfig may now name.
                        self._url, self._version = api.url, ""
                    if not self._version:
                        await self._list(api)
                    await self._follow(api)
            except Exception as error:
                if isinstance(error, UnreadableError):
                    error = LostPlaceError(f"the API server sent {error}")
                elif not isinstance(error, ClusterError):
                    # A watch that died would leave objects that look well and grow old.
                    log.exception("the watch of %s begins again: internal error", self.kind.noun)
                    error = LostPlaceError("internal error: the gateway's log has the details")
                self._failed(error)
                # Half of the pause is luck, so that many who lost the same server do not come back together.
                pause_s = self._pace.first_pause_s * 2 ** min(self._failures - 1, _MOST_DOUBLINGS)
                luck = random.uniform(0.5, 1)  # noqa: S311
                await asyncio.sleep(min(pause_s, self._pace.longest_pause_s) * luck)

    async def _list(self, api: ApiClient) -> None:
        kind = self.kind
        objects: list[T] = []
        following: dict[str, str] = {}
        while True:
            answer = await api.get(kind.path, {"limit": _PAGE, **following})
            match answer:
                case {"items": list(page), "metadata": {"resourceVersion": str(version)} as metadata}:
                    # Page by page, since thousands at once would keep reviews waiting.
                    objects += map(self._store.read, page)
                case _:
                    raise ClusterError(
                        f"{api.url}: answers {kind.path} with something that is no {kind.list_kind}"
                    )
            if not metadata.get("continue"):
                break
            following = {"continue": str(metadata["continue"])}
        self._store.replace(objects)
        self._version = version
        if not self.synced.is_set():
            self.synced.set()
            log.info("%s synced: %d from %s", kind.noun, len(self._store.by_name), api.url)

    async def _follow(self, api: ApiClient) -> None:
        """Take events until the server ends the watch."""
        pace = self._pace
        watch_s = random.randint(*pace.watch_s)  # noqa: S311
        params = {
            "watch": "true",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(watch_s),
        }
        is_steady = False

        def steady() -> None:
            nonlocal is_steady
            is_steady = True
            self._in_order()

        async with api.lines(self.kind.path, params, watch_s + pace.silence_s) as lines:
            self.is_connected = True
            timer = asyncio.get_running_loop().call_later(pace.steady_s, steady)
            try:
                async for line in lines:
                    self._take(line)
                    if not is_steady:
                        steady()
            finally:
                timer.cancel()
        if not is_steady:
            raise ClusterError(f"{api.url}: the watch ended as soon as it had begun")

    def _take(self, line: bytes) -> None:
        try:
            event = orjson.loads(line)
        except ValueError:
            raise UnreadableError("a watch event that is no JSON") from None
        if isinstance(event, dict) and event.get("type") == "ERROR":
            raise LostPlaceError(str(status_error(event.get("object"), 500)))
        self._version = self._store.take(event)

    def _failed(self, error: ClusterError) -> None:
        noun = self.kind.noun
        self.is_connected = False
        hint = f" ({self.kind.missing})" if error.status == _NOT_FOUND and self.kind.missing else ""
        self.last_error = f"{error}{hint}"
        self._failures += 1
        if isinstance(error, LostPlaceError) or error.status not in (0, _TOO_MANY_REQUESTS):
            self._version = ""
        # A watch that breaks once is taken up again before anybody needs to know.
        if self._is_told or (self._failures == 1 and self.synced.is_set()):
            log.debug("%s: %s", noun, self.last_error)
            return
        self._is_told = True
        if self.synced.is_set():
            log.warning("%s cannot be followed, those last known stay in force: %s", noun, self.last_error)
        else:
            log.warning("%s cannot be read yet: %s", noun, self.last_error)

    def _in_order(self) -> None:
        self._failures = 0
        if self._is_told:
            self._is_told = False
            log.info("%s are followed again", self.kind.noun)
