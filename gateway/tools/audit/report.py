"""The result of a pass: numbers and groups with examples, as JSON and as text.

Its size does not depend on the number of findings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.text import printable
from gateway.base.report_lines import NOT_CALLED, counted, section
from gateway.base.terminal import Style, Styled
from gateway.base.text import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.tools.audit.run import Pass
    from gateway.tools.audit.store import Store

    Json = dict[str, Any]

MAX_GROUPS: Final = 2000
MAX_WORKLOADS: Final = 1000
MAX_EXAMPLES: Final = 3
_SHOWN: Final = 20
"""Workloads in the text."""
_TEXT_CHARS: Final = 600
_GROUP: Final = "part, finding, configuration, webhook, namespace, kind"

TITLES: Final = {
    "denied": "denied",
    "notEnforced": "denied in a mode that does not enforce",
    "failed": "without a verdict, because a webhook failed",
    "wouldChange": "would still be changed",
}
"""The classes of findings about stored objects, in order."""
_STYLES: Final[dict[str, Style]] = {"denied": "denied", "failed": "failed"}


def document(store: Store, this: Pass, about: Json, max_examples: int = MAX_EXAMPLES) -> Json:
    """Return the JSON of the report on the pass *this* in *store*. *about* has what it is about."""
    numbers = {
        (part, finding): number
        for part, finding, number in store.select(
            "SELECT part, finding, COUNT(DISTINCT uid) FROM results WHERE pass = :pass GROUP BY part, finding"
        )
    }
    failed = sum(number for (_, finding), number in numbers.items() if finding == "failed")
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "AuditReport",
        **about,
        "time": rfc3339(this.began, 0),
        "complete": this.is_complete,
        "listed": this.listed,
        "verdicts": this.subjects,
        "evaluated": this.evaluated,
        **{finding: numbers.get(("object", finding), 0) for finding in TITLES},
        "failed": failed,
        "refusedAtRestart": numbers.get(("restart", "denied"), 0),
        "groups": list(_groups(store, max_examples)),
        "workloads": list(_workloads(store)),
        "owners": list(_owners(store)),
        "skipped": _by_count(this.skipped),
        "notEvaluated": _by_count(this.found.left_out),
        "notes": [printable(text, _TEXT_CHARS) for text in this.notes],
        "problems": [printable(text, _TEXT_CHARS) for text in this.found.problems],
        "stopped": this.stopped,
    }


def _groups(store: Store, max_examples: int) -> Iterator[Json]:
    """Yield the findings by webhook, namespace and kind, the most frequent first, with some examples."""
    rows = store.select(
        f"SELECT {_GROUP}, COUNT(*), SUM(alike) FROM results WHERE pass = :pass GROUP BY {_GROUP}"  # noqa: S608
        f" ORDER BY COUNT(*) DESC, {_GROUP} LIMIT {MAX_GROUPS}"
    )
    for part, finding, configuration, webhook, namespace, kind, number, alike in list(rows):
        examples = store.results(
            "part = ? AND finding = ? AND configuration = ? AND webhook = ? AND namespace = ? AND kind = ?",
            *(part, finding, configuration, webhook, namespace, kind),
            limit=max_examples,
        )
        yield {
            "part": part,
            "finding": finding,
            "webhook": printable(f"{configuration}/{webhook}".lstrip("/"), 400),
            "namespace": namespace,
            "kind": kind,
            "objects": number,
            "alike": alike,
            "examples": [
                {
                    "name": printable(one["name"], 300),
                    "owner": printable(one["owner"], 300),
                    "message": printable(one["message"], _TEXT_CHARS),
                }
                for one in examples
            ],
        }


def _workloads(store: Store) -> Iterator[Json]:
    """Yield the workloads whose next Pod is denied, by the label of their owners and their namespace."""
    rows = store.select(
        "SELECT ownerLabel, namespace, kind, name,"  # noqa: S608 - constants
        " GROUP_CONCAT(LTRIM(configuration || '/' || webhook, '/'), ', '),"
        " MIN(message) FROM results WHERE pass = :pass AND part = 'restart' AND finding = 'denied'"
        f" GROUP BY uid ORDER BY ownerLabel, namespace, kind, name LIMIT {MAX_WORKLOADS}"
    )
    for label, namespace, kind, name, webhooks, message in rows:
        yield {
            "owner": printable(label, 300),
            "namespace": namespace,
            "workload": printable(f"{kind}/{name}", 300),
            "webhooks": printable(webhooks, _TEXT_CHARS),
            "message": printable(message, _TEXT_CHARS),
        }


def _owners(store: Store) -> Iterator[Json]:
    """Yield how many objects and restarts are denied by the label of their owners."""
    rows = store.select(
        "SELECT ownerLabel, COUNT(DISTINCT CASE part WHEN 'object' THEN uid END),"  # noqa: S608 - constants
        " COUNT(DISTINCT CASE part WHEN 'restart' THEN uid END) FROM results"
        " WHERE pass = :pass AND finding = 'denied' GROUP BY ownerLabel"
        f" ORDER BY COUNT(DISTINCT uid) DESC, ownerLabel LIMIT {MAX_GROUPS}"
    )
    for label, denied, restarts in rows:
        yield {"owner": printable(label, 300), "denied": denied, "refusedAtRestart": restarts}


def _by_count(counts: dict[str, int]) -> list[Json]:
    found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"reason": printable(reason, _TEXT_CHARS), "objects": number} for reason, number in found]


def as_text(report: Json) -> Iterator[str]:
    """Yield the lines of *report*. Each is printable."""
    yield (
        f"{report['listed']:,} objects read, {report['verdicts']:,} verdicts through"
        f" {report['configuration']}, {report['evaluated']:,} of them new"
    )
    numbers = ((report[finding], title) for finding, title in TITLES.items())
    texts = [f"{number:,} {title}" for number, title in numbers if number or title == "denied"]
    if report["refusedAtRestart"]:
        number = report["refusedAtRestart"]
        noun, whose = ("workload", "its") if number == 1 else ("workloads", "their")
        texts.append(f"{number:,} {noun} would be refused at {whose} next restart")
    yield ", ".join(texts)
    yield from _restarts(report)
    for finding, title in TITLES.items():
        yield from _section(report, "object", finding, title)
    owners = [one for one in report["owners"] if one["denied"]]
    if any(one["owner"] for one in owners):
        lines = (f"{one['denied']:>7,}  {one['owner'] or '(without the label)'}" for one in owners)
        yield from section(f"denied objects by {report['ownerLabel']}", lines)
    yield from counted("skipped", report["skipped"], "objects")
    yield from counted("not evaluated", report["notEvaluated"], "objects")
    yield from section(NOT_CALLED, report["webhooksLeftOut"])
    yield from section("not read", report["notes"])
    yield from section("incomplete", report["problems"])


def _restarts(report: Json) -> Iterator[str]:
    if not report["refusedAtRestart"]:
        return
    yield ""
    yield "workloads that would be refused at their next restart:"
    place = ("", "")
    for one in report["workloads"][:_SHOWN]:
        if (one["owner"], one["namespace"]) != place:
            place = one["owner"], one["namespace"]
            yield f"  {', in '.join(filter(None, (one['owner'] or '(without the label)', one['namespace'])))}"
        yield f"           {one['workload']}: {one['message']}"
    if report["refusedAtRestart"] > _SHOWN:
        yield f"           {report['refusedAtRestart'] - _SHOWN:,} more"


def _section(report: Json, part: str, finding: str, title: str) -> Iterator[str]:
    groups = [one for one in report["groups"] if (one["part"], one["finding"]) == (part, finding)]
    if groups:
        yield ""
        yield Styled((title, _STYLES.get(finding, "warn")), ":")
    for group in groups:
        place = f", in {group['namespace']}" if group["namespace"] else ""
        alike = f" ({group['alike']:,} Pods)" if group["alike"] > group["objects"] else ""
        yield f"  {group['objects']:>7,}  {group['webhook']}: {group['kind']}{place}{alike}"
        for example in group["examples"]:
            owner = f" of {example['owner']}" if example["owner"] else ""
            yield f"           {example['name']}{owner}: {example['message']}"
