"""``rollout.plan`` of a webhook: the stages through which it comes into force.

Source: docs/rollout-plans.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from gateway.base.text import shown
from gateway.config.kinds.declare import (
    Boolean,
    Choice,
    Declared,
    Duration,
    Group,
    Groups,
    Integer,
    Number,
    Text,
    Texts,
    declare,
    optional,
    required,
)
from gateway.config.kinds.metadata import LabelSelector
from gateway.config.kinds.names import LABEL, LABEL_LENGTH, dns_1123_label
from gateway.pure.core.labels import EVERYTHING, Selector
from gateway.pure.core.webhook import Mode
from gateway.pure.rollout_plan import model
from gateway.pure.rollout_plan.evidence import BOUNDS_MS, MAX_OWNERS, MAX_SEEN

if TYPE_CHECKING:
    from gateway.config.yaml.fields import Fields

MODES: tuple[Mode, ...] = get_args(Mode)
REQUIRED: Final = "Required"
_YEAR_S: Final = 366 * 86_400.0
_MOST: Final = 1_000_000_000


def _salt(text: str) -> str | None:
    """As states have it, whatever shows them."""
    if len(text) <= model.MAX_SALT and text.isascii() and text.isprintable():
        return None
    return f"found {shown(text)}, expected at most {model.MAX_SALT} printable characters of ASCII"


@dataclass(frozen=True, slots=True)
class _Group(Declared):
    name: str = required(
        Text("name of at most 63 characters", dns_1123_label, maxLength=LABEL_LENGTH, pattern=f"^{LABEL}$"),
        "Unique in the plan",
    )
    namespace_selector: Selector = declare(
        LabelSelector(), "Labels of its namespaces; at least one condition", default=EVERYTHING
    )


_COUNT: Final = Integer(0, _MOST)


@dataclass(frozen=True, slots=True)
class _Gates(Declared):
    max_newly_denied: int | None = optional(
        _COUNT, "Requests that the webhook would refuse where it is not enforced"
    )
    max_newly_denied_owners: int | None = optional(
        Integer(0, MAX_OWNERS), "Owners of the objects of these requests: controllers, or else the objects"
    )
    max_denied: int | None = optional(
        _COUNT, "Requests that it refuses where it is enforced, by a denial or a failure"
    )
    max_denied_owners: int | None = optional(Integer(0, MAX_OWNERS), "Owners of the objects of these")
    max_differences: int | None = optional(
        _COUNT, "Reviews in which the `candidate` differs from the client in force"
    )
    max_failures: int | None = optional(_COUNT, "Reviews without a usable answer of the webhook")
    max_p99_ms: int | None = optional(
        Integer(1, BOUNDS_MS[-1], "milliseconds"),
        "The 99th percentile of the time of its calls. Rounded up to a bucket of the histogram",
        name="maxP99Milliseconds",
    )
    max_exception_uses: int | None = optional(
        _COUNT, "Requests for which a PolicyException leaves the webhook out"
    )
    max_newly_denied_percent: float | None = optional(
        Number(0, 100, "percent"),
        "`maxNewlyDenied` of 100 reviews where it is not enforced. Unknown below `minReviews` of them",
    )
    max_denied_percent: float | None = optional(
        Number(0, 100, "percent"),
        "`maxDenied` of 100 reviews where it is enforced. Unknown below `minReviews` of them",
    )
    min_reviews: int = declare(
        Integer(1, _MOST),
        "Answers of the webhook that have to be there before anything is promoted",
        default=1,
    )
    min_namespaces: int = declare(Integer(0, MAX_SEEN), "Different namespaces of these reviews", default=0)
    min_users: int = declare(Integer(0, MAX_SEEN), "Different users of these reviews", default=0)

    @property
    def gates(self) -> model.Gates:
        """The gates themselves."""
        return model.Gates(
            self.max_newly_denied,
            self.max_newly_denied_owners,
            self.max_denied,
            self.max_denied_owners,
            self.max_differences,
            self.max_failures,
            self.max_p99_ms,
            self.max_exception_uses,
            self.max_newly_denied_percent,
            self.max_denied_percent,
            self.min_reviews,
            self.min_namespaces,
            self.min_users,
        )


_NO_GATES: Final = _Gates()


@dataclass(frozen=True, slots=True)
class _Stage(Declared):
    mode: Mode = required(
        Choice(MODES), "The mode where the webhook is not enforced. `Enforce` is everywhere, and the last one"
    )
    percent_of_namespaces: int = declare(
        Integer(0, 100, "percent of namespaces"),
        "Where it is enforced already, by a [hash](rollout.md#percentage-of-namespaces). The percentage of a "
        "later stage is not lower",
        default=0,
    )
    groups: tuple[str, ...] = declare(
        Texts(
            *("list of names of groups", dns_1123_label, (1, model.MAX_GROUPS)),
            maxLength=LABEL_LENGTH,
            pattern=f"^{LABEL}$",
        ),
        "Groups in which it is enforced from this stage on",
        default=(),
    )
    for_s: float = declare(
        Duration(0, _YEAR_S), "How long the stage lasts at least", default=0.0, name="for", written="0s"
    )
    approval: str | None = optional(
        Choice((REQUIRED,)),
        "Whether a person has to [approve](rollout-plans.md#approval) before the next stage begins",
    )
    gates: _Gates = declare(Group(_Gates), "What has to hold before the next stage begins", default=_NO_GATES)

    @property
    def stage(self) -> model.Stage:
        """The stage itself."""
        return model.Stage(
            self.mode,
            self.percent_of_namespaces,
            self.for_s,
            self.gates.gates,
            self.groups,
            needs_approval=self.approval is not None,
        )


@dataclass(frozen=True, slots=True)
class _Rollback(Declared):
    min_owners: int = required(
        Integer(1, MAX_OWNERS), "From so many different owners of refused objects on, each counted once"
    )
    min_namespaces: int = required(Integer(1, MAX_OWNERS), "And in so many namespaces")

    @property
    def rollback(self) -> model.Rollback:
        """The thresholds themselves."""
        return model.Rollback(self.min_owners, self.min_namespaces)


@dataclass(frozen=True, slots=True)
class PlanEntry(Declared):
    """``rollout.plan`` of a webhook."""

    stages: tuple[_Stage, ...] = required(
        Groups(_Stage, model.MAX_STAGES, minItems=1),
        "The stages in their order, none weaker than the one before",
    )
    groups: tuple[_Group, ...] = declare(
        Groups(_Group, model.MAX_GROUPS, key="name"),
        "Namespaces that percentages do not concern: stages name them first, or they wait for `Enforce`",
        default=(),
    )
    salt: str = declare(
        Text("printable ASCII", _salt, maxLength=model.MAX_SALT, pattern="^[ -~]*$"),
        "What ranks namespaces instead of the name of the webhook. Keeps them in place if that changes",
        default="",
    )
    rollback: _Rollback | None = optional(
        Group(_Rollback),
        "When the plan goes back one stage [by itself](rollout-plans.md#automatic-rollback). Absent: never",
    )
    critical: bool = declare(Boolean(), "Whether the plan never goes back by itself", default=False)
    max_wait_s: float = declare(
        Duration(0, _YEAR_S),
        "How long a stage waits for data after its time, before the plan pauses",
        default=7 * 86_400.0,
        name="maxWait",
    )

    def check(self, source: Fields) -> None:
        """Report stages that do not follow each other, and warn about what decides nothing."""
        if any(path.startswith(source.path) for path, _ in source.problems.found):
            return  # what could not be read has no place in an order
        found = [*model.problems(self._stages, self._groups)]
        for path, message in found:
            source.problems.add(f"{source.path}.{path}", message)
        if self.rollback is not None and self.critical:
            source.problem("rollback", "found critical true, with which a plan never goes back by itself")
        for index, stage in enumerate(self.stages):
            at = f"{source.at('stages')}[{index}]"
            if index < len(self.stages) - 1 and stage.gates == _NO_GATES:
                limits = "no limit: everything passes that gives at least one review"
                source.problems.warn(f"{at}.gates", limits)
            if index < len(self.stages) - 1 and stage.for_s == 0:
                source.problems.warn(f"{at}.for", "none: the stage ends with the first review that passes")
        for index, made in enumerate(() if found else self.plan.stages):
            at = f"{source.at('stages')}[{index}].gates"
            if made.is_enforced_everywhere and made.gates.max_newly_denied_percent is not None:
                message = "is never known in a stage that is enforced everywhere"
                source.problems.add(f"{at}.maxNewlyDeniedPercent", message)
            if not made.is_enforced_somewhere and made.gates.max_denied_percent is not None:
                source.problems.add(
                    f"{at}.maxDeniedPercent", "is never known in a stage that is enforced nowhere"
                )
        if not found and self.stages and not self._stages[-1].is_enforced_somewhere:
            last = f"{source.at('stages')}[{len(self.stages) - 1}].mode"
            source.problems.warn(last, f"the last stage is {self.stages[-1].mode}: it is never enforced")

    @property
    def _stages(self) -> list[model.Stage]:
        return [one.stage for one in self.stages]

    @property
    def _groups(self) -> list[model.Group]:
        return [model.Group(one.name, one.namespace_selector) for one in self.groups]

    @property
    def has_shadows(self) -> bool:
        """Whether it makes additional calls."""
        return any(one.mode == "Shadow" for one in self.stages)

    @property
    def plan(self) -> model.Plan:
        """The plan itself."""
        return model.Plan.of(
            self._stages,
            self._groups,
            salt=self.salt,
            rollback=None if self.rollback is None else self.rollback.rollback,
            is_critical=self.critical,
            max_wait_s=self.max_wait_s,
        )
