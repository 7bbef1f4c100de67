"""Clients that write objects in versions that Kubernetes removes: ``audit --kubernetes``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.text import printable
from gateway.tools.forecast.findings import limits, of_config, writers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.config.merge.model import Config
    from gateway.tools.audit.run import Pass
    from gateway.tools.forecast.findings import Finding, Writer

    Json = dict[str, Any]

MAX_WRITERS: Final = 1000
"""That are told apart."""
_SHOWN: Final = 20
"""In the text."""
_NAME_CHARS: Final = 300


class Writers:
    """The clients, with the number of their objects and the first of these."""

    def __init__(self) -> None:
        self._found: dict[Writer, tuple[int, str]] = {}

    def add(self, found: Json, kubernetes: int) -> None:
        """Take the object *found*, for Kubernetes 1.*kubernetes*."""
        for one in set(writers(found, kubernetes)):
            if one in self._found or len(self._found) < MAX_WRITERS:
                metadata = found["metadata"]
                path = filter(None, (metadata.get("namespace"), metadata.get("name")))
                number, first = self._found.get(one, (0, "/".join(map(str, path))))
                self._found[one] = number + 1, first

    def documents(self) -> Iterator[Json]:
        """Yield each client as JSON, those with the most objects first."""
        for one, (number, first) in sorted(self._found.items(), key=lambda item: (-item[1][0], item[0])):
            yield {
                "name": printable(one.name, _NAME_CHARS),
                "apiVersion": one.api_version,
                "kind": one.kind,
                "objects": number,
                "example": printable(first, _NAME_CHARS),
            }


def forecast(config: Config, this: Pass, kubernetes: int, requested: Sequence[Finding]) -> Json:
    """Return what Kubernetes 1.*kubernetes* changes for *config*, and for who wrote the objects of *this*.

    *requested* is what clients request.
    """
    return {
        "kubernetes": f"1.{kubernetes}",
        "findings": [
            one.document() for one in (*limits(kubernetes), *of_config(config, kubernetes), *requested)
        ],
        "writers": list(this.writers.documents()),
    }


def as_text(found: Json) -> Iterator[str]:
    """Yield the lines of the forecast *found*."""
    yield ""
    yield f"for Kubernetes {found['kubernetes']}:"
    for one in found["findings"]:
        yield f"  {one['level']}: {printable(one['where'], _NAME_CHARS)}: {one['message']}"
    for one in found["writers"][:_SHOWN]:
        objects = f"{one['kind']} of {one['apiVersion']}, such as {one['example']}"
        yield f"  {one['objects']:>7,}  written by {one['name']} as {objects}"
    if len(found["writers"]) > _SHOWN:
        yield f"           {len(found['writers']) - _SHOWN:,} more"
    if not (found["findings"] or found["writers"]):
        yield "  nothing changes for the configuration and for the writers of the objects"
