"""Defaults of built-in kinds: what holds for any object. The values are compared with Kubernetes' own."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any, Final

import pytest

from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.workloads.default_rules import tag_is_latest
from gateway.pure.workloads.defaults import with_defaults
from gateway.pure.workloads.expansion import created_by
from gateway.pure.workloads.known import KnownObjects
from gateway.pure.workloads.plug_ins import admitted, refused
from gateway.pure.workloads.quantities import canonical
from tests.kit import ROOT
from tests.workloads.drawing import draw

_JUNK: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1.5,
    1 << 70,
    "",
    "a",
    [],
    [None],
    ["a", {}],
    {},
    {"a": None},
    {"name": []},
)
_KINDS: Final = sorted(built_in_schemas().kinds)


def _spoil(source: Random, found: Any) -> Any:
    if source.random() < 0.05:
        return copy.deepcopy(source.choice(_JUNK))
    match found:
        case dict():
            return {name: _spoil(source, each) for name, each in found.items()}
        case list():
            return [_spoil(source, each) for each in found]
    return found


@pytest.mark.parametrize("seed", range(5))
def test_defaults_are_complete_and_change_no_argument(seed: int) -> None:
    for kind in _KINDS:
        found = draw(Random(f"{kind} {seed}"), kind)
        before = copy.deepcopy(found)
        once = with_defaults(found)
        assert found == before
        assert with_defaults(once) == once, kind


@pytest.mark.parametrize("seed", range(5))
def test_what_is_not_valid_is_left_to_validation(seed: int) -> None:
    for kind in _KINDS:
        source = Random(f"spoiled {kind} {seed}")
        found = {**draw(source, kind), "spec": _spoil(source, draw(source, kind).get("spec", {}))}
        for part in ("metadata", "status", "template"):
            if part in found and source.random() < 0.5:
                found[part] = _spoil(source, found[part])
        for minor in (33, 36, 37):
            with_defaults(found, minor)
        for one in created_by(found, "shops"):
            admitted(one.object, KnownObjects())
        made, _ = admitted(found, KnownObjects())
        refused(made, KnownObjects(), 37)


_BEFORE_ADMISSION: Final = frozenset({"pod-create-6kb.json", "job-create.json"})
"""Objects that are not as an API server decodes them: one is made by hand, one has generated labels."""


def test_objects_that_api_servers_sent_have_their_defaults() -> None:
    seen = 0
    for file in sorted((ROOT / "tests" / "reviews").glob("*-create*.json")):
        found = json.loads(file.read_bytes())["request"]["object"]
        if file.name not in _BEFORE_ADMISSION and "apiVersion" in found:
            assert _without_null(with_defaults(found)) == _without_null(found), file.name
            seen += 1
    assert seen > 20


def _without_null(found: Any) -> Any:
    match found:
        case dict():
            return {name: _without_null(each) for name, each in found.items() if each is not None}
        case list():
            return [_without_null(each) for each in found]
    return found


def test_a_kind_that_is_not_built_in_stays() -> None:
    others: list[dict[str, Any]] = [{}, {"apiVersion": "example.io/v1", "kind": "Pod"}]
    for found in (*others, {"apiVersion": 1, "kind": []}):
        assert with_defaults(found) is found


@pytest.mark.parametrize(
    ("minor", "update"), [(36, {"partition": 0}), (37, {"partition": 0, "maxUnavailable": 1})]
)
def test_versions_differ(minor: int, update: dict[str, Any]) -> None:
    found = {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"template": {}}}
    assert with_defaults(found, minor)["spec"]["updateStrategy"]["rollingUpdate"] == update


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("0.5", "500m"),
        (1, "1"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("0.1Gi", "107374182400m"),
        ("1e3", "1e3"),
    ],
)
def test_quantities_have_one_notation(written: object, stored: str) -> None:
    assert canonical(written) == stored


def test_a_quantity_that_is_none_stays() -> None:
    others: tuple[object, ...] = ("much", "", True, None, [], "1" * 600)
    for found in others:
        assert canonical(found) is found


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("nginx", True),
        ("localhost:5000/nginx", True),
        ("nginx:latest@sha256:" + "0" * 64, True),
        ("nginx@sha256:" + "0" * 64, False),
        ("nginx:1", False),
        ("Nginx Image", False),
        ("0" * 64, False),
        ("", False),
        (None, False),
        ("a/" * 100_000, False),
    ],
)
def test_the_tag_of_an_image(image: object, expected: bool) -> None:
    assert tag_is_latest(image) is expected
