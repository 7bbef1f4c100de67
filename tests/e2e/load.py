"""Steady load on an API server: the same create again and again, by a fixed number of clients.

The body of the ``with`` block changes the gateways under load; ``flows`` checks between the changes that
creates still succeed.
"""

from __future__ import annotations

import itertools
import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from loadtest.http_client import Address, Request, post
from tests.e2e.client import read_answer
from tests.load import InThread
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loadtest import http_client
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
    """One create and its result."""

    number: int
    """In the order in which they were sent."""
    status: int
    message: str
    """The reason of a failure; empty after a success."""


class Load(InThread):
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
        address = Address("127.0.0.1", api.port, ssl.create_default_context(cafile=str(api.ca_file)))
        super().__init__(lambda: address, clients, pause_s=pause_s)
        headers = {"Authorization": f"Bearer {api.token}", "Accept": "application/json"}
        self._data = post(path, "127.0.0.1", json.dumps(document).encode(), headers)
        self._check = check
        self._begun = 0
        self._creates: list[Create] = []

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.flows()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __str__(self) -> str:
        return f"{self._begun} creates sent; failures: {self.failures}"

    @property
    def failures(self) -> list[Create]:
        """Creates that failed so far."""
        return [create for create in list(self._creates) if create.message]

    def flows(self, number: int = FLOW) -> None:
        """Wait until *number* creates that are sent from now on have succeeded, and all before have ended."""
        first = self._begun

        def is_reached() -> bool:
            succeeded = sum(create.number >= first and not create.message for create in self._creates)
            return succeeded >= number and all(int(uid) >= first for uid in self._in_flight)

        self._wait(is_reached, f"not {number} creates")

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until *condition* holds, and creates have succeeded after that."""
        eventually(condition)
        self.flows()

    def requests(self) -> Iterator[Request]:
        """See ``InThread``."""
        for number in itertools.count():
            self._begun = number + 1
            yield Request(str(number), self._data)

    def ended(self, request: Request, answer: http_client.Answer | None, reason: str) -> bool:
        """See ``InThread``."""
        status, message = 0, f"the API server itself: {reason}"
        if answer is not None:
            found = read_answer(answer.head, answer.body)
            status = found.status
            message = self._check(found) if status == 201 else found.message or "no message"
        self._creates.append(Create(int(request.uid), status, message))
        return not message
