"""Payloads: the requests that workers get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from gateway.core.call import Payload
from tests.core.build import POD, document, request

if TYPE_CHECKING:
    from gateway.core.review import Json


def test_an_unchanged_payload_is_the_request_byte_for_byte() -> None:
    asked = request()
    payload = Payload(asked)
    assert payload.json is asked.json
    assert payload.object is asked.object


def test_a_changed_object_replaces_the_object_of_the_request() -> None:
    asked = request(userInfo={"username": "alice"})
    changed: Json = {"metadata": {"name": "other"}}
    payload = Payload(asked, (changed, orjson.dumps(changed)))
    expected = document(userInfo={"username": "alice"}, object=changed)
    assert orjson.loads(payload.json) == expected
    assert list(orjson.loads(payload.json)) == list(expected)
    assert payload.json is payload.json
    assert asked.object == POD


def test_a_fresh_object_is_an_independent_copy() -> None:
    asked = request()
    fresh: Any = Payload(asked).fresh_object()
    assert fresh == POD
    fresh["metadata"]["name"] = "changed"
    assert asked.object == POD
