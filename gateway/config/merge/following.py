"""Leaves out problems that may only follow from others: what a document lacks may be in a broken one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.config.yaml.documents import ADMISSION_GROUP, GATEWAY_VERSION, POLICY_KINDS
from gateway.config.yaml.fields import GATEWAY_CONFIGURATION, SOME_POLICY, child

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.config.yaml.documents import Document

_WITHOUT_PARAMETERS = (ADMISSION_GROUP, GATEWAY_VERSION.partition("/")[0])
"""API groups of which no kind is that of parameters."""


def leave_out_following(
    documents: Sequence[Document], identified: Mapping[tuple[str, str], Document]
) -> None:
    """Remove from *documents* the problems that may follow from documents that cannot be read.

    *identified* are the documents whose kind and name are known.
    """
    for document in documents:
        version = (document.content or {}).get("apiVersion")
        if isinstance(version, str) and version.partition("/")[0] in _WITHOUT_PARAMETERS:
            # Its kind is misspelt, whatever the policies are.
            lacking = document.problems.lacking
            document.problems.lacking = {one: name for one, name in lacking.items() if name != SOME_POLICY}
    known = {id(one) for one in identified.values()}
    broken = [
        one
        for one in documents
        # A list is read, and each of its items is a document.
        if _own(one)
        and not (one.content is None and one.problems.label)
        and (id(one) not in known or _lacks_identity(one))
    ]
    unknown = [one for one in documents if SOME_POLICY in one.problems.lacking.values()]
    names = {_name(one) for one in (*broken, *unknown)}
    gateway = identified.get((GATEWAY_CONFIGURATION, ""))
    if gateway is not None and _own(gateway):
        names.add(GATEWAY_CONFIGURATION)
    policies = [one for (kind, _), one in identified.items() if kind in POLICY_KINDS]
    if broken or GATEWAY_CONFIGURATION in names or any(map(_own, policies)):
        names.add(SOME_POLICY)
    for document in documents if names else ():
        for problem, name in document.problems.lacking.items():
            if name in names or ("" in names and name != SOME_POLICY):
                document.problems.found.remove(problem)
        document.problems.lacking.clear()


def _own(document: Document) -> bool:
    """Whether *document* has a problem that does not follow from another document."""
    return any(problem not in document.problems.lacking for problem in document.problems.found)


def _lacks_identity(document: Document) -> bool:
    head = [child(document.path, name) for name in ("apiVersion", "kind", "metadata")]
    return any(path == document.path or path.startswith(tuple(head)) for path, _ in document.problems.found)


def _name(document: Document) -> str:
    """Return the name in *document*; empty if it may have any, also if the one that is there is wrong."""
    metadata = (document.content or {}).get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    place = child(child(document.path, "metadata"), "name")
    is_wrong = any(path == place for path, _ in document.problems.found)
    return name if isinstance(name, str) and not is_wrong else ""
