"""Payloads: the requests that workers get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from admission_gateway_worker.json_patch.steps import finish
from gateway.pure.core.call import Payload
from tests.core.build import POD, document, request

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
    payload = Payload(given, (changed, orjson.dumps(changed)))
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
    patched = finish(Payload(given).patched(operations))
    assert patched is not None
    after: Any = patched.object
    assert after["metadata"]["labels"]["team"] == "web"
    assert given.object is before
    assert before == POD
    assert after["spec"] is before["spec"]
