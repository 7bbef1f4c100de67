"""JSON Patches of mutating policies beside kube-apiserver's own: random objects and operations."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any, Final

import pytest

from admission_gateway_worker.json_patch.patch import MAX_SHARED
from tests.e2e.openapi_oracle import ask
from tests.policies.documents import decided, mutating

if TYPE_CHECKING:
    from pathlib import Path

    Json = dict[str, Any]

FIRST: Final = int(os.environ.get("E2E_SEED", "0"))
KEYS: Final = ["a", "b", "list", "a/b", "~", "", "0", "-", "é", "a b", "\n", "\x01", "😀"]
SCALARS: Final = [
    0,
    1,
    -7,
    2**53 + 1,
    2**63 - 1,
    1.5,
    1e300,
    "",
    "text",
    'q"\\',
    "é\n\x01😀",
    True,
    False,
    None,
]
INDICES: Final = ["-", "-1", "-2", "-9", "+0", "01", "1", "9", "1.0", " 1", "9" * 30, "0x0", "x"]
OTHER_VALUES: Final = [
    "2u",
    "b'ab'",
    "timestamp('2020-01-01T00:00:00Z')",
    "duration('90s')",
    "optional.of(1)",
]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 4))
def test_patched_objects_are_those_of_the_api_server(seed: int, tmp_path: Path) -> None:
    """The same object, or the same error, unless the API server has an internal one."""
    source = random.Random(seed)
    cases = [(live, drawn_expression(source, live)) for live in (drawn_object(source) for _ in range(500))]
    answers = ask({}, ({"live": live, "jsonPatch": expression} for live, expression in cases))
    different = []
    merged = 0
    for (live, expression), expected in zip(cases, answers, strict=True):
        found = result(tmp_path, live, expression)
        merged += "merged" in found
        problem = expected.get("error", "")
        if problem == "panic":
            continue  # a null that the patch has made, or one in a list that is compared
        if problem.startswith("Internal error occurred") and "error" in found:
            continue  # no kind is left
        if comparable(found) != comparable(expected):
            different.append(f"{json.dumps(live)}\n+ {expression}\nhere  {found}\nthere {expected}")
    assert not different, f"{len(different)} differ:\n" + "\n".join(different[:3])
    assert 100 < merged < 400


def result(folder: Path, live: Json, expression: str) -> Json:
    """Return what the gateway makes of a patch, as the oracle says it."""
    documents = mutating("p", expression)
    found = decided(folder, documents, {"object": live}, phase="mutate")
    status = found.decision.status
    if status is not None:
        return {"error": status.message.partition(" denied request: ")[2]}
    return {"merged": found.evaluation.final_object}


def comparable(result: Json) -> str:
    return str(result["error"]) if "error" in result else json.dumps(result["merged"], sort_keys=True)


def drawn_object(source: random.Random) -> Json:
    return {
        "apiVersion": "example.io/v1",
        "kind": "Thing",
        "metadata": {"name": "thing", "namespace": "default"},
        "spec": {key: drawn_value(source, 3) for key in source.sample(KEYS, 5)},
    }


def drawn_value(source: random.Random, depth: int) -> Any:
    kind = source.random()
    if depth and kind < 0.3:
        return {key: drawn_value(source, depth - 1) for key in source.sample(KEYS, source.randrange(4))}
    if depth and kind < 0.7:
        return [drawn_value(source, depth - 1) for _ in range(source.randrange(4))]
    return source.choice(SCALARS)


def drawn_expression(source: random.Random, live: Json) -> str:
    """An expression with one to four operations, most of which apply to *live*; some are long."""
    operations = [drawn_operation(source, live) for _ in range(source.choice([1, 1, 2, 4]))]
    if source.random() < 0.1:
        operations = ['JSONPatch{op: "test", path: "/kind", value: "Thing"}'] * MAX_SHARED + operations
    return f"[{', '.join(operations)}]"


def drawn_operation(source: random.Random, live: Json) -> str:
    kind = source.choice(["add", "add", "remove", "replace", "replace", "move", "copy", "test"])
    if source.random() < 0.02:
        kind = source.choice(["", "ADD", "merge", "\x01"])
    fields = {"op": text(kind), "path": text(drawn_path(source, live))}
    if kind in ("move", "copy") and source.random() < 0.95:
        fields["from"] = text(drawn_path(source, live))
    if kind in ("add", "replace", "test") and source.random() < 0.9:
        fields["value"] = drawn_literal(source, live, may_be_null=kind == "test")
    return f"JSONPatch{{{', '.join(f'{name}: {value}' for name, value in fields.items())}}}"


def drawn_path(source: random.Random, live: Json) -> str:
    """A path into ``spec`` that *live* has, or one of a neighbour of it."""
    if source.random() < 0.02:
        return source.choice(["", "/", "spec", "/spec", "//", "/~2", "/spec/~"])
    parts, current = ["spec"], live["spec"]
    while isinstance(current, dict | list) and current and source.random() < 0.8:
        key = source.choice(list(current) if isinstance(current, dict) else range(len(current)))
        parts.append(str(key))
        current = current[key]
    if source.random() < 0.3:
        parts.append(source.choice(INDICES if isinstance(current, list) else KEYS))
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def drawn_literal(source: random.Random, live: Json, *, may_be_null: bool) -> str:
    """A CEL literal; sometimes that of a value in *live*.

    A null that a patch has made is an empty object for its next operations in the API server.
    """
    kind = source.random()
    if kind < 0.4:
        return source.choice(["null", *OTHER_VALUES] if may_be_null else OTHER_VALUES)
    value = source.choice(list(live["spec"].values())) if kind < 0.6 else drawn_value(source, 2)
    return "1" if value is None and not may_be_null else literal(value)


def literal(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{text(key)}: dyn({literal(each)})' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(f'dyn({literal(each)})' for each in value)}]"
    return text(value) if isinstance(value, str) else json.dumps(value)


def text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
