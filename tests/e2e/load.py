"""Steady load on an API server: the same create again and again, by a fixed number of clients.

Every answer is recorded with the times of request and answer. The body of the ``with`` block changes the
gateways under load; ``flows`` checks between the changes that creates still succeed.
"""

from __future__ import annotations

import http.client
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
"""Pause of a client between two creates: connections become idle, as in a cluster, and two cores have CPU
left for the tested processes."""
FLOW: Final = 80
"""Creates that must succeed in :meth:`Load.flows`: ten by each client."""

POD: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "load-"},
    "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
}


@dataclass(frozen=True)
class Create:
    """One create and its result; times are monotonic seconds."""

    sent_at: float
    answered_at: float
    status: int
    message: str
    """The reason of a failure; empty after a success."""


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
        """Set the parameters of the load.

        Args:
            api: The API server.
            path: The path of the creates.
            document: The body of the creates.
            clients: The number of creates in flight at most.
            pause_s: The pause of a client between two creates, in seconds.
            check: Returns the fault of an answer with 201, such as a skipped webhook; empty if it has none.
        """
        self._api, self._path, self._document = api, path, document
        self._pause_s, self._check = pause_s, check
        self._stop = threading.Event()
        self._creates: list[Create] = []
        self._unanswered: dict[int, float] = {}
        """When the creates in flight were sent, by thread."""
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
        """Creates that failed so far."""
        return [create for create in list(self._creates) if create.message]

    def count_since(self, moment: float) -> int:
        """Return the number of creates that were sent after *moment* and succeeded."""
        return sum(create.sent_at > moment and not create.message for create in list(self._creates))

    def flows(self, number: int = FLOW) -> None:
        """Wait until *number* creates that are sent from now on have succeeded, and all before have ended."""
        now = time.monotonic()
        eventually(
            lambda: (
                self.count_since(now) >= number and min(self._unanswered.copy().values(), default=now) >= now
            )
        )

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until *condition* holds, and creates have succeeded after that."""
        eventually(condition)
        self.flows()

    def fault(self, answer: Answer) -> str:
        """Return the reason for which *answer* is a failure; empty if it is none."""
        return self._check(answer) if answer.status == 201 else answer.message or "no message"

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s):
            self._unanswered[threading.get_ident()] = sent_at = time.monotonic()
            try:
                answer = self._api.create(self._path, self._document)
                status = answer.status
                message = self.fault(answer)
            except (OSError, http.client.HTTPException) as error:
                status, message = 0, f"the API server itself: {error!r}"
            self._creates.append(Create(sent_at, time.monotonic(), status, message))
            del self._unanswered[threading.get_ident()]
        self._api.close()
