"""Runs the cases of suites, with one gateway for each configuration."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.base.errors import ConfigError, Problem, ReviewError
from gateway.base.text import did_you_mean, shown
from gateway.config.merge.load import load
from gateway.engine.second_pass import conflicts
from gateway.pure.admission_policies.params import FixedParams
from gateway.pure.core.review import decode
from gateway.pure.core.verdict import Failed
from gateway.tools.offline.gateway import offline_gateway
from gateway.tools.policy_tests.check import differences
from gateway.tools.policy_tests.engine_worker import command_of, explained
from gateway.tools.policy_tests.gatekeeper_run import run_gatekeeper_suites
from gateway.tools.policy_tests.kyverno_run import run_kyverno_tests
from gateway.tools.policy_tests.objects import unread
from gateway.tools.policy_tests.results import CaseResult, is_selected
from gateway.tools.policy_tests.suite import bare_namespace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gateway.config.merge.model import Config
    from gateway.engine.dry_run import DryRun
    from gateway.tools.offline.gateway import OfflineGateway
    from gateway.tools.policy_tests.discovery import FoundTests
    from gateway.tools.policy_tests.suite import Case, Suite


@dataclass(frozen=True, slots=True)
class ReviewedCase(CaseResult):
    """The result of one case of a PolicyTest."""

    case: Case | None = None
    reviewed: DryRun | None = None
    """None if the review could not be run, or a webhook failed, whatever its failurePolicy."""
    again: tuple[str, ...] = ()
    """The last of ``problems``: those about webhooks that change their own results."""


async def run_tests(
    tests: FoundTests, filters: Sequence[str], config: Sequence[Path] = ()
) -> list[CaseResult]:
    """Return the results of the cases of *tests* that *filters* select, by file.

    The workers that the configuration *config* names for other engines evaluate their policies.

    Raises:
        ConfigError: as :func:`run_suites`.
    """
    results = await run_suites(tests.suites, filters)
    loaded = load(config) if config and (tests.kyverno or tests.gatekeeper) else None
    kyverno, gatekeeper = (
        () if loaded is None else command_of(loaded, engine) for engine in ("kyverno", "gatekeeper")
    )
    of_kyverno = await run_kyverno_tests(tests.kyverno, filters, kyverno)
    of_gatekeeper = await run_gatekeeper_suites(tests.gatekeeper, filters, gatekeeper)
    results += explained(of_kyverno, loaded, "kyverno")
    results += explained(of_gatekeeper, loaded, "gatekeeper")
    order = {file: index for index, file in enumerate(tests.files)}
    return sorted(results, key=lambda one: (order[one.file], one.document))


async def run_suites(suites: Sequence[Suite], filters: Sequence[str]) -> list[CaseResult]:
    """Return the results of the cases that *filters* select, in the order of *suites*.

    A filter is a glob of ``CASE`` or ``SUITE/CASE``; without filters all cases run. No cluster is used:
    a namespace that neither a case nor the configuration describes has no labels of its own, and policies
    read the objects of the configuration, the suite and the case.

    Raises:
        ConfigError: a configuration is invalid, or a case names a webhook that it does not have, or objects
            that its policies do not read.
    """
    by_config: dict[tuple[Path, ...], list[Suite]] = {}
    for suite in suites:
        by_config.setdefault(suite.config, []).append(suite)
    results: dict[tuple[int, int], CaseResult] = {}
    for paths, group in by_config.items():
        chosen = [
            (suite, case)
            for suite in group
            for case in suite.cases
            if is_selected(suite.name, case.name, filters)
        ]
        if not chosen:
            continue
        config = load(paths)
        _check(config, chosen)
        async with offline_gateway(config, uses_cluster=False) as gateway:
            for suite, case in chosen:
                objects = None
                if suite.objects.objects or case.objects.objects:
                    objects = FixedParams([*config.objects, *suite.objects.objects, *case.objects.objects])
                results[suites.index(suite), case.index] = await _run(gateway, suite, case, objects)
    return [results[key] for key in sorted(results)]


def _check(config: Config, chosen: Sequence[tuple[Suite, Case]]) -> None:
    known = {webhook.name for webhook in config.webhooks}
    named = [
        (suite, f"cases[{case.index}].{field}", names)
        for suite, case in chosen
        for field, names in (("webhooks", case.webhooks), ("changesAgain", case.changes_again))
    ]
    named += [(suite, "changesAgain", suite.changes_again) for suite, _ in chosen]
    found = [
        Problem(str(suite.file), path, f"there is no webhook {shown(name)}{did_you_mean(name, known)}")
        for suite, path, names in named
        for name in names
        if name not in known
    ]
    found = list(dict.fromkeys(found))
    for suite in {id(suite): suite for suite, _ in chosen}.values():
        found += unread(str(suite.file), "objects", suite.objects, config)
    for suite, case in chosen:
        found += unread(str(suite.file), f"cases[{case.index}].objects", case.objects, config)
    if found:
        raise ConfigError(found)


async def _run(
    gateway: OfflineGateway, suite: Suite, case: Case, objects: FixedParams | None
) -> ReviewedCase:
    begin = time.monotonic()
    reviewed: DryRun | None = None
    again: list[str] = []
    notes: tuple[str, ...] = ()
    try:
        name = decode(case.body).namespace
        namespaces = {name: case.namespace or gateway.namespaces.get(name) or bare_namespace(name, {}, {})}
        reviewed = await gateway.review(case.body, case.phases, namespaces, case.webhooks, objects)
        notes = tuple(one.line() for one in conflicts(reviewed))
        found = [
            f"{one.invocation.webhook.name} failed: {one.verdict.cause}"
            for one in reviewed.outcomes
            if isinstance(one.verdict, Failed)
        ]
        if found:
            reviewed = None
        else:
            found = list(differences(case, reviewed))
            may_change = {*suite.changes_again, *case.changes_again}
            again += [
                one.line()
                for one in await gateway.changed_again(reviewed, objects)
                if one.webhook.name not in may_change
            ]
    except ReviewError as error:
        found = [str(error)]
    seconds = time.monotonic() - begin
    return ReviewedCase(
        suite.file,
        suite.document,
        suite.name,
        case.name,
        (*found, *again),
        seconds,
        case=case,
        reviewed=reviewed,
        again=tuple(again),
        notes=notes,
    )
