"""A preview as the JSON of GitLab's Code Quality, which shows findings beside the lines of a merge request.

Source: gitlabhq/gitlabhq doc/ci/testing/code_quality.md, "Code Quality report format".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from admission_gateway_worker.text import printable
from gateway.tools.preview.model import UNREADABLE
from gateway.tools.preview.sarif import MAX_RESULTS, from_here

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.tools.preview.forecast import Forecast
    from gateway.tools.preview.manifests import Place, Unreadable
    from gateway.tools.preview.model import Level, Previewed
    from gateway.tools.preview.report import Listed, Totals

_SEVERITIES: Final[dict[Level, str]] = {"error": "major", "warning": "minor", "note": "info"}
_MAX_CHARS: Final = 1000


class CodeQualityOutput:
    """A file with a list of at most ``MAX_RESULTS`` findings, errors first."""

    def __init__(self, file: Path, forecast: Forecast | None = None) -> None:
        self._file = file
        self._found: dict[Level, list[dict[str, Any]]] = {level: [] for level in _SEVERITIES}
        self._fingerprints: set[str] = set()
        for one in () if forecast is None else forecast.findings:
            if one.place is not None:
                text = f"Kubernetes 1.{forecast.kubernetes}: {one.finding.message}" if forecast else ""
                self._add(one.finding.rule, one.finding.level, text, one.place, one.fingerprint())

    def add(self, found: Previewed, listed: list[Listed]) -> None:
        """Take the findings of an object of the input."""
        del found
        for one in listed:
            finding = one.finding
            field = f"{finding.path}: " if finding.path and finding.path not in finding.message else ""
            text = f"{one.about.name}: {field}{finding.message}"
            self._add(finding.rule, finding.level, text, finding.place, one.fingerprint)

    def add_unreadable(self, found: Unreadable) -> None:
        """Take what is no object."""
        self._add(UNREADABLE, "error", found.message, found.place, found.fingerprint())

    def end(self, totals: Totals) -> None:
        """Write the file."""
        del totals
        found = [one for level in _SEVERITIES for one in self._found[level]][:MAX_RESULTS]
        self._file.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")

    def _add(self, rule: str, level: Level, text: str, place: Place, fingerprint: str) -> None:
        if not place.is_found or len(self._found[level]) >= MAX_RESULTS:
            return
        number, unique = 1, fingerprint
        while unique in self._fingerprints:
            # GitLab shows only one of those that are equal.
            number += 1
            unique = f"{fingerprint}:{number}"
        self._fingerprints.add(unique)
        self._found[level].append(
            {
                "description": printable(text, _MAX_CHARS),
                "check_name": rule,
                "fingerprint": unique,
                "severity": _SEVERITIES[level],
                "location": {"path": from_here(place.file), "lines": {"begin": place.line}},
            }
        )
