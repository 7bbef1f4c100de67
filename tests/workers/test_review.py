from __future__ import annotations

import enum
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jsonpatch
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker import Cause, Denied, Review
from admission_gateway_worker.json_patch.diff import diff

Recorded = Callable[[str], Review]

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=4), JSON, max_size=5)


def test_everything_in_a_pod_create_is_at_hand(recorded: Recorded) -> None:
    review = recorded("pod-create-6kb")
    assert review.operation == "CREATE"
    assert review.kind == {"group": "", "version": "v1", "kind": "Pod"}
    assert review.resource["resource"] == "pods"
    assert review.sub_resource == ""
    assert review.namespace == review.request["namespace"]
    assert review.name == review.request["name"]
    assert review.uid == review.request["uid"]
    assert review.user_info["username"]
    assert review.object["kind"] == "Pod"
    assert review.old_object is None
    assert review.namespace_object is None
    assert review.dry_run is False
    assert review.size_bytes > 5000


@pytest.mark.parametrize(
    ("name", "operation", "has_object", "has_old", "sub_resource", "dry_run"),
    [
        ("pod-delete-validate", "DELETE", False, True, "", False),
        ("podexecoptions-exec-connect", "CONNECT", True, False, "exec", False),
        ("deployment-update", "UPDATE", True, True, "", False),
        ("scale-scale-update", "UPDATE", True, True, "scale", False),
        ("pod-create-dryrun-mutate", "CREATE", True, False, "", True),
    ],
)
def test_absent_parts_are_none_or_empty(
    recorded: Recorded,
    name: str,
    operation: str,
    *,
    has_object: bool,
    has_old: bool,
    sub_resource: str,
    dry_run: bool,
) -> None:
    review = recorded(name)
    assert review.operation == operation
    assert (review.object is not None) == has_object
    assert (review.old_object is not None) == has_old
    assert review.sub_resource == sub_resource
    assert review.dry_run is dry_run


def test_an_empty_request_has_empty_parts() -> None:
    review = Review(b"{}")
    assert (review.name, review.namespace, review.operation, review.uid) == ("", "", "", "")
    assert (review.kind, review.resource, review.user_info) == ({}, {}, {})
    assert review.deadline == math.inf


def test_from_json_takes_the_review_or_the_request_in_it(recorded: Recorded) -> None:
    request = recorded("configmap-create").request
    text = orjson.dumps(request).decode()
    for form in (request, text, text.encode(), {"request": request, "kind": "AdmissionReview"}):
        assert Review.from_json(form).request == request


def test_from_json_gives_a_deadline_and_a_namespace() -> None:
    labels = {"metadata": {"labels": {"team": "a"}}}
    review = Review.from_json({}, namespace_object=labels, timeout_s=5)
    assert review.namespace_object == labels
    assert 0 < review.remaining_s <= 5
    assert review.deadline <= time.monotonic() + 5


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'"x"', b'{"a": "\\ud800"}'])
def test_a_payload_other_than_a_json_object_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match="admission_request is"):
        _ = Review(text).request
    if text:
        with pytest.raises(ValueError, match="namespace_object is"):
            _ = Review(b"{}", text).namespace_object


def test_a_denial_names_its_field_first() -> None:
    denied = Denied("no", field="spec.a", causes=[Cause("because", "spec.b", "FieldValueRequired")])
    assert str(denied) == "no"
    assert (denied.code, denied.reason) == (403, "")
    assert denied.causes == (
        Cause("no", "spec.a", "FieldValueForbidden"),
        Cause("because", "spec.b", "FieldValueRequired"),
    )
    assert Denied("no").causes == ()


def test_a_denial_has_its_object_and_retry_delay() -> None:
    plain = Denied("no")
    assert (plain.retry_after_seconds, plain.name, plain.group, plain.kind, plain.uid) == (0, "", "", "", "")
    denied = Denied("no", retry_after_seconds=30, name="web", group="apps", kind="Deployment", uid="u-2")
    assert (denied.retry_after_seconds, denied.name) == (30, "web")
    assert (denied.group, denied.kind, denied.uid) == ("apps", "Deployment", "u-2")


@given(before=OBJECTS, after=OBJECTS)
def test_changes_lead_to_the_object_of_the_policy(before: dict[str, Any], after: dict[str, Any]) -> None:
    review = Review.from_json({"object": before})
    review.object = after
    changes = list(review.changes())
    patched = jsonpatch.apply_patch(before, changes)
    assert orjson.dumps(patched, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
        after, option=orjson.OPT_SORT_KEYS
    )
    equal = orjson.dumps(before, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
        after, option=orjson.OPT_SORT_KEYS
    )
    assert (not changes) == equal


def test_changes_in_place_and_through_the_request_count_alike() -> None:
    review = Review.from_json({"object": {"a": [1]}})
    assert not review.changes()
    review.request["object"]["a"].append(2)
    assert review.changes() == [{"op": "add", "path": "/a/1", "value": 2}]


def test_true_is_not_one() -> None:
    review = Review.from_json({"object": {"a": 1}})
    review.object["a"] = True
    assert review.changes() == [{"op": "replace", "path": "/a", "value": True}]


def test_a_patch_counts_instead_of_the_object() -> None:
    review = Review.from_json({"object": {"a": 1}})
    review.object["a"] = 2
    review.patch = [{"op": "test", "path": "/a", "value": 1}]
    assert review.changes() == [{"op": "test", "path": "/a", "value": 1}]
    review.patch = []
    assert not review.changes()


def test_a_policy_that_is_not_mutating_has_no_changes() -> None:
    review = Review(b'{"object": {}}')
    review.object["a"] = 1
    review.patch = [{"op": "remove", "path": "/a"}]
    assert not review.changes()


@pytest.mark.parametrize(
    ("request_", "value", "message"),
    [
        ({"object": {}}, None, "is to stay a dict, found NoneType"),
        ({"object": {}}, [1], "is to stay a dict, found list"),
        ({"object": {}}, {"a": {1}}, "cannot be written as JSON"),
        ({"object": {}}, {1: "a"}, "cannot be written as JSON"),
        ({"object": None}, {"a": 1}, "has no object to change"),
        ({}, {"a": 1}, "has no object to change"),
    ],
)
def test_an_object_that_cannot_be_sent_is_an_error(
    request_: dict[str, Any], value: object, message: str
) -> None:
    review = Review.from_json(request_)
    review.object = value
    with pytest.raises(ValueError, match=message):
        review.changes()


def test_a_patch_needs_an_object() -> None:
    review = Review.from_json({"object": None})
    review.patch = [{"op": "add", "path": "/a", "value": 1}]
    with pytest.raises(ValueError, match="no object to patch"):
        review.changes()


def test_texts_that_are_no_unicode_are_made_so() -> None:
    review = Review(b"{}")
    review.warn("bad \ud800")
    review.annotate("key", "\udfff")
    assert review.warnings == ["bad ?"]
    assert review.annotations == {"key": "?"}


class Level(enum.IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()


ODD = st.sampled_from(
    [Level.ONE, Text("x"), math.nan, math.inf, (), (1,), ((1,), [2]), True, 1, 1.0, -0.0, "x"]
)
LIKE_JSON: st.SearchStrategy[Any] = st.recursive(
    ODD | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(OrderedDict)
    ),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from("abc"), LIKE_JSON), st.dictionaries(st.sampled_from("abc"), LIKE_JSON))
def test_the_derived_patch_is_that_of_the_json(before: dict[str, Any], after: dict[str, Any]) -> None:
    after = {**before, **after}
    before = orjson.loads(orjson.dumps(before))
    review = Review(orjson.dumps({"object": before}), mutating=True)
    review.object = after
    expected = diff(before, orjson.loads(orjson.dumps(after)))
    assert orjson.dumps(review.changes()) == orjson.dumps(expected)
