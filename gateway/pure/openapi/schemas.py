"""The schemas of kinds, by group, version and kind.

Source: k8s.io/apimachinery pkg/util/managedfields/internal/typeconverter.go; k8s.io/apiserver
pkg/admission/plugin/policy/mutating/patch/smd.go (ApplyStructuredMergeDiff).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.pure.openapi.merge import merged
from gateway.pure.openapi.types import Types
from gateway.pure.openapi.validation import Validation, atomics, is_plain, is_valid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.pure.openapi.types import Facts, Schema, TypeRef

    Definition = tuple[Mapping[str, Schema], str]

_PATCH: Final = Validation(is_patch=True)
_LIVE: Final = Validation(is_patch=False)
_VALID: Final = "valid"


class MergeError(ValueError):
    """A patch cannot be merged; the text is kube-apiserver's."""


class UnknownKindError(LookupError):
    """There is no schema of a kind."""


class GroupVersionKind(NamedTuple):
    """A kind in one version."""

    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


class Schemas:
    """The schemas of the kinds in OpenAPI v3 documents; each document's references are within itself.

    If several documents have a kind, the first one counts; a kind that none has is taken from *others*.
    """

    def __init__(self, documents: Iterable[Mapping[str, Any]], others: Schemas | None = None) -> None:
        self._others = others
        self._types: dict[GroupVersionKind, tuple[Types, str]] = {}
        """Each kind with its document, and its name in it."""
        self._refs: dict[GroupVersionKind, TypeRef] = {}
        """The types of kinds that were asked for."""
        for document in documents:
            schemas: Mapping[str, Schema] = document["components"]["schemas"]
            types = Types(schemas)
            for name, schema in schemas.items():
                for each in schema.get("x-kubernetes-group-version-kind") or ():
                    kind = GroupVersionKind(each["group"], each["version"], each["kind"])
                    self._types.setdefault(kind, (types, name))

    @property
    def kinds(self) -> Iterable[GroupVersionKind]:
        """The kinds that have a schema."""
        return self._types.keys() | (set() if self._others is None else set(self._others.kinds))

    def definition(self, kind: GroupVersionKind) -> Definition:
        """Return the schemas of the document of *kind*, and the name of the kind's schema.

        Raises:
            UnknownKindError: there is no schema of the kind.
        """
        types, name = self._find(kind)
        return types.schemas, name

    def type_of(self, kind: GroupVersionKind) -> TypeRef:
        """Return the type of the objects of *kind*.

        Raises:
            UnknownKindError: there is no schema of the kind.
        """
        found = self._refs.get(kind)
        if found is None:
            types, name = self._find(kind)
            found = self._refs[kind] = types.field({"$ref": name})
        return found

    def _find(self, kind: GroupVersionKind) -> tuple[Types, str]:
        if kind in self._types:
            return self._types[kind]
        if self._others is None:
            raise UnknownKindError(kind)
        return self._others._find(kind)  # noqa: SLF001 # of the same class

    def merge(
        self,
        group: str,
        version: str,
        kind: str,
        live: dict[str, Any],
        patch: dict[str, Any],
        facts: Facts | None = None,
        *,
        allows_atomic: bool = False,
    ) -> dict[str, Any]:
        """Return *live* with the ApplyConfiguration *patch* merged into it, for objects of one kind.

        Neither is changed; the result shares parts with both. ``apiVersion`` and ``kind`` of the patch do
        not count. *facts* are those of the review. With *allows_atomic*, the patch replaces atomic lists and
        maps.

        Raises:
            MergeError: the patch is not valid for the kind, has atomic lists or maps that are not allowed, or
                *live* is not valid.
            UnknownKindError: there is no schema of the kind.
        """
        ref = self.type_of(GroupVersionKind(group, version, kind))
        wanted = {name: value for name, value in patch.items() if name not in ("apiVersion", "kind")}
        try:
            return self._merge(ref, live, wanted, facts, allows_atomic=allows_atomic)
        except RecursionError:
            raise MergeError("failed to merge patch: an object nests too deeply") from None

    def _merge(
        self,
        ref: TypeRef,
        live: dict[str, Any],
        patch: dict[str, Any],
        facts: Facts | None,
        *,
        allows_atomic: bool,
    ) -> dict[str, Any]:
        if not is_plain(ref, patch):
            _refuse("failed to convert patch object to typed object", _PATCH.errors(ref, patch))
            if not allows_atomic and (found := list(atomics(ref, patch))):
                raise MergeError(
                    "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
                    + ", ".join(found)
                )
        found_type = ref.get()
        known, known_type = (None, None) if facts is None else facts.get(_VALID, (None, None))
        if not is_valid(ref, live, known if known_type is found_type else None):
            _refuse("failed to convert original object to typed object", _LIVE.errors(ref, live))
        result = merged(ref, live, patch)
        if facts is not None:
            facts[_VALID] = result, found_type
        assert isinstance(result, dict), "objects are merged as maps"
        return result


def _refuse(action: str, errors: tuple[str, ...]) -> None:
    if len(errors) == 1:
        raise MergeError(f"{action}: {errors[0]}")
    if errors:
        raise MergeError("\n  ".join((f"{action}: errors:", *errors)))
