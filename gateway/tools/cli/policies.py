"""``admission-gateway policies``: the ready-made policies, and configuration for them."""

from __future__ import annotations

import json
import sys
import textwrap
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from gateway.base import logs
from gateway.base.errors import GatewayError
from gateway.base.terminal import Cell, table_rows, width_of
from gateway.base.text import closest, did_you_mean, shown
from gateway.tools.cli.parser import Help, Parser

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from admission_gateway_worker.policies.definition import Definition

POOL: Final = "policies"
COMMAND: Final = ("python", "-m", "admission_gateway_worker.policies")

HELP: Final = Help(
    "List the ready-made policies.",
    (
        ("list them all", "policies"),
        ("print a configuration that has two of them", "policies show require-labels pod-security"),
    ),
    "docs/catalogue/index.md",
)
_SHOW: Final = Help(
    "Print policies with example parameters, and a pool of workers that serves them.",
    (
        ("write a configuration", "policies show require-labels > gateway.yaml"),
        ("with two policies", "policies show deny-latest-tag require-probes"),
    ),
    "docs/catalogue/index.md",
)


def add_arguments(parser: Parser) -> None:
    """Add the arguments of the command to *parser*."""
    parser.add_argument("--json", action="store_true", help="print the policies as JSON")
    parser.set_defaults(run=lambda parsed, _: _list(as_json=parsed.json))
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    show = commands.add_parser("show", help="print a configuration with policies", about=_SHOW)
    parser.suggest = _suggest
    show.add_argument("names", metavar="NAME", nargs="+", help="name of a policy")
    show.set_defaults(run=lambda parsed, _: _show(parsed.names))


def _suggest(name: str) -> str:
    """Return the command for the policy that *name*, which is no command, probably means."""
    from admission_gateway_worker.policies import definitions

    close = closest(name, (each.name for each in definitions()))
    return f"policies show {close}" if close else ""


def _list(*, as_json: bool) -> int:
    from admission_gateway_worker.policies import definitions
    from admission_gateway_worker.policies.definition import TOPICS

    found = definitions()
    if as_json:
        logs.print_text(json.dumps([_described(each) for each in found], indent=2) + "\n")
        return 0
    rows: list[list[Cell]] = [[("", "")] * 3]
    for topic in TOPICS:
        of_topic = [each for each in found if each.topic == topic]
        rows += [[("", "")], [(f"{topic}:", "bold")]]
        rows += [[(f"  {each.name}", ""), (_kind(each), "dim"), (each.summary, "")] for each in of_topic]
    _, _, *lines = table_rows(rows, width_of(sys.stdout))
    logs.print_output(*chain.from_iterable(lines))
    return 0


def _kind(definition: Definition) -> str:
    return "mutating" if definition.mutating else "validating"


def _described(definition: Definition) -> dict[str, object]:
    return {
        "name": definition.name,
        "topic": definition.topic,
        "summary": definition.summary,
        "mutating": definition.mutating,
        "needsNamespace": definition.needs_namespace,
        "needsCluster": definition.needs_cluster,
        "parameters": definition.parameters,
    }


def _show(names: Sequence[str]) -> int:
    """Raises GatewayError if there is no policy with one of the *names*."""
    from admission_gateway_worker.policies import definitions
    from gateway.tools.registration.yaml_output import to_yaml

    found = {each.name: each for each in definitions()}
    for name in names:
        if name not in found:
            meant = did_you_mean(name, found) or '; "admission-gateway policies" lists them'
            raise GatewayError(f"there is no policy {shown(name)}{meant}")
    chosen = [found[name] for name in dict.fromkeys(names)]
    pool, *webhooks = (to_yaml(each, is_compact=True) for each in configuration(chosen))
    commented = (
        f"{''.join(map(_comment, needs(one)))}{text}" for one, text in zip(chosen, webhooks, strict=True)
    )
    logs.print_text("---\n".join((pool, *commented)))
    return 0


def needs(definition: Definition) -> Iterator[str]:
    """Yield what a gateway or a worker has to have for the policy, as sentences."""
    if definition.needs_namespace:
        yield (
            "Needs the Namespaces of requests: the field `kubernetes` in the GatewayConfiguration, or "
            "Namespace documents in the configuration."
        )
    if definition.rights:
        verb = "Needs" if definition.needs_cluster else "Can use"
        yield (
            f"{verb} access of the worker to the API server, by KUBECONFIG or the service account of its "
            f"pod, with the rights: {definition.rights}."
        )


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in textwrap.wrap(text, 100, break_on_hyphens=False))


def configuration(definitions: Iterable[Definition]) -> Sequence[dict[str, Any]]:
    """Return a WorkerPool that the gateway starts, and for each policy a webhook with its example."""
    pool = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": POOL},
        "spec": {"command": list(COMMAND)},
    }
    return (pool, *map(_webhook, definitions))


def _webhook(definition: Definition) -> dict[str, Any]:
    worker: dict[str, Any] = {"pool": POOL, "policy": definition.name}
    if definition.example:
        worker["parameters"] = dict(definition.example)
    webhook = {
        "name": f"{definition.name}.policies.admission-gateway.io",
        "clientConfig": {"worker": worker},
        "rules": [dict(rule) for rule in definition.rules],
        "failurePolicy": definition.failure_policy,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{_kind(definition).capitalize()}WebhookConfiguration",
        "metadata": {"name": definition.name},
        "webhooks": [webhook],
    }
