"""Documents of which parts were replaced by something else: they are refused with a sentence, or work."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final

from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from tests.gatekeeper.documents import constraint, excluding, scoped, template
from tests.policies.documents import decided

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

Json = dict[str, Any]

DOCUMENTS: Final = (
    template(
        "Never",
        {"expression": "variables.x == 1", "message": "m", "messageExpression": "'x'"},
        variables=[{"name": "x", "expression": "variables.params.n"}],
        matchCondition=[{"name": "a", "expression": "true"}],
        failurePolicy="Ignore",
        operations=["*"],
        schema={
            "type": "object",
            "required": ["n"],
            "properties": {
                "n": {"type": "integer", "default": 1, "minimum": 0},
                "names": {"type": "array", "items": {"type": "string", "pattern": "^a"}},
            },
        },
    ),
    constraint(
        "Never",
        match={
            "kinds": [{"apiGroups": [""], "kinds": ["Pod"]}],
            "namespaces": ["*"],
            "excludedNamespaces": ["a*"],
            "labelSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]},
            "namespaceSelector": {"matchLabels": {"a": "b"}},
            "scope": "*",
            "name": "*",
        },
        parameters={"n": 1, "names": ["a"]},
        **scoped(("deny", "*")),
    ),
    excluding("b*", sync={"syncOnly": []}),
)
HALF: Final = r"\ud800"
"""Half of a character, in JSON, which no file of UTF-8 has."""
JUNK: Final[st.SearchStrategy[Any]] = st.sampled_from(
    [
        *(None, 1, -1, 10**30, 1.5, True, "", "x", "*", "**", "a*b", "\ud800", "a" * 500, "(", "params"),
        *([], {}, [1], [None], [[]], [{}], ["*"], {"x": 1}, {"type": "object"}, {"$ref": "#"}),
    ]
)
KEYWORDS: Final = st.sampled_from(
    [
        *("pattern", "required", "enum", "anyOf", "not", "default", "maxLength", "multipleOf", "uniqueItems"),
        *("nullable", "additionalProperties", "items", "x-kubernetes-int-or-string", "type", "properties"),
    ]
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the containers in *value*, each with each of its keys."""
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, one in list(members):
        yield value, key
        yield from places(one)


@st.composite
def changed(draw: st.DrawFn) -> list[Json]:
    documents = copy.deepcopy(list(DOCUMENTS))
    for _ in range(draw(st.integers(1, 3))):
        found = list(places(documents[draw(st.integers(0, 2))]))
        if not found:
            break
        container, key = draw(st.sampled_from(found))
        if isinstance(container, dict) and draw(st.booleans()):
            key = draw(KEYWORDS)
        container[key] = copy.deepcopy(draw(JUNK))
    return documents


@given(changed())
def test_they_are_refused_with_a_sentence_or_work(
    tmp_path_factory: pytest.TempPathFactory, documents: list[Json]
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    (folder / "policies.json").write_text(text)
    try:
        load([folder])
    except ConfigError as error:
        found = error.problems
    else:
        (folder / "policies.json").unlink()
        if HALF not in text:
            decided(folder, json.loads(text)["items"])
        return
    assert found
    assert all(each.message for each in found)
