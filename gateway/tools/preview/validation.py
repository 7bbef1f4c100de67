"""Findings about what kube-apiserver itself refuses, besides those of webhooks and of its plug-ins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from gateway.config.yaml.field_paths import parse_field
from gateway.tools.preview.invalid import invalid, undeclared
from gateway.tools.preview.model import VALIDATION, Finding

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from gateway.engine.object_review import Json
    from gateway.tools.preview.decoding import Problem
    from gateway.tools.preview.findings import Origin
    from gateway.tools.preview.model import Kind, Level, Previewed, Reviewed

_UNPROCESSABLE: Final = 422


class Validator(Protocol):
    """Knows what an API server refuses."""

    async def note(
        self, previewed: Previewed, request: Json, written: Json, final: object, origin: Origin
    ) -> None:
        """Add findings to the last object of *previewed*.

        It is *written*, is created by *request*, and is *final* after webhooks.
        """


@dataclass(frozen=True)
class Validation:
    """What an API server of Kubernetes 1.``minor`` refuses, as far as it is known here."""

    minor: int
    unknown_fields: Level | None
    """How bad fields are that Kubernetes does not know; None: they are not looked for."""
    custom: Container[tuple[str, str]]
    """Group and kind of those that have a known CustomResourceDefinition."""

    async def note(
        self, previewed: Previewed, request: Json, written: Json, final: object, origin: Origin
    ) -> None:
        """As ``Validator``."""
        del request
        own, reviewed = previewed.objects[0], previewed.objects[-1]
        if reviewed is not own and any(map(_is_refused, own.findings)):
            # It is never created.
            return
        about = final if isinstance(final, dict) else written
        is_custom = (reviewed.name.group, reviewed.name.kind) in self.custom
        problems = invalid(written, about, self.minor, is_custom=is_custom)
        add_problems(reviewed, problems, "error", about, origin)
        if reviewed is own and self.unknown_fields is not None:
            add_problems(reviewed, undeclared(written, self.minor), self.unknown_fields, written, origin)


def add_problems(
    reviewed: Reviewed,
    problems: Iterable[Problem],
    level: Level,
    about: Json,
    origin: Origin,
    kind: Kind = "refused",
) -> None:
    """Put *problems* of the object *about*, findings of *level* and *kind*, before those of *reviewed*."""
    found = [
        Finding(
            *(VALIDATION, kind, level, "", "mutate", "Enforce"),
            *(one.message, origin.place(about, parse_field(one.path)), _UNPROCESSABLE, "Invalid", one.path),
        )
        for one in problems
    ]
    reviewed.findings = found + reviewed.findings
    if any(map(_is_refused, found)):
        reviewed.result, reviewed.final = "denied", None
    elif found and (kind, level, reviewed.result) == ("undecided", "error", "allowed"):
        reviewed.result, reviewed.final = "undecided", None


def _is_refused(finding: Finding) -> bool:
    return finding.kind == "refused" and finding.level == "error"
