"""A plain HTTP client of the API server, which gives access to all bytes and headers."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.kit import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
KEPT_S: Final = 30.0
"""An idle connection is used again for so long; the API server itself closes it after 90 s."""
APPLY: Final = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Answer:
    """An answer of the API server."""

    status: int
    document: dict[str, Any]
    warnings: tuple[str, ...] = ()
    """Texts of the Warning headers, in order (RFC 7234, 5.5: code, agent, quoted text)."""
    headers: dict[str, str] = field(default_factory=dict)
    text: bytes = field(default=b"", repr=False)
    """The document as it was sent."""

    @property
    def message(self) -> str:
        """Return ``message`` of a Status; empty for other documents."""
        return str(self.document.get("message", ""))


class Api:
    """Requests of one user. Threads may share it: each has a connection of its own."""

    def __init__(self, port: int, ca_file: Path, token: str) -> None:
        self.port, self.ca_file, self.token = port, ca_file, token
        self._context = ssl.create_default_context(cafile=str(ca_file))
        self._local = threading.local()

    def request(
        self, method: str, path: str, document: object = None, content_type: str = JSON, **headers: str
    ) -> Answer:
        """Send *document* as JSON (bytes as they are) and return the answer, whatever its status."""
        body = document if isinstance(document, bytes | None) else json.dumps(document).encode()
        sent = {
            "Authorization": f"Bearer {self.token}",
            "Accept": JSON,
            "Content-Type": content_type,
            **headers,
        }
        connection = self._connection()
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            text = response.read()
            self._local.used = time.monotonic()
        except BaseException:
            self.close()
            raise
        found = response.headers.get_all("Warning") or []
        # Headers are read as Latin-1, and sent as UTF-8.
        texts = (warning.encode("latin-1").decode() for warning in found)
        warnings = tuple(json.loads(re.sub(r"^\d+ \S+ ", "", text)) for text in texts)
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = {"message": text.decode(errors="replace")}
        return Answer(response.status, parsed, warnings, dict(response.headers), text)

    def get(self, path: str) -> Answer:
        return self.request("GET", path)

    def create(self, path: str, document: object) -> Answer:
        return self.request("POST", path, document)

    def update(self, path: str, document: object) -> Answer:
        return self.request("PUT", path, document)

    def patch(self, path: str, document: object, content_type: str = MERGE_PATCH) -> Answer:
        return self.request("PATCH", path, document, content_type)

    def delete(self, path: str, options: object = None) -> Answer:
        return self.request("DELETE", path, options)

    def close(self) -> None:
        """Close the connection of this thread."""
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def _connection(self) -> http.client.HTTPSConnection:
        if time.monotonic() - getattr(self._local, "used", 0.0) > KEPT_S:
            self.close()
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, context=self._context, timeout=PATIENCE_S
            )
            self._local.connection = connection
        return connection
