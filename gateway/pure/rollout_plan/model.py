"""A rollout plan: its stages, their gates, and what is in force in each stage.

1. A stage is never weaker than the one before it: in no namespace and for no request.
2. Groups of namespaces are not part of the percentage. A webhook is enforced in a group from the stage on
   that names it, and in every group in the mode Enforce. In a namespace of several groups all of them count.
3. What is in force in a stage depends on the plan alone: neither on a clock nor on what was in force before.

Source: docs/rollout-plans.md.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.modes import rank
from gateway.pure.core.webhook import Enforcement, Rollout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gateway.pure.core.labels import Selector
    from gateway.pure.core.webhook import Mode, Webhook

MAX_STAGES: Final = 20
MAX_GROUPS: Final = 16
MAX_CONDITIONS: Final = 5_000
"""Conditions of all groups, and values in them: the state of a plan has them, and a bound in bytes."""
MAX_SALT: Final = 253
STRENGTH: Final[tuple[Mode, ...]] = ("Shadow", "Audit", "Warn", "Enforce")
"""The modes, the weakest first."""


@dataclass(frozen=True, slots=True)
class Gates:
    """What has to hold before the next stage begins. None: no limit."""

    max_newly_denied: int | None = None
    """Requests that it would refuse where it is not enforced."""
    max_newly_denied_owners: int | None = None
    """Different owners of the objects of these requests, each with its namespace."""
    max_denied: int | None = None
    """Requests that it refused where it is enforced, by a denial or by a failure."""
    max_denied_owners: int | None = None
    max_differences: int | None = None
    """Reviews in which the candidate differs from the client in force."""
    max_failures: int | None = None
    """Reviews in which the webhook gave no usable answer."""
    max_p99_ms: int | None = None
    """The 99th percentile of the time of a call."""
    max_exception_uses: int | None = None
    """Requests for which a PolicyException left the webhook out."""
    max_newly_denied_percent: float | None = None
    """``max_newly_denied`` of 100 reviews where it is not enforced."""
    max_denied_percent: float | None = None
    """``max_denied`` of 100 reviews where it is enforced."""
    min_reviews: int = 1
    min_namespaces: int = 0
    """Different namespaces of these reviews."""
    min_users: int = 0


NO_GATES: Final = Gates()


@dataclass(frozen=True, slots=True)
class Group:
    """Namespaces that a stage names together."""

    name: str
    selector: Selector


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage. A plan fills in ``included``, ``excluded`` and ``salt``."""

    mode: Mode
    """Where it is not enforced."""
    percent_of_namespaces: int = 0
    """Where it is enforced already. 0 in the mode Enforce, which holds everywhere."""
    for_s: float = 0.0
    """How long it lasts at least, in seconds."""
    gates: Gates = NO_GATES
    groups: tuple[str, ...] = ()
    """Names of the groups in which it is enforced from this stage on."""
    needs_approval: bool = False
    """Whether a person has to approve of what comes after it."""
    included: tuple[Selector, ...] = ()
    """The groups of this stage and of those before it."""
    excluded: tuple[Selector, ...] = ()
    """All other groups."""
    salt: str = ""

    @property
    def rollout(self) -> Rollout:
        """What is in force in this stage, without a candidate."""
        if self.mode == "Enforce" or not self.is_enforced_somewhere:
            return Rollout(self.mode)
        percent = self.percent_of_namespaces
        return Rollout(
            self.mode,
            Enforcement(EVERYTHING, percent, included=self.included, excluded=self.excluded, salt=self.salt),
        )

    @property
    def is_enforced_somewhere(self) -> bool:
        """Whether it is enforced in any namespace."""
        return self.mode == "Enforce" or self.percent_of_namespaces > 0 or bool(self.included)

    @property
    def is_enforced_everywhere(self) -> bool:
        """Whether it is enforced for all requests."""
        return self.mode == "Enforce" or (self.percent_of_namespaces == 100 and not self.excluded)

    def __str__(self) -> str:
        """``Warn``, ``Warn, enforced in 5 % of the namespaces and in canary``."""
        places = [f"{self.percent_of_namespaces} % of the namespaces"] if self.percent_of_namespaces else []
        places += [f"groups {', '.join(self.groups)}"] if self.groups else []
        if self.mode == "Enforce" or not (places or self.included):
            return self.mode
        return f"{self.mode}, enforced in {' and '.join(places) or 'the groups of earlier stages'}"


@dataclass(frozen=True, slots=True)
class Rollback:
    """When a plan goes back by itself: what it refuses concerns so many owners in so many namespaces."""

    min_owners: int
    min_namespaces: int


@dataclass(frozen=True)
class Plan:
    """The stages of one webhook, made by :meth:`of`."""

    stages: tuple[Stage, ...]
    groups: tuple[Group, ...] = ()
    salt: str = ""
    """What ranks namespaces instead of the name of the webhook. Empty: the name."""
    rollback: Rollback | None = None
    """None: it pauses instead."""
    is_critical: bool = False
    """Whether it never goes back by itself."""
    max_wait_s: float = 7 * 86_400.0
    """How long a stage waits for data after its time, before the plan pauses."""

    @classmethod
    def of(
        cls,
        stages: Iterable[Stage],
        groups: Iterable[Group] = (),
        *,
        salt: str = "",
        rollback: Rollback | None = None,
        is_critical: bool = False,
        max_wait_s: float = 7 * 86_400.0,
    ) -> Plan:
        """Return the plan of *stages*, each of which gets what follows from the stages before it."""
        groups = tuple(groups)
        named: set[str] = set()
        made = []
        for stage in stages:
            named.update(stage.groups)
            included = tuple(one.selector for one in groups if one.name in named)
            excluded = tuple(one.selector for one in groups if one.name not in named)
            made.append(replace(stage, included=included, excluded=excluded, salt=salt))
        return cls(tuple(made), groups, salt, rollback, is_critical, max_wait_s)

    @cached_property
    def digest(self) -> str:
        """What replicas with the same plan share: 32 hexadecimal digits."""
        return _digest(self)

    @cached_property
    def stage_digests(self) -> tuple[str, ...]:
        """The digest of each stage, which does not depend on the stages after it, nor on its position."""
        return tuple(_digest(stage)[:16] for stage in self.stages)

    @cached_property
    def outline(self) -> Plan:
        """The plan without what the gateway decides by: enough to keep a stage in force, and for a person."""
        stages = (
            Stage(one.mode, one.percent_of_namespaces, groups=one.groups, needs_approval=one.needs_approval)
            for one in self.stages
        )
        return Plan.of(stages, self.groups, salt=self.salt)

    @property
    def last(self) -> int:
        """The last step."""
        return len(self.stages) - 1


def plan_of(webhook: Webhook) -> Plan | None:
    """Return the plan of *webhook*, if it has one."""
    return webhook.plan if isinstance(webhook.plan, Plan) else None


def at_step(webhook: Webhook, step: int) -> Webhook:
    """Return *webhook*, which has a plan, as it is in the stage *step*: with the candidate that it has."""
    plan = plan_of(webhook)
    assert plan is not None, webhook.name
    return replace(webhook, rollout=rollout_of(webhook, plan.stages[step]))


def rollout_of(webhook: Webhook, stage: Stage) -> Rollout:
    """Return what is in force of *webhook* in *stage*: with the candidate that it has.

    A webhook without the plan of the stage may have other ``sideEffects`` than Shadow requires: its mode is
    Audit then.
    """
    candidate = None if webhook.rollout is None else webhook.rollout.candidate
    rollout = replace(stage.rollout, candidate=candidate)
    is_shadow = rollout.mode == "Shadow" and webhook.side_effects != "None"
    return replace(rollout, mode="Audit") if is_shadow else rollout


def may_be_held(webhook: Webhook) -> bool:
    """Whether the stage of an earlier plan of *webhook* holds: it has none, and its mode is not written."""
    rollout = webhook.rollout
    return webhook.plan is None and (rollout is None or not rollout.is_mode_given)


def enforced_in(webhook: str, stage: Stage, namespaces: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return in which of *namespaces*, labels by name, *webhook*, a name, is enforced in *stage*."""
    key = stage.salt or webhook

    def is_enforced(name: str, labels: Mapping[str, str]) -> bool:
        if stage.mode == "Enforce":
            return True
        if any(one.matches(labels) for one in stage.excluded):
            return False
        is_chosen = rank(key, name) < stage.percent_of_namespaces
        return is_chosen or any(one.matches(labels) for one in stage.included)

    return sorted(name for name, labels in namespaces.items() if is_enforced(name, labels))


def problems(stages: Iterable[Stage], groups: Iterable[Group]) -> Iterator[tuple[str, str]]:
    """Yield what keeps *stages* and *groups* from being a plan: the path of the field, and a message."""
    names: set[str] = set()
    conditions = 0
    for index, group in enumerate(groups):
        conditions += sum(1 + len(one.values) for one in group.selector.requirements)
        if group.name in names:
            yield f"groups[{index}].name", f'found "{group.name}" twice'
        if group.selector.is_empty:
            message = "selects every namespace, expected labels that only those of the group have"
            yield f"groups[{index}].namespaceSelector", message
        names.add(group.name)
    if conditions > MAX_CONDITIONS:
        yield "groups", f"found {conditions} conditions and values, expected at most {MAX_CONDITIONS}"
    before, named = None, set[str]()
    for index, stage in enumerate(stages):
        at = f"stages[{index}]"
        for position, name in enumerate(stage.groups):
            if name not in names:
                yield f"{at}.groups[{position}]", f'found "{name}", expected the name of one of plan.groups'
            elif name in named:
                yield f"{at}.groups[{position}]", f'found "{name}" again: it stays enforced in later stages'
            named.add(name)
        if stage.mode == "Enforce" and (stage.percent_of_namespaces or stage.groups):
            message = "Enforce holds in every namespace, expected the mode of the others, such as Warn"
            yield f"{at}.mode", message
        if before is not None:
            yield from _weaker(at, index, before, stage)
        before = stage


def _weaker(at: str, index: int, before: Stage, stage: Stage) -> Iterator[tuple[str, str]]:
    if STRENGTH.index(stage.mode) < STRENGTH.index(before.mode):
        message = f"found {stage.mode}, which is weaker than {before.mode} of stages[{index - 1}]"
        yield f"{at}.mode", message
    elif stage.mode != "Enforce" and stage.percent_of_namespaces < before.percent_of_namespaces:
        found, earlier = stage.percent_of_namespaces, before.percent_of_namespaces
        message = f"found {found}, which is below {earlier} of stages[{index - 1}]"
        yield f"{at}.percentOfNamespaces", message


def _digest(value: object) -> str:
    text = json.dumps(_content(value), sort_keys=True, separators=(",", ":"), default=sorted)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


def _content(value: Any) -> object:  # noqa: ANN401 - what a plan consists of
    """Return *value* without fields of their default: a field that is added later changes no digest."""
    if isinstance(value, tuple):
        return [_content(one) for one in value]
    if not is_dataclass(value):
        return value
    found = {one.name: (getattr(value, one.name), one.default) for one in fields(value)}
    return {
        name: _content(one) for name, (one, default) in found.items() if default is MISSING or one != default
    }
