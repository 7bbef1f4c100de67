"""What an API server made of policies or webhooks: the reviews it sends and its answers, as a file of JSON.

A file has one operation a line. What many operations have in common is in tables at its beginning, to which
they refer by number, and an object is stored as its difference from the document that was sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Json = dict[str, Any]

FOLDER: Final = Path(__file__).parent
NEWEST: Final = "1.37"
"""The Kubernetes version by which gateways decide by default."""
NAME: Final = "{name}"
"""Stands for the name of the document that was sent."""


@dataclass(frozen=True)
class Review:
    """One request of an AdmissionReview, and the paths of the gateway to which the API server sends it."""

    paths: tuple[str, ...]
    request: Json
    """Without what differs from one run to the next."""


@dataclass(frozen=True)
class Operation:
    """What came of one operation."""

    reviews: tuple[Review, ...]
    """Those that a gateway with the same policies gets, if it changes nothing."""
    answer: Json
    """What the user and the auditor see if the policies are those of the API server: ``status``; ``reason``,
    ``message`` and ``details`` of a refusal; ``warnings`` and ``annotations``; ``object`` after changes."""


Operations = dict[str, tuple[Operation, ...]]
"""By the name of the scenario."""


@dataclass(frozen=True)
class Surroundings:
    """What a gateway knows of the cluster."""

    kubernetes: str
    """The version of the API server."""
    namespaces: Sequence[Json]
    """Those of the operations."""
    schemas: Sequence[Json]
    """The OpenAPI documents of custom resources, reduced to what a gateway reads."""


@dataclass(frozen=True)
class Recording:
    """All scenarios of one subject."""

    surroundings: Surroundings
    access: Mapping[str, Json]
    """Decisions of the authorizer by the spec of the SubjectAccessReview, see :func:`text_of`."""
    operations: Operations

    def authorize(self, spec: Json) -> Json:
        """Return the decision on *spec*."""
        return self.access[text_of(spec)]


def path_of(subject: str, version: str = NEWEST) -> Path:
    """Return the file of *subject* and a Kubernetes *version*."""
    return FOLDER / version / f"{subject}.json"


# -- reading --------------------------------------------------------------------------------------


def read(path: Path, sent: Mapping[str, Sequence[object]]) -> Recording:
    """Return the recording in the file *path*; *sent* has the documents of the operations of each scenario.

    A scenario that now has another number of operations is left out.
    """
    stored = json.loads(path.read_text())
    operations = {
        name: tuple(_restored(stored, one, document) for one, document in zip(lines, sent[name], strict=True))
        for name, lines in stored["operations"].items()
        if len(sent.get(name, ())) == len(lines)
    }
    access = {text_of(each["spec"]): each["decision"] for each in stored["access"]}
    surroundings = Surroundings(stored["kubernetes"], stored["namespaces"], stored["schemas"])
    return Recording(surroundings, access, operations)


def _restored(stored: Json, line: Json, document: object) -> Operation:
    reviews = []
    for each in line["reviews"]:
        head = stored["heads"][each["head"]]
        request = {**head["request"], **each.get("members", {})}
        if "change" in each:
            request["object"] = changed(document, _with_name(stored["changes"][each["change"]], document))
        if name := request.get("object", {}).get("metadata", {}).get("name"):
            request.setdefault("name", name)
        reviews.append(Review(tuple(head["paths"]), request))
    answer = line["answer"]
    if "change" in answer:
        final = changed(reviews[0].request["object"], answer["change"])
        answer = {**{key: value for key, value in answer.items() if key != "change"}, "object": final}
    return Operation(tuple(reviews), answer)


def changed(before: Any, change: Any) -> Any:
    """Return *before* with a *change*, see :func:`change_of`."""
    if isinstance(change, dict) and isinstance(before, dict):
        kept = {key: value for key, value in before.items() if key not in change}
        made = {
            key: changed(before[key], value) if key in before else value
            for key, value in change.items()
            if value is not None
        }
        return kept | made
    if isinstance(change, dict) and isinstance(before, list):
        return [changed(one, change.get(str(index), one)) for index, one in enumerate(before)]
    return change


# -- writing --------------------------------------------------------------------------------------


def change_of(before: Any, after: Any) -> Any:
    """Return the difference: a JSON Merge Patch (RFC 7396) in which a list has its members by index.

    Not every difference can be said: a null in *after* cannot.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        gone = {key: None for key in before if key not in after}
        return gone | {
            key: change_of(before[key], value) if key in before else value
            for key, value in after.items()
            if key not in before or text_of(before[key]) != text_of(value)
        }
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return {str(index): change_of(*pair) for index, pair in pairs if text_of(pair[0]) != text_of(pair[1])}
    return after


@dataclass
class _Table:
    """Values, each once."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, value: object) -> int:
        return self.numbers.setdefault(text_of(value), len(self.numbers))


def written(recording: Recording, sent: Mapping[str, Sequence[object]]) -> str:
    """Return the content of the file of *recording*; *sent* as for :func:`read`."""
    heads, changes = _Table(), _Table()
    lines: dict[str, list[str]] = {}
    for name, operations in recording.operations.items():
        for one, document in zip(operations, sent[name], strict=True):
            stored = {
                "reviews": [_stored(heads, changes, review, document) for review in one.reviews],
                "answer": _stored_answer(one),
            }
            lines.setdefault(name, []).append(text_of(stored))
    access = [
        text_of({"spec": json.loads(spec), "decision": decision})
        for spec, decision in sorted(recording.access.items())
    ]
    members = {
        "kubernetes": text_of(recording.surroundings.kubernetes),
        "namespaces": _listed(map(text_of, recording.surroundings.namespaces)),
        "schemas": _listed(map(text_of, recording.surroundings.schemas)),
        "access": _listed(access),
        "heads": _listed(heads.numbers),
        "changes": _listed(changes.numbers),
        "operations": "{\n"
        + ",\n".join(f"{text_of(name)}: [{','.join(each)}]" for name, each in _joined(lines))
        + "\n}",
    }
    return "{\n" + ",\n".join(f'"{name}": {text}' for name, text in members.items()) + "\n}\n"


def _joined(lines: Mapping[str, list[str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the operations of each scenario, each on a line of its own."""
    for name, operations in lines.items():
        yield name, [operations[0], *(f"\n{each}" for each in operations[1:])]


def _listed(texts: Iterable[str]) -> str:
    return "[" + ",".join(f"\n{each}" for each in texts) + "\n]"


def _stored(heads: _Table, changes: _Table, review: Review, document: object) -> Json:
    objects = {key: review.request[key] for key in ("object", "oldObject") if key in review.request}
    head = {key: value for key, value in review.request.items() if key not in {"name", *objects}}
    stored: Json = {"head": heads.number({"paths": review.paths, "request": head})}
    members = {key: value for key, value in review.request.items() if key in ("name", "oldObject")}
    if review.request.get("object", {}).get("metadata", {}).get("name") == members.get("name"):
        members.pop("name", None)
    if "object" not in objects:
        return {**stored, "members": members} if members else stored
    if isinstance(document, dict):
        change = _without_name(change_of(document, objects["object"]), document)
        if text_of(changed(document, _with_name(change, document))) == text_of(objects["object"]):
            stored["change"] = changes.number(change)
            return {**stored, "members": members} if members else stored
    return {**stored, "members": {**members, "object": objects["object"]}}


def _without_name(change: Any, document: Any) -> Any:
    """Return *change*, with a sign for the name of *document*, which Jobs have in their labels."""
    name = document.get("metadata", {}).get("name", NAME)
    return json.loads(text_of(change).replace(text_of(name), text_of(NAME)))


def _with_name(change: Any, document: Any) -> Any:
    name = document.get("metadata", {}).get("name", NAME)
    return json.loads(text_of(change).replace(text_of(NAME), text_of(name)))


def _stored_answer(operation: Operation) -> Json:
    answer = operation.answer
    if "object" not in answer:
        return answer
    change = change_of(operation.reviews[0].request["object"], answer["object"])
    if text_of(changed(operation.reviews[0].request["object"], change)) != text_of(answer["object"]):
        return answer
    return {**{key: value for key, value in answer.items() if key != "object"}, "change": change}


def text_of(value: object) -> str:
    """Return *value* as JSON, equal for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
