"""How far a policy document is in force: its annotations ``admission-gateway.io/mode`` and ``…/rollout``.

The value of the second one is YAML, or JSON, of what ``rollout`` of a webhook is. It says how far denials and
changes are in force, so the document's own action has to be the last one, to deny.

Source: docs/rollout.md, docs/rollout-plans.md.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from gateway.base.text import described, one_of
from gateway.config.kinds.metadata import annotated
from gateway.config.kinds.rollout import RolloutEntry
from gateway.config.kinds.rollout_plan import MODES
from gateway.config.yaml.fields import Fields, child
from gateway.config.yaml.parsing import parse_yaml, problems_in
from gateway.pure.core.webhook import PolicyRollout, Rollout
from gateway.pure.rollout_plan.model import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.config.kinds.metadata import Metadata

MODE: Final = "admission-gateway.io/mode"
"""The annotation with a mode."""
ROLLOUT: Final = "admission-gateway.io/rollout"
"""The annotation with a whole ``rollout``."""
MAX_CHARS: Final = 64 * 1024
"""Of its value: plans of twenty stages and sixteen groups have a tenth."""
_NO_CANDIDATE: Final = (
    "is not allowed in an annotation: a policy has no backend that another one could take the place of; give "
    "a changed policy another name, and the mode Audit"
)


def read_policy_rollout(fields: Fields, metadata: Metadata) -> PolicyRollout | None:
    """Return what the annotations of the document behind *fields* say, after reporting their problems.

    None without one of them, or after a problem.
    """
    place = "/".join(filter(None, (str(fields.content.get("kind")), metadata.namespace, metadata.name)))
    text = metadata.annotations.get(ROLLOUT)
    mode = annotated(fields, metadata, MODE, MODES)
    if text is None:
        return None if mode is None else PolicyRollout(Rollout(mode), document=place)
    if MODE in metadata.annotations:
        message = f"is not allowed with the annotation {ROLLOUT}, which has a mode, or a plan with modes"
        fields.problems.add(path_of(fields, MODE), message)
    source = _source(text, fields)
    if source is None:
        return None
    before = len(fields.problems.found)
    if source.content.get("candidate") is not None:
        source.problem("candidate", _NO_CANDIDATE)
    own = {name: one for name, one in source.content.items() if name != "candidate"}
    entry = RolloutEntry.read(Fields(own, source.path, source.problems))
    if len(fields.problems.found) > before:
        return None
    plan = None if entry.plan is None else entry.plan.plan
    return PolicyRollout(entry.rollout, plan, place, needs_denial=True)


def read_rollout_beside_actions(fields: Fields, metadata: Metadata) -> PolicyRollout | None:
    """Return as :func:`read_policy_rollout` for a binding that has actions instead of a mode."""
    if ROLLOUT in metadata.annotations:
        return read_policy_rollout(fields, metadata)
    if MODE in metadata.annotations:
        message = "has no effect: this binding has validationActions instead of a mode"
        fields.problems.warn(path_of(fields, MODE), message)
    return None


def require_deny(rollout: PolicyRollout | None, source: Fields, actions: Sequence[str]) -> None:
    """Report ``validationActions`` of *source* that are *actions* without Deny, if *rollout* needs it."""
    if actions and "Deny" not in actions:
        require_denial(rollout, source, "validationActions", f"found {one_of(actions)}, expected Deny")


def require_denial(rollout: PolicyRollout | None, source: Fields, name: str, found: str) -> None:
    """Report the field *name* of *source*, an action that does not deny, if *rollout* needs one that does.

    *found* says what the field has, and what was expected.
    """
    if rollout is not None and rollout.needs_denial:
        why = f"the annotation {ROLLOUT} says how far denials are in force"
        source.problem(name, f"{found}: {why}")


def uses_shadow(rollout: PolicyRollout) -> bool:
    """Whether *rollout* makes calls that have no effect on the answer, now or in a later stage."""
    plan = rollout.plan
    modes = [one.mode for one in plan.stages] if isinstance(plan, Plan) else []
    return "Shadow" in (rollout.rollout.mode, *modes)


def path_of(fields: Fields, key: str) -> str:
    """Return the path of the annotation *key* of the document behind *fields*."""
    return child(child(fields.at("metadata"), "annotations"), key)


def _source(text: str, fields: Fields) -> Fields | None:
    """Return the mapping in *text*, the value of the annotation; None after reporting that it is none."""
    path, problems = path_of(fields, ROLLOUT), fields.problems
    if len(text) > MAX_CHARS:
        problems.add(path, f"found {len(text)} characters, expected at most {MAX_CHARS}")
        return None
    # Two tell that there are several: the rest is not read.
    documents = [*islice(parse_yaml(text), 2)]
    if documents and documents[0].found:
        for line, column, message in problems_in(documents[:1]):
            problems.add(path, f"{line}:{column}: {message}")
        return None
    root = documents[0].root if documents else None
    if len(documents) > 1 or not isinstance(root, dict):
        shown = f"{len(documents)} documents" if len(documents) > 1 else described(root)
        problems.add(path, f"found {shown}, expected a mapping with mode, enforce or plan, as YAML or JSON")
        return None
    return Fields(root, path, problems)
