"""Random JSON Patches of mutating policies, and what the gateway makes of them."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

from tests.policies.documents import decided, mutating
from tests.recorded.recording import path_of

if TYPE_CHECKING:
    from pathlib import Path

    Json = dict[str, Any]

FILE: Final = path_of("json-patches")
"""The API server's answers to ``cases(0, RECORDED)``, one a line."""
RECORDED: Final = 200
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


def cases(seed: int, count: int) -> list[tuple[Json, str]]:
    """Return objects, each with the expression of a JSON Patch."""
    source = random.Random(seed)
    return [(live, drawn_expression(source, live)) for live in (drawn_object(source) for _ in range(count))]


def difference(folder: Path, live: Json, expression: str, expected: Json) -> str:
    """Return how the gateway differs from *expected*: it has another object, or another error.

    It is empty if they agree, or the API server has an internal error.
    """
    problem = expected.get("error", "")
    if problem == "panic":
        return ""  # a null that the patch has made, or one in a list that is compared
    found = result(folder, live, expression)
    if problem.startswith("Internal error occurred") and "error" in found:
        return ""  # no kind is left
    if comparable(found) == comparable(expected):
        return ""
    return f"{json.dumps(live)}\n+ {expression}\nhere  {found}\nthere {expected}"


def result(folder: Path, live: Json, expression: str) -> Json:
    """Return what the gateway makes of a patch of *live*, in the form of the oracle's answers."""
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
        operations = ['JSONPatch{op: "test", path: "/kind", value: "Thing"}'] * 8 + operations
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
