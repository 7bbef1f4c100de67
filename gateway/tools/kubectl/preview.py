"""``kubectl admission preview``: what the configuration in force says to manifests, asked of a gateway.

The gateway runs each object through its own configuration and workers as a dry run. A configuration that is
not in force is for ``admission-gateway preview``. Exit status: as that command.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.base import logs
from gateway.base.errors import GatewayError, MalformedReview, ReviewError
from gateway.tools.cli import admin_ports
from gateway.tools.cli.parser import Help
from gateway.tools.kubectl.options import add_cluster, add_namespace, namespace_of, target_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Callable, Sequence

    from gateway.tools.kubectl.requests import Requests, User
    from gateway.tools.preview.manifests import Input, Manifest
    from gateway.tools.status.explanations import ExplainingPort, Explanation

    Json = dict[str, Any]

HELP: Final = Help(
    "Say what the configuration in force does to manifests, and to the Pods that they lead to. Nothing "
    "is changed.",
    (
        ("before you apply a file", "admission preview -f web.yaml -n shop"),
        ("the output of Helm", "admission preview -f -"),
    ),
    "docs/kubectl-plugin.md",
)
_WRONG, _UNDECIDED = 2, 3
_MAX_CREATED: Final = 20
"""Objects that controllers create from one of the input."""


class Result(NamedTuple):
    """What a gateway said to one object."""

    place: str
    request: Json
    created_from: str
    """KIND NAME of the object from which a controller creates it. Empty for one of the input."""
    explanation: Explanation

    @property
    def title(self) -> str:
        """KIND NAMESPACE/NAME."""
        return title_of(self.request)

    def as_json(self) -> Json:
        """Return the member of ``objects`` in the JSON of the command."""
        return {
            "place": self.place,
            "object": self.title,
            "createdFrom": self.created_from,
            "allowed": self.explanation.is_allowed,
            "gateway": self.explanation.gateway,
            "decisions": self.explanation.decisions,
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    add = parser.add_argument
    add("paths", metavar="DIR_OR_FILE", nargs="*", help="rendered manifests; - for standard input")
    add(
        *("-f", "--filename"),
        dest="files",
        metavar="DIR_OR_FILE",
        action="append",
        default=[],
        help="the same; may be repeated",
    )
    add_namespace(parser, "namespace of objects that name none (default: that of the context)")
    add_cluster(parser)
    parser.set_defaults(run=lambda parsed, _: run(parsed, parser.error))


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Print what the gateway says, and return the exit status. *refuse* exits with an error."""
    from gateway.tools.preview.manifests import Input

    paths = [*parsed.paths, *parsed.files]
    if not paths:
        refuse("expected manifests: -f FILE, -f DIR or -f -")
    try:
        found = Input(paths)
    except OSError as error:
        logs.print_error(f"kubectl admission: {error}")
        return _WRONG
    try:
        return asyncio.run(_preview(parsed, found))
    except GatewayError as error:
        logs.print_error(f"kubectl admission: the preview could not be completed: {error}")
        return _UNDECIDED
    finally:
        found.close()


async def _preview(parsed: argparse.Namespace, found: Input) -> int:
    """Print the results, and return the exit status."""
    from gateway.server.kubernetes.access import connect
    from gateway.tools.kubectl.requests import Requests, who_asks
    from gateway.tools.preview.manifests import Manifest

    results: list[Result] = []
    problems = 0
    api = await asyncio.to_thread(connect, target_of(parsed))
    try:
        requests, user = Requests(api, namespace_of(parsed)), await who_asks(api)
        async with admin_ports.pods_of(parsed) as ports:
            for one in found.read():
                try:
                    if not isinstance(one, Manifest):
                        raise MalformedReview(one.message)
                    async for result in explained(one, requests, user, ports):
                        results.append(result)
                        if not parsed.json:
                            logs.print_output(*_lines(result))
                except ReviewError as error:
                    problems += 1
                    place = one.place() if isinstance(one, Manifest) else one.place
                    logs.print_error(f"{place}: error: {error}")
    finally:
        await api.close()
    _end(parsed, results, user)
    if problems or not results:
        return _WRONG
    return int(any(not one.explanation.is_allowed for one in results))


async def explained(
    manifest: Manifest, requests: Requests, user: User, ports: Sequence[ExplainingPort]
) -> AsyncIterator[Result]:
    """Yield what a gateway says to the object of *manifest*, and to those that controllers create from it.

    Raises:
        ReviewError: it is no object that can be reviewed.
        GatewayError: no gateway answers.
    """
    from gateway.engine.object_review import review_of
    from gateway.pure.workloads.expansion import created_by, direct
    from gateway.tools.kubectl.requests import User
    from gateway.tools.status.explanations import explain

    waiting: list[tuple[Json, User, str]] = [(manifest.object, user, "")]
    for _ in range(1 + _MAX_CREATED):
        if not waiting:
            return
        content, creator, created_from = waiting.pop(0)
        request = await requests.creation(content, creator)
        explanation = await explain(ports, review_of(request))
        yield Result(str(manifest.place()), request, created_from, explanation)
        stored = explanation.decisions[-1]["finalObject"] if explanation.decisions else None
        if not explanation.is_allowed or not isinstance(stored, dict):
            continue
        for made in direct(created_by(stored, str(request.get("namespace") or "")), stored):
            waiting.append((made.object, User(made.user, made.groups), title_of(request)))


def title_of(request: Json) -> str:
    """Return KIND NAMESPACE/NAME of the object of *request*; a generated name ends with ``*``."""
    metadata = request["object"].get("metadata") or {}
    name = request["name"] or f"{metadata.get('generateName', '')}*"
    return (
        f"{request['kind']['kind']} {request['namespace']}/{name}"
        if request.get("namespace")
        else (f"{request['kind']['kind']} {name}")
    )


def _lines(result: Result) -> list[str]:
    explanation = result.explanation
    verdict = "allowed" if explanation.is_allowed else "denied"
    verdict = ", ".join(filter(None, (verdict, explanation.not_enforced)))
    origin = f", created from {result.created_from}" if result.created_from else ""
    return [
        f"{result.place}: {result.title}{origin}: {verdict}",
        *explanation.lines(only_effects=True),
    ]


def _end(parsed: argparse.Namespace, results: Sequence[Result], user: User) -> None:
    """Print the summary, or all as JSON."""
    from gateway.base.report_lines import number_of
    from gateway.base.text import printable_json

    if parsed.json:
        document = {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "Explanations",
            "user": user.name,
            "objects": [one.as_json() for one in results],
        }
        logs.print_text(printable_json(json.dumps(document, ensure_ascii=False, indent=2)) + "\n")
    elif results:
        denied = sum(not one.explanation.is_allowed for one in results)
        digests = {one["configurationDigest"][:12] for each in results for one in each.explanation.decisions}
        logs.print_output(
            f"{number_of(len(results), 'object')} as {user.name}: {len(results) - denied} allowed, "
            f"{denied} denied, by the configuration in force ({', '.join(sorted(digests)) or 'no webhook'})"
        )
    else:
        logs.print_error("kubectl admission: found no object of Kubernetes in the input")
