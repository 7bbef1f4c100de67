"""Findings about what kube-apiserver itself refuses, besides those of webhooks and of its plug-ins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.tools.preview.fields import parse_field
from gateway.tools.preview.invalid import invalid, undeclared
from gateway.tools.preview.model import VALIDATION, Finding

if TYPE_CHECKING:
    from collections.abc import Container

    from gateway.engine.object_review import Json
    from gateway.tools.preview.decoding import Problem
    from gateway.tools.preview.findings import Origin
    from gateway.tools.preview.model import Level, Previewed

_UNPROCESSABLE: Final = 422


@dataclass(frozen=True)
class Validation:
    """What an API server of Kubernetes 1.``minor`` refuses."""

    minor: int
    unknown_fields: Level | None
    """How bad fields are that Kubernetes does not know; None: they are not looked for."""
    custom: Container[tuple[str, str]]
    """Group and kind of those that have a known CustomResourceDefinition."""

    def note(self, previewed: Previewed, written: Json, final: object, origin: Origin) -> None:
        """Add findings to the last object of *previewed*, which is *written*, and *final* after webhooks."""
        own, reviewed = previewed.objects[0], previewed.objects[-1]
        found: list[Finding] = []
        if reviewed is own:
            level = self.unknown_fields
            unknown = () if level is None else undeclared(written, self.minor)
            found += [_finding(one, level or "note", written, origin) for one in unknown]
        elif any(map(_is_refused, own.findings)):
            # It is never created.
            return
        about = final if isinstance(final, dict) else written
        is_custom = (reviewed.name.group, reviewed.name.kind) in self.custom
        problems = invalid(written, about, self.minor, is_custom=is_custom)
        found += [_finding(one, "error", about, origin) for one in problems]
        if any(map(_is_refused, found)):
            reviewed.result, reviewed.final = "denied", None
        reviewed.findings = found + reviewed.findings


def _finding(problem: Problem, level: Level, about: Json, origin: Origin) -> Finding:
    place = origin.place(about, parse_field(problem.path))
    return Finding(
        *(VALIDATION, "refused", level, "", "mutate", "Enforce", problem.message, place),
        *(_UNPROCESSABLE, "Invalid", problem.path),
    )


def _is_refused(finding: Finding) -> bool:
    return finding.kind == "refused" and finding.level == "error"
