"""``admission-gateway check``: validates a configuration, and with an option also its registration."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from gateway.base import logs
from gateway.base.errors import ConfigError, Problem
from gateway.base.text import shown
from gateway.config.yaml.fields import child
from gateway.tools.cli.arguments import add_config, add_kubernetes
from gateway.tools.cli.parser import Help, Parser
from gateway.tools.inspection import command as inspection

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Webhook

HELP: Final = Help(
    "Validate a configuration exactly as serve does. Print every problem with file, document and field.",
    (
        ("validate the configuration in a folder", "check --config config"),
        ("also compare it with what is registered in the cluster", "check --config config --cluster"),
    ),
    "docs/commands.md",
)


def add_arguments(parser: Parser) -> None:
    """Add the options of the command to *parser*."""
    add_config(parser)
    parser.add_argument(
        "--allow-empty", action="store_true", help="accept a configuration without webhooks, as serve does"
    )
    add_kubernetes(parser, "also say what this version changes for the configuration")
    inspection.add_arguments(parser)
    parser.set_defaults(run=run, parser=parser)


def run(parsed: argparse.Namespace, _: list[str]) -> int:
    """Validate the configuration, and return the exit status.

    Raises:
        ConfigError: the configuration is invalid.
    """
    from gateway.config.merge.load import load, require_webhooks
    from gateway.config.merge.model import ending, located, summary
    from gateway.tools.inspection.placement import placement_findings, print_placements
    from gateway.tools.inspection.ready_made import ready_made_problems

    inspection.refuse_without_cluster(parsed, parsed.parser.error)
    config = load(parsed.config)
    kubernetes = config.gateway.kubernetes
    has_custom_resources = kubernetes is not None and kubernetes.custom_resources
    if not parsed.allow_empty and not has_custom_resources:
        require_webhooks(config, parsed.config)
    found = (*ready_made_problems(config), *_of_serving_certificate(config))
    judged = (*ending(config, time.time()), *_of_policies(config), *_of_plans(config))
    warnings = (*config.warnings, *(located(one, config.documents) for one in judged))
    logs.print_error(*(f"warning: {warning}" for warning in warnings))
    if found:
        raise ConfigError([located(one, config.documents) for one in found])
    if config.gateway.tls.cert_file is None and config.gateway.tls.self_managed is None:
        logs.print_error("warning: no tls.certFile: serve needs --tls-cert and --tls-key, or --dev")
    if has_custom_resources and not parsed.cluster:
        logs.print_error("warning: custom resources in the cluster are not checked without --cluster")
    if not parsed.json:
        logs.print_output(f"valid: {summary(config)}")
    status = 0 if parsed.kubernetes is None else _print_forecast(config, parsed)
    placed = [] if parsed.cluster else placement_findings(config)
    if parsed.cluster or parsed.static is not None or parsed.workers:
        return max(status, inspection.run(parsed, config, placed))
    print_placements(placed)
    return status


def _print_forecast(config: Config, parsed: argparse.Namespace) -> int:
    """Print what the version of ``--kubernetes`` changes; return 1 if something stops working."""
    from gateway.tools.preview.forecast import Forecast

    forecast = Forecast(parsed.kubernetes)
    forecast.add_config(config, parsed.config)
    logs.print_error(*forecast.lines())
    return int(forecast.errors > 0)


def _of_serving_certificate(config: Config) -> Iterator[Problem]:
    """Yield the problem if API servers refuse the serving certificate because of its time."""
    from gateway.base.certificates import certificate_parts, chain_problem
    from gateway.base.files import read_file

    file = config.gateway.tls.cert_file
    if file is not None and (message := chain_problem(certificate_parts(read_file(file)), time.time())):
        reason = f"{file} {message}; API servers refuse it"
        yield Problem("GatewayConfiguration", "tls.certFile", reason)


def _of_plans(config: Config) -> Iterator[Problem]:
    """Yield a warning for each stage whose percentage of the known namespaces is none of them."""
    from gateway.pure.rollout_plan.model import enforced_in, plan_of

    labels = {name: one.labels for name, one in config.namespaces.items()}
    for webhook in config.webhooks if labels else ():
        plan = plan_of(webhook)
        for step, stage in enumerate(() if plan is None else plan.stages):
            if stage.percent_of_namespaces and not enforced_in(webhook.name, stage, labels):
                found = f"{stage.percent_of_namespaces} percent of {len(labels)} namespaces"
                message = f"{found}, those in the configuration, are none of them"
                where, rollout = _rollout_of(webhook, config)
                yield Problem(where, f"{rollout}.plan.stages[{step}].percentOfNamespaces", message)


def _rollout_of(webhook: Webhook, config: Config) -> tuple[str, str]:
    """Return kind and name of the document with the roll-out of *webhook*, and the path there."""
    from gateway.config.kinds.policy_rollout import ROLLOUT
    from gateway.config.yaml.documents import PHASES

    if webhook.document:
        kind, *_, name = webhook.document.split("/")
        return f"{kind} {shown(name)}", child("metadata.annotations", ROLLOUT)
    kind = next(kind for kind, phase in PHASES.items() if phase == webhook.phase)
    where = f"{kind} {shown(webhook.configuration)}"
    entries: Any = (config.documents[where].content or {})["webhooks"]
    return where, f"webhooks[{[one['name'] for one in entries].index(webhook.name)}].rollout"


def _of_policies(config: Config) -> Iterable[Problem]:
    """Return the warnings about admission policies, by the schemas that come with the gateway."""
    from gateway.pure.core.webhook import PolicyRef

    if not any(isinstance(each.client, PolicyRef) for each in config.webhooks):
        return ()
    from gateway.pure.openapi.documents import built_in_schemas
    from gateway.tools.inspection.policies import policy_warnings

    return policy_warnings(config, built_in_schemas())
