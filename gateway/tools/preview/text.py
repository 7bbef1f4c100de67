"""A preview as text for people, and as JSON. Both are written while the preview runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.base.report_lines import number_of
from gateway.base.terminal import Cell, Style, Styled
from gateway.base.text import printable_json
from gateway.tools.offline.changes import coloured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gateway.tools.preview.manifests import Place, Unreadable
    from gateway.tools.preview.model import Previewed, Reviewed
    from gateway.tools.preview.report import Listed, Totals

MAX_UNREADABLE: Final = 10_000
"""Documents that are named in JSON, where they come after the objects; all are counted."""
_MAX_CHARS: Final = 4000
_RESULTS: Final[dict[str, Style]] = {"allowed": "good", "denied": "denied", "undecided": "failed"}
_LEVELS: Final[dict[str, Style]] = {"error": "denied", "warning": "warn"}
_FAILURES: Final[dict[str, Style]] = {"failed": "failed", "undecided": "failed"}
VERBS: Final = {
    "denied": "denied",
    "undecided": "undecided",
    "failed": "failed",
    "wouldBeDenied": "would be denied",
    "warned": "warning",
    "changed": "changed",
    "notStable": "not stable",
    "conflict": "conflict",
    "refused": "refused",
}


class TextOutput:
    """Lines for people, by file and object."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._file = ""

    def add(self, found: Previewed, listed: list[Listed]) -> None:
        """Write an object of the input."""
        self._begin(found.manifest.file)
        for reviewed in found.objects:
            for parts in _about(reviewed):
                self._line(*parts)
            for one in listed:
                if one.about is reviewed:
                    for parts in _finding(one):
                        self._line(*parts)
            if reviewed.changes:
                self._line(f"    changed by {', '.join(reviewed.changed_by)}:")
                for line in reviewed.changes:
                    self._write(coloured(line, "      "))

    def add_unreadable(self, found: Unreadable) -> None:
        """Write what is no object."""
        self._begin(found.place.file)
        self._line(f"  {found.place}: ", ("error", "bad"), f": {found.message}")

    def end(self, totals: Totals) -> None:
        """Write the summary."""
        if self._file:
            self._write("")
        if totals.stopped:
            self._line(f"the preview could not be completed: {totals.stopped}")
        self._line(summary(totals))

    def _begin(self, file: str) -> None:
        if file != self._file:
            if self._file:
                self._write("")
            self._line((file, "bold"))
            self._file = file

    def _line(self, *parts: str | Cell) -> None:
        self._write(Styled(*parts, limit=_MAX_CHARS))


def summary(totals: Totals) -> str:
    """Return the totals in one line."""
    objects = f"{number_of(totals.objects, 'object')} in {number_of(totals.files, 'file')}"
    created = f" and {totals.created:,} that controllers create" if totals.created else ""
    results = ", ".join(f"{totals.results[one]:,} {one}" for one in ("allowed", "denied", "undecided"))
    findings = ", ".join(number_of(totals.findings[one], one) for one in ("error", "warning", "note"))
    unreadable = (
        f"; {number_of(totals.unreadable, 'document')} could not be read" if totals.unreadable else ""
    )
    not_stable = f", {totals.not_stable:,} not stable" if totals.not_stable else ""
    return f"{objects}{created}: {results}, {totals.changed:,} changed{not_stable}; {findings}{unreadable}"


def _about(reviewed: Reviewed) -> Iterator[Sequence[str | Cell]]:
    by = reviewed.user.rpartition(":")[2]
    guess = ", a guess" if reviewed.is_guess else f", by {by}"
    created = f" (from {reviewed.created_from}{guess})" if reviewed.created_from else ""
    yield f"  {reviewed.name}{created}: ", (reviewed.result, _RESULTS[reviewed.result])
    if reviewed.stopped:
        webhooks = number_of(reviewed.not_reached, "validating webhook")
        yield (f"    the mutating phase stops it: {webhooks} not reached",)


def _finding(listed: Listed) -> Iterator[Sequence[str | Cell]]:
    one = listed.finding
    first, *rest = one.message.split("\n")
    mode = f" in the mode {one.mode}" if one.mode != "Enforce" else ""
    by = one.webhook or one.rule
    style = _FAILURES.get(one.kind) or _LEVELS.get(one.level, "")
    yield f"    {one.place}: ", (one.level, style), f": {VERBS[one.kind]} by {by}{mode}: {first}"
    yield from ((f"      {line}",) for line in rest)
    if one.path and one.path not in one.message:
        yield (f"      field: {one.path}",)
    if listed.also:
        yield (f"      also: {', '.join(listed.also)}",)


class JsonOutput:
    """One JSON document of the kind ``PreviewReport``, which is written object by object."""

    def __init__(self, write: Callable[[str], None], about: dict[str, Any]) -> None:
        """*about* has what the preview is about."""
        self._write = write
        self._has_objects = False
        self._unreadable: list[dict[str, Any]] = []
        head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "PreviewReport", **about}
        self._write(f'{_json(head).removesuffix("}").rstrip()},\n  "objects": [')

    def add(self, found: Previewed, listed: list[Listed]) -> None:
        """Write an object of the input, and those that controllers create from it."""
        place = _placed(found.manifest.place())
        for reviewed in found.objects:
            own = [_finding_document(one) for one in listed if one.about is reviewed]
            self._object(
                {**place, **_object_document(reviewed), "findings": own, "changes": reviewed.changes}
            )

    def add_unreadable(self, found: Unreadable) -> None:
        """Take what is no object."""
        if len(self._unreadable) < MAX_UNREADABLE:
            self._unreadable.append({**_placed(found.place), "message": found.message})

    def end(self, totals: Totals) -> None:
        """Write the rest."""
        rest = {
            "unreadable": self._unreadable,
            "stopped": totals.stopped,
            "summary": {
                "objects": totals.objects,
                "created": totals.created,
                "files": totals.files,
                **{one: totals.results[one] for one in ("allowed", "denied", "undecided")},
                "changed": totals.changed,
                "notStable": totals.not_stable,
                **{f"{one}s": totals.findings[one] for one in ("error", "warning", "note")},
                "unreadable": totals.unreadable,
            },
        }
        self._write("\n  ],\n" if self._has_objects else "],\n")
        self._write(f"{_json(rest).removeprefix('{').lstrip(chr(10))}\n")

    def _object(self, document: dict[str, Any]) -> None:
        text = "\n".join(f"    {line}" for line in _json(document).split("\n"))
        self._write(f",\n{text}" if self._has_objects else f"\n{text}")
        self._has_objects = True


def _json(document: object) -> str:
    return printable_json(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


def _placed(place: Place) -> dict[str, Any]:
    return {"file": place.file, "line": place.line, "column": place.column}


def _object_document(reviewed: Reviewed) -> dict[str, Any]:
    name, owner = reviewed.name, reviewed.created_from
    found: dict[str, Any] = {
        "apiVersion": name.api_version,
        "kind": name.kind,
        "namespace": name.namespace,
        "name": name.name,
        "user": reviewed.user,
        "result": reviewed.result,
        "stoppedInMutatingPhase": reviewed.stopped,
        "changedBy": reviewed.changed_by,
    }
    if owner is not None:
        found["createdFrom"] = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name}
        found["isGuess"] = reviewed.is_guess
    return found


def _finding_document(listed: Listed) -> dict[str, Any]:
    one = listed.finding
    return {
        "rule": one.rule,
        "finding": one.kind,
        "level": one.level,
        "webhook": one.webhook,
        "phase": one.phase,
        "mode": one.mode,
        "code": one.code,
        "reason": one.reason,
        "message": one.message,
        "field": one.path,
        **_placed(one.place),
        "endColumn": one.place.end_column,
        "fingerprint": listed.fingerprint,
        "also": list(listed.also),
    }
