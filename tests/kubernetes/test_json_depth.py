"""JSON that nests deeper than orjson reads: what is too deep is null, and the rest as it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base import json_depth
from gateway.base.json_depth import MAX_LEVELS, without_depth

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXTS = st.text(st.sampled_from('a"\\[]{}é,:'), max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=15,
)


@pytest.fixture(scope="module", autouse=True)
def few_levels() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_depth, "MAX_LEVELS", 2)
        yield


def cut(value: Any, levels: int = 2) -> Any:
    if not isinstance(value, dict | list):
        return value
    if levels == 0:
        return None
    if isinstance(value, list):
        return [cut(item, levels - 1) for item in value]
    return {key: cut(item, levels - 1) for key, item in value.items()}


@given(JSON)
def test_values_below_the_bound_are_null(value: Any) -> None:
    assert json.loads(without_depth(json.dumps(value, ensure_ascii=False).encode())) == cut(value)


@given(st.text(st.sampled_from('"\\[]{}1,'), max_size=12))
def test_a_text_that_is_not_too_deep_stays_as_it_is(text: str) -> None:
    found = without_depth(text.encode()).decode()
    assert found == text or text.count("[") + text.count("{") > 2


def test_an_object_as_deep_as_api_servers_take_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_depth, "MAX_LEVELS", MAX_LEVELS)
    text = b'{"name":"x","spec":' + b'{"a":[' * 5000 + b"]}" * 5000 + b"}"
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(text)
    found = orjson.loads(without_depth(text))
    assert found["name"] == "x"
    # It is recognised as one that was cut.
    with pytest.raises(TypeError):
        orjson.dumps(found)
