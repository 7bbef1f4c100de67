"""``rollout`` of a webhook: its mode, where it is enforced already, and its candidate.

Source: docs/rollout.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.config.kinds.client_config import ClientConfig
from gateway.config.kinds.declare import (
    Choice,
    Declared,
    Group,
    Integer,
    Number,
    Type,
    declare,
    optional,
    required,
)
from gateway.config.kinds.metadata import LabelSelector
from gateway.config.kinds.rollout_plan import MODES, PlanEntry
from gateway.config.kinds.validation import Rule, at_least_one, excluded
from gateway.pure.core.labels import EVERYTHING, Selector
from gateway.pure.core.webhook import Candidate, Enforcement, Mode, Rollout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.kinds.declare import Row, Schema
    from gateway.config.yaml.fields import Fields

_CONDITIONS: Final = ("namespaceSelector", "percentOfNamespaces", "after")


class _Time(Type[float]):
    """A time in seconds since 1970."""

    words = "time, RFC 3339"

    def read(self, source: Fields, name: str, default: float) -> float:
        return source.time(name, default)

    def schema(self) -> Schema:
        return {"type": "string", "maxLength": 40, "format": "date-time"}

    def written(self, value: float) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class _Enforce(Declared):
    RULES = (at_least_one(_CONDITIONS, f"found nothing, expected at least one of {', '.join(_CONDITIONS)}"),)
    namespace_selector: Selector = declare(
        LabelSelector(),
        "Labels of the namespace; for a Namespace, of the object. Absent: all",
        default=EVERYTHING,
    )
    percent_of_namespaces: int = declare(
        Integer(0, 100, "percent of namespaces"),
        "From 0 to 100, by a [hash](rollout.md#percentage-of-namespaces) of the names of the webhook and the "
        "namespace",
        default=100,
        is_default_in_schema=False,
    )
    after_s: float = declare(
        _Time(),
        "From this time on, by the clock of the gateway's machine",
        default=0.0,
        name="after",
    )

    def check(self, source: Fields) -> None:
        """Warn about a condition that no namespace meets."""
        if self.percent_of_namespaces == 0:
            source.problems.warn(
                source.at("percentOfNamespaces"), "0 matches no request: the webhook is not enforced"
            )

    @property
    def enforcement(self) -> Enforcement:
        return Enforcement(self.namespace_selector, self.percent_of_namespaces, self.after_s)


class _OtherClient(Group[ClientConfig]):
    """A client with the fields of the webhook's."""

    words = "as `webhooks[].clientConfig`"

    def rows(self, path: str) -> Iterator[Row]:
        yield from ()


@dataclass(frozen=True, slots=True)
class _Candidate(Declared):
    client_config: ClientConfig = required(_OtherClient(ClientConfig), "Its backend")
    percent_of_reviews: float = declare(
        Number(0, 100, "percent of reviews"), "From 0 to 100, by a hash of the review's uid", default=100.0
    )


@dataclass(frozen=True, slots=True)
class RolloutEntry(Declared):
    """``rollout`` of a webhook."""

    RULES = (
        Rule(
            "!has(self.enforce) || has(self.mode)",
            "is required with enforce: the mode where enforce does not match",
            about=("enforce",),
            at="mode",
            holds_surely=lambda content: content.get("mode") is not None,
        ),
        excluded("mode", "plan", "is not allowed with plan, whose stages have modes"),
        excluded("enforce", "plan", "is not allowed with plan, whose stages say where it is enforced"),
    )
    mode: Mode | None = optional(
        Choice(MODES),
        "The mode where `enforce` does not match. Required with `enforce`. `Shadow` requires "
        "`sideEffects: None`. Where it is not written, the stage of a plan that was "
        "[removed](rollout-plans.md#a-plan-that-is-removed) holds",
        written="Enforce",
        is_default_in_schema=False,
    )
    enforce: _Enforce | None = optional(
        Group(_Enforce),
        "Where the webhook is enforced already; at least one condition, and all have to match. Absent: "
        "nowhere",
    )
    candidate: _Candidate | None = optional(
        Group(_Candidate),
        "A backend that is called beside the one in force and [compared](rollout.md#candidates) with it. "
        "Requires `sideEffects: None`",
    )
    plan: PlanEntry | None = optional(
        Group(PlanEntry),
        "Stages through which the webhook comes [into force](rollout-plans.md). Not with `mode` or `enforce`",
    )

    def check(self, source: Fields) -> None:
        """Warn if the mode and ``enforce`` do not fit each other."""
        if self.plan is not None:
            self._check_differences(source, self.plan)
        enforce = self.enforce
        if enforce is None or not source.has("mode"):
            return
        if self.mode == "Enforce":
            source.problems.warn(
                source.at("enforce"), "has no effect: the mode Enforce holds for every request"
            )
        is_everywhere = enforce.namespace_selector.is_empty and enforce.percent_of_namespaces == 100
        if is_everywhere and not enforce.after_s and any(map(source.group("enforce").has, _CONDITIONS)):
            source.problems.warn(
                source.at("enforce"), f"matches every request: the mode {self.mode} never holds"
            )

    def _check_differences(self, source: Fields, plan: PlanEntry) -> None:
        """Report gates of *plan* about a candidate that there is not: they would never pass."""
        for index, stage in enumerate(() if self.candidate is not None else plan.stages):
            if stage.gates.max_differences is not None:
                path = f"{source.at('plan')}.stages[{index}].gates.maxDifferences"
                source.problems.add(path, "requires rollout.candidate, with which the webhook is compared")

    @property
    def rollout(self) -> Rollout:
        """The rollout itself; with a plan, that of its first stage."""
        candidate = self.candidate
        stages = () if self.plan is None else self.plan.plan.stages
        found = stages[0].rollout if stages else Rollout(self.mode or "Enforce")
        return Rollout(
            found.mode,
            found.enforce if self.enforce is None else self.enforce.enforcement,
            None
            if candidate is None
            else Candidate(candidate.client_config.client, candidate.percent_of_reviews),
            is_mode_given=self.mode is not None or bool(stages),
        )
