"""JSON lines of decisions that all webhooks allowed, as ``gateway.observe.decisions.line`` makes them, in
less time.

Where all decisions are logged, these are nearly all. Their answers wait for each other, and their lines are
made together: the same code runs in a fraction of the time when it ran just before. Parts that many lines
share are made once: those of a shape of request, and those of a webhook. A line that needs more care is made
by ``gateway.observe.decisions.line``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from gateway.base.text import rfc3339
from gateway.observe.decisions import line
from gateway.observe.decisions.record import is_secret, record_of, record_of_webhook
from gateway.pure.core.trace import trace_id_of

if TYPE_CHECKING:
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.call import Call
    from gateway.pure.core.matching import Invocation
    from gateway.pure.core.outcome import Outcome

MAX_WAITING: Final = 32
"""Answers that wait for each other. Their lines take a quarter of a millisecond together."""
MAX_WAITING_BYTES: Final = 256 * 1024
"""Bytes of their requests, which stay in memory."""
_KEPT: Final = 4096
"""Cached parts of each kind; a full cache is emptied. Clients can make up kinds."""
_VARIABLE: Final = ("time", "log", "uid", "traceId", "user", "namespace", "name", "milliseconds")
"""The first members of a line; the others are equal for requests of a shape, apart from ``webhooks``."""
_MAX_VARIABLE_BYTES: Final = line.MAX_NAME_CHARS + 100
"""With the names of the members, which have more than 100 bytes: no text in them has to be cut."""
_MARK: Final = b'"milliseconds":'


class AllowedLines:
    """Makes lines by one configuration of the decision log."""

    def __init__(self, *, secret_names: bool) -> None:
        """*secret_names* is whether lines have the names of Secrets."""
        self._secret_names = secret_names
        self._waiting: list[tuple[Answer, float, float, str]] = []
        self._waiting_bytes = 0
        self._shapes: dict[tuple[Invocation, bool, bytes, str], bytes] = {}
        """The members between those of ``_VARIABLE`` and ``webhooks``."""
        self._webhooks: dict[tuple[Invocation, str], bytes] = {}
        """The beginning of a member of ``webhooks``, up to the milliseconds, by webhook and endpoint."""
        self._second: tuple[int, str] = 0, ""
        """A second and its time, up to the fraction."""

    def add(self, answer: Answer, seconds: float, at: float, digest: str) -> bool:
        """Have *answer*, whose webhooks all allowed the request, wait; return whether no more should wait.

        It was given after *seconds*, at the time *at*. *digest* is that of the configuration.
        """
        self._waiting.append((answer, seconds, at, digest))
        self._waiting_bytes += len(answer.evaluation.request.json)
        return len(self._waiting) >= MAX_WAITING or self._waiting_bytes >= MAX_WAITING_BYTES

    def take(self) -> list[bytes]:
        """Return the lines of the answers that wait, which wait no longer."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return [self.line(*one) or self._with_care(*one) for one in waiting]

    def _with_care(self, answer: Answer, seconds: float, at: float, digest: str) -> bytes:
        record = record_of(answer, seconds, at, digest)
        return line.as_json(line.decision(record, secret_names=self._secret_names))

    def line(self, answer: Answer, seconds: float, at: float, digest: str) -> bytes | None:
        """Return the line of *answer*; None if it needs more care."""
        evaluation, origin = answer.evaluation, answer.origin
        request, outcomes = evaluation.request, evaluation.outcomes
        if (
            evaluation.exclusions
            or evaluation.exemptions
            or not outcomes
            or len(outcomes) > line.MAX_WEBHOOKS
        ):
            return None
        second, moment = self._second
        if not 0 <= at - second < 1:
            second, moment = self._second = int(at), rfc3339(int(at))[:-1]
        traceparent = origin.traceparent
        head = orjson.dumps(
            {
                "time": f"{moment}.{int((at - second) * 1000):03d}Z",
                "log": "decision",
                "uid": request.uid,
                "traceId": trace_id_of(traceparent) if traceparent else "",
                "user": request.user,
                "namespace": request.namespace,
                "name": request.name if self._secret_names or not is_secret(request.kind) else "",
                "milliseconds": round(seconds * 1000, 3),
            }
        )
        if len(head) > _MAX_VARIABLE_BYTES or not head.isascii() or b"\x7f" in head:
            return None
        # All requests that share an invocation have the same shape.
        key = outcomes[0].invocation, request.dry_run, origin.target, digest
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _KEPT:
                self._shapes.clear()
            shape = self._shapes[key] = self._shape(answer, digest)
        parts = []
        for outcome in outcomes:
            call = outcome.call
            if call is None or outcome.mode != "Enforce":
                return None
            start = self._webhooks.get((outcome.invocation, call.endpoint)) or self._webhook(outcome, call)
            if outcome.round or outcome.has_changed or call.is_repeated:
                more = b"%b%b%b" % (
                    b',"round":1' if outcome.round else b"",
                    b',"changed":true' if outcome.has_changed else b"",
                    b',"repeated":true' if call.is_repeated else b"",
                )
                parts.append(b"%b%.3f%b}" % (start, call.elapsed_s * 1000, more))
            else:
                parts.append(b"%b%.3f}" % (start, call.elapsed_s * 1000))
        return b'%b%b"webhooks":[%b]}\n' % (head[:-1], shape, b",".join(parts))

    def _shape(self, answer: Answer, digest: str) -> bytes:
        document = line.decision(record_of(answer, 0.0, 0.0, digest), secret_names=self._secret_names)
        rest = {
            name: value for name, value in document.items() if name not in _VARIABLE and name != "webhooks"
        }
        return b",%b," % line.as_json(rest)[1:-2]

    def _webhook(self, outcome: Outcome, call: Call) -> bytes:
        """Keep and return the JSON of the webhook of *outcome*, up to its milliseconds."""
        found = line.as_json(line.webhook(record_of_webhook(outcome, 0.0)))
        if len(self._webhooks) >= _KEPT:
            self._webhooks.clear()
        start = found[: found.index(_MARK) + len(_MARK)]
        self._webhooks[outcome.invocation, call.endpoint] = start
        return start
