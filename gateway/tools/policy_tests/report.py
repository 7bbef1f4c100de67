"""Results of cases as text, JSON and JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import groupby
from typing import TYPE_CHECKING, Any

from admission_gateway_worker.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.tools.policy_tests.run import CaseResult
    from gateway.tools.policy_tests.suite import Suite


def as_text(results: Sequence[CaseResult]) -> Iterator[str]:
    """Yield printable lines: each suite with its cases, the problems of failed cases, and a summary."""
    for suite, group in _by_suite(results):
        yield printable(f"{suite.file}: {suite.name}", None)
        for result in group:
            yield f"  {'FAIL' if result.problems else 'ok  '}  {printable(result.case.name, None)}"
            yield from (f"        {printable(line, None)}" for line in result.problems)
    failed = sum(bool(result.problems) for result in results)
    cases = f"{len(results)} case{'' if len(results) == 1 else 's'}"
    yield f"{cases}: {len(results) - failed} passed, {failed} failed"


def as_json(results: Sequence[CaseResult]) -> dict[str, Any]:
    """Return a JSON object with ``suites`` and numbers."""
    failed = sum(bool(result.problems) for result in results)
    return {
        "passed": len(results) - failed,
        "failed": failed,
        "suites": [
            {
                "file": str(suite.file),
                "name": suite.name,
                "cases": [
                    {
                        "name": result.case.name,
                        "passed": not result.problems,
                        "problems": list(result.problems),
                        "seconds": round(result.seconds, 6),
                    }
                    for result in group
                ],
            }
            for suite, group in _by_suite(results)
        ],
    }


def as_junit(results: Sequence[CaseResult]) -> bytes:
    """Return the XML that continuous integration systems read as JUnit's."""
    root = ET.Element("testsuites")
    for suite, group in _by_suite(results):
        failed = sum(bool(result.problems) for result in group)
        element = ET.SubElement(
            root,
            "testsuite",
            name=_xml(suite.name),
            file=_xml(str(suite.file)),
            tests=str(len(group)),
            failures=str(failed),
            time=f"{sum(result.seconds for result in group):.6f}",
        )
        for result in group:
            case = ET.SubElement(
                element,
                "testcase",
                name=_xml(result.case.name),
                classname=_xml(suite.name),
                time=f"{result.seconds:.6f}",
            )
            if result.problems:
                lines = list(map(_xml, result.problems))
                ET.SubElement(case, "failure", message=lines[0]).text = "\n".join(lines)
    ET.indent(root)
    written: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _by_suite(results: Sequence[CaseResult]) -> list[tuple[Suite, list[CaseResult]]]:
    groups = groupby(results, key=lambda result: id(result.suite))
    return [(listed[0].suite, listed) for _, group in groups for listed in (list(group),)]


def _xml(text: str) -> str:
    # XML 1.0 has no way to write control characters.
    return printable(text, None)
