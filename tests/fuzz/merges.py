"""The structured merge: of an object of a built-in kind, or of a kind with random schemas, and a patch.

An input makes both, mostly valid ones, by their schemas, and changes them.
"""

from __future__ import annotations

import copy
from random import Random
from typing import TYPE_CHECKING, Any, Final

from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.schemas import GroupVersionKind, MergeError, Schemas
from gateway.pure.openapi.validation import Validation
from tests.fuzz.documents import edited
from tests.fuzz.laws import Faults
from tests.fuzz.source import Source
from tests.openapi.drawing import NAMED, draw, draw_schemas

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULES: Final = (
    "gateway/pure/openapi/merge.py",
    "gateway/pure/openapi/validation.py",
    "gateway/pure/openapi/elements.py",
)
MAX_BYTES: Final = 128
WORDS: Final = [b"name", b"containers", b"ports", b"a", b"b", b"TCP"]
_KINDS: Final = [
    GroupVersionKind("", "v1", "Pod"),
    GroupVersionKind("apps", "v1", "Deployment"),
    GroupVersionKind("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
]
_KEYS: Final = ["name", "containerPort", "protocol", "metadata", "spec", "containers", *"abcdef"]
_faults = Faults()


def run(data: bytes) -> None:
    source = Source(data)
    with _faults:
        _run(source)


def _run(source: Source) -> None:
    schemas, kind = built_in_schemas(), source.one_of(_KINDS)
    seed = source.below(65536)
    if source.chance(2):
        schemas = Schemas([{"components": {"schemas": draw_schemas(Random(seed))}}])
        kind = GroupVersionKind("example.io", "v1", f"Kind{source.below(NAMED)}")
    ref = schemas.type_of(kind)
    live, patch = (
        edited(source, draw(Random(source.below(65536)), ref, is_patch=each), _KEYS) for each in (False, True)
    )
    if not isinstance(live, dict) or not isinstance(patch, dict):
        return
    before = copy.deepcopy((live, patch))
    try:
        found = schemas.merge(*kind, live, patch)
    except MergeError as error:
        _check_text(str(error))
        return
    finally:
        assert (live, patch) == before, "an input was changed"
    assert not Validation(is_patch=False).errors(ref, found), "the result is not valid"
    assert _same(schemas.merge(*kind, found, patch), found), "the patch has an effect a second time"
    assert _same(schemas.merge(*kind, live, {}), live), "an empty patch has an effect"


def _check_text(error: str) -> None:
    assert error.startswith(("failed to convert", "invalid ApplyConfiguration", "failed to merge")), error


def _same(one: Any, other: Any) -> bool:
    """Whether two objects are equal, apart from the fields that a patch does not set."""
    return {**one, "apiVersion": "", "kind": ""} == {**other, "apiVersion": "", "kind": ""}


def seeds() -> Iterator[bytes]:
    for number in range(64):
        yield Random(number).randbytes(32)
    yield b""
