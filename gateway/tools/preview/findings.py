"""The outcomes of a review as findings, each with the place of the field that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.config.yaml.field_paths import parse_field
from gateway.engine.second_pass import conflicts
from gateway.pure.core.field_changes import path_text
from gateway.pure.core.verdict import Denied, DryRunRefused, Failed, FailureReason
from gateway.tools.preview.fields import field_in
from gateway.tools.preview.model import CONFLICT, NOT_STABLE, WEBHOOK_FAILURE, Finding
from gateway.tools.preview.positions import common_path, value_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gateway.config.yaml.field_paths import FieldPath
    from gateway.engine.dry_run import DryRun
    from gateway.engine.object_review import Json
    from gateway.engine.second_pass import ChangedAgain
    from gateway.pure.core.outcome import Outcome
    from gateway.pure.core.webhook import Phase, Webhook
    from gateway.pure.workloads.known import Refusal
    from gateway.tools.preview.manifests import Manifest, Place
    from gateway.tools.preview.model import Kind, Level

MAX_CAUSES: Final = 100
"""Causes of one denial that are findings of their own."""
_OF_MUTATORS: Final[dict[Kind, tuple[str, Level]]] = {
    "notStable": (NOT_STABLE, "error"),
    "conflict": (CONFLICT, "warning"),
}
_FORBIDDEN: Final = 403
_POD_TEMPLATE: Final = ("spec", "template")


class Origin(NamedTuple):
    """Where an object comes from, for the places of its fields."""

    manifest: Manifest
    chain: tuple[tuple[Json, FieldPath], ...] = ()
    """From the object of the input on: each object that led to this one, and the path in it of what became
    this one."""

    def created(self, owner: Json, kind: str, template: FieldPath) -> Origin:
        """Return the origin of an object of *kind* that is created from *owner*.

        *template* is the path in *owner* of the template of Pods.
        """
        if kind != "Pod" and template[-2:] == _POD_TEMPLATE:
            # A ReplicaSet has it where its Deployment has it, a Job where the CronJob's jobTemplate has it.
            template = template[:-2]
        return self._replace(chain=(*self.chain, (owner, template)))

    def place(self, found: object, path: FieldPath) -> Place:
        """Return the place of the field at *path* of the object *found*."""
        for owner, base in reversed(self.chain):
            path = (*base, *common_path(path, found, value_at(owner, base)))
            found = owner
        return self.manifest.place(common_path(path, found, self.manifest.object))


def findings_of(run: DryRun, origin: Origin, text: Callable[[str], str]) -> Iterator[Finding]:
    """Yield the findings of *run*, each once; *text* makes a text fit to be shown."""
    seen: set[tuple[str, ...]] = set()
    for answer in run.answers:
        for outcome in answer.evaluation.outcomes:
            for one in _of_outcome(outcome, answer.selection.phase, run, origin, text):
                key = one.rule, one.kind, one.message, one.path
                if key not in seen:
                    seen.add(key)
                    yield one


def refusal(found: Refusal, phase: Phase, about: Json, origin: Origin) -> Finding:
    """Return the refusal of the object *about* by a plug-in of the API server."""
    place = origin.place(about, parse_field(found.field))
    return Finding(
        *(found.plug_in, "denied", "error", "", phase, "Enforce", found.message, place),
        *(_FORBIDDEN, "Forbidden", found.field),
    )


def findings_of_mutators(
    run: DryRun, again: Iterable[ChangedAgain], origin: Origin, text: Callable[[str], str]
) -> Iterator[Finding]:
    """Yield the mutators in *again*, and the conflicts of those of *run*; as :func:`findings_of`."""
    for one in again:
        path = path_text(one.changes[0].path) if one.changes else ""
        yield _of_mutator(one.webhook, "notStable", one.line(), path, run, origin, text)
    for conflict in conflicts(run)[:MAX_CAUSES]:
        path = path_text(conflict.path)
        yield _of_mutator(conflict.second, "conflict", conflict.line(), path, run, origin, text)


def _of_mutator(
    webhook: Webhook,
    kind: Kind,
    line: str,
    path: str,
    run: DryRun,
    origin: Origin,
    text: Callable[[str], str],
) -> Finding:
    name = f"{webhook.configuration}/{webhook.name}"
    place = origin.place(run.final_object, parse_field(path))
    rule, level = _OF_MUTATORS[kind]
    return Finding(rule, kind, level, name, "mutate", "Enforce", text(line), place, path=text(path))


def _of_outcome(
    outcome: Outcome, phase: Phase, run: DryRun, origin: Origin, text: Callable[[str], str]
) -> Iterator[Finding]:
    webhook, verdict = outcome.invocation.webhook, outcome.verdict
    name = f"{webhook.configuration}/{webhook.name}"
    found = run.final_object if outcome.payload is None else outcome.payload.object

    def finding(
        kind: Kind,
        level: Level,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        field: str = "",
        rule: str = "",
    ) -> Finding:
        field = field or field_in(message)
        place = origin.place(found, parse_field(field))
        shown = text(message) or "denied without explanation"
        return Finding(
            rule or name,
            kind,
            level,
            name,
            phase,
            outcome.mode,
            shown,
            place,
            code,
            text(reason),
            text(field),
        )

    if isinstance(verdict, Denied):
        kind: Kind = "denied" if outcome.rejects else "wouldBeDenied"
        level = _level(outcome)
        causes = [one for one in verdict.causes[:MAX_CAUSES] if one.field]
        for cause in causes:
            message = cause.message or verdict.message
            yield finding(kind, level, message, code=verdict.code, reason=cause.reason, field=cause.field)
        if not causes:
            yield finding(kind, level, verdict.message, code=verdict.code, reason=verdict.reason)
    elif isinstance(verdict, DryRunRefused):
        message = "it does not support dry runs (sideEffects)"
        yield finding("undecided", _level(outcome), message, code=400, rule=WEBHOOK_FAILURE)
    elif isinstance(verdict, Failed):
        kind = "undecided" if outcome.rejects else "failed"
        message = f"{webhook.name}: {verdict.cause}"
        if verdict.reason is FailureReason.NAMESPACE:
            message = f"{webhook.name}: the labels of the namespace are not known (see --namespaces)"
        elif not outcome.would_reject:
            message += "; failurePolicy Ignore lets the request pass"
        yield finding(kind, _level(outcome), message, code=verdict.code, rule=WEBHOOK_FAILURE)
    for warning in outcome.worker_verdict.warnings if outcome.worker_verdict is not None else ():
        yield finding("warned", "warning" if outcome.mode in ("Enforce", "Warn") else "note", warning)
    if outcome.would_change:
        message = f"in the mode {outcome.mode}: it would change this object"
        yield finding("changed", "note", message)


def _level(outcome: Outcome) -> Level:
    """Return the level of a denial or failure."""
    if outcome.rejects:
        return "error"
    return "warning" if outcome.mode in ("Enforce", "Warn") else "note"
