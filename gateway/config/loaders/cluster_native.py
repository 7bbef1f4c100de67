"""The rules in CEL of a ClusterPolicy or Policy, with what autogen makes of them, as one policy.

Source: github.com/kyverno/kyverno pkg/autogen/v1/autogen.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.config.loaders.cluster_rule import Rule
from gateway.config.yaml.fields import Fields, Problems
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
from gateway.pure.kyverno.cluster_rules import CelRule, ClusterPolicy, rule_elsewhere
from gateway.pure.kyverno.kind_rules import rules_for_kinds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gateway.config.loaders.cluster_filters import MatchEntry
    from gateway.config.loaders.cluster_spec import Spec
    from gateway.config.yaml.documents import Document


def policy_of(spec: Spec, document: Document, name: str, annotation: str | None) -> ClusterPolicy | None:
    """Return the policy *name* with *spec*, compiled, after reporting problems of expressions.

    None if the gateway evaluates none of its rules.
    """
    if not spec.cel_rules:
        return None
    controllers = controllers_of(annotation)
    rules = [_variants(document, name, spec, each, controllers) for each in spec.cel_rules]
    entries = [each.match for each in spec.cel_rules]
    kinds = [kind for entry in entries for block in entry.blocks for kind in block.kinds]
    for each in rules:
        for made in (each.for_workloads, each.for_cron_jobs):
            if made is not None:
                kinds += [one for block in made.match_entry.blocks for one in block.kinds]
    return ClusterPolicy(
        name,
        MatchResources(
            tuple(NamedRule((rule,), (), "Equivalent") for rule in rules_for_kinds(kinds)),
            (),
            "Equivalent",
            EVERYTHING,
            EVERYTHING,
        ),
        next(iter(spec.param_kinds), None),
        spec.webhook_configuration.conditions,
        b"",
        Rules(spec.effect_of_errors, {}, (), ()),
        cel_rules=[*map(_without_match, rules), *_rules_elsewhere(spec)],
        controllers=controllers,
        emits_warnings=spec.emit_warning,
        applies_one=spec.apply_rules == "One",
    )


def _rules_elsewhere(spec: Spec) -> Iterator[RuleVariants[CelRule]]:
    """Yield what stands for the validations of the worker."""
    for each in spec.worker_rules:
        if (action := spec.action_of(each)) is not None:
            content = dict(each.source.content)
            yield rule_elsewhere(
                each.name,
                action,
                is_fit=is_fit(content),
                needs_variants=needs_variants(content),
            )


class _Made(NamedTuple):
    """A rule, with what is in ``match``."""

    rule: CelRule
    match_entry: MatchEntry


def _made(policy: str, spec: Spec, rule: Rule) -> _Made:
    action = spec.action_of(rule)
    assert action is not None
    return _Made(rule.compiled(policy, action), rule.match)


def _without_match(made: RuleVariants[_Made]) -> RuleVariants[CelRule]:
    return RuleVariants(
        made.own.rule,
        None if made.for_workloads is None else made.for_workloads.rule,
        None if made.for_cron_jobs is None else made.for_cron_jobs.rule,
        is_named_as_made=made.is_named_as_made,
        is_fit=made.is_fit,
        needs_variants=made.needs_variants,
    )


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
        made.append(_made(name, spec, read))
        # A problem of the rule itself is reported there.
        for path, message in problems.found[:1] if not document.problems.found else ():
            found = f"what autogen makes of it for {about} is wrong, so that it refuses all of them"
            document.problems.add(path, f"{found}: {message}")
    own = _made(name, spec, rule)
    return RuleVariants(
        own,
        made[0],
        made[1],
        is_named_as_made=rule.name.startswith(PREFIX),
        is_fit=is_fit(content),
        needs_variants=needs_variants(content),
    )
