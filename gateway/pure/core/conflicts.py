"""Webhooks that write one field to different values, in one review.

Each webhook sees the object that the ones before it leave, and may overwrite what they wrote. Then the object
depends on the order of webhooks, and with reinvocation they may undo each other.

Source: kubernetes.io, Admission Webhook Good Practices (idempotence, ordering).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from admission_gateway_worker.json_patch.diff import same
from gateway.pure.core.field_changes import ABSENT, WHOLE, field_changes, path_text, value_text

if TYPE_CHECKING:
    from gateway.pure.core.field_changes import Path
    from gateway.pure.core.review import AdmissionRequest
    from gateway.pure.core.webhook import Webhook

Conflicts = Literal["Allow", "Reject"]
"""What becomes of a request with a conflict."""

MAX_WRITES: Final = 5000
"""Fields of one review whose writers are kept."""


class Conflict(NamedTuple):
    """A field that one webhook or policy wrote, and that another one then wrote to another value."""

    first: Webhook
    second: Webhook
    path: Path
    written: object
    """What the first wrote. ``ABSENT`` if it removed the field."""
    left: object
    """What the second left. ``ABSENT`` if it removed the field."""
    is_undone: bool
    """Whether the second brought back the value before the first."""
    is_secret: bool
    """Whether the object is a Secret, so that no value may be shown."""

    @property
    def is_meant(self) -> bool:
        """Whether ``after`` of the second names the first: then it is not refused, and not shown."""
        return self.first.name in self.second.after

    def refusal(self) -> str:
        """Return the message for who made the request. It has no values."""
        subject = f"{self.second.name} " if self.second.has_own_words else ""
        what = "removes" if self.left is ABSENT else "overwrites"
        where = path_text(self.path)
        return f"{subject}{what} {where}, which {self.first.name} wrote, and conflicts are rejected"

    def line(self, *, with_values: bool = True) -> str:
        """Return one line for people."""
        what = "removes" if self.left is ABSENT else "undoes" if self.is_undone else "overwrites"
        text = f"{path_text(self.path)}: {self.second.name} {what} what {self.first.name} wrote"
        if not with_values or self.is_secret:
            return text
        return f"{text}: {value_text(self.written)} becomes {value_text(self.left)}"


class Writers:
    """Who wrote the fields of one object, in one review."""

    __slots__ = ("_by_path", "_is_secret")

    def __init__(self, *, is_secret: bool) -> None:
        self._by_path: dict[Path, tuple[Webhook, object, object]] = {}
        """The last writer, the value, and the value before that."""
        self._is_secret = is_secret

    def note(self, webhook: Webhook, before: object, after: object) -> list[Conflict]:
        """Note that *webhook* left the object *after* where it found *before*, and return its conflicts."""
        found = []
        for path, old, new in field_changes(before, after):
            if path[-1:] == (WHOLE,):
                # Which of its fields each webhook wrote is not known.
                continue
            known = self._by_path.get(path)
            if known is not None and known[0] is not webhook and not _same(known[1], new):
                first, written, original = known
                is_undone = _same(original, new)
                found.append(Conflict(first, webhook, path, written, new, is_undone, self._is_secret))
            if known is not None or len(self._by_path) < MAX_WRITES:
                self._by_path[path] = webhook, new, old
        return found


def writers_of(request: AdmissionRequest) -> Writers:
    """Return the writers of the object of *request*, none at first."""
    return Writers(is_secret=is_secret(request))


def is_secret(request: AdmissionRequest) -> bool:
    """Whether the object of *request* is a Secret."""
    group, _, kind = request.kind
    return (group, kind) == ("", "Secret")


def _same(one: object, other: object) -> bool:
    return one is other or (one is not ABSENT and other is not ABSENT and same(one, other))
