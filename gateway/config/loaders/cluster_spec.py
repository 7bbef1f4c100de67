"""The spec of a ClusterPolicy or Policy.

The gateway evaluates rules in CEL, and a worker those in Kyverno's own language. With ``applyRules: One`` the
rules belong together: the worker evaluates all if it has to evaluate any. What a worker cannot do in a review
is refused, each with what replaces it.

Source: github.com/kyverno/kyverno api/kyverno/v1/{spec,rule,common}_types.go, api/kyverno/v2beta1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.base.text import one_of, shown
from gateway.config.kinds.declare import (
    Boolean,
    Choice,
    Declared,
    Group,
    Groups,
    Integer,
    Read,
    declare,
    optional,
)
from gateway.config.kinds.matching import FAILURE_POLICIES
from gateway.config.loaders.cluster_actions import ACTIONS, MAX_OVERRIDES, Override, WebhookEntry, action_of
from gateway.config.loaders.cluster_rule import Rule
from gateway.config.loaders.cluster_worker_rule import (
    OF_RULE,
    OF_VALIDATE,
    WorkerRule,
    is_for_worker,
)
from gateway.config.yaml.fields import Fields, child

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from gateway.pure.core.policy import ParamKind
    from gateway.pure.core.webhook import FailurePolicy
    from gateway.pure.kyverno.failure_action import FailureAction

    Json = dict[str, Any]

_CEL: Final = "write validate.cel"
_INSTEAD: Final[Mapping[str, str]] = {
    "context": f"{_CEL}, whose expressions have request, namespaceObject and params",
    "preconditions": "write celPreconditions",
    "mutate": "write a MutatingPolicy of policies.kyverno.io",
    "foreach": f"{_CEL} with all() or exists()",
    "podSecurity": f"use Pod Security admission, or {_CEL}",
}
"""Fields of a rule in Kyverno's own language, and what replaces them; others are replaced by CEL."""
_REFUSED: Final[Mapping[str, str]] = {
    "generate": "it creates other objects; use a controller, such as Kyverno's background controller",
    "verifyImages": "signatures are verified by registries; use a worker that verifies images, or keep "
    "Kyverno as an HTTPS webhook for this policy",
    "imageExtractors": "it belongs to verifyImages; use a worker that verifies images, or keep Kyverno as an "
    "HTTPS webhook for this policy",
}
"""Fields of a rule that cannot run in a review, and what to use instead."""
_REFUSED_INSIDE: Final[Mapping[tuple[str, str], str]] = {
    ("validate", "manifests"): "signatures are verified by registries; use a worker that verifies them, or "
    "keep Kyverno as an HTTPS webhook for this policy",
    ("validate", "assert"): f"Kyverno has ignored it since 1.19; {_CEL}",
    ("mutate", "targets"): "it changes objects that exist already, not that of the request; use Kyverno's "
    "background controller",
}
"""Fields in a field of a rule that cannot run, and what to use instead."""
NO_ENGINE: Final = "name its pool in policies.engines.kyverno of the GatewayConfiguration"
_MAX_RULES: Final = 250
_MAX_TEXTS: Final = 5000
"""Texts that ``match`` and ``exclude`` of a policy compare."""


def _read_rules(source: Fields, name: str) -> tuple[Rule | WorkerRule, ...]:
    """Return the rules, after reporting those that cannot run."""
    found = source.mappings(name)
    if not found and source.content.get(name) in (None, []):
        source.problem(name, "is required with at least one rule")
    if len(found) > _MAX_RULES:
        source.problem(name, f"found {len(found)} rules, expected at most {_MAX_RULES}")
        return ()
    names: set[str] = set()
    rules: list[Rule | WorkerRule] = []
    for each in found:
        own = each.content.get("name")
        if isinstance(own, str):
            if own in names:
                each.problem("name", f"found {shown(own)} again, expected unique names")
            names.add(own)
        if _report_refused(each):
            continue
        if is_for_worker(dict(each.content)):
            rules.append(WorkerRule.read(each))
        else:
            rules.append(Rule.read(_with_default_action(each)))
    return tuple(rules)


def _report_refused(rule: Fields) -> bool:
    """Report everything in *rule* that cannot run; return whether there is any."""
    found = [(rule.at(name), name, text) for name, text in _REFUSED.items() if rule.content.get(name)]
    for (name, inner), text in _REFUSED_INSIDE.items():
        group = rule.content.get(name)
        if isinstance(group, dict) and group.get(inner) is not None:
            found.append((child(rule.at(name), inner), f"{name}.{inner}", text))
    for path, name, text in found:
        message = f"{name}{_of_rule(rule)} is Kyverno's own language, which the gateway cannot run: {text}"
        rule.problems.add(path, message)
    return bool(found)


def _of_rule(rule: Fields) -> str:
    name = rule.content.get("name")
    return f" of the rule {shown(name)}" if isinstance(name, str) and name else ""


def _with_default_action(rule: Fields) -> Fields:
    """Return *rule* with ``parameterNotFoundAction``, which Kyverno does not require."""
    content = dict(rule.content)
    validate = content.get("validate")
    cel = validate.get("cel") if isinstance(validate, dict) else None
    ref = cel.get("paramRef") if isinstance(cel, dict) else None
    if not isinstance(ref, dict) or ref.get("parameterNotFoundAction") is not None:
        return rule
    assert isinstance(validate, dict)
    assert isinstance(cel, dict)
    ref = {**ref, "parameterNotFoundAction": "Allow"}
    content["validate"] = {**validate, "cel": {**cel, "paramRef": ref}}
    return Fields(content, rule.path, rule.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec(Declared):
    """The spec of a ClusterPolicy or Policy."""

    rules: tuple[Rule | WorkerRule, ...] = declare(
        Read("list of rules", _read_rules, "array"), "Rules", default=()
    )
    apply_rules: str = declare(Choice(("All", "One")), "Whether the first that applies ends", default="All")
    failure_policy: FailurePolicy | None = optional(Choice(FAILURE_POLICIES), "Effect of errors")
    validation_failure_action: str = declare(
        Choice(ACTIONS), "Whether a failure refuses the request", default="Audit"
    )
    validation_failure_action_overrides: tuple[Override, ...] = declare(
        Groups(Override, MAX_OVERRIDES), "By namespace", default=()
    )
    emit_warning: bool = declare(Boolean(), "Whether rules with Audit warn", default=False)
    admission: bool = declare(Boolean(), "Whether requests are reviewed", default=True)
    background: bool = declare(Boolean(), "Not used: the gateway does not scan objects", default=True)
    webhook_timeout_seconds: int | None = optional(Integer(1, 30, "seconds"), "Timeout of the worker")
    webhook_configuration: WebhookEntry = declare(
        Group(WebhookEntry), "Effect of errors", default=WebhookEntry()
    )

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Accept what is only for other rules, or for the webhooks of Kyverno."""
        source.accept(
            "schemaValidation",
            "mutateExistingOnPolicyUpdate",
            "generateExisting",
            "generateExistingOnPolicyUpdate",
            "useServerSideApply",
        )
        return {}

    def check(self, source: Fields) -> None:
        """Report too many texts, and parameters of several kinds."""
        if (size := sum(each.size for rule in self.rules for each in rule.blocks)) > _MAX_TEXTS:
            found = f"match and exclude have {size} blocks and texts"
            source.problem("rules", f"{found}, expected at most {_MAX_TEXTS}")
        for rule in self.rules:
            if not any(True for block in rule.match.blocks for _ in block.kinds):
                rule.source.problem("match", "has no kinds, expected at least one")
        if len(kinds := self.param_kinds) > 1:
            names = one_of(sorted(each.kind for each in kinds))
            source.problem("rules", f"found the paramKinds {names}, expected the same one in all rules")

    @property
    def is_together(self) -> bool:
        """Whether a worker evaluates all rules together."""
        return self.apply_rules == "One" and any(isinstance(each, WorkerRule) for each in self.rules)

    @property
    def cel_rules(self) -> list[Rule]:
        """The rules that the gateway evaluates."""
        return [] if self.is_together else [each for each in self.rules if isinstance(each, Rule)]

    @property
    def worker_rules(self) -> list[WorkerRule]:
        """The rules in Kyverno's own language."""
        return [each for each in self.rules if isinstance(each, WorkerRule)]

    @property
    def worker_names(self) -> set[str]:
        """The names of these rules."""
        return {each.name for each in self.worker_rules}

    @property
    def effect_of_errors(self) -> FailurePolicy:
        """The failurePolicy."""
        return self.webhook_configuration.failure_policy or self.failure_policy or "Fail"

    @property
    def timeout_s(self) -> int | None:
        """The timeout of the webhook that Kyverno registers. None if the policy has none."""
        return self.webhook_configuration.timeout_seconds or self.webhook_timeout_seconds

    def language_problems(self) -> Iterator[tuple[str, str]]:
        """Yield path and message of everything that needs a worker."""
        for rule in self.worker_rules:
            source, validate = rule.source, rule.source.content.get("validate")
            found = [(source.at(name), name) for name in OF_RULE if source.content.get(name)]
            if isinstance(validate, dict):
                place = source.at("validate")
                found += [
                    (child(place, name), name) for name in OF_VALIDATE if validate.get(name) is not None
                ]
            for path, name in found:
                of_rule = f"{name}{_of_rule(source)} is Kyverno's own language, which a worker evaluates"
                yield path, f"{of_rule}: {NO_ENGINE}, or {_INSTEAD.get(name, _CEL)}"

    def action_of(self, rule: Rule | WorkerRule) -> FailureAction | None:
        """Return the action of *rule*. None if it is no validation."""
        validate = rule.validate
        if validate is None:
            return None
        return action_of(
            (validate.failure_action, validate.failure_action_overrides),
            (self.validation_failure_action, self.validation_failure_action_overrides),
        )

    @property
    def needs_roles(self) -> bool:
        """Whether the roles of users count for rules that the gateway evaluates."""
        return any(each.roles or each.cluster_roles for rule in self.cel_rules for each in rule.blocks)

    @property
    def param_kinds(self) -> set[ParamKind]:
        """The kinds of parameters."""
        cels = [each.validate.cel for each in self.cel_rules]
        return {each.param_kind.param_kind for each in cels if each.param_kind and each.param_ref}
