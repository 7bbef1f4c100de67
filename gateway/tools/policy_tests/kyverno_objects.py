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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gateway.config.merge.load import documents_in
from gateway.engine.object_review import built_in_resource
from gateway.pure.admission_policies.params import FixedObjects, FixedParams
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.core.policy import ParamKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from gateway.pure.core.labels import Selector

    Json = dict[str, Any]

_SECRETS: Final = ("v1", "secrets")
_UNCHANGED: Final = ("endpoints",)


class ReadableKinds(Mapping[tuple[str, str], ParamKind]):
    """All kinds but Secret, which no policy here may read. They are named by their plural names."""

    def __init__(self, known: Iterable[tuple[str, str]]) -> None:
        """*known* are apiVersion and plural name of those that expressions may name at run time."""
        self._known = dict.fromkeys(known)

    def __getitem__(self, resource: tuple[str, str]) -> ParamKind:
        if resource == _SECRETS:
            raise KeyError(resource)
        return ParamKind(*resource)

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
        self, objects: Iterable[Json], kinds: Iterable[tuple[str, str]] = (), *, is_cluster: bool
    ) -> None:
        """*kinds* are others that there are, by apiVersion and plural name.

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
        self.kinds = ReadableKinds(self._objects)
        """The kinds that policies may read."""

    def read(self, kind: ParamKind) -> FixedObjects:
        """Return the objects of *kind*, whose name is the plural one."""
        # In a cluster a subresource is that of the object.
        plural = kind.kind.partition("/")[0] if self._is_cluster else kind.kind
        found = self._objects.get((kind.api_version, plural))
        group = kind.api_version.rpartition("/")[0]
        resource = f"{plural}.{group}" if group else plural
        return found or _NoObjects(is_namespaced=True, by_namespace={}, resource=resource)


def read_objects(
    context: Path | None, cluster_resources: Sequence[Path], of_test: Sequence[Json]
) -> tuple[KyvernoObjects, str]:
    """Return the objects that the policies of a test read, and the first problem of the files, or "".

    *of_test* are the other objects of the test.
    """
    if not cluster_resources:
        if context is None:
            return KyvernoObjects((), is_cluster=False), ""
        objects, _, problem = _content([context], "Context")
        return KyvernoObjects(objects, is_cluster=False), problem and f"context: {problem}"
    objects, definitions, problem = _content(cluster_resources, "ClusterResource")
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


def _kinds(files: Sequence[Path]) -> tuple[list[tuple[str, str]], str]:
    """Return apiVersion and plural name of the CustomResourceDefinitions in *files*, and a problem."""
    kinds = []
    problem = ""
    for document in documents_in(files):
        for each in document.problems.errors():
            problem = problem or str(each)
        try:
            spec: Any = (document.content or {})["spec"]
            kinds += [
                (f"{spec['group']}/{one['name']}", str(spec["names"]["plural"])) for one in spec["versions"]
            ]
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
