"""Paths of fields as policies write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.yaml.field_paths import MAX_PARTS, parse_field
from gateway.tools.preview.fields import field_in


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", ()),
        ("spec.containers[0].image", ("spec", "containers", 0, "image")),
        ("metadata.labels[app.kubernetes.io/name]", ("metadata", "labels", "app.kubernetes.io/name")),
        ("metadata.labels['a.b/c']", ("metadata", "labels", "a.b/c")),
        ('$.data["a b"].c', ("data", "a b", "c")),
        ("object.spec.replicas", ("spec", "replicas")),
        ("/spec/containers/0/image", ("spec", "containers", 0, "image")),
        ("/metadata/labels/a~1b~0c/", ("metadata", "labels", "a/b~c")),
        ("spec.a[*].b", ("spec", "a", "*", "b")),
        ("spec.a[", ("spec", "a")),
        ("spec..a]", ("spec",)),
    ],
)
def test_a_path_has_its_parts(text: str, path: tuple[str | int, ...]) -> None:
    assert parse_field(text) == path


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (
            "privileged: spec.containers[0].securityContext.privileged is set",
            "spec.containers[0].securityContext.privileged",
        ),
        ("rule check failed at path /spec/containers/0/image/", "/spec/containers/0/image"),
        ("the label metadata.labels['a.b/c'] is missing.", "metadata.labels['a.b/c']"),
        ("set spec.replicas.", "spec.replicas"),
        ("see docs.example/spec.html of the spec", ""),
        ("no field", ""),
        ("http://a.example/spec/containers", ""),
    ],
)
def test_the_first_field_of_a_message_is_found(message: str, field: str) -> None:
    assert field_in(message) == field


@given(st.text("a.[]'\"/0~$ \n", max_size=60))
def test_any_text_has_some_parts(text: str) -> None:
    assert len(parse_field(text)) <= MAX_PARTS
    field_in(text)


def test_a_long_text_takes_no_time() -> None:
    assert len(parse_field("a." * 1_000_000)) == MAX_PARTS
    assert field_in("spec." * 1_000_000) != "no"
    assert field_in("/spec" + "/a[" * 1_000_000)
