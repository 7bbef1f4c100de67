"""What was found out about an object holds after a patch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.json_patch.patch import apply_patch
from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.go_types import without_empty
from gateway.pure.openapi.schemas import MergeError, Schemas

if TYPE_CHECKING:
    from gateway.pure.openapi.types import Facts

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
    schemas, facts, held = built_in_schemas(), dict[Any, Any](), POD
    for step in steps:
        found = _after(schemas, held, step, facts)
        assert found == _after(schemas, held, step, {})
        held = held if isinstance(found, str) else found


def test_only_what_a_patch_has_changed_is_validated_again() -> None:
    schemas, facts = built_in_schemas(), dict[Any, Any]()
    held = schemas.merge("", "v1", "Pod", POD, {"metadata": {"labels": {"a": "1"}}}, facts)
    before = set(facts)
    found: Any = apply_patch(held, [{"op": "add", "path": "/metadata/labels/b", "value": "2"}])
    schemas.merge("", "v1", "Pod", found, {"metadata": {"labels": {"c": "3"}}}, facts)
    read = [facts[key][0] for key in facts.keys() - before]
    assert any(one is found["metadata"]["labels"] for one in read)
    assert not any(one is found["spec"]["containers"][0] for one in read)
