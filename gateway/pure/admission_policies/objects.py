"""The objects of the cluster that the expressions of a policy read, from files or from a cluster.

Only kinds that the GatewayConfiguration lists can be read, and of their objects only the parts that
expressions of the policy use. The objects are those that a watch has shown: nothing is requested for a
review.

Source: github.com/kyverno/kyverno pkg/cel/libs/context.go (GetResource, ListResources);
github.com/kyverno/sdk extensions/cel/libs/resource/impl.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gateway.base.text import shown
from gateway.pure.admission_policies.access_reviews import AccessReviews, problems_of_posts
from gateway.pure.admission_policies.backend_gets import BackendGets, problems_of_gets
from gateway.pure.admission_policies.params import FixedObjects, FixedParams, UnreadParamsError
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.libraries.cluster_objects import ClusterObjects
from gateway.pure.cel.libraries.global_context import GlobalContext
from gateway.pure.cel.meter import count_steps
from gateway.pure.cel.object_reads import ANY, ENTRY
from gateway.pure.cel.paths import NOTHING, joined
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.review import labels_of
from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gateway.pure.cel.constant_calls import Arguments
    from gateway.pure.cel.object_reads import Resource
    from gateway.pure.cel.paths import Paths
    from gateway.pure.core.conditions import Decisions, ParamLookup
    from gateway.pure.core.policy import KindKey, ParamKind, ParamObjects, PolicyInput
    from gateway.pure.core.webhook import Reads

    Json = dict[str, Any]

MAX_LISTED: Final = 100_000
"""Objects of one list."""
_STEPS_OF_GET: Final = 20_000
_STEPS_OF_LISTED: Final = 1_000
"""What reading one object counts: it may have to be parsed."""
_STEPS_OF_BYTE: Final = 10
"""What a byte of its JSON counts, which can be a hundred nanoseconds, and ten bytes of memory."""
_NOT_EVALUATED: Final = "is JMESPath, which the gateway does not evaluate"
_NAMED: Final = 2
"""Arguments of ``globalContext.get`` with the name of a projection."""
_NO_OBJECTS: Final = FixedObjects(is_namespaced=True, by_namespace={})


class ObjectReads:
    """What one policy reads of the cluster."""

    def __init__(
        self,
        reads: Mapping[Resource, Paths],
        params: FixedParams,
        namespace: str = "",
        posts: Collection[Arguments] = (),
        *,
        has_gvrs: bool = False,
        entries: Collection[Arguments] = (),
        gets: Collection[Arguments] = (),
    ) -> None:
        """*reads* are the parts of objects that the expressions read, and *params* the objects in files.

        *namespace* is that of a policy that reads only the objects of one namespace. *posts* are the
        arguments of ``resource.post``, *entries* those of ``globalContext.get``, *gets* those of
        ``http.get``, and *has_gvrs* is whether ``resource.toGVR`` is called.
        """
        self._has_any = bool(reads or posts or has_gvrs or gets)
        self.resources = frozenset(reads)
        """What the expressions read, as they name it."""
        self._namespace = namespace
        self._fixed = params
        uses_entries = any(version == ENTRY for version, _ in reads)
        found_of: dict[Resource, list[Paths]] = {}
        for (version, name), paths in reads.items():
            if version == ENTRY:
                for resource in self._of_entries(name):
                    found_of.setdefault(resource, []).append(paths)
                continue
            is_plural = not name[:1].isupper() and (version, name) in params.readable
            plural = name if is_plural else self.plural_of(version, name) or name
            found_of.setdefault((version, plural), []).append(paths)
        reads = {resource: joined(found) for resource, found in found_of.items()}
        self._kinds: dict[Resource, tuple[ParamKind, Paths]] = {}
        for resource in {*params.readable, *reads}:
            kind = params.readable.get(resource)
            found = [reads[each] for each in (resource, ANY) if each in reads]
            if found and kind is not None:
                self._kinds[resource] = kind, joined(found)
        self.unlisted = tuple(sorted(each for each in reads if each not in self._kinds and each != ANY))
        """apiVersion and plural name of what the policy reads, and the GatewayConfiguration does not list."""
        self.wrong_calls = (
            *problems_of_posts(posts, has_cluster=params.has_cluster),
            *problems_of_gets(gets, params.backends, namespace),
            *self._problems_of_entries(entries, uses_any=uses_entries),
        )
        """What its expressions call and cannot succeed, each as a sentence about the policy."""
        self.absent = tuple(
            sorted(
                (kind.api_version, plural, kind.kind)
                for (_, plural), (kind, _) in self._kinds.items()
                if not params.has_cluster and params.read(kind) is None
            )
        )
        """apiVersion, plural name and kind of what it reads, and neither files nor a cluster have."""

    def __bool__(self) -> bool:
        """Whether the policy uses ``resource``."""
        return self._has_any

    def with_params(self, kind: KindKey | None, paths: Paths) -> Reads:
        """Return what is read in the cluster, with *paths* of parameters of *kind* there, if there is one."""
        found = {
            (kind.api_version, kind.kind): paths
            for kind, paths in self._kinds.values()
            if self._fixed.of(kind) is None
        }
        if kind is not None:
            found[kind] = joined([found.get(kind, NOTHING), paths])
        return tuple(sorted(found.items()))

    def within(self, policy_input: PolicyInput, decisions: Decisions) -> ClusterObjects:
        """Return the value of ``resource`` for one review, with the authorizer's *decisions* so far.

        Its functions raise UnresolvedError if objects have to be looked up first, or access decided on.
        """
        of_review = _ObjectsOfReview(self._kinds, self._fixed, policy_input)
        reviews = AccessReviews(decisions)
        context = GlobalContext(of_review.entry)
        gets = BackendGets(self._fixed.backends or {}, policy_input.answers)
        found = ClusterObjects(
            of_review.get, of_review.list, reviews.post, self.plural_of, gets.get, context, self._namespace
        )
        cluster = policy_input.params
        return cluster.in_test(found) if isinstance(cluster, FixedParams) else found

    def _of_entries(self, name: str) -> Iterator[Resource]:
        """Yield the kind of the GlobalContextEntry *name*, or if that is empty those that can be read."""
        for each, entry in (self._fixed.entries or {}).items():
            resource = entry.api_version, entry.plural
            if each == name or (name == "" and resource in self._fixed.readable):
                yield resource

    def _problems_of_entries(self, calls: Iterable[Arguments], *, uses_any: bool) -> Iterator[str]:
        """Yield why calls of ``globalContext.get`` with these arguments cannot succeed."""
        known = self._fixed.entries
        if uses_any and self._namespace:
            yield "calls globalContext.get, which is not allowed in policies of one namespace"
        elif uses_any and known is None:
            reason = "nothing checks that its author may read the objects"
            yield f"calls globalContext.get, and {reason}; put it into a file"
        for name, projection in sorted({call for call in calls if len(call) == _NAMED and None not in call}):
            if name and projection and known and name in known and projection in known[name].projections:
                found = f"reads the projection {shown(projection)} of the GlobalContextEntry {shown(name)}"
                yield f"{found}, which {_NOT_EVALUATED}; expected its objects, with globalContext.get(NAME)"

    def plural_of(self, version: str, kind: str) -> str | None:
        """Return the plural name of a *kind* that can be read, or of one of Kubernetes; None for others."""
        for (of_listed, plural), listed in self._fixed.readable.items():
            if (of_listed, listed.kind) == (version, kind):
                return plural
        of_group = RESOURCES.get(version.rpartition("/")[0], {})
        return next((one.name for one in of_group.values() if one.kind == kind), None)


class _ObjectsOfReview:
    def __init__(
        self,
        kinds: Mapping[Resource, tuple[ParamKind, Paths]],
        fixed: FixedParams,
        policy_input: PolicyInput,
    ) -> None:
        self._kinds = kinds
        self._entries = fixed.entries or {}
        self._fixed, self._cluster = fixed, policy_input.params
        if isinstance(self._cluster, FixedParams):
            # Objects of a test are in place of those of files.
            self._fixed, self._cluster = self._cluster, None
        self._found = policy_input.found_params

    def get(self, version: str, plural: str, namespace: str, name: str) -> Json | None:
        if not name:
            raise EvaluationError("failed to get resource: name is required")
        _, objects = self._objects("get resource", version, plural)
        count_steps(_STEPS_OF_GET)
        if objects is None:
            return None
        count_steps(objects.bytes_of(namespace, name) * _STEPS_OF_BYTE)
        return objects.seen(namespace, name)

    def list(self, version: str, plural: str, namespace: str, labels: Mapping[str, str]) -> Json:
        what = "list resource"
        kind, objects = self._objects(what, version, plural)
        if objects is None or (namespace and not objects.is_namespaced):
            raise EvaluationError(f"failed to {what}: the server could not find the requested resource")
        items = self._items(what, objects, namespace)
        if labels and not (isinstance(objects, FixedObjects) and objects.ignores_labels):
            wanted = labels.items()
            items = [each for each in items if wanted <= labels_of(each).items()]
        return {"apiVersion": kind.api_version, "kind": f"{kind.kind}List", "metadata": {}, "items": items}

    def entry(self, name: str, projection: str) -> Sequence[Json] | None:
        """Return the objects of the GlobalContextEntry *name*; None if Kyverno has no data of it.

        Raises:
            EvaluationError: they cannot be read.
            UnreadParamsError: they have to be looked up first.
        """
        what = "get global reference"
        entry = self._entries.get(name)
        if entry is None:
            return None
        if projection:
            problem = _NOT_EVALUATED if projection in entry.projections else "not found"
            raise EvaluationError(f"failed to {what}: projection {shown(projection)} {problem}")
        _, objects = self._objects(what, entry.api_version, entry.plural)
        if objects is None or (entry.namespace and not objects.is_namespaced):
            return None
        return self._items(what, objects, entry.namespace)

    def _items(self, what: str, objects: ParamObjects, namespace: str) -> Sequence[Json]:
        number = objects.count(namespace)
        if number > MAX_LISTED:
            raise EvaluationError(f"failed to {what}: found {number} objects, expected at most {MAX_LISTED}")
        count_steps(number * _STEPS_OF_LISTED)
        count_steps(objects.bytes_of(namespace) * _STEPS_OF_BYTE)
        return [*objects.select(namespace, EVERYTHING)]

    def _objects(self, what: str, version: str, plural: str) -> tuple[ParamKind, ParamObjects | None]:
        """Return a kind with its objects; None if the API server lacks it.

        Raises:
            EvaluationError: its objects cannot be read.
            UnreadParamsError: they have to be looked up first.
        """
        if (version, plural) not in self._kinds:
            problem = f"policies.resources of the GatewayConfiguration does not list {plural} of {version}"
            raise EvaluationError(f"failed to {what}: permission denied: {problem}")
        kind, paths = self._kinds[version, plural]
        fixed = self._fixed.read(kind)
        if fixed is not None or self._cluster is None:
            return kind, fixed or _NO_OBJECTS
        try:
            return kind, self._cluster.of(kind, paths)
        except UnreadParamsError as unread:
            found = self._found.get(unread.lookup)
            if found is None:
                raise UnreadParamsError(*dict.fromkeys((unread.lookup, *self._unread()))) from None
            problem = found.error or f"{plural} of {version} have not been read yet"
            raise EvaluationError(f"failed to {what}: {problem}") from None

    def _unread(self) -> Iterator[ParamLookup]:
        """Yield what has to be looked up of all kinds, so that a review waits for them only once."""
        assert self._cluster is not None
        for kind, paths in self._kinds.values():
            try:
                if self._fixed.read(kind) is None:
                    self._cluster.of(kind, paths)
            except UnreadParamsError as unread:
                if unread.lookup not in self._found:
                    yield unread.lookup
