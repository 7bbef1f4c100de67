"""``check --cluster`` and ``check --static``: compare a registration with a configuration."""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.base import logs
from gateway.base.errors import ConfigError
from gateway.base.progress import Progress
from gateway.server.kubernetes import select_cluster as cluster

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from gateway.base.errors import Problem
    from gateway.config.merge.model import Config
    from gateway.tools.inspection.model import ClusterState, Finding

_EXPIRY_DAYS: Final = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``--cluster`` to *parser*, that of ``check``."""
    add = parser.add_argument
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--cluster", action="store_true", help="also compare it with the registration in the cluster"
    )
    where.add_argument(
        "--static",
        metavar="FOLDER",
        type=Path,
        help="also compare it with the registration in files, as manifests --static writes them",
    )
    cluster.add_arguments(parser, "to check")
    add("--name", help="of the gateway's registrations, if there are several gateways (default: all)")
    add(
        "--expiry-days",
        metavar="N",
        type=int,
        help=f"warn of certificates that expire within N days (default: {_EXPIRY_DAYS})",
    )
    add(
        "--exclude-namespace",
        metavar="NS",
        action="append",
        help="NS is excluded from the registration on purpose: it is not an error that webhooks are not "
        "called there; may be repeated",
    )
    add(
        "--workers",
        action="store_true",
        help="also look the policies up at their workers; workers with a command are started",
    )
    add("--json", action="store_true", help="print the findings as JSON")


def refuse_without_cluster(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> None:
    """Refuse options that need ``--cluster``, and invalid values of options."""
    from gateway.config.kinds.names import dns_1123_label

    for option in ("kubeconfig", "context"):
        if getattr(parsed, option) is not None and not parsed.cluster:
            refuse(f"--{option} needs --cluster")
    for option in ("name", "expiry_days", "exclude_namespace"):
        if getattr(parsed, option) is not None and not parsed.cluster and parsed.static is None:
            refuse(f"--{option.replace('_', '-')} needs --cluster or --static")
    if parsed.json and not parsed.cluster and parsed.static is None and not parsed.workers:
        refuse("--json needs --cluster, --static or --workers")
    for namespace in parsed.exclude_namespace or ():
        if message := dns_1123_label(namespace):
            refuse(f"argument --exclude-namespace: {message}")
    if parsed.expiry_days is not None and not 0 <= parsed.expiry_days <= 36500:
        refuse(f"argument --expiry-days: found {parsed.expiry_days}, expected a number from 0 to 36500")


def run(parsed: argparse.Namespace, config: Config, placed: list[Finding]) -> int:
    """Print the findings, and return the exit status: 1 if one is an error.

    *placed* are those about the placement of policies, which the state of a cluster replaces.

    Raises:
        ClusterError: the cluster cannot be reached, or the right to read registrations is missing.
        ConfigError: the TLS files of a pool cannot be used.
        GatewayError: no cluster is configured.
    """
    import asyncio

    from gateway.tools.inspection.placement import print_placements

    found: dict[str, list[Finding]] = {}
    if parsed.cluster or parsed.static is not None:
        place = "cluster" if parsed.static is None else "files"
        with Progress("comparing the configuration with the registration"):
            config, found[place], placed = _inspect_registration(parsed, config, placed)
    if parsed.workers:
        from gateway.tools.inspection.workers import check_workers

        with Progress("looking the policies up at their workers"):
            found["workers"] = asyncio.run(check_workers(config))
    every = [one for findings in found.values() for one in findings]
    if parsed.json:
        logs.print_output(*json.dumps([asdict(one) for one in (*every, *placed)], indent=2).split("\n"))
    else:
        print_placements(placed)
        for place, findings in found.items():
            errors, warnings = (
                sum(one.severity == severity for one in findings) for severity in ("error", "warning")
            )
            logs.print_output(*findings, f"{place}: {errors} errors, {warnings} warnings")
    return 1 if any(one.severity == "error" for one in every) else 0


def _inspect_registration(
    parsed: argparse.Namespace, config: Config, placed: list[Finding]
) -> tuple[Config, list[Finding], list[Finding]]:
    """Return *config* with the custom resources of the cluster, the findings, errors first, and *placed*."""
    from gateway.tools.inspection.placement import placement_findings
    from gateway.tools.inspection.registration import inspect

    refused: list[Problem] = []
    static: list[Finding] = []
    name = parsed.name
    if parsed.static is None:
        seen, whole, of_policies = _from_cluster(parsed, config, refused)
        placed = placement_findings(whole, seen, name)
    else:
        from gateway.tools.registration.static_manifests import SUFFIX

        (seen, static), whole, of_policies = _from_files(parsed.static), config, []
        name = None if name is None else name + SUFFIX
    now = datetime.datetime.now(datetime.UTC)
    days = _EXPIRY_DAYS if parsed.expiry_days is None else parsed.expiry_days
    accepted = parsed.exclude_namespace or ()
    if not parsed.allow_empty:
        refused += _no_webhooks(whole, parsed.config)
    found = [*static, *map(_of_problem, refused), *inspect(whole, seen, now, days, name, accepted)]
    found += _of_exceptions(config, whole, now.timestamp())
    found += of_policies
    return whole, sorted(found), placed


def _from_cluster(
    parsed: argparse.Namespace, config: Config, refused: list[Problem]
) -> tuple[ClusterState, Config, list[Finding]]:
    """Return the state of the cluster, *config* with custom resources, and findings that need neither."""
    import asyncio

    from gateway.config.merge.model import ca_bundle_sources
    from gateway.tools.inspection.collect import collect, collect_ca_bundles
    from gateway.tools.inspection.lock_outs import inspect_lock_outs
    from gateway.tools.inspection.plans import plan_findings
    from gateway.tools.inspection.policies import policy_findings

    target = cluster.select(config.gateway.kubernetes, parsed.kubeconfig, parsed.context)
    seen = asyncio.run(collect(target, parsed.name))
    whole = cluster.with_custom_resources(config, target, refused.append)
    if sources := ca_bundle_sources(whole):
        asyncio.run(collect_ca_bundles(target, sources, seen))
    findings = asyncio.run(policy_findings(config, whole, target))
    findings += asyncio.run(plan_findings(target, whole))
    return seen, whole, [*findings, *asyncio.run(inspect_lock_outs(target, seen.configurations))]


def _from_files(folder: Path) -> tuple[ClusterState, list[Finding]]:
    """Return the state that the files below *folder* describe, and the findings about the files."""
    from gateway.tools.inspection.model import ClusterState, Finding
    from gateway.tools.registration import static_manifests

    documents, mistakes = static_manifests.read(folder)
    advice = "kube-apiserver does not start with it, or continues with the files before it"
    return ClusterState(documents), [Finding("error", one.place, one.message, advice) for one in mistakes]


def _of_exceptions(files: Config, whole: Config, now: float) -> Iterator[Finding]:
    """Yield findings about the exceptions of *whole* that are not in *files*, whose warnings were printed."""
    from gateway.config.merge.model import ending
    from gateway.tools.inspection.model import Finding

    known = set(ending(files, now))
    for one in ending(whole, now):
        if one not in known:
            yield Finding(
                "warning", one.where, f"{one.field}: {one.message}", "delete it, or set another end"
            )


def _no_webhooks(config: Config, paths: Sequence[Path]) -> Sequence[Problem]:
    """Return the problem of a *config* without webhooks, with custom resources, which ``serve`` refuses."""
    from gateway.config.merge.load import require_webhooks

    try:
        require_webhooks(config, paths)
    except ConfigError as error:
        return error.problems[:1]
    return ()


def _of_problem(problem: Problem) -> Finding:
    """Return the finding for a problem of a custom resource, or of the whole configuration."""
    from gateway.tools.inspection.model import Finding

    if not problem.where:
        return Finding("error", "configuration", problem.message, "serve refuses to start with it")
    message = f"{problem.field}: {problem.message}" if problem.field else problem.message
    return Finding("error", problem.where, message, "correct the custom resource")
