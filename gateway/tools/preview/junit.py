"""A preview as JUnit's XML, for systems of continuous integration.

GitLab shows ``classname`` as the suite, reads the text of ``failure`` and not its ``message``, and drops
cases whose ``classname`` and ``name`` are those of another one. Others read ``testsuite``, ``file``, ``line``
and ``message``. Both are written.

Source: gitlabhq/gitlabhq doc/ci/testing/unit_test_reports.md; XML 1.0, section 2.2 (characters).
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.text import printable
from gateway.tools.preview.manifests import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gateway.tools.preview.forecast import Forecast
    from gateway.tools.preview.manifests import Unreadable
    from gateway.tools.preview.model import Previewed, Reviewed
    from gateway.tools.preview.report import Listed, Totals

MAX_CASES: Final = 20_000
"""Cases of each of both kinds, with and without a failure. GitLab reads 250,000 objects of XML."""
_MAX_CHARS: Final = 4000
_OWN: Final = "admission-gateway"
"""In place of a file, for what is about none."""


@dataclass(slots=True)
class _Case:
    name: str
    place: Place
    tag: str = ""
    """``failure`` or ``error``; empty for a case that passed."""
    lines: list[str] = field(default_factory=list)
    """What failed, or for a case that passed its warnings."""


class JunitOutput:
    """A file with a suite for each file, and a case for each object and webhook."""

    def __init__(self, file: Path, forecast: Forecast | None = None) -> None:
        self._file = file
        self._suites: dict[str, dict[str, _Case]] = {}
        self._kept = {True: 0, False: 0}
        self._left_out = 0
        if forecast is not None:
            self._add_forecast(forecast)

    def _add_forecast(self, forecast: Forecast) -> None:
        version = f"Kubernetes 1.{forecast.kubernetes}"
        self._left_out += forecast.left_out
        for one in forecast.findings:
            finding, place = one
            tag = "failure" if finding.level == "error" else ""
            about = version if place is None else f"{version}: {finding.rule}: {finding.where}"
            self._add(_Case(about, place or Place(_OWN), tag, [one.line()]))

    def add(self, found: Previewed, listed: list[Listed]) -> None:
        """Take an object of the input, and those that controllers create from it."""
        place = found.manifest.place()
        for reviewed in found.objects:
            own = [one for one in listed if one.about is reviewed]
            name = _name(reviewed)
            errors = [one for one in own if one.finding.level == "error"]
            for one in errors:
                tag = "failure" if one.finding.kind in ("denied", "notStable", "refused") else "error"
                self._add(
                    _Case(f"{name}: {one.finding.webhook or one.finding.rule}", one.finding.place, tag), one
                )
            # Findings that a template and its Pods have both are listed once, for the template.
            if reviewed.result == "allowed":
                self._add(_Case(name, place), *(one for one in own if one not in errors))

    def add_unreadable(self, found: Unreadable) -> None:
        """Take what is no object."""
        name = f"document at line {found.place.line}"
        self._add(_Case(name, found.place, "error", [f"{found.place}: {found.message}"]))

    def end(self, totals: Totals) -> None:
        """Write the file."""
        del totals
        root = ET.Element("testsuites")
        for file, cases in self._suites.items():
            suite = ET.SubElement(root, "testsuite", name=_xml(file), tests=str(len(cases)))
            for tag in ("failure", "error"):
                suite.set(f"{tag}s", str(sum(one.tag == tag for one in cases.values())))
            for case in cases.values():
                _write(case, file, suite)
        if self._left_out:
            suite = ET.SubElement(root, "testsuite", name=_OWN, tests="1", failures="0", skipped="1")
            about = f"{self._left_out:,} further cases"
            case_ = ET.SubElement(suite, "testcase", classname=_OWN, name=about)
            ET.SubElement(case_, "skipped", message="they are left out")
        ET.indent(root)
        self._file.write_bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")

    def _add(self, case: _Case, *listed: Listed) -> None:
        """Add *case*, or what it says to the one with its name."""
        suite = self._suites.setdefault(case.place.file, {})
        known = suite.get(case.name)
        if known is not None and known.tag != case.tag:
            case.name = f"{case.name} (line {case.place.line})"
            known = suite.get(case.name)
        lines = case.lines or [line for one in listed for line in _lines(one)]
        if known is not None:
            known.lines += lines
            return
        has_failed = bool(case.tag)
        if self._kept[has_failed] >= MAX_CASES:
            self._left_out += 1
            return
        self._kept[has_failed] += 1
        case.lines = lines
        suite[case.name] = case


def _name(reviewed: Reviewed) -> str:
    owner = reviewed.created_from
    return f"{reviewed.name} from {owner}" if owner is not None else str(reviewed.name)


def _lines(listed: Listed) -> Iterator[str]:
    one = listed.finding
    field_ = f" ({one.path})" if one.path else ""
    yield f"{one.place}: {one.level}: {one.message}{field_}"
    if listed.also:
        yield f"also: {', '.join(listed.also)}"


def _write(case: _Case, file: str, suite: ET.Element) -> None:
    attributes = {"classname": file, "name": case.name}
    if case.place.is_found:
        attributes |= {"file": file, "line": str(case.place.line)}
    element = ET.SubElement(suite, "testcase", {name: _xml(text) for name, text in attributes.items()})
    lines = [_xml(line) for text in case.lines for line in text.split("\n")]
    if case.tag:
        ET.SubElement(element, case.tag, message=lines[0]).text = "\n".join(lines)
    elif lines:
        ET.SubElement(element, "system-out").text = "\n".join(lines)


def _xml(text: str) -> str:
    # XML 1.0 has no way to write control characters.
    return printable(text, _MAX_CHARS)
