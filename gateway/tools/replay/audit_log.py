"""The audit log of an API server as a source of reviews.

Its events have the request as the client sent it, before defaulting and admission, and never the old object.
So creations are replayed, and everything else is left out with the reason. With *updates_as_creates* the
objects that updates and patches led to are replayed as creations too.

Source: k8s.io/apiserver pkg/apis/audit/v1 types.go (Event).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.tools.replay.cases import Case
from gateway.tools.replay.results import known

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gateway.tools.replay.cases import Found
    from gateway.tools.replay.results import Result

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""An event has two objects of 3 MiB at most."""
NO_DEFAULTS: Final = (
    "an audit log has the object without defaults, and without the changes of admission plug-ins"
)
AS_CREATION: Final = "it was an update, and is replayed as a creation of the object that it led to"
_READ: Final = {"get", "list", "watch", "proxy"}
_DENIED_BY_WEBHOOK: Final = "admission webhook "
_ADMITTED: Final = (200, 300)


class AuditLog:
    """Files with events of the API group ``audit.k8s.io``, one JSON object a line."""

    def __init__(self, paths: Sequence[Path], *, updates_as_creates: bool = False) -> None:
        self._paths = paths
        self._updates_as_creates = updates_as_creates

    def cases(self, found: Found) -> Iterator[Case]:
        """Yield the reviews; see ``cases.Source``."""
        total, done = max(1, sum(path.stat().st_size for path in self._paths)), 0
        for path in self._paths:
            number = 0
            with path.open("rb") as file:
                while line := file.readline(MAX_LINE_BYTES):
                    number += 1
                    done += len(line)
                    found.read = done / total
                    event = _parsed(line)
                    if event is None:
                        found.leave_out("the line of the audit log is not an event")
                    elif (case := self._case(event, found)) is not None:
                        yield case

    def _case(self, event: dict[str, Any], found: Found) -> Case | None:
        verb = event.get("verb")
        if event.get("stage") != "ResponseComplete" or verb in _READ:
            return None  # another event has the end of the request, or nothing was admitted
        expected = _result(event)
        reason = self._why_left_out(event, verb)
        if not reason and expected is None:
            reason = "the API server rejected the request for another reason than a webhook"
        if reason:
            found.leave_out(reason)
            return None
        is_update = verb != "create"
        request = _request(event, _object_of(event, is_update=is_update))
        if request is None:
            found.leave_out("the event lacks the kind of its object, or its resource")
            return None
        notes = (AS_CREATION,) if is_update else (NO_DEFAULTS,)
        time = str(event.get("requestReceivedTimestamp") or "")
        return Case(request, "", None, None, expected, notes, time=time)

    def _why_left_out(self, event: dict[str, Any], verb: object) -> str:
        """Return why *event* cannot be replayed; empty if it can."""
        if verb in ("delete", "deletecollection"):
            return "a deletion: an audit log does not have the deleted object"
        if verb in ("update", "patch") and not self._updates_as_creates:
            return "an update: an audit log does not have the old object (see --updates-as-creates)"
        if verb not in ("create", "update", "patch"):
            return "a request without an object"
        if _object_of(event, is_update=verb != "create") is None:
            level = event.get("level")
            return f"the audit level {level if isinstance(level, str) else '(none)'} leaves out the object"
        return ""


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    is_event = isinstance(event, dict) and event.get("kind") == "Event"
    return event if is_event and str(event.get("apiVersion")).startswith("audit.k8s.io/") else None


def _object_of(event: dict[str, Any], *, is_update: bool) -> dict[str, Any] | None:
    """Return the object of a creation, or what an update led to."""
    found = event.get("responseObject" if is_update else "requestObject")
    return found if isinstance(found, dict) and "kind" in found and found.get("kind") != "Status" else None


def _result(event: dict[str, Any]) -> Result | None:
    """Return the decision at the time; None if it was not one of webhooks."""
    status = event.get("responseStatus")
    code = status.get("code") if isinstance(status, dict) else None
    if not isinstance(status, dict) or not isinstance(code, int):
        return None
    if _ADMITTED[0] <= code < _ADMITTED[1]:
        return known(allowed=True)
    message = status.get("message")
    if isinstance(message, str) and _DENIED_BY_WEBHOOK in message:
        # The message of the API server has a prefix, so that it cannot be compared with the gateway's.
        return known(allowed=False, code=code)
    return None


def _request(event: dict[str, Any], found: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the AdmissionRequest of *event* with the object *found*."""
    reference, user = event.get("objectRef"), event.get("impersonatedUser") or event.get("user")
    if found is None or not isinstance(reference, dict):
        return None
    group, _, version = str(found.get("apiVersion", "")).rpartition("/")
    texts = {name: str(reference.get(name) or "") for name in (*_NAMES, "namespace", "name", "subresource")}
    if not version or not texts["resource"]:
        return None
    kind = {"group": group, "version": version, "kind": str(found["kind"])}
    resource = {
        "group": texts["apiGroup"],
        "version": texts["apiVersion"] or version,
        "resource": texts["resource"],
    }
    return {
        "uid": str(event.get("auditID") or "unknown"),
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        **({"subResource": texts["subresource"]} if texts["subresource"] else {}),
        **({"requestSubResource": texts["subresource"]} if texts["subresource"] else {}),
        "name": texts["name"],
        **({"namespace": texts["namespace"]} if texts["namespace"] else {}),
        "operation": "CREATE",
        "userInfo": user if isinstance(user, dict) else {},
        "object": found,
        "oldObject": None,
        "dryRun": True,
        "options": None,
    }


_NAMES: Final = ("resource", "apiGroup", "apiVersion")
