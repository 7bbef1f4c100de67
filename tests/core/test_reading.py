"""JSON that orjson refuses: too many levels, and strings that are not Unicode."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from admission_gateway_worker.json_patch import repair
from admission_gateway_worker.json_patch.patch import parse_patch
from admission_gateway_worker.json_patch.repair import repaired, repaired_in_steps
from admission_gateway_worker.json_patch.steps import finish
from gateway.base.errors import MalformedReview
from gateway.pure.core import reading
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.matching import Selection
from gateway.pure.core.reading import MAX_LEVELS, read_deep
from gateway.pure.core.review import decode, decode_in_steps, decode_plain
from gateway.pure.core.verdict import Allowed, Failed
from tests.core.build import body, document, labelled, webhook

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('ab"\\[]{},:\u2028\U0001f600', max_size=5),
    lambda items: (
        st.lists(items, max_size=4) | st.dictionaries(st.text("ab[}", max_size=2), items, max_size=4)
    ),
    max_leaves=8,
)
levels = st.sampled_from([1, 398, 399, 400, 401, 799, 800, 801, 1200, 1600, 2401])
edges = st.sampled_from(["[", '{"a":'])


def nested(opening: str, number: int, content: bytes) -> bytes:
    """Return *content* with *number* arrays or objects around it."""
    closing = b"]" if opening == "[" else b"}"
    return opening.encode() * number + content + closing * number


def review(content: bytes) -> bytes:
    """Return a review whose object has *content* besides its labels."""
    held = {"metadata": {"name": "web", "labels": {"team": "a"}}, "spec": "@"}
    return body(document(object=held)).replace(b'"@"', content)


@given(values)
def test_json_that_orjson_reads_is_read_alike(value: object) -> None:
    text = orjson.dumps(value)
    assert read_deep(text) == value
    assert repaired(text) == text


@given(st.lists(st.tuples(edges, levels, values), min_size=1, max_size=4), values)
def test_values_beside_deep_containers_are_complete(
    deep: list[tuple[str, int, object]], beside: object
) -> None:
    inside = [nested(opening, number, orjson.dumps(value)) for opening, number, value in deep]
    read = read_deep(b'{"deep":[%b],"beside":%b}' % (b",".join(inside), orjson.dumps(beside)))
    assert isinstance(read, dict)
    assert read["beside"] == beside
    assert len(read["deep"]) == len(deep)
    for (opening, number, _), found in zip(deep, read["deep"], strict=True):
        for _ in range(min(number, 397)):
            (found,) = found if opening == "[" else found.values()  # noqa: PLW2901


@given(edges, levels, st.binary(max_size=12) | st.text('[]{}",:1a\\', max_size=12).map(str.encode))
@example("[", 2000, b'"a')
@example("[", 2000, b"]")
@example('{"a":', 2000, b"}{")
@example("[", 2000, b"[}")
def test_malformed_json_is_refused_at_any_depth(opening: str, number: int, content: bytes) -> None:
    def reads(text: bytes) -> bool:
        try:
            read_deep(text)
        except orjson.JSONDecodeError:
            return False
        return True

    # Closing brackets of the content could close containers outside of it.
    is_json = reads(nested(opening, min(number, 2), content))
    assert reads(nested(opening, number, content)) is is_json


def test_every_depth_that_an_object_can_have_is_read() -> None:
    read_deep(nested("[", MAX_LEVELS, b""))
    with pytest.raises(orjson.JSONDecodeError):
        read_deep(nested("[", MAX_LEVELS + 1_000, b""))
    with pytest.raises(orjson.JSONDecodeError):
        read_deep(b"[" * 1_000_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (rb'"x\ud800y"', "x\ufffdy"),
        (rb'"\udc00\ud800"', "\ufffd\ufffd"),
        (rb'"\ud800\ud83d\ude00"', "\ufffd\U0001f600"),
        (rb'"\\ud800\ud800"', "\\ud800\ufffd"),
        (rb'"\\\ud800"', "\\\ufffd"),
        (b'"\xff\xc3\xe2\x82"', "\ufffd\ufffd\ufffd\ufffd"),
        (b'"\xed\xa0\x80"', "\ufffd\ufffd\ufffd"),
    ],
)
def test_strings_that_are_not_unicode_are_repaired_as_in_go(text: bytes, expected: str) -> None:
    assert orjson.loads(repaired(text)) == expected


UNITS = [
    *(
        b"a",
        b"\\ud800",
        b"\\ud83d\\ude00",
        b"\\\\",
        b'\\"',
        b"\xff",
        b"\xe2\x82\xac",
        b"\x80\x80\x80\x80\x80",
    ),
    *(b"\\\\ud800", b"\xe2\x82", b"\\udc00"),
]


@given(st.lists(st.sampled_from(UNITS), min_size=1, max_size=4), st.integers(0, 40))
def test_a_long_string_is_repaired_in_pieces_as_in_one(units: list[bytes], before: int) -> None:
    unit = b"".join(units)
    text = b'"%b%b"' % (b"b" * before, unit * (5_000 // len(unit)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repair, "_REPAIRED_AT_ONCE_BYTES", 2_000)
        assert finish(repaired_in_steps(text)) == repaired(text)


@given(
    st.lists(st.sampled_from([b"a", b"\\\\", b'\\"', b"[", b"}"]), min_size=1, max_size=4), st.integers(0, 40)
)
def test_a_long_string_is_skipped_in_pieces(units: list[bytes], before: int) -> None:
    unit = b"".join(units)
    long = b'["%b%b",[{}],[]]' % (b"b" * before, unit * (20_000 // len(unit)))
    deep = nested("[", 2000, long)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_SCANNED_AT_ONCE_BYTES", 8_000)
        assert read_deep(long) == orjson.loads(long)
        assert read_deep(b"[%b,%b]" % (deep, long))[1] == orjson.loads(long)  # type: ignore[index]


@pytest.mark.parametrize(
    "content",
    [
        b"[%b]" % b",".join([nested("[", 9_000, b"")] * 20),
        nested("[", 1_100, b"[%b]" % b",".join([b"[[]]"] * 80_000)),
        b'{"a":%b,"b":"%b"}' % (nested("[", 2_000, b""), b"\\n" * 1_000_000),
        b'{"a":%b,"b":[%b]}' % (nested("[", 2_000, b""), b",".join([b"[]"] * 500_000)),
        b'"%b"' % (b"\\ud800" * 200_000),
    ],
)
def test_a_large_body_that_orjson_refuses_is_read_in_small_steps(content: bytes) -> None:
    """API servers send such custom resources, and other reviews would wait for the whole decoding."""
    # Of the steps some check the text as a whole, which is fast.
    assert len(list(decode_in_steps(review(content)))) > len(content) / 50_000


@pytest.mark.parametrize("content", [nested("[", 9_000, b""), b'"\\ud800"', b'"\xff"'])
def test_a_small_body_that_orjson_refuses_is_decoded_in_steps(content: bytes) -> None:
    assert decode_plain(review(content)) is None
    metadata = {"labels": {"team": "a"}, "name": "web", "generateName": None}
    assert decode(review(content)).object_outline == {"metadata": metadata}


def test_a_deep_request_is_pruned_once() -> None:
    """Conditions read the whole request after each call, and the pruning is not repeated."""
    given = decode(review(nested("[", 9_900, b"")))
    given.drop_parsed()
    assert given.document["uid"]
    assert not given.can_be_rewritten()
    spec = (given.fresh_object() or {})["spec"]
    assert spec == (given.object or {})["spec"] == given.document["object"]["spec"]


def test_a_control_character_is_not_changed() -> None:
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(repaired(b'"\x01\x02\\ud800"'))


@pytest.mark.parametrize("content", [nested("[", 9_900, b""), nested('{"a":', 1_100, b"1")])
def test_a_deep_review_is_matched_and_passed_on_unchanged(content: bytes) -> None:
    given = decode(review(content))
    assert content in given.json
    hooks = [
        webhook("a", object_selector=labelled("team", "a"), failure_policy="Ignore"),
        webhook("b", object_selector=labelled("team", "b")),
    ]
    evaluation = Evaluation(Selection("mutate", hooks), given, None)
    (call,) = evaluation.start()
    assert call.payload.json == given.json
    evaluation.receive(call, Allowed(b'[{"op":"add","path":"/metadata/labels/b","value":"c"}]'))
    verdict = evaluation.outcomes[0].verdict
    assert isinstance(verdict, Failed)
    assert "nests too deeply" in verdict.cause
    assert evaluation.done
    assert not evaluation.has_changed


def test_a_review_with_strings_that_are_not_unicode_can_be_patched() -> None:
    given = decode(review(b'{"a":"\\ud800","b":"\xff"}'))
    evaluation = Evaluation(Selection("mutate", [webhook("a")]), given, None)
    (call,) = evaluation.start()
    assert orjson.loads(call.payload.json)["object"]["spec"] == {"a": "\ufffd", "b": "\ufffd"}
    evaluation.receive(call, Allowed(b'[{"op":"add","path":"/spec/c","value":"\\udfff"}]'))
    assert evaluation.final_object is not None
    assert evaluation.final_object["spec"] == {"a": "\ufffd", "b": "\ufffd", "c": "\ufffd"}


@pytest.mark.parametrize(
    "content",
    [nested("[", 12_000, b""), nested("[", 2000, b"]"), b"1e400", b'"\x01"', b'"\\ud80"', b"NaN"],
)
def test_json_that_no_api_server_sends_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedReview, match="not JSON"):
        decode(review(content))


def test_a_patch_is_read_as_go_reads_it() -> None:
    assert parse_patch(b'[{"op":"add","path":"/a","value":"\\ud800\xff"}]')[0]["value"] == "\ufffd\ufffd"
