"""The reviews of a replay, whatever they come from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from gateway.config.kinds.namespace import NAME_LABEL
from gateway.pure.core.namespace import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from gateway.pure.core.review import Json
    from gateway.pure.core.webhook import Phase
    from gateway.tools.replay.results import Result

    class Source(Protocol):
        """Where reviews come from."""

        def cases(self, found: Found) -> Iterator[Case]:
            """Yield the reviews, in an order that depends on the input alone; the rest is noted in *found*.

            Raises:
                GatewayError, OSError: the input cannot be used.
            """


@dataclass(frozen=True, slots=True)
class Case:
    """One review."""

    request: Json
    """The AdmissionRequest."""
    path: str
    """The path of the gateway at which it came. If it is empty, both phases run with all webhooks."""
    phase: Phase | None
    """The phase of ``path``. None for both."""
    namespace: Namespace | None
    """The namespace of the request as it was. None if the source does not have it."""
    expected: Result | None
    """The answer at the time. None if it is not known."""
    notes: tuple[str, ...] = ()
    """What the source does not have, so that policies may decide otherwise than at the time."""
    is_redacted: bool = False
    """Whether secret values were replaced already."""
    time: str = ""
    """When the request came, as the source has it; empty if it does not."""
    number: int = 0
    """The place among the reviews of the source, from 0."""


@dataclass
class Found:
    """What a source has besides the reviews that can be replayed."""

    left_out: Counter[str] = field(default_factory=Counter)
    """Reviews that cannot be replayed, by reason."""
    unanswered: int = 0
    """How many of these a configuration could not answer."""
    problems: list[str] = field(default_factory=list)
    """Damaged files."""
    read: float = 0.0
    """The part of the input that has been read, from 0 to 1."""

    def leave_out(self, reason: str, number: int = 1) -> None:
        """Count *number* reviews that cannot be replayed."""
        self.left_out[reason] += number


def namespace_of(document: object) -> Namespace | None:
    """Return the Namespace that *document* is; None if it is none."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str):
        return None
    labels = metadata.get("labels")
    texts = labels if isinstance(labels, dict) else {}
    found: dict[str, Any] = {
        key: value for key, value in texts.items() if isinstance(key, str) and isinstance(value, str)
    }
    return Namespace(name, {**found, NAME_LABEL: name}, orjson.dumps(document))
