"""One decision as its page shows it: a timeline, and the change of each webhook as a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from admission_gateway_worker.json_patch.patch import apply_patch
from gateway.server.pages.yaml_text import DiffLine, difference, lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.observe.decisions.document import DetailedDocument, WebhookDocument


class Bar(NamedTuple):
    """A call in the timeline, in thousandths of its length."""

    begin: int
    length: int
    kind: str
    """``called``, ``ahead``, ``failed`` (closed) or ``open``."""


class Change(NamedTuple):
    """What one webhook changed."""

    webhook: WebhookDocument
    lines: list[DiffLine]
    overwritten: list[str]
    """Paths that another webhook wrote as well."""


class View(NamedTuple):
    """The values of one decision that are derived from its JSON."""

    decision: DetailedDocument
    bars: list[Bar | None]
    """The call of each webhook, None for one that was not called."""
    length_ms: float
    """The length of the timeline."""
    changes: list[Change]
    final: list[DiffLine]
    """The difference that all changes make; empty for fewer than two changes."""
    object_lines: list[str]
    """The object as it was sent."""
    overwritten: dict[str, list[WebhookDocument]]
    """The webhooks that wrote the same path, by path."""


def view(decision: DetailedDocument) -> View:
    """Return the view of *decision*, see ``gateway.observe.decisions.recent.detailed_page_json``."""
    webhooks = decision["webhooks"]
    ends = [one["startedMilliseconds"] + one["milliseconds"] for one in webhooks]
    length_ms = max([decision["milliseconds"], *ends, 0.001])
    stages = _stages(decision)
    overwritten = {
        path: writers for path, writers in decision["overwritten"].items() if _are_several(webhooks, writers)
    }
    changes = [
        Change(
            webhooks[change["webhook"]],
            difference(stages[number], stages[number + 1]),
            [path for path, writers in overwritten.items() if change["webhook"] in writers],
        )
        for number, change in enumerate(decision["changes"])
    ]
    return View(
        decision,
        [_bar(one, length_ms) for one in webhooks],
        length_ms,
        changes,
        difference(stages[0], stages[-1]) if len(changes) > 1 else [],
        stages[0] if stages else [],
        {path: [webhooks[index] for index in writers] for path, writers in overwritten.items()},
    )


def _are_several(webhooks: Sequence[WebhookDocument], writers: Sequence[int]) -> bool:
    """Whether *writers* are not one webhook that was called again."""
    return len({(webhooks[index]["configuration"], webhooks[index]["webhook"]) for index in writers}) > 1


def _stages(decision: DetailedDocument) -> list[list[str]]:
    """Return the object before all changes and after each, as lines of YAML; empty without an object."""
    if decision["object"] is None:
        return []
    current: object = decision["object"]
    found = [lines_of(current)]
    for change in decision["changes"]:
        current = apply_patch(current, change["patch"])
        found.append(lines_of(current))
    return found


def _bar(webhook: WebhookDocument, length_ms: float) -> Bar | None:
    if not webhook["endpoint"]:
        return None
    begin = round(webhook["startedMilliseconds"] / length_ms * 1000)
    length = max(round(webhook["milliseconds"] / length_ms * 1000), 4)
    usual = "ahead" if webhook["ahead"] else "called"
    kind = {"FailedClosed": "failed", "FailedOpen": "open"}.get(webhook["outcome"], usual)
    return Bar(min(max(begin, 0), 996), length, kind)
