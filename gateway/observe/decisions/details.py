"""The details of a decision beside its record: the object and its changes, without secrets, and why other
webhooks were not called.

They are made after the answer, in steps of some milliseconds (``gateway.base.work_queue``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import orjson

from admission_gateway_worker.json_patch.diff import diff
from admission_gateway_worker.json_patch.patch import apply_patch
from gateway.observe.decisions.record import is_secret
from gateway.pure.core.explain import mismatch
from gateway.pure.core.large import LARGE_BYTES
from gateway.pure.core.stages import changed_payloads

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from gateway.observe.decisions.redaction import Redactor
    from gateway.observe.decisions.secret_values import Known
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.review import Json

MAX_UNMATCHED: Final = 200
"""Webhooks that were not called and are named with the reason; more are counted."""
_UNMATCHED_STEP: Final = 50
MAX_TEXTS: Final = 50
"""The most groups, warnings and audit annotations, each."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change of the object by one webhook."""

    index: int
    """The webhook, in ``DecisionRecord.webhooks``."""
    patch: bytes
    """JSON Patch from the object without secrets before to that after it."""


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A webhook of the path that was not called, and that the record does not have."""

    configuration: str
    webhook: str
    reason: str


@dataclass(frozen=True, slots=True)
class RecordDetails:
    """Everything about a decision that its record does not have."""

    groups: tuple[str, ...]
    """The groups of the user."""
    object: bytes
    """JSON of the object before all changes, without secrets: on DELETE the stored one. Empty for none."""
    object_note: str
    """Why ``object`` is empty though the request has one; empty if it is not."""
    changes: tuple[Change, ...]
    """In the order in which they were made."""
    unmatched: tuple[Unmatched, ...]
    """In configured order."""
    unmatched_left_out: int
    """Further webhooks that were not called."""
    warnings: tuple[str, ...]
    audit_annotations: tuple[tuple[str, str], ...]
    kept_ahead: int
    """Calls ahead of their turn whose verdict counted."""
    discarded_ahead: int

    @property
    def size_bytes(self) -> int:
        """About the memory that it takes."""
        texts = [*self.groups, *self.warnings, *(text for pair in self.audit_annotations for text in pair)]
        return (
            len(self.object)
            + sum(len(change.patch) + 100 for change in self.changes)
            + sum(len(one.reason) + 200 for one in self.unmatched)
            + sum(map(len, texts))
        )

    def stages(self) -> list[Json]:
        """Return the object before all changes, and after each of ``changes``; empty without an object."""
        if not self.object:
            return []
        stages = [orjson.loads(self.object)]
        for change in self.changes:
            stages.append(cast("Json", apply_patch(stages[-1], orjson.loads(change.patch or b"[]"))))
        return stages

    def overwritten(self) -> dict[str, tuple[int, ...]]:
        """Return the paths that several changes wrote, each with the ``index`` of these changes.

        A change that adds or replaces a value writes all paths in it. One that inserts an element into an
        array writes none that an earlier change wrote: that element has moved.
        """
        writers: dict[str, dict[int, None]] = {}
        for change, before in zip(self.changes, self.stages(), strict=False):
            for operation in orjson.loads(change.patch or b"[]"):
                path, is_insertion = operation["path"], _is_insertion(operation, before)
                for written in dict.fromkeys([path, *_leaves(path, operation.get("value"))]):
                    if is_insertion:
                        writers.pop(written, None)
                    writers.setdefault(written, {})[change.index] = None
        return {path: tuple(indices) for path, indices in writers.items() if len(indices) > 1}


def _leaves(path: str, value: object) -> Iterator[str]:
    """Yield the JSON Pointers of the values in *value* other than filled containers; *path* is its own."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(f"{path}/{name.replace('~', '~0').replace('/', '~1')}", item)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(f"{path}/{index}", item)
    else:
        yield path


def _is_insertion(operation: Json, before: object) -> bool:
    """Whether *operation* inserts into an array of the document *before* its patch, or of a part of that."""
    if operation["op"] != "add":
        return False
    found = before
    for token in str(operation["path"]).split("/")[1:-1]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return False
    return isinstance(found, list)


def details_of(answer: Answer, redactor: Redactor) -> Generator[None, None, RecordDetails]:
    """Return the details of *answer*, redacted by *redactor*; yields between steps."""
    evaluation = answer.evaluation
    request = evaluation.request
    groups: list[str] = []
    object_, note = b"", ""
    changes: tuple[Change, ...] = ()
    sizes = [len(request.json), *(payload.size_bytes for _, payload in changed_payloads(evaluation))]
    if max(sizes) > LARGE_BYTES:
        note = f"too large to be kept: {max(sizes)} bytes"
    else:
        try:
            groups = request.groups
            object_, changes = yield from _objects(evaluation, redactor)
        except (RecursionError, TypeError):
            note = "nests too deeply to be kept"
    yield
    unmatched, left_out = yield from _unmatched(answer, redactor)
    decision = answer.decision
    annotations = list(decision.audit_annotations.items())[:MAX_TEXTS]
    return RecordDetails(
        groups=tuple(redactor.message(group) for group in groups[:MAX_TEXTS]),
        object=object_,
        object_note=note,
        changes=changes,
        unmatched=unmatched,
        unmatched_left_out=left_out,
        warnings=tuple(map(redactor.message, decision.warnings[:MAX_TEXTS])),
        audit_annotations=tuple((redactor.text(key), redactor.message(value)) for key, value in annotations),
        kept_ahead=evaluation.kept_ahead,
        discarded_ahead=evaluation.discarded_ahead,
    )


def _objects(
    evaluation: Evaluation, redactor: Redactor
) -> Generator[None, None, tuple[bytes, tuple[Change, ...]]]:
    """Return the first object as JSON, and its changes."""
    request = evaluation.request
    before: object = request.object if request.has_object else request.old_object
    if before is None:
        return b"", ()
    after = list(changed_payloads(evaluation))
    documents = [before, *(payload.object for _, payload in after)]
    if is_secret(request.kind):
        documents = [{**cast("Json", document), "kind": "Secret"} for document in documents]
    known: Known = {}
    for document in documents:
        redactor.learn(document, known)
        yield
    stages = redactor.redacted_stages(documents)
    first = current = next(stages)
    changes = []
    for (index, _), following in zip(after, stages, strict=True):
        yield
        changes.append(Change(index, orjson.dumps(diff(current, following))))
        current = following
    return orjson.dumps(first), tuple(changes)


def _unmatched(
    answer: Answer, redactor: Redactor
) -> Generator[None, None, tuple[tuple[Unmatched, ...], int]]:
    evaluation = answer.evaluation
    recorded = {outcome.invocation.position for outcome in evaluation.outcomes}
    recorded.update(invocation.position for invocation, _ in evaluation.exclusions)
    recorded.update(exemption.invocation.position for exemption in evaluation.exemptions)
    others = [one for position, one in enumerate(answer.selection.webhooks) if position not in recorded]
    found = []
    for number, webhook in enumerate(others[:MAX_UNMATCHED]):
        if number and not number % _UNMATCHED_STEP:
            yield
        found.append(
            Unmatched(webhook.configuration, webhook.name, redactor.message(mismatch(webhook, evaluation)))
        )
    return tuple(found), max(0, len(others) - MAX_UNMATCHED)
