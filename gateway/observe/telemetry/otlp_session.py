"""The HTTP session of exporters to an OpenTelemetry collector. Imported only where one is configured."""

from __future__ import annotations

import ssl
from typing import Any

import requests


class BoundedSession(requests.Session):
    """An HTTP session that reads only the head of an answer, whose body would have no bound."""

    def __init__(self) -> None:
        super().__init__()
        self.problem = ""
        """Why the last request failed."""

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:  # noqa: ANN401
        """Send *request*; the answer has no body, and its connection is closed."""
        try:
            # In requests, REQUESTS_CA_BUNDLE in the environment would replace the configured roots.
            response = super().send(request, **kwargs | {"stream": True, "verify": self.verify})
        except Exception as error:
            self.problem = _first_cause(error)
            raise
        response.close()
        self.problem = f"HTTP status {response.status_code}"
        return response


def _first_cause(error: BaseException) -> str:
    """Return the type and text of the exception that led to *error*."""
    # Of requests and urllib3 the chain may be a cycle.
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
    return f"{type(seen[-1]).__name__}: {seen[-1]}"


def system_roots() -> str | None:
    """Return the system's roots, as for all other connections of the gateway.

    None if there are none; then those of requests are used.
    """
    return ssl.get_default_verify_paths().cafile
