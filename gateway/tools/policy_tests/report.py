"""Results of cases as text, JSON and JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.text import printable
from gateway.base.report_lines import number_of
from gateway.base.terminal import Style, Styled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.tools.policy_tests.results import CaseResult, Status

_SIGNS: Final[dict[Status, str]] = {
    "passed": "ok  ",
    "failed": "FAIL",
    "not supported": "none",
    "skipped": "skip",
}
_STYLES: Final[dict[Status, Style]] = {"passed": "good", "failed": "bad", "not supported": "warn"}
_OTHERS: Final[tuple[Status, ...]] = ("not supported", "skipped")


def as_text(results: Sequence[CaseResult]) -> Iterator[str]:
    """Yield printable lines: each suite with its cases, the problems of failed cases, and a summary."""
    for group in _by_suite(results):
        yield printable(f"{group[0].file}: {group[0].suite}", None)
        reason = ""
        for result in group:
            yield Styled("  ", (_SIGNS[result.status], _STYLES.get(result.status, "")), f"  {result.name}")
            yield from (f"        {printable(line, None)}" for line in result.problems)
            yield from (f"        note: {printable(line, None)}" for line in result.notes)
            if result.not_supported and result.not_supported != reason:
                reason = result.not_supported
                yield f"        not supported: {printable(reason, None)}"
    yield summary(results)


def summary(results: Sequence[CaseResult]) -> str:
    """Return how many cases there are of each status. Only those that passed or failed are always named."""
    count = Counter(result.status for result in results)
    others = [f", {count[name]} {name}" for name in _OTHERS if count[name]]
    cases = number_of(len(results), "case")
    return f"{cases}: {count['passed']} passed, {count['failed']} failed{''.join(others)}"


def as_json(results: Sequence[CaseResult]) -> dict[str, Any]:
    """Return a JSON object with ``suites`` and numbers."""
    count = Counter(result.status for result in results)
    return {
        "passed": count["passed"],
        "failed": count["failed"],
        "notSupported": count["not supported"],
        "skipped": count["skipped"],
        "suites": [
            {
                "file": str(group[0].file),
                "name": group[0].suite,
                "cases": [
                    {
                        "name": result.name,
                        "passed": result.status == "passed",
                        "problems": list(result.problems),
                        **({"notSupported": result.not_supported} if result.not_supported else {}),
                        **({"skipped": True} if result.is_skipped else {}),
                        **({"notes": list(result.notes)} if result.notes else {}),
                        "seconds": round(result.seconds, 6),
                    }
                    for result in group
                ],
            }
            for group in _by_suite(results)
        ],
    }


def as_junit(results: Sequence[CaseResult]) -> bytes:
    """Return the XML that continuous integration systems read as JUnit's."""
    root = ET.Element("testsuites")
    for group in _by_suite(results):
        count = Counter(result.status for result in group)
        left_out = count["not supported"] + count["skipped"]
        element = ET.SubElement(
            root,
            "testsuite",
            name=_xml(group[0].suite),
            file=_xml(str(group[0].file)),
            tests=str(len(group)),
            failures=str(count["failed"]),
            time=f"{sum(result.seconds for result in group):.6f}",
        )
        if left_out:
            element.set("skipped", str(left_out))
        for result in group:
            case = ET.SubElement(
                element,
                "testcase",
                name=_xml(result.name),
                classname=_xml(result.suite),
                time=f"{result.seconds:.6f}",
            )
            if result.status == "failed":
                lines = list(map(_xml, result.problems))
                ET.SubElement(case, "failure", message=lines[0]).text = "\n".join(lines)
            elif result.status != "passed":
                ET.SubElement(case, "skipped", message=_xml(result.not_supported or "skip: true"))
    ET.indent(root)
    written: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _by_suite(results: Sequence[CaseResult]) -> list[list[CaseResult]]:
    return [list(group) for _, group in groupby(results, key=lambda one: (one.file, one.document, one.suite))]


def _xml(text: str) -> str:
    # XML 1.0 has no way to write control characters.
    return printable(text, None)
