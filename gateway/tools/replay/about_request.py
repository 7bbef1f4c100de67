"""What reports of reviews say about a request, without its secrets: reports are shared."""

from __future__ import annotations

import re
from typing import Any, Final

from gateway.observe.recording.redaction import RecordingRedactor

SOCKET: Final = re.compile(r"unix:\S+\.sock")
"""The address of a worker that the replay starts. Its folder has another name each time."""


class ReportRedactor(RecordingRedactor):
    """Replaces secret values by one word: without a key a hash could be guessed."""

    def __init__(self) -> None:
        super().__init__(lambda text: "redacted", ())  # type: ignore[arg-type]


def as_secret(document: object, request: Any) -> object:  # noqa: ANN401
    """Return the *document* of *request*, of the kind Secret if the request is about one."""
    kind = request.get("kind")
    is_secret = isinstance(kind, dict) and kind.get("kind") == "Secret"
    return {**document, "kind": "Secret"} if is_secret and isinstance(document, dict) else document


def kind_of(request: Any) -> str:  # noqa: ANN401
    """Return ``KIND`` or ``KIND.GROUP`` of what *request* is about."""
    kind = request.get("requestKind") or request.get("kind") or {}
    return ".".join(filter(None, (str(kind.get("kind") or ""), str(kind.get("group") or ""))))


def name_of(request: Any) -> str:  # noqa: ANN401
    """Return the name of the object of *request*, or the beginning of one that is generated."""
    for part in (
        request,
        *(
            one.get("metadata")
            for one in (request.get("object"), request.get("oldObject"))
            if isinstance(one, dict)
        ),
    ):
        if isinstance(part, dict):
            found = part.get("name") or part.get("generateName")
            if isinstance(found, str) and found:
                return found
    return ""
