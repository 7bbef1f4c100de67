"""The result of a pass: numbers and groups with examples, as JSON and as text.

Its size does not depend on the number of findings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.text import printable
from gateway.base.text import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.tools.audit.run import Pass
    from gateway.tools.audit.store import Store

    Json = dict[str, Any]

MAX_GROUPS: Final = 2000
MAX_EXAMPLES: Final = 3
_TEXT_CHARS: Final = 600
_GROUP: Final = "part, finding, configuration, webhook, namespace, kind"

TITLES: Final = {
    "denied": "denied",
    "notEnforced": "denied in a mode that does not enforce",
    "failed": "without a verdict, because a webhook failed",
    "wouldChange": "would still be changed",
}
"""The classes of findings about stored objects, in order."""


def document(store: Store, this: Pass, about: Json) -> Json:
    """Return the JSON of the report on the pass *this* in *store*. *about* has what it is about."""
    numbers = dict(
        store.select(
            "SELECT finding, COUNT(DISTINCT uid) FROM results WHERE pass = :pass AND part = 'object'"
            " GROUP BY finding"
        )
    )
    groups = list(_groups(store))
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "AuditReport",
        **about,
        "time": rfc3339(this.began, 0),
        "complete": this.is_complete,
        "listed": this.listed,
        "objects": this.subjects,
        "evaluated": this.evaluated,
        **{finding: numbers.get(finding, 0) for finding in TITLES},
        "groups": groups,
        "owners": list(_owners(store)),
        "skipped": _by_count(this.skipped),
        "notEvaluated": _by_count(this.found.left_out),
        "notes": [printable(text, _TEXT_CHARS) for text in this.notes],
        "problems": [printable(text, _TEXT_CHARS) for text in this.found.problems],
        "stopped": this.stopped,
    }


def _groups(store: Store) -> Iterator[Json]:
    """Yield the findings by webhook, namespace and kind, the most frequent first."""
    rows = store.select(
        f"SELECT {_GROUP}, COUNT(*), SUM(alike) FROM results WHERE pass = :pass GROUP BY {_GROUP}"  # noqa: S608
        f" ORDER BY COUNT(*) DESC, {_GROUP} LIMIT {MAX_GROUPS}"
    )
    for part, finding, configuration, webhook, namespace, kind, number, alike in list(rows):
        examples = store.results(
            "part = ? AND finding = ? AND configuration = ? AND webhook = ? AND namespace = ? AND kind = ?",
            *(part, finding, configuration, webhook, namespace, kind),
            limit=MAX_EXAMPLES,
        )
        yield {
            "part": part,
            "finding": finding,
            "webhook": printable(f"{configuration}/{webhook}", 400),
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


def _owners(store: Store) -> Iterator[Json]:
    """Yield how many objects are denied by the label of their owners, the most frequent first."""
    rows = store.select(
        "SELECT ownerLabel, part, COUNT(DISTINCT uid) FROM results"  # noqa: S608 - constants
        " WHERE pass = :pass AND finding = 'denied'"
        f" GROUP BY ownerLabel, part ORDER BY COUNT(DISTINCT uid) DESC, ownerLabel, part LIMIT {MAX_GROUPS}"
    )
    for label, part, number in rows:
        yield {"owner": printable(label, 300), "part": part, "denied": number}


def _by_count(counts: dict[str, int]) -> list[Json]:
    found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"reason": printable(reason, _TEXT_CHARS), "objects": number} for reason, number in found]


def as_text(report: Json) -> Iterator[str]:
    """Yield the lines of *report*. Each is printable."""
    yield (
        f"{report['objects']:,} objects of {report['listed']:,} that were read through"
        f" {report['configuration']}, {report['evaluated']:,} of them evaluated now"
    )
    numbers = ((report[finding], title) for finding, title in TITLES.items())
    yield ", ".join(f"{number:,} {title}" for number, title in numbers if number or title == "denied")
    for finding, title in TITLES.items():
        yield from _section(report, "object", finding, title)
    named = [one for one in report["owners"] if one["owner"]]
    if named:
        yield ""
        yield f"denied objects by {report['ownerLabel']}:"
        for one in report["owners"]:
            yield f"  {one['denied']:>7,}  {one['owner'] or '(without the label)'}"
    for title, name in (("skipped", "skipped"), ("not evaluated", "notEvaluated")):
        if report[name]:
            yield ""
            yield f"{title}:"
            yield from (f"  {one['objects']:>7,}  {one['reason']}" for one in report[name])
    for title, name in (
        ("webhooks that are not called, because of their sideEffects", "webhooksLeftOut"),
        ("not read", "notes"),
        ("incomplete", "problems"),
    ):
        if report[name]:
            yield ""
            yield f"{title}:"
            yield from (f"  {text}" for text in report[name])


def _section(report: Json, part: str, finding: str, title: str) -> Iterator[str]:
    groups = [one for one in report["groups"] if (one["part"], one["finding"]) == (part, finding)]
    if groups:
        yield ""
        yield f"{title}:"
    for group in groups:
        place = f", in {group['namespace']}" if group["namespace"] else ""
        alike = f" ({group['alike']:,} Pods)" if group["alike"] > group["objects"] else ""
        yield f"  {group['objects']:>7,}  {group['webhook']}: {group['kind']}{place}{alike}"
        for example in group["examples"]:
            owner = f" of {example['owner']}" if example["owner"] else ""
            yield f"           {example['name']}{owner}: {example['message']}"
