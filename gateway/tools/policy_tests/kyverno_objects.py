"""The objects that policies read in a test of Kyverno.

Without ``clusterResources`` these are the objects of the file in ``context`` and no others. A list has those
of exactly one namespace, whatever their labels, and fails if there is no object of the kind. With
``clusterResources`` they are the objects there and all others of the test, as in a cluster, and ``context``
is not used.

Source: github.com/kyverno/kyverno pkg/cel/libs/{fake_context,context}.go, ext/cluster/fake.go,
cmd/cli/kubectl-kyverno processor/utils.go, commands/test/test.go; k8s.io/apimachinery
pkg/api/meta/restmapper.go (UnsafeGuessKindToResource).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from gateway.base.text import shown
from gateway.config.merge.load import documents_in
from gateway.engine.object_review import built_in_resource
from gateway.pure.admission_policies.backend_gets import is_usable
from gateway.pure.admission_policies.params import FixedObjects, FixedParams
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.libraries.global_context import GlobalContext
from gateway.pure.core.policy import ParamKind
from gateway.tools.policy_tests.kyverno_entries import data_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from gateway.pure.cel.libraries.cluster_objects import ClusterObjects
    from gateway.pure.core.labels import Selector
    from gateway.tools.policy_tests.kyverno_test import KyvernoTest

    Json = dict[str, Any]

NO_KINDS: Final[Mapping[tuple[str, str], str]] = MappingProxyType({})
NO_ANSWERS: Final[Mapping[str, Json]] = MappingProxyType({})
NO_DATA: Final[Mapping[str, object]] = MappingProxyType({})
_SECRETS: Final = ("v1", "secrets")
_UNCHANGED: Final = ("endpoints",)


class ReadableKinds(Mapping[tuple[str, str], ParamKind]):
    """All kinds but Secret, which no policy here may read.

    Those of custom resources have their names, and others their plural names.
    """

    def __init__(self, known: Iterable[tuple[str, str]], custom: Mapping[tuple[str, str], str]) -> None:
        """*known* are apiVersion and plural name of those that expressions may name at run time.

        *custom* are the names of those of custom resources.
        """
        self._known = dict.fromkeys(known)
        self._custom = custom

    def __getitem__(self, resource: tuple[str, str]) -> ParamKind:
        if resource == _SECRETS:
            raise KeyError(resource)
        version, plural = resource
        return ParamKind(version, self._custom.get(resource, plural))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return (each for each in self._known if each != _SECRETS)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class _NoObjects(FixedObjects):
    """A kind of which a test has no object."""

    resource: str = ""

    def count(self, namespace: str) -> int:
        """Raise EvaluationError."""
        del namespace
        raise EvaluationError(f"failed to list resource: {self.resource} resource not found")


class _OfContext(FixedObjects):
    """The objects of one kind in the file of ``context``."""

    __slots__ = ()
    ignores_labels: ClassVar[bool] = True

    def count(self, namespace: str) -> int:
        """Return the number of the objects in *namespace*, or of those without one if it is empty."""
        return len(self.by_namespace.get(namespace, ()))

    def select(self, namespace: str, selector: Selector) -> Sequence[Json]:
        """Return the objects in *namespace*, or those without one, by name."""
        del selector
        return [one for _, one in sorted(self.by_namespace.get(namespace, {}).items())]


class KyvernoObjects(FixedParams):
    """The objects of one test that expressions read, by apiVersion and plural name.

    Parameters are not among them.
    """

    def __init__(
        self,
        objects: Iterable[Json],
        kinds: Mapping[tuple[str, str], str] = NO_KINDS,
        data: Mapping[str, object] = NO_DATA,
        answers: Mapping[str, Json] = NO_ANSWERS,
        *,
        is_cluster: bool,
    ) -> None:
        """*kinds* are those of custom resources, and *data* that of GlobalContextEntries by their names.

        *answers* are those of servers by URL.

        With *is_cluster*, the objects are those of ``clusterResources``, of others those of ``context``.
        """
        super().__init__(())
        found: dict[tuple[str, str], dict[str, dict[str, Json]]] = defaultdict(lambda: defaultdict(dict))
        for each in objects:
            metadata = each["metadata"]
            place = found[each["apiVersion"], _plural_of(each, is_cluster=is_cluster)]
            place[str(metadata.get("namespace") or "")][str(metadata.get("name"))] = each
        of_class = FixedObjects if is_cluster else _OfContext
        self._objects = {
            kind: of_class(is_namespaced=True, by_namespace=dict(found.get(kind, {})))
            for kind in (*found, *kinds)
        }
        self._is_cluster = is_cluster
        self._plurals = {(version, kind): plural for (version, plural), kind in kinds.items()}
        self._data = data
        self._answers = answers
        self.kinds = ReadableKinds(self._objects, kinds)
        """The kinds that policies may read."""

    def in_test(self, found: ClusterObjects) -> ClusterObjects:
        """Return what expressions use instead of *found*."""

        def plural_of(version: str, kind: str) -> str | None:
            return self._plurals.get((version, kind)) or found.plural_of(version, kind)

        data = NO_DATA if self._is_cluster else self._data
        context = GlobalContext(lambda name, projection: _entry(data, name, projection))
        if self._is_cluster:
            return replace(found, post=_created, plural_of=plural_of, global_context=context)
        return replace(
            found,
            post=_not_implemented,
            plural_of=_not_implemented,
            http_get=self._http_get,
            global_context=context,
        )

    @property
    def servers(self) -> list[str]:
        """The URLs that policies may name."""
        return [] if self._is_cluster else [url for url in self._answers if is_usable(url)]

    def _http_get(self, url: str, headers: Mapping[str, str]) -> Json:
        del headers
        if url not in self._answers:
            reason = "apiCallResponses of the test have no answer to it"
            raise EvaluationError(f"request failed: URL {shown(url)} is not permitted: {reason}")
        return self._answers[url]

    def read(self, kind: ParamKind) -> FixedObjects:
        """Return the objects of *kind*, see :class:`ReadableKinds`."""
        # In a cluster a subresource is that of the object.
        plural = kind.kind.partition("/")[0] if self._is_cluster else kind.kind
        plural = self._plurals.get((kind.api_version, plural), plural)
        found = self._objects.get((kind.api_version, plural))
        group = kind.api_version.rpartition("/")[0]
        resource = f"{plural}.{group}" if group else plural
        return found or _NoObjects(is_namespaced=True, by_namespace={}, resource=resource)


def _created(version: str, plural: str, namespace: str, created: Json) -> Json:
    del version, plural, namespace
    return created


def _not_implemented(*_: object) -> NoReturn:
    raise EvaluationError("internal error: not implemented")


def _entry(data: Mapping[str, object], name: str, projection: str) -> object:
    """Return the *data* of an entry, or a projection of it; None if there is no such entry.

    Raises:
        EvaluationError: there is no such projection.
    """
    found = data.get(name)
    if name not in data or not projection:
        return found
    if isinstance(found, dict) and projection in found:
        return found[projection]
    reason = f"projection {shown(projection)} not found in global context entry {shown(name)}"
    raise EvaluationError(f"failed to get global reference: {reason}")


def read_objects(test: KyvernoTest, of_test: Sequence[Json]) -> tuple[KyvernoObjects, str]:
    """Return the objects that the policies of *test* read, and the first problem of the files, or "".

    *of_test* are the other objects of the test.
    """
    data, problem = data_of(test.entries)
    if not test.cluster_resources:
        objects: list[Json] = []
        if test.context is not None:
            objects, _, wrong = _content([test.context], "Context")
            problem = f"context: {wrong}" if wrong else problem
        return KyvernoObjects(objects, NO_KINDS, data, test.answers, is_cluster=False), problem
    objects, definitions, problem = _content(test.cluster_resources, "ClusterResource")
    kinds, wrong = _kinds(definitions)
    found = KyvernoObjects([*of_test, *objects], kinds, is_cluster=True)
    problem = problem or wrong
    return found, problem and f"clusterResources: {problem}"


def _content(files: Sequence[Path], kind: str) -> tuple[list[Json], list[Path], str]:
    """Return the objects in *files* of *kind*, the files of definitions that they name, and a problem."""
    objects: list[Json] = []
    definitions: list[Path] = []
    problem = ""
    for document in documents_in(files):
        for each in document.problems.errors():
            problem = problem or str(each)
        spec = (document.content or {}).get("spec")
        if not isinstance(spec, dict):
            problem = problem or f"{document.place}: spec: found none, expected that of a {kind}"
            continue
        for index, each in enumerate(_listed(spec.get("resources"))):
            if _is_object(each):
                objects.append(each)
            else:
                place = f"{document.place}: spec.resources[{index}]"
                problem = problem or f"{place}: found no object with apiVersion, kind and metadata"
        definitions += [document.file.parent / str(each) for each in _listed(spec.get("crds"))]
    return objects, definitions, problem


def _kinds(files: Sequence[Path]) -> tuple[dict[tuple[str, str], str], str]:
    """Return the kinds that the CustomResourceDefinitions in *files* define, and a problem."""
    kinds = {}
    problem = ""
    for document in documents_in(files):
        for each in document.problems.errors():
            problem = problem or str(each)
        try:
            spec: Any = (document.content or {})["spec"]
            for one in spec["versions"]:
                resource = f"{spec['group']}/{one['name']}", str(spec["names"]["plural"])
                kinds[resource] = str(spec["names"]["kind"])
        except (KeyError, TypeError):
            problem = problem or f"{document.place}: found no CustomResourceDefinition"
    return kinds, problem


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_object(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("apiVersion"), str)
        and isinstance(value.get("kind"), str)
        and isinstance(value.get("metadata"), dict)
    )


def _plural_of(found: Json, *, is_cluster: bool) -> str:
    """Return the plural name by which the object *found* is read."""
    kind = str(found["kind"])
    resource = built_in_resource(found["apiVersion"].rpartition("/")[0], kind)
    if resource is not None and not is_cluster:
        return resource.name
    name = kind.lower()
    if name.endswith(_UNCHANGED):
        return name
    if name.endswith("s"):
        return f"{name}es"
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"
