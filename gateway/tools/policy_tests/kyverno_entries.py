"""What ``globalContext.Get`` and ``http.Get`` find in a test of Kyverno: the data that the test gives.

Kyverno finds fields and projections by JMESPath. Here they are names of members, joined by dots.

Source: github.com/kyverno/kyverno cmd/cli/kubectl-kyverno apis/v1alpha1/test.go, store/gctx_resolve.go,
commands/test/test.go (buildHTTPMockIndex), pkg/cel/libs/http_mock.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gateway.base.text import shown
from gateway.config.merge.load import documents_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from gateway.config.yaml.fields import Fields

_PATH: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_SOURCES: Final = ("data", "resources", "resourceFiles")


class _UnusableError(Exception):
    """The data cannot be found."""


@dataclass(frozen=True, slots=True)
class MockEntry:
    """The data of one entry."""

    name: str
    data: object
    files: tuple[Path, ...]
    """The files whose objects are the data instead."""
    path: str
    """Where in the data that of the entry is. Empty for all of it."""
    projections: Mapping[str, str]
    """Paths by name. If it has any, only these are the data."""


def read_entries(entries: Iterable[Fields], folder: Path) -> tuple[MockEntry, ...]:
    """Return the *entries* of a test, after reporting their problems."""
    found = []
    for one in entries:
        given = [name for name in _SOURCES if one.has(name)]
        if len(given) != 1:
            one.problems.add(one.path, "expected one of data, resources and resourceFiles")
        projections = {}
        for each in one.mappings("projections"):
            projections[each.required_string("name")] = each.required_string("path")
            each.finish_leniently()
        found.append(
            MockEntry(
                one.required_string("name").strip(),
                one.content.get("data", one.content.get("resources")),
                tuple(folder / text for text in one.strings("resourceFiles")),
                one.optional_string("fieldPath"),
                projections,
            )
        )
        one.finish_leniently()
    return tuple(found)


def read_answers(answers: Iterable[Fields]) -> dict[str, dict[str, Any]]:
    """Return what ``http.Get`` returns by the *answers* of a test, by URL, after reporting their problems.

    Those to requests of other methods are left out.
    """
    found: dict[str, tuple[bool, dict[str, Any]]] = {}
    for one in answers:
        url, method = one.optional_string("url"), one.optional_string("method").strip().upper()
        one.accept("urlPath")
        response = one.required_group("response")
        status = response.integer("statusCode", 200, 0, 999) or 200
        response.accept("body")
        response.finish_leniently()
        one.finish_leniently()
        # An answer to one method counts more than one to all.
        if url and method in ("GET", "") and (method or not found.get(url, (False,))[0]):
            found[url] = bool(method), {"body": response.content.get("body"), "statusCode": status}
    return {url: answer for url, (_, answer) in found.items()}


def data_of(entries: Sequence[MockEntry]) -> tuple[dict[str, object], str]:
    """Return the data of *entries* by name, and the first problem, or an empty text."""
    found: dict[str, object] = {}
    problem = ""
    for one in entries:
        try:
            found[one.name] = _data(one)
        except _UnusableError as error:
            problem = problem or f"globalContextEntries: {one.name}: {error}"
    return found, problem


def _data(entry: MockEntry) -> object:
    data = entry.data
    if entry.files:
        documents = list(documents_in(entry.files))
        for each in documents:
            for problem in each.problems.errors():
                raise _UnusableError(str(problem))
        data = [each.content for each in documents if each.content is not None]
    if entry.path:
        data = _found(entry.path, data)
    if not entry.projections:
        return data
    return {name: _found(path, data) for name, path in entry.projections.items()}


def _found(path: str, data: Any) -> object:  # noqa: ANN401 - any JSON
    if not _PATH.fullmatch(path):
        raise _UnusableError(f"found the path {shown(path)}, expected names joined by dots")
    for name in path.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data
