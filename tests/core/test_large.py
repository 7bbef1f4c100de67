"""Large reviews are read without parsing their objects, and accepted and refused exactly as small ones."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from admission_gateway_worker.json_patch.steps import finish
from gateway.base.errors import MalformedReview, ReviewError
from gateway.pure.core import large
from gateway.pure.core.large import NotJsonError
from gateway.pure.core.review import AdmissionRequest, decode, decode_in_steps, labels_of
from tests.kit import REVIEWS

if TYPE_CHECKING:
    from collections.abc import Callable

REVIEW = json.loads((REVIEWS / "deployment-update.json").read_bytes())
MEMBERS = [
    *("api_version", "uid", "operation", "resource", "sub_resource", "request_resource"),
    *("request_sub_resource", "kind", "namespace", "dry_run", "has_object"),
]


def written(review: dict[str, Any], *, spaces: bool = False) -> bytes:
    return json.dumps(review, separators=None if spaces else (",", ":"), ensure_ascii=False).encode()


def outcome(read: Callable[[bytes], AdmissionRequest], body: bytes) -> object:
    try:
        request = read(body)
    except ReviewError as error:
        text = str(error)
        return type(error), None if "not JSON" in text or "not an AdmissionReview" in text else text
    return (
        {name: getattr(request, name) for name in MEMBERS},
        *(labels_of(each) for each in (request.object_outline, request.old_outline)),
        *("metadata" in (each or {}) for each in (request.object_outline, request.old_outline)),
        orjson.loads(request.json),
        request.fresh_object(),
    )


def read_large(body: bytes) -> AdmissionRequest:
    return finish(decode_in_steps(body))


def with_object(value: bytes) -> bytes:
    review = written({**REVIEW, "request": {**REVIEW["request"], "object": "HERE"}})
    return review.replace(b'"HERE"', value)


TEXTS = [
    *(
        b'"a"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\xc3\xa9"',
        b'"\\ud800"',
        b'"\\ud83d\\ude00"',
        b'"\\x"',
        b'"\n"',
    ),
    *(b'"\\u0000"', b'"\0"', b'":1e400,"', b'"\\"", :1e400'),
]
NUMBERS = [
    *(b"1e400", b"-1e400", b"1E+400", b"1e-400", b"0e999", b"1e308", b"1e309", b"1.8e308", b"0.1e309"),
    *(b"9" * 308, b"9" * 309, b"9" * 400, b"9" * 250 + b"e99", b"9" * 199 + b"e99", b"9" * 250 + b".5e50"),
    *(
        b"0." + b"0" * 400 + b"1e500",
        b"0." + b"9" * 5000 + b"e999",
        b"01",
        b"1.",
        b".5",
        b"-",
        b"NaN",
        b"Infinity",
    ),
]
VALUES = [
    *TEXTS,
    *NUMBERS,
    b"[1,]",
    b"{}",
    b"[",
    b"nul",
    b"true",
    b"[" * 300 + b"]" * 300,
    b'{"a":1,"a":1e400}',
]


@pytest.mark.parametrize(
    "shape", [b"%b", b'{"spec":%b}', b'{"a":[%b]}', b'{"a":[1, %b\n,2]}', b'{"a":"b","c" : %b }']
)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: value[:20].decode("latin-1") + str(len(value)))
def test_values_are_accepted_as_orjson_accepts_them(shape: bytes, value: bytes) -> None:
    body = with_object(shape % value)
    assert outcome(read_large, body) == outcome(decode, body)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
METADATA = st.fixed_dictionaries(
    {}, optional={"labels": values | st.just({"a": "b"}), "name": values, "metadata": values}
)
OBJECTS = values | st.fixed_dictionaries({}, optional={"metadata": METADATA | values, "spec": values})


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "object": OBJECTS,
            "oldObject": OBJECTS,
            **{
                name: values | st.just(REVIEW["request"].get(name))
                for name in ("uid", "operation", "kind", "resource", "subResource", "namespace", "dryRun")
            },
            "requestKind": values | st.just(REVIEW["request"]["kind"]),
            "requestResource": values | st.just(REVIEW["request"]["resource"]),
            "requestSubResource": values,
        },
    ),
    st.booleans(),
)
def test_large_and_small_bodies_are_decoded_alike(changes: dict[str, Any], spaces: bool) -> None:
    body = written({**REVIEW, "request": {**REVIEW["request"], **changes}}, spaces=spaces)
    assert outcome(read_large, body) == outcome(decode, body)


@given(st.binary(max_size=6), st.integers(0, 5000), st.integers(0, 6))
@example(b" ", 5000, 0)
@example(b"}", 5000, 0)
def test_any_damage_is_detected(put: bytes, place: int, cut: int) -> None:
    body = written(REVIEW)
    place = min(place, len(body))
    damaged = body[:place] + put + body[place + cut :]
    assert outcome(read_large, damaged) == outcome(decode, damaged)


@pytest.mark.parametrize(
    "envelope",
    [
        b"[]",
        b"null",
        b"",
        b'{"kind":"AdmissionReview"}',
        b'{"kind":"AdmissionReview","apiVersion":"v9","request":{}}',
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":[]}',
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":"\xff"}',
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":1e400}',
        b'{"kind":"\xff","apiVersion":"admission.k8s.io/v1","request":{}}',
        b'{"request":{},"more":1e400}',
    ],
)
def test_a_body_that_is_not_a_review_is_refused(envelope: bytes) -> None:
    assert outcome(read_large, envelope) == outcome(decode, envelope)


@pytest.mark.parametrize("levels", [900, 1100, 9000, 100_000])
def test_deep_nesting_is_decoded_alike_in_large_and_small_bodies(levels: int) -> None:
    body = with_object(b'{"a":%b%b}' % (b"[" * levels, b"]" * levels))
    found = []
    for read in (read_large, decode):
        try:
            found.append(read(body).json)
        except MalformedReview:
            found.append(b"refused")
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "text", [b"\xff", b"\\ud800", b"\\\\ud800", b"\\ud83d\\ude00", b'\\"', b"\xe2\x82\xac\xe2\x82", b"\x01"]
)
def test_strings_that_are_not_unicode_are_repaired_alike_in_large_and_small_bodies(text: bytes) -> None:
    body = with_object(b'{"a":[%b,"\xff"]}' % b",".join([b'"%b"' % (text * n) for n in range(300)] * 4))
    assert outcome(read_large, body) == outcome(decode, body)


def test_extreme_numbers_are_checked_in_steps() -> None:
    body = with_object(b'{"a":[%b]}' % b",".join([b"1e300"] * 1000))
    assert len(list(decode_in_steps(body))) > 1000


@pytest.mark.parametrize("before", [b"", b'"[[[{\\"}",', b"[{}]," * 40_000])
@pytest.mark.parametrize(("levels", "is_deep"), [(999, False), (1000, True)])
def test_nesting_is_bounded_where_the_interpreter_does_not_bound_it(
    before: bytes, levels: int, is_deep: bool
) -> None:
    text = b"[%b%b1%b]" % (before, b'[{"a":' * (levels // 2), b"}]" * (levels // 2))
    text = text.replace(b"1", b"[1]") if levels % 2 else text
    with pytest.raises(NotJsonError, match="nests too deeply") if is_deep else nullcontext():
        finish(large._check_levels(text))
