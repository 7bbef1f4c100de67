"""JSON lines of decisions that all webhooks allowed, as ``gateway.observe.decisions.line`` makes them, in
less time.

Where all decisions are logged, these are nearly all. Parts that many lines share are made once: those of a
shape of request, and those of a webhook. A line that needs more care is left to
``gateway.observe.decisions.line``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from gateway.base.text import rfc3339
from gateway.observe.decisions import line
from gateway.observe.decisions.record import is_secret, record_of
from gateway.pure.core.trace import trace_id_of

if TYPE_CHECKING:
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.matching import Invocation

_KEPT: Final = 4096
"""Cached parts of each kind; a full cache is emptied. Clients can make up kinds."""
_VARIABLE: Final = ("time", "log", "uid", "traceId", "user", "namespace", "name", "milliseconds")
"""The first members of a line; the others are equal for requests of a shape, apart from ``webhooks``."""
_MARK: Final = b'"milliseconds":'


class AllowedLines:
    """Makes lines by one configuration of the decision log."""

    def __init__(self, *, secret_names: bool) -> None:
        """*secret_names* is whether lines have the names of Secrets."""
        self._secret_names = secret_names
        self._shapes: dict[tuple[Invocation, bool, bytes, str], bytes] = {}
        """The members between those of ``_VARIABLE`` and ``webhooks``."""
        self._webhooks: dict[tuple[Invocation, str], bytes] = {}
        """The beginning of a member of ``webhooks``, up to the milliseconds, by webhook and endpoint."""

    def line(self, answer: Answer, seconds: float, at: float, digest: str) -> bytes | None:
        """Return the line of *answer*, whose webhooks all allowed the request. None if it needs more care."""
        evaluation, origin = answer.evaluation, answer.origin
        request, outcomes = evaluation.request, evaluation.outcomes
        name = request.name if self._secret_names or not is_secret(request.kind) else ""
        if (
            evaluation.exclusions
            or evaluation.exemptions
            or not outcomes
            or len(outcomes) > line.MAX_WEBHOOKS
            or len(request.uid) + len(request.user) + len(request.namespace) + len(name) > line.MAX_NAME_CHARS
        ):
            return None
        traceparent = origin.traceparent
        head = orjson.dumps(
            {
                "time": rfc3339(at, 3),
                "log": "decision",
                "uid": request.uid,
                "traceId": trace_id_of(traceparent) if traceparent else "",
                "user": request.user,
                "namespace": request.namespace,
                "name": name,
                "milliseconds": round(seconds * 1000, 3),
            }
        )
        if not head.isascii() or b"\x7f" in head:
            return None
        # All requests that share an invocation have the same shape.
        key = outcomes[0].invocation, request.dry_run, origin.target, digest
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _KEPT:
                self._shapes.clear()
            shape = self._shapes[key] = self._shape(answer, digest)
        known, parts = self._webhooks, []
        for outcome in outcomes:
            call = outcome.call
            if call is None or outcome.mode != "Enforce":
                return None
            prefix = known.get((outcome.invocation, call.endpoint))
            if prefix is None:
                if len(known) >= _KEPT:
                    known.clear()
                prefix = self._webhook(answer, outcome.invocation)
                known[outcome.invocation, call.endpoint] = prefix
            more = b"}"
            if outcome.round or outcome.has_changed or call.is_repeated:
                more = b"%b%b%b}" % (
                    b',"round":1' if outcome.round else b"",
                    b',"changed":true' if outcome.has_changed else b"",
                    b',"repeated":true' if call.is_repeated else b"",
                )
            parts.append(b"%b%.3f%b" % (prefix, call.elapsed_s * 1000, more))
        return b'%b%b"webhooks":[%b]}\n' % (head[:-1], shape, b",".join(parts))

    def _shape(self, answer: Answer, digest: str) -> bytes:
        document = line.decision(record_of(answer, 0.0, 0.0, digest), secret_names=self._secret_names)
        rest = {
            name: value for name, value in document.items() if name not in _VARIABLE and name != "webhooks"
        }
        return b",%b," % line.as_json(rest)[1:-2]

    def _webhook(self, answer: Answer, invocation: Invocation) -> bytes:
        """Return the JSON of the webhook of *invocation*, up to its milliseconds."""
        record = record_of(answer, 0.0, 0.0, "")
        (index, *_) = (n for n, one in enumerate(answer.evaluation.outcomes) if one.invocation is invocation)
        found = line.as_json(line.webhook(record.webhooks[index]))
        return found[: found.index(_MARK) + len(_MARK)]
