"""Writes the decisions of cases into their files, as what the cases expect.

Only the lines of ``expect`` of the cases in question change; comments elsewhere stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from gateway.base.errors import ConfigError, Problem
from gateway.config.yaml.documents import POLICY_TEST
from gateway.tools.offline.changes import as_yaml
from gateway.tools.policy_tests.check import actual
from gateway.tools.policy_tests.run import ReviewedCase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gateway.tools.policy_tests.results import CaseResult
    from gateway.tools.policy_tests.suite import Expectation

_FIELDS = ("allowed", "code", "message", "messageLines", "warnings", "patch", "object")
_ATTRIBUTES = {
    **{name: name for name in _FIELDS},
    "messageLines": "message_lines",
    "messageContains": "message_contains",
}
"""By field of ``expect``."""


def update(results: Sequence[CaseResult]) -> list[Path]:
    """Write the decisions of the *results* that differ; return the files that changed.

    A case keeps the fields that it checks; one that expects nothing gets ``allowed``, the ``message`` of a
    denial, ``warnings`` and ``patch`` as far as there are any.

    Raises:
        ConfigError: a file is JSON, or a case is written in flow style (``{...}``); nothing is written.
    """
    by_file: dict[Path, list[ReviewedCase]] = {}
    for result in results:
        if isinstance(result, ReviewedCase) and is_updatable(result):
            by_file.setdefault(result.file, []).append(result)
    written = {file: _updated(file, group) for file, group in by_file.items()}
    for file, text in written.items():
        file.write_text(text, encoding="utf-8")
    return list(written)


def is_updatable(result: CaseResult) -> bool:
    """Whether *result* is that of a PolicyTest whose decision differs."""
    return (
        isinstance(result, ReviewedCase)
        and result.reviewed is not None
        and len(result.problems) > len(result.again)
    )


def is_updated(result: CaseResult) -> bool:
    """Whether *result* has no problem after :func:`update`. It writes no ``changesAgain``."""
    return isinstance(result, ReviewedCase) and is_updatable(result) and not result.again


def _updated(file: Path, results: Sequence[ReviewedCase]) -> str:
    text = file.read_text(encoding="utf-8-sig")
    if file.suffix == ".json":
        raise ConfigError([Problem(str(file), "", "found JSON, expected YAML: --update writes YAML only")])
    suites = [
        node for node in yaml.compose_all(text, yaml.SafeLoader) if _scalar(node, "kind") == POLICY_TEST
    ]
    lines = text.split("\n")
    edits = []
    for result in results:
        assert result.case is not None
        case = _value(suites[result.document], "cases").value[result.case.index]
        if case.flow_style:
            where = f"cases[{result.case.index}]"
            raise ConfigError([Problem(str(file), where, "found flow style ({...}), expected a block")])
        edits.append(_edit(case, result))
    for begin, end, block in sorted(edits, reverse=True):
        lines[begin:end] = block
    return "\n".join(lines)


def _edit(case: yaml.MappingNode, result: ReviewedCase) -> tuple[int, int, list[str]]:
    """Return the first line to replace, the line after the last one, and the new lines."""
    column = case.start_mark.column
    block = as_yaml({"expect": _expected(result)}).removesuffix("\n").split("\n")
    indented = [" " * column + line for line in block]
    for key, value in case.value:
        if key.value == "expect":
            return key.start_mark.line, _last_line(value) + 1, indented
    end = max(_last_line(value) for _, value in case.value) + 1
    return end, end, indented


def _expected(result: ReviewedCase) -> dict[str, Any]:
    assert result.reviewed is not None
    assert result.case is not None
    found = actual(result.reviewed)
    expect: Expectation = result.case.expect
    if expect.is_empty:
        kept = {"allowed", "message", *(name for name in ("warnings", "patch") if found[name])}
    else:
        checked = ("message" if name == "messageContains" else name for name in _set_fields(expect))
        kept = {*checked, "allowed"}
    if expect.object is not None and "namespace" not in expect.object.get("metadata", {}):
        # The request has added it.
        metadata = {k: v for k, v in found["object"].get("metadata", {}).items() if k != "namespace"}
        found["object"] = {**found["object"], "metadata": metadata}
    return {name: found[name] for name in _FIELDS if name in kept and name in found}


def _set_fields(expect: Expectation) -> list[str]:
    return [name for name, attribute in _ATTRIBUTES.items() if getattr(expect, attribute) is not None]


def _last_line(node: yaml.Node) -> int:
    """Return the line of the last character of *node*."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    mark = node.end_mark
    is_block_text = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
    return int(mark.line - 1 if is_block_text and mark.column == 0 else mark.line)


def _value(node: yaml.Node, name: str) -> yaml.Node:
    found: yaml.Node = next(value for key, value in node.value if key.value == name)
    return found


def _scalar(node: yaml.Node | None, name: str) -> object:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value.value for key, value in node.value if key.value == name), None)
