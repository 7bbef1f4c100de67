"""``admission-gateway decisions``: recent decisions of a gateway, or of all replicas in a cluster."""

from __future__ import annotations

import asyncio
import json
import shlex
from typing import TYPE_CHECKING, Final

from gateway.base import logs
from gateway.tools.cli import admin_ports
from gateway.tools.cli.parser import Help

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from gateway.tools.status.decisions import Decisions

    Json = dict[str, object]

MAX_LIMIT: Final = 500
"""That of the page."""
_FILTERS: Final = {"of_namespace": "namespace", "user": "user", "webhook": "webhook", "outcome": "outcome"}
"""Options, and the parameters of the page."""
OUTCOMES: Final = ("Denied", "FailedClosed", "FailedOpen", "DryRunRefused", "Excluded", "Exempted", "Allowed")

HELP: Final = Help(
    "Show recent denials and failures of running gateways, and a sample of the other decisions, the "
    "latest first.",
    (
        ("what was denied in a namespace?", "decisions --cluster --outcome Denied --of-namespace shop"),
        ("why? all about the decision with this uid", "decisions 705ab4f5-6393-11e8-b7cc-42010a800002"),
    ),
    "docs/pages.md",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    add = parser.add_argument
    uid_help = "the review's uid, or the line of a denial that has it: print this decision with all details"
    add("uid", metavar="UID", nargs="?", help=uid_help)
    admin_ports.add_arguments(parser)
    add("--of-namespace", metavar="NS", help="only requests for objects in the namespace NS")
    add_filters(parser)
    add("--json", action="store_true", help="print them as JSON")
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Add the options that select decisions to *parser*, without that for the namespace."""
    add = parser.add_argument
    add("--user", help="only requests of this user")
    add("--webhook", metavar="NAME", help="only requests that this webhook is part of")
    outcome_help = f"only requests for which a webhook has this outcome: {', '.join(OUTCOMES)}"
    add("--outcome", metavar="OUTCOME", choices=OUTCOMES, help=outcome_help)
    add(
        "--limit", metavar="N", type=int, default=20, help=f"print at most N, up to {MAX_LIMIT} (default: 20)"
    )


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Print the decisions, and return the exit status. *refuse* exits with an error.

    The status is 1 if the decision with the uid was not found, or a gateway did not answer.

    Raises:
        GatewayError: the pods cannot be listed, or a file of credentials cannot be used.
    """
    from gateway.pure.core.decision import uid_in
    from gateway.tools.status.decisions import merged, read_decisions

    admin_ports.check(parsed, refuse)
    if parsed.uid is not None:
        parsed.uid = uid_in(parsed.uid)
    if not 1 <= parsed.limit <= MAX_LIMIT:
        refuse(f"argument --limit: found {parsed.limit}, expected a number from 1 to {MAX_LIMIT}")
    wanted = {name: getattr(parsed, option) for option, name in _FILTERS.items() if getattr(parsed, option)}
    if parsed.uid is not None and wanted:
        refuse("UID excludes --of-namespace, --user, --webhook and --outcome")
    wanted |= {"limit": str(parsed.limit)} if parsed.uid is None else {"uid": parsed.uid}
    found = asyncio.run(admin_ports.read_each(parsed, lambda port: read_decisions(port, wanted)))
    decisions = merged(found, parsed.limit)
    if parsed.json:
        print_json(found, decisions)
    elif decisions or parsed.uid is None:
        print_text(found, parsed.limit)
        if not decisions and not any(each.error for each in found):
            meant = _meant_webhook(parsed) if parsed.webhook else ""
            logs.print_output(
                f"no decision matches{meant}" if wanted.keys() - {"limit"} else "no decision yet"
            )
    admin_ports.say_how_to_choose(parsed, (each.error for each in found))
    if parsed.uid is not None:
        if not decisions:
            logs.print_error(
                f"no decision with the uid {parsed.uid} was found in:",
                *not_found(parsed, found, parsed.uid),
            )
        return int(not decisions)
    return int(any(each.error or each.missing for each in found))


def _meant_webhook(parsed: argparse.Namespace) -> str:
    """Return which webhook ``--webhook`` probably means, if no gateway has one of its name."""
    from gateway.base.text import did_you_mean, shown
    from gateway.tools.status.reading import read

    readings = asyncio.run(admin_ports.read_each(parsed, read))
    known = {webhook["name"] for one in readings if one.overview for webhook in one.overview["webhooks"]}
    if not known or parsed.webhook in known:
        return ""
    return f"; there is no webhook {shown(parsed.webhook)}{did_you_mean(parsed.webhook, known)}"


def print_text(found: Sequence[Decisions], limit: int) -> None:
    """Print the newest *limit* decisions in *found*, and which gateways did not answer."""
    from gateway.tools.status.decisions import text

    lines = list(text(found, limit))
    logs.print_output(*(lines[:-1] if lines[-1:] == [""] else lines))


def print_json(found: Sequence[Decisions], decisions: Sequence[Json], **members: object) -> None:
    """Print *decisions*, which were among *found*, as a document that also has *members*."""
    from gateway.base.text import printable_json

    document = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "Decisions",
        "gateways": [each.as_json() for each in found],
        "decisions": decisions,
        **members,
    }
    logs.print_text(printable_json(json.dumps(document, ensure_ascii=False, indent=2)) + "\n")


def not_found(parsed: argparse.Namespace, found: Sequence[Decisions], word: str) -> Iterator[str]:
    """Yield the places that were read, the reasons for which a decision may be missing, and where else it is.

    *word* finds it in the decision log.
    """
    from gateway.tools.status.decisions import places

    word = shlex.quote(word)
    yield from places(found)
    yield "It may be missing because"
    yield "  - it was allowed: of allowed requests only a small sample is kept"
    yield "  - the gateway that made it has ended: a replaced pod takes its decisions with it"
    yield "  - it was displaced by later ones, or came too fast to be kept"
    if parsed.cluster:
        selector = parsed.selector or admin_ports.DEFAULT_SELECTOR
        pods = f"--namespace {shlex.quote(parsed.namespace)} --selector {shlex.quote(selector)}"
        command = f"kubectl logs {pods}"
        yield f"The decision log has all denials and failures: {command} --tail=-1 | grep {word}"
    else:
        yield f"  - another replica made it: admission-gateway decisions {word} --cluster"
        yield "The decision log has all denials and failures, wherever it is kept."
