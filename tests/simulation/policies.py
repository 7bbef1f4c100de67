"""The answers of simulated workers: a function of the seed, the policy's name and the object."""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING, Final

import orjson

from admission_gateway_worker.pb import worker_pb2
from gateway.pure.core.verdict import ALLOWED, Allowed, Cause, Denied, Failed, FailureReason

if TYPE_CHECKING:
    from gateway.pure.core.review import Json
    from gateway.pure.core.verdict import Verdict

PATCHES: Final = [
    *(
        orjson.dumps([{"op": "add", "path": path, "value": value}])
        for path, value in (
            ("/metadata/labels/team", "b"),
            ("/metadata/labels/team", "a"),
            ("/x", 1),
            ("/x", 2),
        )
    ),
    b'[{"op":"remove","path":"/x"}]',
    b'[{"op":"test","path":"/none"}]',
    b"[]",
    b"nonsense",
]

ERRORS: Final = {
    Failed(FailureReason.STATUS, "UNAVAILABLE: the policy is gone", 503): (14, "the policy is gone"),
    Failed(FailureReason.STATUS, "INTERNAL: ValueError: no", 500): (13, "ValueError: no"),
    Failed(FailureReason.STATUS, "NOT_FOUND", 404): (5, ""),
    Failed(FailureReason.STATUS, "UNKNOWN: what", 500): (99, "what"),
}
"""The code and details that a worker sends, by the verdict that the gateway must derive."""


class Policies:
    """All policies of one scenario."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._given: dict[tuple[str, bytes], Verdict] = {}

    def verdict(self, name: str, shown: Json | None) -> Verdict:
        """Return the verdict of the policy *name* on an object."""
        key = name, orjson.dumps(shown, option=orjson.OPT_SORT_KEYS)
        verdict = self._given.get(key)
        if verdict is None:
            dice = random.Random(zlib.crc32(b"%d %s %s" % (self._seed, name.encode(), key[1])))
            may_patch = name.startswith("m") or dice.random() < 0.1
            if name.startswith("m") and self._usually_changes(name) and dice.random() < 0.9:
                verdict = Allowed(orjson.dumps([{"op": "add", "path": "/y", "value": dice.random()}]))
            else:
                verdict = _draw(dice, may_patch=may_patch)
            self._given[key] = verdict
        return verdict

    def _usually_changes(self, name: str) -> bool:
        return random.Random(zlib.crc32(b"%d %s" % (self._seed, name.encode()))).random() < 0.4


def _draw(dice: random.Random, *, may_patch: bool) -> Verdict:
    kind = dice.random()
    if kind < 0.25:
        patch = dice.choice(PATCHES) if may_patch else b""
        return Allowed(patch, dice.choice([(), ("warned", "again")]), (("k", f"{kind:.3f}"),))
    if kind < 0.3:
        return Denied(403, "", "no", dice.choice([(), (Cause("R", "m", "spec.a"),)]))
    if kind < 0.34:
        return dice.choice(list(ERRORS))
    return ALLOWED


def response_of(verdict: Allowed | Denied) -> worker_pb2.ReviewResponse:
    """Return *verdict* as a message."""
    response = worker_pb2.ReviewResponse(
        allowed=isinstance(verdict, Allowed),
        warnings=verdict.warnings,
        audit_annotations=dict(verdict.audit_annotations),
    )
    if isinstance(verdict, Allowed):
        response.patch = verdict.patch
    else:
        status = response.status
        status.code, status.reason, status.message = verdict.code, verdict.reason, verdict.message
        for cause in verdict.causes:
            status.causes.add(reason=cause.reason, message=cause.message, field=cause.field)
    return response
