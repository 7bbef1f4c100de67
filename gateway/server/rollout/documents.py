"""The documents of a store: the state of a plan, and the evidence of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission_gateway_worker.text import printable
from gateway.pure.rollout_plan.reading import InvalidState
from gateway.pure.rollout_plan.state import PlanState
from gateway.pure.rollout_plan.waiting import held as held_by
from gateway.server.rollout.store import MAX_TEXT, Json, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.pure.core.webhook import WebhookId
    from gateway.pure.rollout_plan.evidence import Part
    from gateway.server.rollout.store import Stored

_MAX_STAGES = 20
_MAX_GATES = 20


def state_document(
    webhook: WebhookId,
    stages: Sequence[str],
    state: PlanState,
    gates: Iterable[str] = (),
    waits_for: Iterable[str] = (),
) -> Json:
    """Return the document of *state*.

    *stages*, *gates*, with what they say, and *waits_for* are in words, for people.
    """
    last = state.decisions[-1]
    what_for = "; ".join(held.texts if (held := held_by(state)) is not None else waits_for)
    return {
        "webhook": webhook.name,
        "type": webhook.phase,
        "configuration": webhook.configuration,
        "stage": f"{state.step + 1}/{len(state.stage_digests)} {stages[state.step]}"[:MAX_TEXT],
        "phase": state.phase,
        "reason": last.why,
        # Names of owners, which have any characters, for a terminal.
        "next": printable(what_for, MAX_TEXT),
        "stages": [one[:MAX_TEXT] for one in stages],
        "gates": [printable(one, MAX_TEXT) for one in gates],
        "state": state.as_json(),
    }


def read_state(stored: Stored) -> PlanState:
    """Return the state in *stored*.

    Raises:
        StoreError: it has none.
    """
    try:
        return PlanState.from_json(stored.document.get("state"))
    except InvalidState as error:
        raise StoreError(f"the state {stored.name} is not one of a plan: {error}") from None


def webhook_of(stored: Stored) -> str:
    """Return the name of the webhook of the state *stored*, for people and commands."""
    name = stored.document.get("webhook")
    return printable(name, 253) if isinstance(name, str) else stored.name


def document_of(stored: Stored) -> str:
    """Return ``KIND/NAME`` of the policy document that has the plan of *stored*. Empty: a webhook has it."""
    found = stored.document.get("configuration")
    # Names of webhook configurations have no slash.
    return printable(found, MAX_TEXT) if isinstance(found, str) and "/" in found else ""


def gates_of(stored: Stored) -> list[str]:
    """Return what the gates of the stage said last, in words."""
    found = stored.document.get("gates")
    return [printable(str(one), MAX_TEXT) for one in found[:_MAX_GATES]] if isinstance(found, list) else []


def next_of(stored: Stored, state: PlanState) -> str:
    """Return what the plan of *state* waited for when its state was written. Empty if that is not known."""
    found = stored.document.get("next")
    if (held := held_by(state)) is not None:
        return printable("; ".join(held.texts), MAX_TEXT)
    return printable(found, MAX_TEXT) if isinstance(found, str) else ""


def stages_of(stored: Stored, state: PlanState) -> list[str]:
    """Return the stages of the plan of *state* in words."""
    found = stored.document.get("stages")
    texts = found if isinstance(found, list) and len(found) == len(state.stage_digests) else []
    if not texts:
        return [f"stage {number + 1}" for number in range(len(state.stage_digests))]
    return [printable(str(one), MAX_TEXT) for one in texts[:_MAX_STAGES]]


def evidence_document(
    process: str, beat: int, plans: Mapping[str, tuple[str, str, Part]], *, is_ended: bool
) -> Json:
    """Return the evidence of *process*: by the name of a plan its generation, window and what was seen."""
    return {
        "process": process,
        "beat": beat,
        "ended": is_ended,
        "plans": {
            name: {"generation": generation, "window": window, "part": part.as_json()}
            for name, (generation, window, part) in plans.items()
        },
    }
