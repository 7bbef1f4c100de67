"""``kubectl admission why``: the newest decision about an object, or the decision with a uid, explained.

Exit status: 0 if a decision was found, 1 if none was found, 2 for wrong usage.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from gateway.base import logs
from gateway.base.errors import ClusterError, GatewayError
from gateway.tools.cli import admin_ports, decisions
from gateway.tools.cli.parser import Help
from gateway.tools.kubectl.options import add_cluster, add_namespace, namespace_of, target_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.kubectl.requests import Requests
    from gateway.tools.status.admin_ports import PodPort
    from gateway.tools.status.decisions import Decisions
    from gateway.tools.status.explanations import Explanation

    Json = dict[str, Any]

HELP: Final = Help(
    "Say why a request was denied or an object was changed: the newest decision about it of all replicas.",
    (
        (
            "why was it denied? by the uid in the message of the denial",
            "admission why 705ab4f5-6393-11e8-b7cc-42010a800002",
        ),
        ("what was decided about an object?", "admission why deployment/web -n shop"),
    ),
    "docs/kubectl-plugin.md",
)
_NOT_FOUND: Final = 404
_PARENTS: Final = {"ReplicaSet": "Deployment", "Job": "CronJob"}
"""Kinds whose controllers append a part to the name of their parent, and the kinds of the parents."""
_WITH_PODS: Final = ("DaemonSet", "ReplicationController", "StatefulSet")
_PODS: Final = 20
"""The newest decisions about Pods of the namespace whose owners are looked up."""


class Subject(NamedTuple):
    """The object that a question is about."""

    kind: str
    namespace: str
    name: str
    stored_at: str = ""
    """Its path at the API server. Empty if the object itself is known."""
    content: Json | None = None

    def __str__(self) -> str:
        """KIND NAMESPACE/NAME."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    add = parser.add_argument
    add(
        "about",
        metavar="UID|TYPE/NAME",
        nargs="*",
        help="uid of the review, the line of a denial that has it, TYPE/NAME, or TYPE NAME",
    )
    add("-f", "--filename", dest="file", metavar="FILE", help="file with the object; - for standard input")
    add("--limit", metavar="N", type=int, default=1, help="print the newest N decisions (default: 1)")
    add_namespace(parser, "namespace of the object (default: that of the context)")
    add_cluster(parser)
    parser.set_defaults(
        run=lambda parsed, _: run(parsed, parser.error), user=None, webhook=None, outcome=None
    )


def run(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> int:
    """Print the answer, and return the exit status. *refuse* exits with an error.

    Raises:
        GatewayError: the cluster cannot be asked, or the object cannot be read.
    """
    parsed.uid = _uid(parsed.about)
    if bool(parsed.about) is (parsed.file is not None):
        refuse("expected a UID, TYPE/NAME, TYPE NAME, or -f FILE")
    if parsed.uid is not None:
        parsed.of_namespace = None
        return decisions.run(parsed, refuse)
    if parsed.about and len("/".join(parsed.about).split("/")) != 2:
        refuse(f"found {' '.join(parsed.about)}, expected TYPE/NAME or TYPE NAME")
    if not 1 <= parsed.limit <= decisions.MAX_LIMIT:
        refuse(f"argument --limit: found {parsed.limit}, expected a number from 1 to {decisions.MAX_LIMIT}")
    return asyncio.run(_why(parsed))


def _uid(words: Sequence[str]) -> str | None:
    """Return the uid that *words* of a command line name, or None."""
    from gateway.pure.core.decision import uid_in

    text = " ".join(words)
    uid = uid_in(text)
    # The words of a type and a name are no uid.
    return uid if uid != text.strip() or (len(words) == 1 and not {" ", "/"} & set(uid)) else None


async def _why(parsed: argparse.Namespace) -> int:
    from gateway.server.kubernetes.access import connect
    from gateway.tools.kubectl.requests import Requests
    from gateway.tools.status.decisions import merged

    api = await asyncio.to_thread(connect, target_of(parsed))
    try:
        requests = Requests(api, namespace_of(parsed))
        subject = await _subject(parsed, requests)
        async with admin_ports.pods_of(parsed) as ports:
            found = await _decisions(ports, subject, parsed.limit)
            if newest := merged(found, parsed.limit):
                if parsed.json:
                    decisions.print_json(found, newest)
                else:
                    decisions.print_text(found, parsed.limit)
                return 0
            answer = await _dry_run(api, requests, subject, ports)
    finally:
        await api.close()
    explanation = None if isinstance(answer, str) else answer
    if parsed.json:
        said = None if explanation is None else explanation.decisions
        decisions.print_json(found, [], dryRun=said)
    logs.print_error(*_nothing(parsed, subject, found))
    if not parsed.json:
        logs.print_output(*_now(answer))
    return 1


async def _subject(parsed: argparse.Namespace, requests: Requests) -> Subject:
    """Return the object that the command line names.

    Raises:
        GatewayError: the cluster has no such kind, or the file has no object, or several.
    """
    from gateway.server.kubernetes import discovery
    from gateway.tools.kubectl.requests import User

    default = namespace_of(parsed)
    if parsed.file is not None:
        content = _object_in(parsed.file)
        request = await requests.creation(content, User())
        name = request["name"] or str(content["metadata"].get("generateName", ""))
        return Subject(request["kind"]["kind"], str(request.get("namespace") or ""), name, content=content)
    word, name = "/".join(parsed.about).split("/")
    resource = discovery.find(await requests.resources(), word)
    namespace = default if resource.is_namespaced else ""
    path = resource.path(quote(namespace, safe=""), quote(name, safe=""))
    return Subject(resource.kind, namespace, name, path)


def _object_in(file: str) -> Json:
    from gateway.tools.preview.manifests import Input, Manifest

    found = Input([file])
    try:
        read = list(found.read())
    finally:
        found.close()
    objects = [one for one in read if isinstance(one, Manifest)]
    for one in read:
        if not isinstance(one, Manifest):
            raise GatewayError(f"{one.place}: {one.message}")
    if len(objects) != 1:
        raise GatewayError(f"{file}: found {len(objects)} objects, expected one")
    return objects[0].object


async def _decisions(ports: Sequence[PodPort], subject: Subject, limit: int) -> list[Decisions]:
    """Return the newest *limit* decisions about *subject* of all gateways, with all details."""
    from gateway.tools.status.decisions import merged, read_decisions

    found = await asyncio.gather(*(_of_port(port, subject, limit) for port in ports))
    newest = merged(found, limit)
    detailed = []
    for port, each in zip(ports, found, strict=True):
        uids = [one["uid"] for one in newest if one["gateway"] == each.name]
        read = [await read_decisions(port, {"uid": str(uid)}) for uid in uids]
        detailed.append(replace(each, decisions=[one for some in read for one in some.decisions]))
    return detailed


async def _of_port(port: PodPort, subject: Subject, limit: int) -> Decisions:
    """Return decisions about *subject*, and about the Pods that controllers create from it.

    Such a Pod may be denied before it has a name, so its owner is looked up.
    """
    from gateway.tools.status.decisions import read_decisions

    of_namespace = {"namespace": subject.namespace}
    wanted = {**of_namespace, "kind": subject.kind, "name": subject.name, "limit": str(limit)}
    found = await read_decisions(port, wanted)
    if subject.kind not in (*_PARENTS, *_PARENTS.values(), *_WITH_PODS):
        return found
    pods = await read_decisions(port, {**of_namespace, "kind": "Pod", "limit": str(_PODS)})
    for one in pods.decisions:
        read = await read_decisions(port, {"uid": str(one["uid"])})
        found.decisions.extend(pod for pod in read.decisions if (subject.kind, subject.name) in _owners(pod))
    return found


def _owners(pod: Json) -> Iterator[tuple[str, str]]:
    """Yield kind and name of the workloads that lead to the Pod of a decision."""
    match pod["object"]:
        case {"metadata": {"ownerReferences": [*owners]}}:
            pass
        case _:
            return
    for owner in (one for one in owners if isinstance(one, dict)):
        kind, name = str(owner.get("kind")), str(owner.get("name"))
        yield kind, name
        yield _PARENTS.get(kind, ""), name.rpartition("-")[0]


async def _dry_run(
    api: ApiClient, requests: Requests, subject: Subject, ports: Sequence[PodPort]
) -> Explanation | str:
    """Return what the configuration in force says to *subject*, or why nothing can be asked."""
    from gateway.engine.object_review import RequestOptions, review_of
    from gateway.tools.kubectl.requests import User, who_asks
    from gateway.tools.replay.objects import as_sent, creation_options
    from gateway.tools.status.explanations import explain

    try:
        content = subject.content or as_sent(await api.get(subject.stored_at))
        asking = await who_asks(api)
        options = creation_options(content, RequestOptions(user=asking.name, groups=asking.groups))
        request = await requests.creation(content, User(options.user, options.groups))
        return await explain(ports, review_of(request))
    except GatewayError as error:
        if isinstance(error, ClusterError) and error.status == _NOT_FOUND:
            preview = "kubectl admission preview -f FILE"
            return f"{subject} does not exist. What the configuration in force says to a file: {preview}"
        return f"The configuration in force cannot be asked: {error}"


def _nothing(parsed: argparse.Namespace, subject: Subject, found: Sequence[Decisions]) -> Iterator[str]:
    yield f"no replica remembers a decision about {subject}:"
    yield from decisions.not_found(parsed, found, subject.name)
    yield "To check all stored objects: admission-gateway audit"


def _now(answer: Explanation | str) -> Iterator[str]:
    if isinstance(answer, str):
        yield answer
        return
    verdict = "allows" if answer.is_allowed else "denies"
    yield f"The configuration in force {verdict} its creation (a dry run, at {answer.gateway}):"
    if answer.not_enforced:
        yield f"  {answer.not_enforced}"
    yield from answer.lines()
