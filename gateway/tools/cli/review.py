"""``admission-gateway review``: runs one AdmissionReview or object through the configured webhooks.

Exit status: 0 allowed, 1 denied, 2 wrong usage or configuration, 3 could not be decided.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gateway.base import logs
from gateway.base.errors import ClusterError, ConfigError, MalformedReview, ReviewError
from gateway.base.terminal import Cell, Style, Styled
from gateway.base.text import printable_json
from gateway.engine.object_review import DEFAULT_GROUPS, DEFAULT_USER, RequestOptions, request_for, review_of
from gateway.pure.core.review import OPERATIONS
from gateway.pure.core.verdict import Failed
from gateway.tools.cli.arguments import add_config, load_config
from gateway.tools.cli.parser import Help, Parser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from gateway.config.merge.model import Config
    from gateway.engine.dry_run import DryRun
    from gateway.engine.object_review import Json
    from gateway.pure.core.webhook import Phase

_OUTCOME: Final = re.compile(
    r"(\S+ \S+(?: on pod templates)?: matched(?: again)?, )(allowed|denied|failed)\b"
)
_STYLES: Final[dict[str, Style]] = {"allowed": "good", "denied": "denied", "failed": "failed"}
STATUS: Final = {"allowed": 0, "denied": 1, "undecided": 3}
WRONG: Final = 2
_FOR_OBJECTS = ("operation", "user", "group", "namespace", "old", "resource")
"""Options that say about an object what an AdmissionReview says itself."""

HELP: Final = Help(
    "Run one AdmissionReview, or a plain object, through the webhooks of a configuration. Print the "
    "decision, and the changes of the object as a diff.",
    (
        ("try an object, and see what each webhook says", "review pod.yaml --config config --explain"),
        ("try it as another user", "review pod.yaml --config config --user alice --group devs"),
    ),
    "docs/commands.md",
)


def add_arguments(parser: Parser) -> None:
    """Add the options of the command to *parser*."""
    add = parser.add_argument
    add(
        "file",
        metavar="FILE",
        help="file with an AdmissionReview or a Kubernetes object, JSON or YAML; - for standard input",
    )
    add_config(parser)
    add(
        "--phase",
        choices=("mutate", "validate", "both"),
        default="both",
        help="phases to run (default: %(default)s)",
    )
    add("--explain", action="store_true", help="print for each webhook whether it matched, and its outcome")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument(
        "--json", action="store_true", help="print the AdmissionReview that answers; the default for one"
    )
    shape.add_argument(
        "--text", action="store_true", help="print the decision and the changes; the default for an object"
    )
    of_object = parser.add_argument_group("for an object")
    add = of_object.add_argument
    add("--operation", choices=OPERATIONS, help="operation of the request (default: CREATE)")
    add("--old", metavar="FILE", help="file with the stored object, for UPDATE")
    add("--user", metavar="NAME", help=f"user of the request (default: {DEFAULT_USER})")
    add(
        "--group",
        metavar="NAME",
        action="append",
        help=f"group of the user; may be repeated (default: {', '.join(DEFAULT_GROUPS)})",
    )
    add("--namespace", metavar="NAME", help="namespace of the request (default: the object's, or default)")
    add(
        "--resource",
        metavar="NAME[/SUBRESOURCE]",
        help="plural name of the resource, such as pods/exec (default: the resource of the object's kind)",
    )
    add(
        "--no-dry-run",
        action="store_true",
        help="call webhooks with side effects too, as for a request that is not a dry run",
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, _: list[str]) -> int:
    """Print the decision, and return the exit status."""
    import uvloop

    from gateway.tools.offline.reading import read_review

    try:
        config = load_config(parsed.config)
        content, found = read_review(parsed.file)
        is_review = found.get("kind") == "AdmissionReview"
        body = _checked_review(content, parsed) if is_review else _body(found, parsed)
        reviewed = uvloop.run(_review(config, body, parsed.phase))
    except ConfigError as error:
        logs.print_error(*error.problems)
        return WRONG
    except ReviewError as error:
        logs.print_error(f"admission-gateway: {error}")
        return WRONG
    except ClusterError as error:
        logs.print_error(f"admission-gateway: the request could not be decided: {error}")
        return STATUS["undecided"]
    if parsed.explain:
        logs.print_error(*map(_explained, reviewed.explained()), *_placements(config))
    if parsed.json or (is_review and not parsed.text):
        logs.print_output(printable_json(reviewed.response().decode()))
    else:
        logs.print_output(*_decision(reviewed))
        logs.print_output(*_changes(reviewed))
    return STATUS[reviewed.result]


def _placements(config: Config) -> Iterator[str]:
    """Yield a line for each policy that is not to stay in the gateway, and for each reason why it does."""
    from gateway.tools.inspection.placement import placement_findings

    for one in placement_findings(config):
        yield f"{one.place}: {one.message}; {one.advice}" if one.advice else f"{one.place}: {one.message}"


def _checked_review(content: bytes, parsed: argparse.Namespace) -> bytes:
    given = [f"--{name}" for name in _FOR_OBJECTS if getattr(parsed, name) is not None]
    given += ["--no-dry-run"] if parsed.no_dry_run else []
    if given:
        raise MalformedReview(
            f"{parsed.file}: found {given[0]}, expected it with an object, not an AdmissionReview"
        )
    return content


def _body(found: Json, parsed: argparse.Namespace) -> bytes:
    """Return the AdmissionReview for the object *found*."""
    from gateway.tools.offline.reading import read_review

    options = RequestOptions(
        parsed.operation or "CREATE",
        parsed.user or DEFAULT_USER,
        tuple(parsed.group or DEFAULT_GROUPS),
        parsed.namespace or "",
        parsed.resource or "",
        None if parsed.old is None else read_review(parsed.old)[1],
        not parsed.no_dry_run,
    )
    try:
        return review_of(request_for(found, options))
    except ReviewError as error:
        needs_old = options.operation == "UPDATE" and options.old is None
        raise MalformedReview(
            f"{parsed.file}: {error}{'; give it with --old FILE' if needs_old else ''}"
        ) from None


async def _review(config: Config, body: bytes, phase: str) -> DryRun:
    from gateway.engine.dry_run import BOTH_PHASES
    from gateway.tools.offline.gateway import offline_gateway

    phases: tuple[Phase, ...] = tuple(one for one in BOTH_PHASES if phase in (one, "both"))
    async with offline_gateway(config) as gateway:
        return await gateway.review(body, phases)


def _decision(reviewed: DryRun) -> Iterator[str]:
    """Yield the decision as text: result, warnings, and failures that let the request pass."""
    decision = reviewed.decision
    if decision.status is None:
        yield Styled(("allowed", "good"))
    else:
        is_denied = reviewed.result == "denied"
        named: Cell = ("denied", "denied") if is_denied else ("could not be decided", "failed")
        first, *rest = decision.status.message.split("\n")
        yield Styled(named, f" ({decision.status.code} {decision.status.reason}): {first}")
        yield from (f"  {line}" for line in rest)
    for warning in decision.warnings:
        yield Styled(("warning", "warn"), f": {warning}")
    for outcome in reviewed.outcomes:
        if isinstance(outcome.verdict, Failed) and not outcome.rejects:
            name = outcome.invocation.webhook.name
            why = f"{outcome.verdict.cause}; failurePolicy Ignore lets the request pass"
            yield Styled(("failed", "failed"), f": {name}: {why}")


def _explained(line: str) -> str:
    """Return a *line* of ``--explain`` with its verdict in colours."""
    found = _OUTCOME.match(line)
    if found is None:
        return line
    before, outcome = found.groups()
    return Styled(before, (outcome, _STYLES[outcome]), line[found.end() :])


def _changes(reviewed: DryRun) -> Iterator[str]:
    """Yield the changes of the object as text."""
    from gateway.tools.offline.changes import changes, coloured

    request = reviewed.request
    if request.has_object:
        lines = list(changes(request.object, reviewed.final_object))
        if lines:
            yield "changes of the object:"
        yield from map(coloured, lines)
