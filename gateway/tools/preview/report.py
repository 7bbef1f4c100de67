"""Counts of a preview, and the outputs that get each result in the order of the input."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from gateway.tools.preview.model import Previewed

if TYPE_CHECKING:
    from gateway.tools.preview.manifests import Unreadable
    from gateway.tools.preview.model import Finding, Reviewed

MAX_KEPT: Final = 100_000
"""Fingerprints and files that are told apart."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A finding as it is shown: once for all objects of one manifest for which it is the same."""

    finding: Finding
    about: Reviewed
    """The first object that it is about."""
    fingerprint: str
    also: tuple[str, ...] = ()
    """Further objects, as KIND NAMESPACE/NAME."""


@dataclass
class Totals:
    """What a preview found in all."""

    objects: int = 0
    """Of the input."""
    created: int = 0
    """That controllers create from these."""
    files: int = 0
    results: Counter[str] = field(default_factory=Counter)
    """Objects, those that controllers create included, by result."""
    findings: Counter[str] = field(default_factory=Counter)
    """By level."""
    changed: int = 0
    not_stable: int = 0
    """Objects that mutating webhooks change again."""
    unreadable: int = 0
    without_file: int = 0
    """Findings and documents that cannot be read, whose file is not known."""
    stopped: str = ""
    """Why the preview ended early. Empty if it did not."""

    @property
    def status(self) -> int:
        """The exit status."""
        if self.unreadable or not (self.objects or self.stopped):
            return 2
        if self.results["denied"] or self.not_stable:
            return 1
        return 3 if self.results["undecided"] or self.stopped else 0


class Output(Protocol):
    """One form of the results."""

    def add(self, found: Previewed, listed: list[Listed]) -> None:
        """Take an object of the input with all its findings."""

    def add_unreadable(self, found: Unreadable) -> None:
        """Take what is no object."""

    def end(self, totals: Totals) -> None:
        """Write the rest."""


class Report:
    """Counts results, and gives them to all outputs."""

    def __init__(self, outputs: list[Output]) -> None:
        self.totals = Totals()
        self._outputs = outputs
        self._files: set[str] = set()
        self._fingerprints: Counter[str] = Counter()

    def add(self, found: Previewed | Unreadable) -> None:
        """Take what came of one object, or what is no object."""
        totals = self.totals
        if not isinstance(found, Previewed):
            totals.unreadable += 1
            totals.without_file += not found.place.is_found
            self._count_file(found.place.file)
            for output in self._outputs:
                output.add_unreadable(found)
            return
        self._count_file(found.manifest.file)
        totals.objects += 1
        totals.created += max(0, len(found.objects) - 1)
        totals.results.update(one.result for one in found.objects)
        totals.changed += sum(bool(one.changed_by) for one in found.objects)
        totals.not_stable += sum(any(f.kind == "notStable" for f in one.findings) for one in found.objects)
        listed = self._listed(found)
        totals.findings.update(one.finding.level for one in listed)
        totals.without_file += sum(not one.finding.place.is_found for one in listed)
        for output in self._outputs:
            output.add(found, listed)

    def end(self) -> None:
        """Write the rest."""
        for output in self._outputs:
            output.end(self.totals)

    def _count_file(self, file: str) -> None:
        if len(self._files) < MAX_KEPT and file not in self._files:
            self._files.add(file)
            self.totals.files += 1

    def _listed(self, found: Previewed) -> list[Listed]:
        """Return the findings of *found*. A template and its Pods often have the same ones."""
        by_text: dict[tuple[object, ...], tuple[Finding, Reviewed, list[str]]] = {}
        for reviewed in found.objects:
            for one in reviewed.findings:
                key = one.rule, one.kind, one.level, one.message, one.place
                if key in by_text:
                    by_text[key][2].append(str(reviewed.name))
                else:
                    by_text[key] = one, reviewed, []
        return [
            Listed(one, reviewed, self._fingerprint(one, reviewed, found), tuple(dict.fromkeys(also)))
            for one, reviewed, also in by_text.values()
        ]

    def _fingerprint(self, finding: Finding, about: Reviewed, previewed: Previewed) -> str:
        found = finding.fingerprint(about.name.group_kind, previewed.objects[0].name)
        if found in self._fingerprints or len(self._fingerprints) < MAX_KEPT:
            self._fingerprints[found] += 1
        number = self._fingerprints[found]
        return found if number <= 1 else f"{found}:{number}"
