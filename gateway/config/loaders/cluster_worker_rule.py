"""A rule of a ClusterPolicy or Policy in Kyverno's own language, which a worker evaluates.

The gateway reads which requests it is for, and its action. The worker judges the rest.

Source: github.com/kyverno/kyverno api/kyverno/v1/{rule,common}_types.go, pkg/autogen/v1/autogen.go
(CanAutoGen).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gateway.base.text import shown
from gateway.config.kinds.declare import Choice, Declared, Group, Groups, Text, declare, optional, required
from gateway.config.kinds.matching import PlacedEntry
from gateway.config.loaders.cluster_actions import ACTIONS, MAX_OVERRIDES, Override
from gateway.config.loaders.cluster_filters import MatchEntry

if TYPE_CHECKING:
    from gateway.config.loaders.cluster_filters import BlockEntry
    from gateway.config.yaml.fields import Fields
    from gateway.pure.core.webhook import Phase

    Json = dict[str, Any]

MUTATE: Final = "mutate"
_MAX_RULE_NAME: Final = 63
OF_RULE: Final = ("context", "preconditions", MUTATE)
"""Fields of a rule that only the worker evaluates."""
OF_VALIDATE: Final = ("pattern", "anyPattern", "deny", "foreach", "podSecurity")
"""Those of ``validate``."""


def rule_name(text: str) -> str | None:
    """Return why *text* is no name of a rule, or None."""
    if len(text) <= _MAX_RULE_NAME:
        return None
    return f"found {len(text)} characters, expected at most {_MAX_RULE_NAME}"


def _worker_rule_name(text: str) -> str | None:
    """Return why *text* cannot be the last part of the name of a policy of the worker, or None."""
    if (reason := rule_name(text)) is not None:
        return reason
    if text.strip() and text.isprintable() and "/" not in text:
        return None
    expected = "expected printable text without a slash: the worker has the rule as POLICY/RULE"
    return f"found {shown(text)}, {expected}"


def is_for_worker(rule: Json) -> bool:
    """Whether *rule*, as parsed YAML, has anything of Kyverno's own language."""
    validate = rule.get("validate")
    of_validate: Json = validate if isinstance(validate, dict) else {}
    return any(rule.get(name) for name in OF_RULE) or any(
        of_validate.get(name) is not None for name in OF_VALIDATE
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerValidate(Declared):
    """The ``validate`` of such a rule."""

    failure_action: str = declare(Choice(ACTIONS), "Whether a failure refuses the request", default="")
    failure_action_overrides: tuple[Override, ...] = declare(
        Groups(Override, MAX_OVERRIDES), "By namespace", default=()
    )

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Accept what the worker reads."""
        source.accept("message", "allowExistingViolations", "cel", *OF_VALIDATE)
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRule(PlacedEntry):
    """One rule in Kyverno's own language."""

    name: str = required(Text(check=_worker_rule_name), "Name")
    match: MatchEntry = required(Group(MatchEntry), "The requests")
    exclude: MatchEntry | None = optional(Group(MatchEntry), "Requests that are left out")
    validate: WorkerValidate | None = optional(Group(WorkerValidate), "The validation")

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Accept what the worker reads, and return the source."""
        source.accept(*OF_RULE, "celPreconditions", "skipBackgroundRequests", "reportProperties")
        return {"source": source}

    def check(self, source: Fields) -> None:
        """Report a rule that does two things."""
        if self.validate is not None and self.is_mutating:
            source.problem(MUTATE, "found mutate and validate, expected one of them in a rule")

    @property
    def is_mutating(self) -> bool:
        """Whether it changes objects."""
        return bool(self.source.content.get(MUTATE))

    @property
    def phase(self) -> Phase:
        """The phase in which it is evaluated."""
        return "mutate" if self.is_mutating else "validate"

    @property
    def has_json_patches(self) -> bool:
        """Whether it has ``patchesJson6902``, with which Kyverno makes no rules for workloads."""
        mutate = self.source.content.get(MUTATE)
        if not isinstance(mutate, dict):
            return False
        listed = mutate.get("foreach")
        each = listed if isinstance(listed, list) else ()
        return any(isinstance(one, dict) and one.get("patchesJson6902") for one in (mutate, *each))

    @property
    def blocks(self) -> tuple[BlockEntry, ...]:
        """All blocks of ``match`` and ``exclude``."""
        return (*self.match.blocks, *(() if self.exclude is None else self.exclude.blocks))
