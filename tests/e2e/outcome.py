"""Outcomes of operations, in a form in which two set-ups can be compared.

Read from the answer, from the object afterwards and from the audit log.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

NAMESPACE: Final = "NAMESPACE"
"""Stands for the name of the namespace, which differs between set-ups."""


@dataclass(frozen=True)
class Line:
    """One reason why a request was refused."""

    webhook: str | None
    """None where the API server names none, as for a patch that does not apply."""
    text: str | None
    """None for a call that failed: causes are worded differently."""


@dataclass(frozen=True)
class Refusal:
    """A request that webhooks refused."""

    code: int
    reason: str
    lines: tuple[Line, ...]
    causes: tuple[dict[str, str], ...] = ()
    """Of denials, in order."""
    rest: dict[str, Any] = field(default_factory=dict)
    """Of a denial: all else of its Status, and ``Retry-After``."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one operation."""

    status: int
    answer: Any
    """The document that was answered; None for a refusal by a webhook."""
    refusal: Refusal | None
    warnings: tuple[str, ...]
    stored: Any
    """The object afterwards, or the answer to its read if there is none."""
    calls: tuple[tuple[str, bool], ...] = ()
    """Mutating webhooks as the audit log has them, in order: round and name, and whether it changed it."""
    patches: tuple[tuple[str, str], ...] = ()
    """Patches as the audit log has them: round and name, and the operations."""
    failed_open: tuple[str, ...] = ()
    annotations: dict[str, Any] = field(default_factory=dict)
    """Policies' own audit annotations by ``WEBHOOK/KEY``. Requests that ``record`` left are under ``saw``."""


# -- from an answer -------------------------------------------------------------------------------

_DENIED: Final = re.compile(
    r'admission webhook "(?P<webhook>[^"]+)" denied the request(: (?P<text>.*)| without explanation)',
    re.DOTALL,
)
_FAILED: Final = re.compile(r'failed calling webhook "(?P<webhook>[^"]+)": ')
_UNNAMED: Final = "Internal error occurred: "
"""A patch that does not apply; the API server does not name its webhook."""


def refusal_of(answer: Answer, names: list[str]) -> Refusal | None:
    """Return the refusal in *answer*, in the same form for both set-ups; None if it is none by a webhook."""
    if answer.document.get("kind") != "Status" or answer.document.get("status") == "Success":
        return None
    message = answer.message
    denied = _DENIED.match(message)
    if denied is None:
        failed = _FAILED.search(message)
        if failed is None and not message.startswith(_UNNAMED):
            return None
        return _refusal(answer, [Line(failed and failed["webhook"], None)], [])
    if denied["webhook"] in names:
        return _refusal(answer, [Line(denied["webhook"], denied["text"] or "")], list(_causes(answer)))
    starts = "|".join(re.escape(name) for name in names)
    pieces = re.split(rf'^(?=(?:{starts}): |failed calling webhook ")', denied["text"], flags=re.MULTILINE)
    lines = [
        _line(piece.removesuffix("\n") if piece is not pieces[-1] else piece) for piece in pieces if piece
    ]
    causes = [
        {**cause, "message": cause["message"].partition(": ")[2]} if "message" in cause else cause
        for cause in _causes(answer)
    ]
    return _refusal(answer, lines, causes)


def _line(piece: str) -> Line:
    failed = _FAILED.match(piece)
    if failed is not None:
        return Line(failed["webhook"], None)
    webhook, _, text = piece.partition(": ")
    return Line(webhook, "" if text == "denied without explanation" else text)


def _refusal(answer: Answer, lines: list[Line], causes: list[dict[str, str]]) -> Refusal:
    assert answer.document.get("code") == answer.status, answer
    code, reason = answer.status, answer.document.get("reason", "")
    if all(line.text is None for line in lines):
        return Refusal(code, reason, tuple(lines))
    rest = {key: value for key, value in answer.document.items() if key not in ("code", "reason", "message")}
    details = rest.pop("details", {})
    rest |= {key: value for key, value in details.items() if key != "causes"}
    rest["Retry-After"] = answer.headers.get("Retry-After")
    return Refusal(code, reason, tuple(lines), tuple(causes), rest)


def _causes(answer: Answer) -> Iterator[dict[str, str]]:
    for cause in answer.document.get("details", {}).get("causes", []):
        yield {member: value for member, value in cause.items() if value}


def normalised(document: Any, namespace: str) -> Any:
    """Return *document* without what differs from one run to the next."""
    text = json.dumps(document).replace(namespace, NAMESPACE)
    for prefix in set(re.findall(r'"generateName": "([^"]+)"', text)):
        text = re.sub(rf"{re.escape(prefix)}[a-z0-9]{{5}}\b", f"{prefix}GENERATED", text)
    return _normalised(json.loads(text))


_VOLATILE: Final = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "lastTransitionTime",
    "time",
)


def _normalised(value: Any) -> Any:
    if isinstance(value, list):
        return [_normalised(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {
        key: item if key == "userInfo" else _normalised(item)
        for key, item in value.items()
        if key not in _VOLATILE
    }
    # Lists of objects are sorted by generated names, the managers of an object by time.
    for key in ("items", "managedFields"):
        if isinstance(kept.get(key), list):
            kept[key] = ordered(kept[key])
    return kept


def ordered(documents: Iterable[Any]) -> list[Any]:
    """Return *documents* in an order of their own, each once."""
    texts = {json.dumps(document, sort_keys=True) for document in documents}
    return [json.loads(text) for text in sorted(texts)]


# -- from the audit log ---------------------------------------------------------------------------

_DISPATCHER: Final = re.compile(
    r"(?P<what>mutation|patch|failed-open)(?:\.mutation|\.validating)?"
    r"(?:\.webhook\.admission\.k8s\.io/|\.)round_(?P<round>\d)_index_(?P<index>\d+)"
)


def audit_annotations(cluster: Cluster, answers: Iterable[Answer]) -> dict[str, dict[str, str]]:
    """Return the annotations of the audit events of *answers* by Audit-Id, waiting for all of them."""
    wanted = {answer.headers["Audit-Id"] for answer in answers}

    def found() -> dict[str, dict[str, str]] | None:
        events = cluster.audit_events(
            lambda event: event["auditID"] in wanted and event["stage"] == "ResponseComplete"
        )
        return (
            {event["auditID"]: event["annotations"] for event in events}
            if len(events) == len(wanted)
            else None
        )

    return eventually(found) or {}


def with_annotations(
    outcome: Outcome, annotations: dict[str, str], namespace: str, names: list[str]
) -> Outcome:
    """Return *outcome* with what the audit log has about the operation, in the same form for both set-ups."""
    found: dict[str, list[tuple[tuple[int, int], Any]]] = {"mutation": [], "patch": [], "failed-open": []}
    own: dict[str, Any] = {}
    shown: dict[str, list[Any]] = {}
    for key, value in annotations.items():
        prefix, _, name = key.partition("/")
        dispatcher = _DISPATCHER.fullmatch(key) or _DISPATCHER.fullmatch(name)
        if dispatcher is not None:
            # The API server's own annotation of the gateway names none of the policies.
            if (value if dispatcher["what"] == "failed-open" else json.loads(value)["webhook"]) in names:
                place = int(dispatcher["round"]), int(dispatcher["index"])
                found[dispatcher["what"]].append((place, value))
        elif not prefix.endswith(".k8s.io"):
            policy_key = _policy_key(prefix, name)
            if "/saw-" in policy_key:
                shown.setdefault(policy_key.partition("/saw-")[0] + "/saw", []).append(
                    normalised(json.loads(value), namespace)
                )
            else:
                own[policy_key] = value
    placed = {what: sorted(items, key=lambda item: item[0]) for what, items in found.items()}
    mutations = [(place, json.loads(value)) for place, value in placed["mutation"]]
    patches = [(place, json.loads(value)) for place, value in placed["patch"]]
    return replace(
        outcome,
        calls=tuple((f"{place[0]} {value['webhook']}", value["mutated"]) for place, value in mutations),
        patches=tuple(
            (f"{place[0]} {value['webhook']}", json.dumps(value["patch"], sort_keys=True))
            for place, value in patches
        ),
        failed_open=tuple(sorted(value for _, value in placed["failed-open"])),
        annotations={**own, **{key: ordered(documents) for key, documents in shown.items()}},
    )


def _policy_key(prefix: str, name: str) -> str:
    """Return ``WEBHOOK/KEY``, which the gateway's entry has as ``ENTRY/WEBHOOK.KEY``."""
    webhook, separator, key = name.rpartition(".")
    return f"{webhook}/{key}" if separator else f"{prefix}/{name}"
