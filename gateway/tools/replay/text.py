"""The report of a replay as text, from its JSON. Every line is printable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.base.report_lines import NOT_CALLED, counted, number_of, section
from gateway.base.terminal import Style, Styled
from gateway.tools.offline.changes import coloured
from gateway.tools.replay.report import TITLES

if TYPE_CHECKING:
    from collections.abc import Iterator


def as_text(document: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the report *document*."""
    through = f"{number_of(document['replayed'], 'review')} through {document['configuration']}"
    yield f"{through}, compared with {document['comparedWith']}"
    counts = [f"{document[kind]:,} {title}" for kind, title in TITLES.items()]
    yield f"{document['equal']:,} equal, {', '.join(counts)}; {document['leftOut']:,} not replayed"
    if document["stopped"]:
        yield f"stopped early: {document['stopped']}"
    kind = ""
    for group in document["differences"]:
        if group["difference"] != kind:
            kind = group["difference"]
            yield ""
            yield Styled(
                (TITLES[kind], _STYLES.get(kind, "warn")), f": {number_of(document[kind], 'review')}"
            )
        place = ", ".join(filter(None, (group["kind"], group["namespace"] and f"in {group['namespace']}")))
        yield f"  {group['count']:>7,}  {group['webhook']}{': ' if place else ''}{place}"
        for example in group["examples"]:
            yield from _example(example)
    yield from counted("not replayed", document["leftOutByReason"], "reviews")
    yield from counted("replayed, but", document["notes"], "reviews")
    yield from section(NOT_CALLED, document["webhooksLeftOut"])
    yield from section("input", document["problems"])
    if (written := document.get("writtenExceptions")) and not written["problems"]:
        yield from _exceptions(written)
    if document["latency"]:
        yield ""
        yield "milliseconds of calls, at most (before p50, p99; after p50, p99):"
        for one in document["latency"]:
            times = [one[name] for name in _TIMES]
            shown = " ".join("     -" if time is None else f"{time:6g}" for time in times)
            yield f"  {shown}  {one['webhook']}"


_MAX_NAMESPACES = 20
_INDENT = " " * 13
_STYLES: dict[str, Style] = {"newlyDenied": "denied", "newlyAllowed": "good", "failures": "failed"}
_TIMES = ("before50Milliseconds", "before99Milliseconds", "after50Milliseconds", "after99Milliseconds")


def _exceptions(written: dict[str, Any]) -> Iterator[str]:
    yield ""
    if not written["file"]:
        yield "exceptions: none are needed"
        return
    yield f"exceptions: {written['exceptions']:,} for {written['denials']:,} denials in {written['file']}"
    for one in written["namespaces"][:_MAX_NAMESPACES]:
        about = f"{one['namespace']}, owner {one['owner'] or 'not known'}"
        yield f"  {one['denials']:>7,}  {about}: exceptions {one['exceptions']:,}"
    if more := written["namespaces"][_MAX_NAMESPACES:]:
        yield f"           and {len(more):,} more namespaces"


def _example(example: dict[str, Any]) -> Iterator[str]:
    user = f" by {example['user']}" if example["user"] else ""
    name = example["name"] or "(generated name)"
    yield f"           {example['operation']} {name}{user}, uid {example['uid']}"
    for mark, lines in (("-", example["before"]), ("+", example["after"])):
        yield from (coloured(f"{mark} {line}", _INDENT) for line in lines if line)
    yield from (coloured(line, _INDENT) for line in example["changes"])
