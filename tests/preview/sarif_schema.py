"""What SARIF 2.1.0 says about the members that a preview writes: others are not allowed.

The names, types and bounds are those of the specification's own JSON schema, which has many more. Each part
of it is closed, as here: a member with a wrong name is an error.

Source: OASIS SARIF 2.1.0 (errata 01), sarif-schema-2.1.0.json, definitions run, toolComponent,
reportingDescriptor, result, location, region, invocation and notification.
"""

from __future__ import annotations

from typing import Any, Final


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


def _list(items: dict[str, Any], *, unique: bool = False) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": unique}


_TEXT: Final = {"type": "string"}
_MESSAGE: Final = _object(text=_TEXT, markdown=_TEXT)
_MULTIFORMAT: Final = _object("text", text=_TEXT, markdown=_TEXT)
_LEVEL: Final = {"enum": ["none", "note", "warning", "error"]}
_FROM_1: Final = {"type": "integer", "minimum": 1}
_RULE: Final = _object(
    "id",
    id=_TEXT,
    shortDescription=_MULTIFORMAT,
    fullDescription=_MULTIFORMAT,
    help=_MULTIFORMAT,
    helpUri={"type": "string", "format": "uri"},
    defaultConfiguration=_object(level=_LEVEL),
)
_DRIVER: Final = _object(
    "name",
    name=_TEXT,
    semanticVersion=_TEXT,
    informationUri={"type": "string", "format": "uri"},
    rules=_list(_RULE, unique=True),
)
_PHYSICAL: Final = _object(
    artifactLocation=_object(uri={"type": "string", "format": "uri-reference"}),
    region=_object(startLine=_FROM_1, startColumn=_FROM_1, endColumn=_FROM_1),
)
_RESULT: Final = _object(
    "message",
    ruleId=_TEXT,
    ruleIndex={"type": "integer", "minimum": -1},
    level=_LEVEL,
    message=_MESSAGE,
    locations=_list(_object(physicalLocation=_PHYSICAL)),
    partialFingerprints={"type": "object", "additionalProperties": _TEXT},
)
_NOTIFICATION: Final = _object("message", level=_LEVEL, message=_MESSAGE)
_RUN: Final = _object(
    "tool",
    tool=_object("driver", driver=_DRIVER),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    invocations=_list(
        _object(
            "executionSuccessful",
            executionSuccessful={"type": "boolean"},
            toolExecutionNotifications=_list(_NOTIFICATION),
        )
    ),
    results=_list(_RESULT),
)
SCHEMA: Final = _object(
    *("version", "runs"),
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"enum": ["2.1.0"]},
    runs=_list(_RUN),
)
