"""A second pass: whether mutating webhooks change their own results, and overwrite each other's.

The API server may call a webhook again on an object that it has already changed: in a reinvocation, in the
retry of a write, and at each UPDATE. So a webhook should change nothing on its own result, and the webhooks
together nothing on theirs. Results are compared field by field (``gateway.pure.core.field_changes``): another
patch that leads to the same object is no change.

Source: kubernetes.io, Admission Webhook Good Practices (idempotence).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from admission_gateway_worker.text import printable
from gateway.base.errors import MalformedReview
from gateway.pure.core.conflicts import is_secret
from gateway.pure.core.field_changes import field_changes
from gateway.pure.core.matching import Selection
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.stages import changed_payloads, conflicts_of
from gateway.pure.core.verdict import Allowed, Denied, Failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.engine.dry_run import DryRun, DryRuns, SideEffects
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.conflicts import Conflict
    from gateway.pure.core.field_changes import FieldChange
    from gateway.pure.core.policy import Params
    from gateway.pure.core.review import Json
    from gateway.pure.core.webhook import Webhook

    Pass = Literal["alone", "together", "update"]
    """On what webhooks are called again: each on its own result, all on the final object, or all at an UPDATE
    of the final object to itself."""

MAX_NAMED: Final = 3
"""Fields that a line names; more are counted."""
MAX_AGAIN: Final = 100
"""Webhooks of a review that are called again, each on its own result: the first that changed the object."""
_UID_NAMESPACE: Final = uuid.UUID("9a0dbd2c-7c0c-4d55-a0b5-6d9a0ac0d8a5")
_WHERE: Final[dict[Pass, str]] = {
    "alone": "its own result",
    "together": "the result of all webhooks",
    "update": "the result of all webhooks, sent as an UPDATE",
}


@dataclass(frozen=True, slots=True)
class ChangedAgain:
    """A mutating webhook or policy that changed an object again, or that refused it or failed then."""

    webhook: Webhook
    on: Pass
    changes: tuple[FieldChange, ...]
    """What it changed again. Empty if it refused or failed."""
    refused: str
    """Why it gave no object. Empty if it did."""
    is_secret: bool
    """Whether the object is a Secret, so that no value may be shown."""

    def line(self, *, with_values: bool = True) -> str:
        """Return one line for people."""
        name, where = self.webhook.name, _WHERE[self.on]
        if self.refused:
            return f"{name} does not accept {where}: {printable(self.refused)}"
        shown = [one.line(with_values=with_values and not self.is_secret) for one in self.changes[:MAX_NAMED]]
        more = len(self.changes) - len(shown)
        return f"{name} changes again on {where}: {'; '.join(shown)}{f'; and {more} more' if more else ''}"


async def changed_again(
    dry_runs: DryRuns,
    run: DryRun,
    *,
    side_effects: SideEffects = "refused",
    at: float | None = None,
    namespaces: Mapping[str, Namespace] | None = None,
    objects: Params | None = None,
    as_update: bool = False,
) -> tuple[ChangedAgain, ...]:
    """Call the mutating webhooks and policies of *run* a second time, and return those that change again.

    Each that changed the object is called on its own result, and then all on the final object. With
    *as_update*, all are also called at an UPDATE of the final object to itself, if *run* was a CREATE. The
    other arguments are those of *run*, by default with its namespace. A webhook is named once. One with side
    effects is called again in dry runs only.

    Raises:
        ReviewError: a result nests too deeply to be sent again.
    """
    first = run.answers[0]
    evaluation = first.evaluation
    if first.selection.phase != "mutate" or not evaluation.has_changed:
        return ()
    if namespaces is None:
        known = evaluation.namespace
        namespaces = {known.name: known} if isinstance(known, Namespace) else {}

    async def answer_to(selection: Selection, on: Pass, changed: Json | None) -> Answer:
        again = await dry_runs(
            _review(first, on, changed, selection),
            [selection],
            side_effects=side_effects,
            at=at,
            namespaces=namespaces,
            objects=objects,
        )
        return again.answers[0]

    results: dict[Webhook, Json | None] = {}
    for index, payload in changed_payloads(evaluation):
        results[evaluation.outcomes[index].invocation.webhook] = payload.object
    found = _Found(
        {one.invocation.webhook for one in evaluation.outcomes if isinstance(one.verdict, Allowed)}
    )
    selection = first.selection
    if not evaluation.request.dry_run and any(one.side_effects != "None" for one in selection.webhooks):
        kept = [one for one in selection.webhooks if one.side_effects == "None"]
        selection = Selection("mutate", kept, selection.exceptions)
    for webhook, result in list(results.items())[:MAX_AGAIN]:
        if webhook not in selection.webhooks:
            continue
        answer = await answer_to(dry_runs.only(webhook, selection), "alone", result)
        found.note(answer, "alone", result)
    passes: tuple[Pass, ...] = ("together", "update")
    for on in passes[: 2 if as_update and evaluation.request.operation == "CREATE" else 1]:
        if first.decision.allowed:
            result = evaluation.final_object
            found.note(await answer_to(selection, on, result), on, result)
    return tuple(found.by_webhook.values())


def conflicts(run: DryRun) -> tuple[Conflict, ...]:
    """Return the fields that several mutating webhooks or policies of *run* wrote to different values.

    What one overwrites that names the other in ``after`` is none: it is meant.
    """
    first = run.answers[0]
    if first.selection.phase != "mutate":
        return ()
    return tuple(one for one in conflicts_of(first.evaluation) if not one.is_meant)


class _Found:
    """The findings of one review."""

    def __init__(self, allowed: set[Webhook]) -> None:
        """*allowed* are the webhooks that allowed the request: others cannot refuse it anew."""
        self.by_webhook: dict[Webhook, ChangedAgain] = {}
        self._allowed = allowed

    def note(self, answer: Answer, on: Pass, before: Json | None) -> None:
        """Note who changed *before* in *answer*, or refused it, unless that webhook is named already."""
        evaluation = answer.evaluation
        is_hidden = is_secret(evaluation.request)
        for outcome in evaluation.outcomes:
            webhook, verdict = outcome.invocation.webhook, outcome.verdict
            is_new = webhook in self._allowed and outcome.mode == "Enforce"
            if is_new and isinstance(verdict, Denied | Failed):
                text = verdict.cause if isinstance(verdict, Failed) else verdict.message
                self._add(ChangedAgain(webhook, on, (), text or "denied", is_hidden))
        left = {change.path for change in field_changes(before, evaluation.final_object)}
        current: object = before
        for index, payload in changed_payloads(evaluation):
            # What another webhook brings back is a conflict, and not a change of the result.
            changes = tuple(one for one in field_changes(current, payload.object) if one.path in left)
            current = payload.object
            if changes:
                webhook = evaluation.outcomes[index].invocation.webhook
                self._add(ChangedAgain(webhook, on, changes, "", is_hidden))

    def _add(self, one: ChangedAgain) -> None:
        self.by_webhook.setdefault(one.webhook, one)


def _review(first: Answer, on: Pass, changed: Json | None, selection: Selection) -> bytes:
    """Return the review of *first* with the object *changed*. As in the API server, it has another uid."""
    request = first.evaluation.request
    names = "/".join(webhook.name for webhook in selection.webhooks)
    uid = str(uuid.uuid5(_UID_NAMESPACE, f"{request.uid}/{on}/{names}"))
    document: dict[str, Any] = {**request.document, "uid": uid, "object": changed}
    if on == "update":
        options = {**(document.get("options") or {}), "kind": "UpdateOptions"}
        document |= {"operation": "UPDATE", "oldObject": changed, "options": options}
    try:
        return orjson.dumps(
            {"kind": "AdmissionReview", "apiVersion": request.api_version, "request": document}
        )
    except TypeError:
        raise MalformedReview("a result of a webhook nests too deeply to be sent again") from None
