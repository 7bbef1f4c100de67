"""Payloads: the requests that workers get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch as replaced

import orjson
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from admission_gateway_worker.json_patch.patch import PatchConflict, apply_patch, parse_patch
from admission_gateway_worker.json_patch.steps import finish
from gateway.pure.core import call as module
from gateway.pure.core.call import Payload
from tests.core.build import POD, add, document, patch, request, settle, webhook

if TYPE_CHECKING:
    from gateway.pure.core.review import Json


def test_an_unchanged_payload_is_the_request_byte_for_byte() -> None:
    given = request()
    payload = Payload(given)
    assert payload.json is given.json
    assert payload.object is given.object


def test_a_changed_object_replaces_the_object_of_the_request() -> None:
    given = request(userInfo={"username": "alice"})
    changed: Json = {"metadata": {"name": "other"}}
    payload = Payload(given, changed)
    expected = document(userInfo={"username": "alice"}, object=changed)
    assert orjson.loads(payload.json) == expected
    assert list(orjson.loads(payload.json)) == list(expected)
    assert payload.json is payload.json
    assert given.object == POD


def test_a_fresh_object_is_an_independent_copy() -> None:
    given = request()
    fresh: Any = Payload(given).fresh_object()
    assert fresh == POD
    fresh["metadata"]["name"] = "changed"
    assert given.object == POD


def test_a_patched_object_shares_what_the_patch_leaves_as_it_was() -> None:
    given = request()
    before: Any = given.object
    operations: list[Json] = [{"op": "add", "path": "/metadata/labels/team", "value": "web"}]
    patched = finish(Payload(given).patched(operations, orjson.dumps(operations)))
    assert patched is not None
    after: Any = patched.object
    assert after["metadata"]["labels"]["team"] == "web"
    assert given.object is before
    assert before == POD
    assert after["spec"] is before["spec"]


def test_the_json_of_an_object_that_no_call_reads_is_never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Payload] = []
    held = Payload.object_json

    def object_json(payload: Payload) -> bytes:
        written.append(payload)
        return bytes(held.fget(payload))  # type: ignore[attr-defined]

    monkeypatch.setattr(Payload, "object_json", property(object_json))
    names = ("a.test", "b.test", "c.test")
    answers = {name: patch(add(f"/spec/{name}", 1)) for name in names}
    evaluation = settle([webhook(name) for name in names], request(), answers)
    assert evaluation.final_object == {**POD, "spec": {"replicas": 1, **dict.fromkeys(names, 1)}}
    assert not written
    assert orjson.loads(evaluation.payload.json)["object"] == evaluation.final_object
    assert written == [evaluation.payload]


def _payload(levels: int = 0) -> Payload:
    """A payload whose object nests so many levels deep."""
    nested: Json = {}
    for _ in range(levels):
        nested = {"x": nested}
    return Payload(request(object={**POD, "spec": nested}))


numbers = st.sampled_from(["1e15", "1e9", "0.1", "7", "-1e14", "1e300", "1E+16"])


@drawn(levels=st.integers(0, 248), path=st.integers(0, 40), brackets=st.integers(0, 260), turn=st.booleans())
def test_the_depth_of_a_patched_object_is_judged_as_by_writing_it(
    levels: int, path: int, brackets: int, turn: bool
) -> None:
    payload = _payload(levels)
    operations = [
        {"op": "add", "path": "/spec" + "/x" * min(path, levels) + "/y", "value": 0},
        {"op": "move" if turn else "copy", "from": "/metadata", "path": "/spec" + "/x" * levels + "/moved"},
    ]
    text = orjson.dumps(operations[: 1 + turn]).replace(
        b":0}", b":" + b"[" * brackets + b"]" * brackets + b"}"
    )
    if not payload.request.can_be_rewritten():
        return
    try:
        patched = apply_patch(payload.object, parse_patch(text))
        orjson.dumps([[patched]])
    except (TypeError, ValueError):
        with pytest.raises((TypeError, ValueError)):
            _patched(payload, text)
    else:
        found = _patched(payload, text)
        assert found is not None
        assert orjson.loads(found.json)["object"] == patched


@drawn(texts=st.lists(numbers, min_size=1, max_size=30), room=st.integers(0, 900))
def test_growth_is_judged_by_the_json_that_would_be_written(texts: list[str], room: int) -> None:
    payload = _payload()
    text = b'[{"op":"add","path":"/spec/y","value":[%s]}]' % ",".join(texts).encode()
    written = orjson.dumps(apply_patch(payload.object, parse_patch(text)))
    with replaced.object(module, "MAX_GROWTH_BYTES", room):
        if len(written) > len(payload.request.json) + room:
            with pytest.raises(PatchConflict, match=f"it leaves an object of {len(written)} bytes"):
                _patched(payload, text)
        else:
            found = _patched(payload, text)
            assert found is not None
            assert found.object_json == written


def _patched(payload: Payload, text: bytes) -> Payload | None:
    return finish(payload.patched(parse_patch(text), text))
