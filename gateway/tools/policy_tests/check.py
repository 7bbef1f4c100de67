"""Compares a decision with what a case expects."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import orjson

from admission_gateway_worker.json_patch.diff import same
from admission_gateway_worker.json_patch.patch import (
    PatchConflict,
    PatchSyntaxError,
    apply_patch,
    parse_patch,
)
from gateway.tools.offline.changes import changes
from gateway.tools.offline.message_lines import lines_of_denials

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gateway.engine.dry_run import DryRun
    from gateway.engine.object_review import Json
    from gateway.tools.policy_tests.suite import Case


def differences(case: Case, reviewed: DryRun) -> Iterator[str]:
    """Yield the differences as lines of text, continuations indented; none if all is as expected."""
    expect, found = case.expect, actual(reviewed)
    if expect.is_empty:
        yield "expect: is missing; --update writes the decision"
    if expect.allowed is not None and found["allowed"] != expect.allowed:
        yield f"allowed: found {_word(found['allowed'])}, expected {_word(expect.allowed)}"
        if not found["allowed"] and expect.message is None:
            yield from _indented(found["message"].split("\n"))
    if expect.code is not None and found.get("code") != expect.code:
        yield f"code: found {found.get('code', 'none: the request is allowed')}, expected {expect.code}"
    message = found.get("message", "")
    if expect.message is not None and message != expect.message:
        yield from _texts("message", [expect.message], [message])
    if expect.message_contains is not None and expect.message_contains not in message:
        yield "messageContains: the message does not contain the text"
        yield from _indented([f"-{expect.message_contains}", *(f"+{line}" for line in message.split("\n"))])
    if expect.message_lines is not None and tuple(found["messageLines"]) != expect.message_lines:
        yield from _texts("messageLines", expect.message_lines, found["messageLines"])
    if expect.warnings is not None and found["warnings"] != list(expect.warnings):
        yield from _texts("warnings", expect.warnings, found["warnings"])
    wanted = wanted_object(case, reviewed)
    if wanted is not None and not same(wanted, reviewed.final_object):
        yield f"{'object' if expect.object is not None else 'patch'}: the object after all changes differs"
        yield from _indented(changes(wanted, reviewed.final_object))


def wanted_object(case: Case, reviewed: DryRun) -> object:
    """Return the object that *case* expects after all changes. None if it does not check the object."""
    expect = case.expect
    before = reviewed.request.object
    if expect.object is not None:
        return _with_namespace(expect.object, before)
    if expect.patch is None or before is None:
        return None
    try:
        return apply_patch(before, parse_patch(orjson.dumps(expect.patch)))
    except (PatchConflict, PatchSyntaxError) as error:
        return {"the expected patch does not apply": str(error)}


def actual(reviewed: DryRun) -> dict[str, Any]:
    """Return the decision in the fields of ``expect``."""
    decision = reviewed.decision
    found: dict[str, Any] = {"allowed": decision.allowed}
    if decision.status is not None:
        found |= {"code": decision.status.code, "message": decision.status.message}
    found["messageLines"] = list(lines_of_denials(reviewed.rejections))
    found["warnings"] = list(decision.warnings)
    found["patch"] = orjson.loads(decision.patch or b"[]")
    found["object"] = reviewed.final_object
    return found


def _with_namespace(wanted: Json, before: Json | None) -> Json:
    """Return *wanted* with the namespace that the request gave the object, if it names none."""
    metadata, given = wanted.get("metadata", {}), (before or {}).get("metadata", {})
    namespace = given.get("namespace") if isinstance(given, dict) else None
    if not isinstance(metadata, dict) or namespace is None or "namespace" in metadata:
        return wanted
    return {**wanted, "metadata": {**metadata, "namespace": namespace}}


def _texts(title: str, wanted: Iterable[str], found: list[str]) -> Iterator[str]:
    yield f"{title}: differs"
    before = [line for text in wanted for line in text.split("\n")]
    after = [line for text in found for line in text.split("\n")]
    lines = list(difflib.unified_diff(before, after, n=1000, lineterm=""))[3:]
    yield from _indented(lines or ["the lines are equal, but not the places where they end"])


def _indented(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield f"  {line}"


def _word(value: bool) -> str:
    return "true" if value else "false"
