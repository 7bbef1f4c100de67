"""Every declared field of every kind: its type, its bounds, null, and fields that no schema knows.

The rows are made of the schemas: a path in a document with all fields, a value, and the message.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.text import one_of
from gateway.config.kinds.gateway_configuration import GatewaySettings, read_gateway_configuration
from gateway.config.kinds.policy_exception import NAMESPACED
from gateway.config.merge.custom_resource import CustomResource, read_resource
from gateway.config.yaml.documents import PHASES
from gateway.config.yaml.fields import Fields, Problems
from tests.config.test_schemas import EXAMPLES, SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gateway.config.kinds.declare import Schema

Row = tuple[tuple[str | int, ...], object, str]
ABSENT = object()
OTHERS: tuple[object, ...] = ([], {})
ABOUT_OTHERS = r"is required (with|together)|at least maxRequestBytes"
"""Messages about a value that is allowed, because of other fields."""


def whole(schema: Schema) -> Any:
    """Return a value with all fields of *schema*, whether or not its rules allow them together."""
    match schema["type"]:
        case "object" if "additionalProperties" in schema:
            return {"a": whole(schema["additionalProperties"])}
        case "object":
            return {name: whole(one) for name, one in schema.get("properties", {}).items()}
        case "array":
            return [whole(schema["items"])]
        case "boolean":
            return True
        case "integer" | "number":
            return schema["maximum"]
    texts = (*schema.get("enum", ()), *EXAMPLES)
    return next((text for text in texts if re.search(schema.get("pattern", ""), text)), "a")


def rows(schema: Schema, path: tuple[str | int, ...]) -> Iterator[Row]:
    """Yield rows of what is at *path*, with the pattern of the message, empty where the value is allowed."""
    match schema["type"]:
        case "object" if "additionalProperties" in schema:
            yield path, [], "found a list, expected a mapping"
            yield from rows(schema["additionalProperties"], (*path, "a"))
        case "object":
            yield path, [], "found a list, expected a mapping"
            if "properties" in schema:
                yield (*path, "unheard"), 1, "unknown field"
            for name, one in schema.get("properties", {}).items():
                is_required = name in schema.get("required", ())
                for value in (ABSENT, None):
                    yield (*path, name), value, "is required" if is_required else ""
                yield from rows(one, (*path, name))
        case "array":
            yield path, {}, "found a mapping, expected a list"
            if schema.get("minItems"):
                yield path, [], "is required|is empty|found 0 entries"
            yield from rows(schema["items"], (*path, 0))
        case "boolean":
            yield from ((path, value, "") for value in (True, False))
            yield path, 0, "found the number 0, expected true or false"
        case "integer" | "number":
            low, high = schema["minimum"], schema["maximum"]
            bounds = f"expected a {'whole ' if schema['type'] == 'integer' else ''}number from {low:g} to "
            if not schema.get("exclusiveMinimum"):
                yield path, low, ""
            yield path, high, ""
            yield from ((path, value, bounds) for value in (low - 1, high + 1, "1", True, *OTHERS))
        case _ if "enum" in schema:
            yield from ((path, value, "") for value in schema["enum"])
            yield path, "unheard", f'found "unheard", expected {re.escape(one_of(schema["enum"]))}'
            yield from ((path, value, "found .*, expected ") for value in (1, *OTHERS))
        case _:
            yield from ((path, value, "expected ") for value in (1, True, *OTHERS))


def placed(document: Any, path: tuple[str | int, ...], value: object) -> Any:
    """Return *document* with *value* at *path*, or without what is there."""
    if not path:
        return value
    if isinstance(document, list):
        return [placed(document[0], path[1:], value)]
    name, *rest = path
    changed = {**document, name: placed(document.get(name), tuple(rest), value)}
    return {key: one for key, one in changed.items() if one is not ABSENT}


def written(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)[1:]


def problems(kind: str, document: Any, folder: Path) -> list[tuple[str, str]]:
    """Return path and message of what the reader says of *document*."""
    if kind == "GatewayConfiguration":
        found = Problems("", folder=folder)
        read_gateway_configuration(Fields(document, "", found))
        return found.found
    read = read_resource(
        CustomResource(kind, "a", {"kind": kind, **document}, "shop" if kind == NAMESPACED else "")
    )
    return [(one.field, one.message) for one in read.problems]


@pytest.mark.parametrize("kind", ["GatewayConfiguration", *SCHEMAS])
def test_the_reader_says_what_the_declaration_says(kind: str, tmp_path: Path) -> None:
    if kind == "GatewayConfiguration":
        schema = GatewaySettings.schema()
    else:
        field = "webhooks" if kind in PHASES else "spec"
        required = [] if kind in PHASES else [field]
        schema = {"type": "object", "properties": {field: SCHEMAS[kind]}, "required": required}
    document = whole(schema)
    before = problems(kind, document, tmp_path)
    forbidden = {field for field, message in before if "not allowed in a custom resource" in message}
    wrong = []
    for path, value, message in rows(schema, ()):
        at = written(path)
        if at in ("", "unheard") or any(at.startswith(each) for each in forbidden):
            continue
        found = [
            each for each in problems(kind, placed(document, path, value), tmp_path) if each not in before
        ]
        here = [text for field, text in found if field == at]
        if message:
            is_right = any(re.search(message, text) for text in here)
        else:
            is_right = all(re.search(ABOUT_OTHERS, text) for text in here)
        if not is_right:
            wrong.append((at, "absent" if value is ABSENT else value, message, here))
    assert wrong == []
