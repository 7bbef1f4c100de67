"""Kyverno's autogen for ClusterPolicies: rules about Pods, rewritten for the workloads that make Pods.

What comes in and out are rules as parsed YAML, which their reader has checked. The rules of a policy are for
workloads if all of them are fit for it; Kyverno asks this of the rules that a request is reviewed with.

Source: github.com/kyverno/kyverno pkg/autogen/v1/{autogen,rule}.go, pkg/autogen/v1/internal/gvk.go,
pkg/utils/kube/kind.go (ContainsKind).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from gateway.pure.kyverno.resource_match import parse_kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    Json = dict[str, Any]

R = TypeVar("R")
ANNOTATION: Final = "pod-policies.kyverno.io/autogen-controllers"
CRON_JOB: Final = "CronJob"
CONTROLLERS: Final = {
    "DaemonSet": "apps/v1/DaemonSet",
    "Deployment": "apps/v1/Deployment",
    "Job": "batch/v1/Job",
    "ReplicaSet": "apps/v1/ReplicaSet",
    "ReplicationController": "v1/ReplicationController",
    "StatefulSet": "apps/v1/StatefulSet",
    CRON_JOB: "batch/v1/CronJob",
}
"""The kinds that rules are made for, each as it is written in a rule."""
PREFIX: Final = "autogen-"
_MAX_NAME: Final = 63
_PATH: Final = re.compile(r"(object|oldObject)\.(spec|metadata)")
_TEMPLATE: Final = "spec.template"
_CRON_TEMPLATE: Final = "spec.jobTemplate.spec.template"


@dataclass(frozen=True, slots=True)
class RuleVariants(Generic[R]):
    """A rule and what autogen makes of it, read or not."""

    own: R
    for_workloads: R | None
    for_cron_jobs: R | None
    is_named_as_made: bool
    """Whether its own name is like those that autogen gives: other rules replace it."""
    is_fit: bool
    needs_variants: bool
    is_elsewhere: bool = False
    """Whether another program evaluates it: here it only counts for whether there are rules for workloads."""


def rules_for(rules: Sequence[RuleVariants[R]], kind: str, controllers: Collection[str]) -> Sequence[R]:
    """Return which of *rules* an object of *kind* is reviewed with, in their order."""
    if (
        kind in controllers
        and all(each.is_fit for each in rules)
        and any(each.needs_variants for each in rules)
    ):
        made = [each.for_cron_jobs if kind == CRON_JOB else each.for_workloads for each in rules]
        if found := [each for each in made if each is not None]:
            return [*(each.own for each in rules if not each.is_named_as_made), *found]
    return [each.own for each in rules]


def controllers_of(annotation: str | None) -> Collection[str]:
    """Return the kinds that rules are made for, by the value of the annotation; all if it is None."""
    if annotation is None:
        return CONTROLLERS.keys()
    return CONTROLLERS.keys() & annotation.split(",")


def unknown_controllers(annotation: str) -> list[str]:
    """Return the words of the annotation that are no kind, in their order."""
    return [word for word in annotation.split(",") if word not in CONTROLLERS and word != "none"]


def is_fit(rule: Json) -> bool:
    """Whether *rule* allows rules for workloads in its policy."""
    for resources in _resources(rule):
        kinds = resources.get("kinds") or ()
        has_other_kinds = len(kinds) > 1 and _has_pod(kinds)
        if has_other_kinds or resources.get("name") or resources.get("names"):
            return False
        if resources.get("selector") is not None or resources.get("annotations") is not None:
            return False
    return True


def needs_variants(rule: Json) -> bool:
    """Whether *rule* names Pods or workloads, by the kind alone."""
    wanted = {"Pod", *CONTROLLERS}
    return any(not wanted.isdisjoint(each.get("kinds") or ()) for each in _resources(rule))


def for_workloads(rule: Json, controllers: Collection[str]) -> Json | None:
    """Return *rule* for the *controllers* without CronJob; None if it is not for Pods, or there are none."""
    kinds = [CONTROLLERS[each] for each in sorted(controllers) if each != CRON_JOB]
    if not kinds or not _is_for_pods(rule):
        return None
    made = {**rule, "name": f"{PREFIX}{rule.get('name')}"[:_MAX_NAME]}
    found: Json = _rewritten(_with_kinds(made, kinds, only_pods=True), _TEMPLATE)
    return found


def for_cron_jobs(rule: Json, controllers: Collection[str]) -> Json | None:
    """Return *rule* for CronJobs; None if it is not for Pods, or CronJob is not among *controllers*."""
    if CRON_JOB not in controllers or not _is_for_pods(rule):
        return None
    made = {**rule, "name": f"{PREFIX}cronjob-{rule.get('name')}"[:_MAX_NAME]}
    found: Json = _rewritten(_with_kinds(made, [CONTROLLERS[CRON_JOB]], only_pods=False), _CRON_TEMPLATE)
    return found


def _is_for_pods(rule: Json) -> bool:
    if str(rule.get("name")).startswith(PREFIX):
        return False
    excluded = _kinds(rule.get("exclude"))
    return _has_pod(_kinds(rule.get("match"))) and (not excluded or _has_pod(excluded))


def _blocks(match: Json | None) -> Iterator[Json]:
    """Yield the plain block, and those of ``any`` and ``all``."""
    if match:
        yield match
        for by in ("all", "any"):
            yield from match.get(by) or ()


def _resources(rule: Json) -> Iterator[Json]:
    for name in ("match", "exclude"):
        for block in _blocks(rule.get(name)):
            yield block.get("resources") or {}


def _kinds(match: Json | None) -> Sequence[str]:
    return [kind for block in _blocks(match) for kind in (block.get("resources") or {}).get("kinds") or ()]


def _has_pod(kinds: Sequence[str]) -> bool:
    """Whether any of *kinds* is Pod, perhaps with a group, a version or a subresource."""
    return any((parts := parse_kind(each)) is not None and parts.kind == "Pod" for each in kinds)


def _with_kinds(rule: Json, kinds: Sequence[str], *, only_pods: bool) -> Json:
    """Return *rule* with other *kinds* in the blocks that count, or in those of them that name Pods."""
    return {
        **rule,
        **{
            name: _with_kinds_in(rule[name], kinds, only_pods=only_pods, is_exclude=name == "exclude")
            for name in ("match", "exclude")
            if rule.get(name)
        },
    }


def _with_kinds_in(match: Json, kinds: Sequence[str], *, only_pods: bool, is_exclude: bool) -> Json:
    for by in ("any", "all"):
        if match.get(by):
            blocks = [
                each if only_pods and not _has_pod(_kinds(each)) else _replaced(each, kinds)
                for each in match[by]
            ]
            return {**match, by: blocks}
    # A plain block that excludes requests of all kinds stays one.
    return match if is_exclude and not _kinds(match) else _replaced(match, kinds)


def _replaced(block: Json, kinds: Sequence[str]) -> Json:
    return {**block, "resources": {**(block.get("resources") or {}), "kinds": list(kinds)}}


def _rewritten(value: Any, template: str) -> Any:  # noqa: ANN401 - any JSON
    """Return *value* with the paths of Pods, in texts of any kind, replaced by those of *template*."""
    if isinstance(value, str):
        return _PATH.sub(rf"\1.{template}.\2", value)
    if isinstance(value, list):
        return [_rewritten(each, template) for each in value]
    if isinstance(value, dict):
        # Go reads the new JSON into the old value: names that are replaced stay.
        changed = {_rewritten(key, template): _rewritten(each, template) for key, each in value.items()}
        return {**value, **changed}
    return value
