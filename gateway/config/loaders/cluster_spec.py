"""The spec of a ClusterPolicy or Policy: its rules, with what autogen makes of them.

Rules of Kyverno's own language are refused, each with what replaces it.

Source: github.com/kyverno/kyverno api/kyverno/v1/{spec,rule,common}_types.go, api/kyverno/v2beta1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.base.text import one_of, shown
from gateway.config.kinds.declare import (
    Boolean,
    Choice,
    Declared,
    Group,
    Groups,
    Read,
    declare,
    optional,
)
from gateway.config.kinds.matching import FAILURE_POLICIES
from gateway.config.loaders.cluster_actions import ACTIONS, MAX_OVERRIDES, Override, WebhookEntry, action_of
from gateway.config.loaders.cluster_rule import Rule, Validate
from gateway.config.yaml.fields import Fields, Problems, child
from gateway.pure.admission_policies.model import MatchResources, NamedRule
from gateway.pure.admission_policies.validating import Rules
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.kyverno.cluster_autogen import (
    PREFIX,
    RuleVariants,
    controllers_of,
    for_cron_jobs,
    for_workloads,
    is_fit,
    needs_variants,
)
from gateway.pure.kyverno.cluster_rules import CelRule, ClusterPolicy
from gateway.pure.kyverno.kind_rules import rules_for_kinds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gateway.config.loaders.cluster_filters import MatchEntry
    from gateway.config.yaml.documents import Document
    from gateway.pure.core.policy import ParamKind
    from gateway.pure.core.webhook import FailurePolicy
    from gateway.pure.kyverno.failure_action import FailureAction

    Json = dict[str, Any]

_WORKER: Final = "or keep Kyverno as an HTTPS webhook for this policy"
_CEL: Final = f"write validate.cel, {_WORKER}"
_REFUSED: Final[Mapping[str, str]] = {
    "context": f"expressions have request, namespaceObject and params instead; {_CEL}",
    "preconditions": f"write celPreconditions, {_WORKER}",
    "mutate": f"write a MutatingPolicy of policies.kyverno.io, {_WORKER}",
    "generate": "it creates other objects; use a controller, such as Kyverno's background controller",
    "verifyImages": f"signatures are verified by registries; use a worker that verifies images, {_WORKER}",
    "imageExtractors": f"it belongs to verifyImages; use a worker that verifies images, {_WORKER}",
}
"""Fields of a rule in Kyverno's own language, and what replaces them."""
_REFUSED_IN_VALIDATE: Final[Mapping[str, str]] = {
    "pattern": _CEL,
    "anyPattern": _CEL,
    "deny": _CEL,
    "foreach": f"write validate.cel with all() or exists(), {_WORKER}",
    "podSecurity": f"use Pod Security admission, or {_CEL}",
    "manifests": f"signatures are verified by registries; use a worker that verifies them, {_WORKER}",
    "assert": f"Kyverno has ignored it since 1.19; {_CEL}",
}
_MAX_RULES: Final = 250
_MAX_TEXTS: Final = 5000
"""Texts that ``match`` and ``exclude`` of a policy compare."""


def _read_rules(source: Fields, name: str) -> tuple[Rule, ...]:
    """Return the rules in CEL, after reporting the others."""
    found = source.mappings(name)
    if not found and source.content.get(name) in (None, []):
        source.problem(name, "is required with at least one rule")
    if len(found) > _MAX_RULES:
        source.problem(name, f"found {len(found)} rules, expected at most {_MAX_RULES}")
        return ()
    names: set[str] = set()
    rules = []
    for each in found:
        own = each.content.get("name")
        if isinstance(own, str):
            if own in names:
                each.problem("name", f"found {shown(own)} again, expected unique names")
            names.add(own)
        if not _report_refused(each):
            rules.append(Rule.read(_with_default_action(each)))
    return tuple(rules)


def _report_refused(rule: Fields) -> bool:
    """Report everything of Kyverno's own language in *rule*; return whether there is any."""
    of_rule = rule.content.get("name")
    named = f"of the rule {shown(of_rule)} " if isinstance(of_rule, str) and of_rule else ""
    validate = rule.content.get("validate")
    found = [(rule.at(name), name, text) for name, text in _REFUSED.items() if rule.content.get(name)]
    if isinstance(validate, dict):
        path = rule.at("validate")
        found += [
            (child(path, name), name, text)
            for name, text in _REFUSED_IN_VALIDATE.items()
            if validate.get(name) is not None
        ]
    for path, name, text in found:
        rule.problems.add(
            path, f"{name} {named}is Kyverno's own language, which the gateway cannot run: {text}"
        )
    return bool(found)


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

    rules: tuple[Rule, ...] = declare(Read("list of rules", _read_rules, "array"), "Rules in CEL", default=())
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
    webhook_configuration: WebhookEntry = declare(
        Group(WebhookEntry), "Effect of errors", default=WebhookEntry()
    )

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Accept what is only for other rules, or for the webhooks of Kyverno."""
        source.accept(
            "schemaValidation",
            "webhookTimeoutSeconds",
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

    def action(self, validate: Validate) -> FailureAction:
        """Return the action of a rule with *validate*."""
        return action_of(
            (validate.failure_action, validate.failure_action_overrides),
            (self.validation_failure_action, self.validation_failure_action_overrides),
        )

    @property
    def needs_roles(self) -> bool:
        """Whether the roles of users count."""
        return any(each.roles or each.cluster_roles for rule in self.rules for each in rule.blocks)

    @property
    def param_kinds(self) -> set[ParamKind]:
        """The kinds of parameters."""
        cels = [each.validate.cel for each in self.rules]
        return {each.param_kind.param_kind for each in cels if each.param_kind and each.param_ref}

    def policy(self, document: Document, name: str, annotation: str | None) -> ClusterPolicy:
        """Return the policy *name*, compiled, after reporting problems of expressions."""
        controllers = controllers_of(annotation)
        rules = [_variants(document, name, self, each, controllers) for each in self.rules]
        entries = [each.match for each in self.rules]
        kinds = [kind for entry in entries for block in entry.blocks for kind in block.kinds]
        for each in rules:
            for made in (each.for_workloads, each.for_cron_jobs):
                if made is not None:
                    kinds += [one for block in made.match_entry.blocks for one in block.kinds]
        fails = self.webhook_configuration.failure_policy or self.failure_policy or "Fail"
        return ClusterPolicy(
            name,
            MatchResources(
                tuple(NamedRule((rule,), (), "Equivalent") for rule in rules_for_kinds(kinds)),
                (),
                "Equivalent",
                EVERYTHING,
                EVERYTHING,
            ),
            next(iter(self.param_kinds), None),
            self.webhook_configuration.conditions,
            b"",
            Rules(fails, {}, (), ()),
            cel_rules=[
                RuleVariants(
                    each.own.rule,
                    None if each.for_workloads is None else each.for_workloads.rule,
                    None if each.for_cron_jobs is None else each.for_cron_jobs.rule,
                    is_named_as_made=each.is_named_as_made,
                    is_fit=each.is_fit,
                    needs_variants=each.needs_variants,
                )
                for each in rules
            ],
            controllers=controllers,
            emits_warnings=self.emit_warning,
            applies_one=self.apply_rules == "One",
        )


class _Made(NamedTuple):
    """A rule, with what is in ``match``."""

    rule: CelRule
    match_entry: MatchEntry


def _variants(
    document: Document,
    name: str,
    spec: Spec,
    rule: Rule,
    controllers: Any,  # noqa: ANN401
) -> RuleVariants[_Made]:
    """Return *rule* with what autogen makes of it, after reporting problems of expressions."""
    content = dict(rule.source.content)
    made: list[_Made | None] = []
    for about, variant in (
        ("workloads", for_workloads(content, controllers)),
        ("CronJobs", for_cron_jobs(content, controllers)),
    ):
        if variant is None or not is_fit(content):
            made.append(None)
            continue
        problems = Problems(document.problems.where)
        read = Rule.read(Fields(variant, rule.source.path, problems))
        made.append(_Made(read.compiled(name, spec.action(read.validate)), read.match))
        # A problem of the rule itself is reported there.
        for path, message in problems.found[:1] if not document.problems.found else ():
            found = f"what autogen makes of it for {about} is wrong, so that it refuses all of them"
            document.problems.add(path, f"{found}: {message}")
    own = _Made(rule.compiled(name, spec.action(rule.validate)), rule.match)
    return RuleVariants(
        own,
        made[0],
        made[1],
        is_named_as_made=rule.name.startswith(PREFIX),
        is_fit=is_fit(content),
        needs_variants=needs_variants(content),
    )
