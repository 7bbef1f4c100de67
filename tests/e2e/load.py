"""Steady load on an API server: the same create again and again, by a fixed number of clients.

Every answer counts, with the moments at which it was asked for and came. What happens to the gateways under
load is done in the ``with`` block, where ``flows`` proves between the events that creates go on succeeding.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.client import Answer, Api

CLIENTS: Final = 8
PAUSE_S: Final = 0.02
"""Of a client between two creates: connections are idle for moments, as they are in a cluster, and two cores
have room for what is tested."""
FLOW: Final = 80
"""Creates that have to succeed for the load to be going on: ten by each client."""

POD: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "load-"},
    "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
}


@dataclass(frozen=True)
class Create:
    """One create and what came of it; moments are monotonic seconds."""

    asked: float
    answered: float
    status: int
    message: str
    """Why it failed; empty for a good one."""


class Load:
    """Creates of *document*, each of which has to succeed. ``with Load(api, path) as load: …``."""

    def __init__(
        self,
        api: Api,
        path: str,
        *,
        document: object = POD,
        clients: int = CLIENTS,
        pause_s: float = PAUSE_S,
        check: Callable[[Answer], str] = lambda _: "",
    ) -> None:
        """Take what to create, and how.

        Args:
            api: The API server.
            path: To post to.
            document: What to post.
            clients: Creates that are in flight at once, at most.
            pause_s: Of a client between two creates, in seconds.
            check: Returns what is wrong with an answer of 201, such as a webhook left out; empty: nothing.
        """
        self._api, self._path, self._document = api, path, document
        self._pause_s, self._check = pause_s, check
        self._stop = threading.Event()
        self._creates: list[Create] = []
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        try:
            self.flows()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def failures(self) -> list[Create]:
        """Those that failed so far."""
        return [create for create in list(self._creates) if create.message]

    def count_since(self, moment: float) -> int:
        """Return how many were asked for after *moment* and succeeded."""
        return sum(create.asked > moment and not create.message for create in list(self._creates))

    def flows(self, number: int = FLOW) -> None:
        """Wait until *number* creates that were asked for from now on have succeeded."""
        now = time.monotonic()
        eventually(lambda: self.count_since(now) >= number)

    def until(self, ask: Callable[[], object]) -> None:
        """Wait until *ask* returns what is true, and creates have succeeded after that."""
        eventually(ask)
        self.flows()

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s):
            asked = time.monotonic()
            try:
                answer = self._api.create(self._path, self._document)
                status = answer.status
                message = self._check(answer) if status == 201 else answer.message or "no message"
            except OSError as error:
                status, message = 0, f"the API server itself: {error!r}"
            self._creates.append(Create(asked, time.monotonic(), status, message))
        self._api.close()
