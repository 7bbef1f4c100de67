"""Reviews the objects of the input and those that controllers create from them, many at a time, in order.

An object is reviewed as kube-apiserver would on its creation: with the defaults of its kind, in both phases.
The template of a Pod is that of the object after its mutation, which is what a controller reads.

Source: k8s.io/apiserver pkg/endpoints/handlers/create.go; k8s.io/kubernetes
pkg/controller/controller_utils.go.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from gateway.base.errors import MalformedReview, ReviewError
from gateway.config.yaml.field_paths import parse_field
from gateway.engine.dry_run import BOTH_PHASES
from gateway.engine.object_review import (
    DEFAULT_GROUPS,
    DEFAULT_NAMESPACE,
    RequestOptions,
    built_in_resource,
    request_for,
    review_of,
)
from gateway.engine.second_pass import changed_again
from gateway.pure.workloads.defaults import with_defaults
from gateway.pure.workloads.expansion import created_by, direct
from gateway.pure.workloads.plug_ins import admitted, refused
from gateway.tools.preview.findings import Origin, findings_of, findings_of_mutators, refusal
from gateway.tools.preview.manifests import Manifest, Unreadable
from gateway.tools.preview.model import (
    WEBHOOK_FAILURE,
    Finding,
    ObjectName,
    Previewed,
    Reviewed,
)
from gateway.tools.preview.shown import Shown
from gateway.tools.replay.objects import as_sent
from gateway.tools.replay.run import UnknownObjects, UnknownObjectsError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping

    from gateway.engine.dry_run import DryRun, SideEffects
    from gateway.engine.object_review import Json
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.webhook import Phase
    from gateway.pure.workloads.known import KnownObjects, Refusal
    from gateway.tools.offline.gateway import OfflineGateway
    from gateway.tools.preview.validation import Validator

    _Waiting = Unreadable | asyncio.Task["Previewed | Unreadable"]

USER: Final = "admission-gateway:preview"
AT_ONCE: Final = 32
MAX_CREATED: Final = 20
"""Objects that controllers create from one of the input."""
NO_NAMESPACE: Final = "the labels of the namespace are not known"


@dataclass(frozen=True, slots=True)
class CustomResource:
    """What a CustomResourceDefinition says about its kind."""

    plural: str
    is_namespaced: bool


def custom_resource_of(found: Json) -> tuple[tuple[str, str], CustomResource] | None:
    """Return group, kind and resource of the CustomResourceDefinition *found*; None if it is incomplete."""
    spec = found.get("spec")
    names = spec.get("names") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(names, dict):
        return None
    group, kind, plural = spec.get("group"), names.get("kind"), names.get("plural")
    if not (isinstance(group, str) and isinstance(kind, str) and isinstance(plural, str) and plural):
        return None
    return (group, kind), CustomResource(plural, spec.get("scope") != "Cluster")


@dataclass(frozen=True, slots=True)
class Options:
    """How objects are reviewed."""

    user: str = USER
    groups: tuple[str, ...] = DEFAULT_GROUPS
    namespace: str = DEFAULT_NAMESPACE
    """Of objects that name none."""
    expands: bool = True
    validation: Validator | None = None
    """What the API server itself refuses. None: it is not looked for."""
    lacks_cluster: bool = False
    """Whether policies read objects of a cluster that the preview does not use."""
    custom_resources: Mapping[tuple[str, str], CustomResource] = field(default_factory=dict)
    """By group and kind."""


class _Subject(NamedTuple):
    """An object that is created."""

    found: Json
    user: str
    groups: tuple[str, ...]
    origin: Origin
    created_from: ObjectName | None
    is_guess: bool = False


class _Context(TypedDict):
    """Arguments of a dry run."""

    side_effects: SideEffects
    at: float
    namespaces: Mapping[str, Namespace]
    objects: UnknownObjects | None


class Preview:
    """Reviews objects through one configuration."""

    def __init__(
        self,
        gateway: OfflineGateway,
        options: Options,
        now: float,
        namespace: Callable[[str], Awaitable[Namespace | None]],
        known: Callable[[str], Awaitable[KnownObjects]],
    ) -> None:
        """*now* is the time of all reviews, in seconds since 1970.

        *namespace* looks up a namespace, and *known* what the API server's plug-ins read in one.
        """
        self._gateway = gateway
        self._minor = gateway.config.gateway.kubernetes_minor
        self._options = options
        self._now = now
        self._namespace = namespace
        self._known = known
        self._selections = [gateway.paths[f"/{phase}"] for phase in BOTH_PHASES]

    async def run(self, found: Iterable[Manifest | Unreadable]) -> AsyncGenerator[Previewed | Unreadable]:
        """Yield what came of each of *found*, in that order.

        Raises:
            ClusterError: the cluster is needed, and cannot be reached.
        """
        waiting: deque[_Waiting] = deque()
        try:
            for one in found:
                waiting.append(asyncio.create_task(self._preview(one)) if isinstance(one, Manifest) else one)
                if len(waiting) >= AT_ONCE:
                    yield await _result(waiting)
            while waiting:
                yield await _result(waiting)
        finally:
            tasks = [one for one in waiting if isinstance(one, asyncio.Task)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _preview(self, manifest: Manifest) -> Previewed | Unreadable:
        previewed = Previewed(manifest)
        own = _Subject(
            as_sent(manifest.object), self._options.user, self._options.groups, Origin(manifest), None
        )
        try:
            await self._review(own, previewed)
        except ReviewError as error:
            field, separator, _ = str(error).partition(": ")
            place = manifest.place(parse_field(field) if separator else ())
            return Unreadable(place, f"{error}{manifest.text.hint}")
        except RecursionError:
            return Unreadable(manifest.place(), "the object nests too deeply")
        return previewed

    async def _review(self, subject: _Subject, previewed: Previewed) -> None:
        """Review *subject*, and what is created from it, and add them to *previewed*.

        Raises:
            ReviewError: it is no object that can be reviewed.
        """
        request = self._request(subject)
        name = _name_of(request["object"], request)
        known = await self._known(name.namespace)
        request["object"], refusals = admitted(request["object"], known)
        reviewed = Reviewed(name, subject.created_from, subject.user, request["object"], subject.is_guess)
        previewed.objects.append(reviewed)
        if refusals:
            # No webhook is called.
            _refuse(reviewed, refusals, "mutate", subject.origin)
            await self._validate(subject, request, request["object"], previewed)
            reviewed.not_reached = len(self._selections[1].webhooks)
            return
        try:
            run, phase, refusals = await self._dry_run(request, known)
        except UnknownObjectsError as error:
            reviewed.findings = [_undecided(str(error), subject.origin)]
            await self._validate(subject, request, request["object"], previewed)
            return
        shown = Shown(request, run)
        reviewed.result = run.result
        reviewed.findings = list(findings_of(run, subject.origin, shown.text))
        reviewed.final = run.final_object if run.result == "allowed" else None
        changed_by = (one.invocation.webhook for one in run.outcomes if one.has_changed)
        if refusals:
            _refuse(reviewed, refusals, phase, subject.origin)
        await self._validate(subject, request, run.final_object, previewed)
        reviewed.changed_by = list(dict.fromkeys(f"{one.configuration}/{one.name}" for one in changed_by))
        reviewed.changes = shown.changes() if reviewed.changed_by else []
        if reviewed.changed_by:
            again = await changed_again(self._gateway.dry_run, run, **await self._context(name.namespace))
            reviewed.findings += findings_of_mutators(run, again, subject.origin, shown.text)
        reviewed.not_reached = sum(len(one.webhooks) for one in run.not_reached)
        reviewed.stopped |= bool(run.not_reached)
        stored: Any = run.final_object
        if not self._options.expands or reviewed.stopped or not isinstance(stored, dict):
            return
        for one in direct(created_by(stored, name.namespace, self._minor), stored):
            if len(previewed.objects) > MAX_CREATED:
                return
            origin = subject.origin.created(stored, str(one.object.get("kind")), one.template)
            following = _Subject(one.object, one.user, one.groups, origin, name, one.is_guess)
            try:
                await self._review(following, previewed)
            except ReviewError as error:
                reviewed.findings.append(
                    _undecided(f"what controllers create from it is no object: {error}", origin)
                )
                reviewed.result = "undecided" if reviewed.result == "allowed" else reviewed.result

    async def _validate(self, subject: _Subject, request: Json, final: object, previewed: Previewed) -> None:
        """Note what the API server itself refuses of *subject*, the last of *previewed*."""
        if self._options.validation is not None:
            await self._options.validation.note(previewed, request, subject.found, final, subject.origin)

    def _request(self, subject: _Subject) -> Json:
        """Return the request of the creation of *subject*.

        Raises:
            MalformedReview: it is no complete object.
        """
        found = with_defaults(subject.found, self._minor)
        api_version, kind = found.get("apiVersion"), found.get("kind")
        group = api_version.rpartition("/")[0] if isinstance(api_version, str) else ""
        metadata = found.get("metadata")
        is_named = isinstance(metadata, dict) and bool(metadata.get("name") or metadata.get("generateName"))
        if isinstance(api_version, str) and isinstance(kind, str) and not is_named:
            raise MalformedReview("metadata.name: found nothing, expected a name or a generateName")
        custom = self._options.custom_resources.get((group, str(kind)))
        built_in = built_in_resource(group, str(kind))
        is_namespaced = built_in.is_namespaced if built_in else custom is None or custom.is_namespaced
        own = metadata.get("namespace") if isinstance(metadata, dict) else None
        if isinstance(metadata, dict) and own and not is_namespaced:
            # As the API server does (rest.EnsureObjectNamespaceMatchesRequestNamespace).
            found = {**found, "metadata": {k: v for k, v in metadata.items() if k != "namespace"}}
        options = RequestOptions(
            user=subject.user,
            groups=subject.groups,
            namespace="" if own or not is_namespaced else self._options.namespace,
            resource=custom.plural if custom is not None and built_in is None else "",
            is_namespaced=is_namespaced,
        )
        return request_for(found, options)

    async def _dry_run(self, request: Json, known: KnownObjects) -> tuple[DryRun, Phase, list[Refusal]]:
        """Return the review *request* after its phases, and why plug-ins refuse it in which phase."""
        context = await self._context(str(request.get("namespace") or ""))
        mutate, validate = self._selections
        run = await self._gateway.dry_run(review_of(request), [mutate], **context)
        phase: Phase = "mutate"
        refusals: list[Refusal] = []
        if run.answers[0].decision.allowed:
            final = run.final_object
            if final is not None and run.answers[0].evaluation.has_changed:
                # The API server sets defaults again in what webhooks changed, and calls its plug-ins again.
                final, refusals = admitted(with_defaults(final, self._minor), known)
                request = {**request, "object": final}
        else:
            run = replace(run, not_reached=(validate,))
        if run.answers[0].decision.allowed and not refusals:
            phase, refusals = "validate", refused(request["object"], known, self._minor)
            after = await self._gateway.dry_run(review_of(request), [validate], **context)
            run = replace(
                run,
                answers=run.answers + after.answers,
                seconds=run.seconds + after.seconds,
                left_out=run.left_out + after.left_out,
            )
        elif refusals:
            run = replace(run, not_reached=(validate,))
        objects = context["objects"]
        if objects is not None and objects.asked:
            raise UnknownObjectsError(objects.asked)
        return run, phase, refusals

    async def _context(self, name: str) -> _Context:
        """Return what else a dry run in the namespace *name* depends on."""
        namespace = await self._namespace(name) if name else None
        return {
            "side_effects": "left_out",
            "at": self._now,
            "namespaces": {} if namespace is None else {namespace.name: namespace},
            "objects": UnknownObjects() if self._options.lacks_cluster else None,
        }


def _refuse(reviewed: Reviewed, refusals: Iterable[Refusal], phase: Phase, origin: Origin) -> None:
    """Note in *reviewed* that plug-ins refuse it."""
    reviewed.result, reviewed.final = "denied", None
    reviewed.stopped = phase == "mutate"
    reviewed.findings = [refusal(one, phase, reviewed.before, origin) for one in refusals] + reviewed.findings


def _undecided(message: str, origin: Origin) -> Finding:
    place = origin.place({}, ())
    return Finding(WEBHOOK_FAILURE, "undecided", "error", "", "validate", "Enforce", message, place)


async def _result(waiting: deque[_Waiting]) -> Previewed | Unreadable:
    """Remove the first of *waiting*, and return its result."""
    first = waiting[0]
    result = await first if isinstance(first, asyncio.Task) else first
    waiting.popleft()
    return result


def _name_of(found: Json, request: Json) -> ObjectName:
    metadata = found.get("metadata") or {}
    name = metadata.get("name") or f"{metadata.get('generateName')}*"
    return ObjectName(
        str(found["apiVersion"]), str(found["kind"]), str(request.get("namespace") or ""), str(name)
    )
