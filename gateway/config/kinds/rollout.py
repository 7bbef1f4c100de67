"""``rollout`` of a webhook: its mode, where it is enforced already, and its candidate.

Source: docs/rollout.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from gateway.config.kinds.client_config import ClientConfig
from gateway.config.kinds.declare import Group
from gateway.config.kinds.metadata import read_selector
from gateway.pure.core.webhook import Candidate, Enforcement, Mode, Rollout

if TYPE_CHECKING:
    from gateway.config.yaml.fields import Fields
    from gateway.pure.core.webhook import SideEffects

MODES: tuple[Mode, ...] = get_args(Mode)
_CONDITIONS = ("namespaceSelector", "percentOfNamespaces", "after")


def read_rollout(webhook: Fields, side_effects: SideEffects) -> Rollout | None:
    """Return the rollout of *webhook*, which has these *side_effects*; None if there is none."""
    fields = webhook.mapping("rollout")
    if fields is None:
        return None
    mode = fields.choice("mode", MODES, "Enforce")
    enforce = _read_enforcement(fields.mapping("enforce"), mode)
    if enforce is not None and not fields.has("mode"):
        fields.problem("mode", "is required with enforce: the mode where enforce does not match")
    elif enforce is not None and mode == "Enforce":
        fields.problems.warn(fields.at("enforce"), "has no effect: the mode Enforce holds for every request")
    candidate = _read_candidate(fields.mapping("candidate"))
    if side_effects != "None":
        reason = f"requires sideEffects None, found {side_effects}: its calls are additional ones"
        if mode == "Shadow":
            fields.problem("mode", f"Shadow {reason}")
        if candidate is not None:
            fields.problem("candidate", reason)
    fields.finish()
    return Rollout(mode, enforce, candidate)


def _read_enforcement(fields: Fields | None, mode: Mode) -> Enforcement | None:
    if fields is None:
        return None
    given = [name for name in _CONDITIONS if fields.has(name)]
    selector = read_selector(fields.mapping("namespaceSelector"))
    percent = fields.integer("percentOfNamespaces", 100, 0, 100)
    after_s = fields.time("after", 0.0)
    fields.finish()
    if not given:
        fields.problems.add(fields.path, f"found nothing, expected at least one of {', '.join(_CONDITIONS)}")
    elif percent == 0:
        fields.problems.warn(
            fields.at("percentOfNamespaces"), "0 matches no request: the webhook is not enforced"
        )
    elif selector.is_empty and percent == 100 and not after_s:
        fields.problems.warn(fields.path, f"matches every request: the mode {mode} never holds")
    return Enforcement(selector, percent, after_s)


def _read_candidate(fields: Fields | None) -> Candidate | None:
    if fields is None:
        return None
    client = Group(ClientConfig).read_required(fields, "clientConfig").client
    percent = fields.number("percentOfReviews", 100.0, 0.0, 100.0)
    fields.finish()
    return Candidate(client, percent)
