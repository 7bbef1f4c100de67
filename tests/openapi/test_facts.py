"""What was found out about an object holds after a patch."""

from __future__ import annotations

import copy
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.json_patch.patch import apply_patch
from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.elements import key_of, keys_of
from gateway.pure.openapi.go_types import without_empty
from gateway.pure.openapi.schemas import GroupVersionKind, MergeError, Schemas
from gateway.pure.openapi.types import Types
from gateway.pure.openapi.validation import Validation, atomics, is_plain, is_valid
from tests.openapi.drawing import NAMED, draw, draw_schemas

if TYPE_CHECKING:
    from gateway.pure.openapi.types import Facts, TypeRef

    Json = dict[str, Any]

POD: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {}},
    "spec": {
        "containers": [
            {"name": "a", "image": "x", "env": [], "resources": {}},
            {"name": "b", "ports": [{"containerPort": 80}, {"containerPort": 80}]},
        ],
        "tolerations": [],
    },
}

KEYED: Final = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"]}

# Merges and JSON Patches, right and wrong; some make an object that nothing can be merged into.
STEPS: Final[list[Json | list[Json]]] = [
    {"metadata": {"labels": {"a": "1"}}},
    {"metadata": {"annotations": {"b": "2"}}},
    {
        "spec": {
            "containers": [{"name": "b", "image": "y"}, {"name": "c", "env": [{"name": "X", "value": "1"}]}]
        }
    },
    {"spec": {"nodeSelector": {}, "hostNetwork": True}},
    {"spec": {"replicas": 1}},
    {"spec": {"containers": [{"image": "z"}]}},
    {"metadata": {"labels": {"a": 1}}},
    [{"op": "add", "path": "/spec/containers/0/env/-", "value": {"name": "E", "value": "e"}}],
    [{"op": "add", "path": "/spec/containers/0/env", "value": []}],
    [{"op": "add", "path": "/metadata/labels", "value": {}}],
    [{"op": "add", "path": "/metadata/labels", "value": {"a": 7}}],
    [{"op": "add", "path": "/spec/containers/1/ports", "value": "none"}],
    [{"op": "remove", "path": "/spec/containers/1"}],
    [{"op": "add", "path": "/spec/containers/-", "value": None}],
    [{"op": "add", "path": "/spec/containers/0", "value": {"name": "first", "args": []}}],
    [{"op": "copy", "from": "/spec/containers/0", "path": "/spec/containers/-"}],
    [{"op": "move", "from": "/metadata/labels", "path": "/metadata/annotations"}],
]


def _after(schemas: Schemas, held: Json, step: Json | list[Json], facts: Facts) -> Json | str:
    try:
        if isinstance(step, dict):
            changed = schemas.merge("", "v1", "Pod", held, step, facts)
        else:
            found: Any = apply_patch(held, step)
            changed = found
        return without_empty(changed, facts)
    except (MergeError, ValueError) as error:
        return str(error)


@given(steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=6))
def test_facts_change_no_result(steps: list[Json | list[Json]]) -> None:
    schemas, facts, held = built_in_schemas(), dict[str, Any](), POD
    for step in steps:
        found = _after(schemas, held, step, facts)
        assert found == _after(schemas, held, step, {})
        held = held if isinstance(found, str) else found


def test_only_what_a_patch_has_changed_is_validated_again() -> None:
    schemas, facts = built_in_schemas(), dict[str, Any]()
    held = schemas.merge("", "v1", "Pod", copy.deepcopy(POD), {"metadata": {"labels": {"a": "1"}}}, facts)
    changed: Any = apply_patch(held, [{"op": "add", "path": "/spec/containers/0/image", "value": "y"}])
    # What is valid is never changed. Here it is, and what is read again is found.
    changed["spec"]["containers"][1]["name"] = changed["metadata"]["name"] = 7
    patch = {"metadata": {"labels": {"c": "3"}}}
    assert schemas.merge("", "v1", "Pod", changed, patch, facts)["metadata"]["labels"]["c"] == "3"
    changed = apply_patch(changed, [{"op": "replace", "path": "/spec/containers/0/name", "value": 7}])
    with pytest.raises(MergeError, match=r"\[name=7\].name: expected string"):
        schemas.merge("", "v1", "Pod", changed, patch, facts)


@given(seed=st.integers(0, 1 << 32), parts=st.lists(st.integers(0, 1 << 32), max_size=4))
def test_an_object_is_valid_if_it_has_no_errors(seed: int, parts: list[int]) -> None:
    source = Random(seed)
    schemas = Schemas([{"components": {"schemas": draw_schemas(source)}}])
    ref = schemas.type_of(GroupVersionKind("example.io", "v1", f"Kind{source.randrange(NAMED)}"))
    known = None
    value = draw(source, ref, is_patch=False)
    for part in parts:
        is_right = not Validation(is_patch=False).errors(ref, value)
        assert is_valid(ref, value) == is_right
        assert is_valid(ref, value, known) == is_right
        known = value if is_right else known
        value = _changed(value, Random(part), ref)


@given(seed=st.integers(0, 1 << 32))
def test_a_plain_patch_has_neither_errors_nor_atomic_parts(seed: int) -> None:
    source = Random(seed)
    schemas = Schemas([{"components": {"schemas": draw_schemas(source)}}])
    ref = schemas.type_of(GroupVersionKind("example.io", "v1", f"Kind{source.randrange(NAMED)}"))
    patch = draw(source, ref, is_patch=True)
    for _ in range(3):
        errors = Validation(is_patch=True).errors(ref, patch)
        assert not is_plain(ref, patch) or not (errors or list(atomics(ref, patch)))
        patch = _changed(patch, source, ref)


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"metadata": {"labels": {"a": "1"}}, "spec": {"hostNetwork": True, "nodeName": None}}, True),
        ({"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b"}]}}, True),
        ({"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}, False),
        ({"spec": {"containers": [{"image": "x"}, {"name": ""}]}}, False),
        ({"spec": {"containers": [{"name": "a", "args": ["x"]}]}}, False),
        ({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80}]}]}}, True),
        ({"spec": {"nodeSelector": {}}}, False),
        ({"spec": {"replicas": 1}}, False),
        ({"spec": {"hostNetwork": 1}}, False),
    ],
)
def test_usual_patches_are_plain(patch: Json, expected: bool) -> None:
    ref = built_in_schemas().type_of(GroupVersionKind("", "v1", "Pod"))
    assert is_plain(ref, patch) == expected


@given(
    names=st.lists(st.sampled_from(["a", "b", 1, 1.0, True, None, ""]), max_size=4),
    others=st.lists(st.sampled_from(["a", "b", "", 1]), max_size=4),
)
def test_keys_are_equal_as_the_keys_of_single_elements(names: list[object], others: list[object]) -> None:
    element = {"type": "object", "properties": {"key": {"type": "string"}}}
    kind = Types({}).field({"type": "array", "items": element, **KEYED}).get().list
    assert kind is not None
    lists: list[list[object]] = [[{"key": name} for name in one] for one in (names, others)]
    found = [key for keys in keys_of(kind, *lists) for key in keys]
    plain = [key_of(kind, each) for one in lists for each in one]
    assert [[a == b for b in found] for a in found] == [[a == b for b in plain] for a in plain]


def _changed(value: Any, source: Random, ref: TypeRef) -> Any:
    """Return *value* with another part; it is not changed, and the result shares the rest with it."""
    if not isinstance(value, dict | list) or not value or source.random() < 0.1:
        return source.choice([None, 1, "a", {}, [], True, draw(source, ref, is_patch=False)])
    copied: Any = value.copy()
    key = source.choice(list(value)) if isinstance(value, dict) else source.randrange(len(value))
    if source.random() < 0.2:
        del copied[key]
    elif isinstance(copied, list) and source.random() < 0.4:
        copied.insert(source.choice([key, len(copied)]), source.choice([None, copied[key], {}, "a"]))
    else:
        copied[key] = _changed(value[key], source, ref)
    return copied
