"""The lines of a recording: JSON, one object a line. docs/recordings.md describes them.

A review without anything to replace is written with the JSON of its request as the API server sent it, which
takes some ten microseconds. Any other is parsed and redacted in steps (``gateway.base.work_queue``).
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson

from admission_gateway_worker.json_patch.diff import diff
from gateway import __version__
from gateway.base.text import rfc3339
from gateway.observe.decisions.credential_forms import is_clean
from gateway.observe.decisions.document import unusual, webhook_document
from gateway.observe.decisions.record import is_secret, record_of, record_of_webhook
from gateway.observe.recording.redaction import RecordingRedactor
from gateway.pure.core.decision import PLAIN_ALLOWED
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.stages import changed_payloads

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from gateway.config.kinds.record_settings import JsonPath, RecordSettings
    from gateway.observe.decisions.record import WebhookRecord
    from gateway.observe.recording.redaction import Marks
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.matching import Invocation
    from gateway.pure.core.review import AdmissionRequest

VERSION: Final = 1
API_VERSION: Final = "admission-gateway.io/v1alpha1"
_KEPT: Final = 4096
"""Cached parts of each kind; a full cache is emptied."""
_MARK: Final = b'"milliseconds":'
_ALLOWED: Final = (
    b'{"type":"review","time":"%b","sampled":%b,%b,"milliseconds":%.3f,"allowed":true,"code":200,"reason":"",'
    b'"message":"","warnings":[],"redacted":false,"webhooks":[%b],"namespace":%b,"request":%b}\n'
)

Key = TypeVar("Key")
Value = TypeVar("Value")


class NotRecordableError(Exception):
    """A review cannot be recorded without secrets."""


def header(settings: RecordSettings, marks: Marks, at: float, process: int) -> bytes:
    """Return the first line of a file that begins *at* (seconds since 1970), written by *process*."""
    return _line(
        {
            "type": "header",
            "apiVersion": API_VERSION,
            "kind": "Recording",
            "version": VERSION,
            "gatewayVersion": __version__,
            "time": rfc3339(at, 3),
            "host": socket.gethostname(),
            "process": process,
            "key": marks.key_id,
            "samplePercent": settings.sample_percent,
            "perCombination": settings.per_combination,
        }
    )


def dropped(number: int) -> bytes:
    """Return the line in place of *number* reviews that were not recorded."""
    return _line({"type": "dropped", "number": number})


def _line(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document) + b"\n"


class ReviewLines:
    """Makes the lines of reviews, by one configuration."""

    def __init__(self, marks: Marks, paths: Callable[[str], tuple[JsonPath, ...]], digest: str) -> None:
        """*paths* are those to redact by kind. *digest* is that of the configuration."""
        self._marks = marks
        self._paths = paths
        self._digest = digest
        self._namespaces: dict[str, tuple[Namespace, bytes]] = {}
        self._origins: dict[tuple[bytes, str], bytes] = {}
        """Members of lines by target and phase."""
        self._allowed: dict[Invocation, bytes] = {}
        """Members of an allowing webhook, up to the milliseconds."""

    def allowed(self, answer: Answer, seconds: float, at: float, *, is_sampled: bool) -> bytes | None:
        """Return the line of *answer* if it only allows the request, and nothing is replaced; else None.

        As ``plain`` of ``head``, for nearly all reviews in a third of the time.
        """
        evaluation = answer.evaluation
        request = evaluation.request
        if answer.decision is not PLAIN_ALLOWED or evaluation.exclusions or self._has_to_redact(request):
            return None
        parts = []
        for outcome in evaluation.outcomes:
            call, part = outcome.call, self._allowed.get(outcome.invocation)
            if call is None or outcome.round or outcome.mode != "Enforce":
                return None
            if part is None:
                part = (
                    orjson.dumps(webhook_member(record_of_webhook(outcome, 0.0))).partition(_MARK)[0] + _MARK
                )
                _keep(self._allowed, outcome.invocation, part)
            parts.append(b"%b%.3f}" % (part, call.elapsed_s * 1000))
        target, phase = answer.origin.target, answer.selection.phase
        origin = self._origins.get((target, phase))
        if origin is None:
            path = target.partition(b"?")[0].decode("latin-1")
            origin = orjson.dumps({"digest": self._digest, "path": path, "phase": phase})[1:-1]
            _keep(self._origins, (target, phase), origin)
        return _ALLOWED % (
            rfc3339(at, 3).encode(),
            b"true" if is_sampled else b"false",
            origin,
            seconds * 1000,
            b",".join(parts),
            self._namespace(evaluation),
            request.json,
        )

    def _has_to_redact(self, request: AdmissionRequest) -> bool:
        return bool(self._paths(request.kind[2])) or _is_secret(request) or not is_clean(request.json)

    def plain(self, answer: Answer, head: dict[str, Any]) -> bytes | None:
        """Return the line of *answer*, which begins with *head*. None if it has something to replace."""
        evaluation = answer.evaluation
        request = evaluation.request
        is_plain = not evaluation.has_changed or _add_plain_patch(answer, head)
        if not is_plain or self._has_to_redact(request):
            return None
        written = orjson.dumps(head)
        if answer.decision is not PLAIN_ALLOWED and not is_clean(written):
            return None
        namespace = self._namespace(evaluation)
        return b'%b,"namespace":%b,"request":%b}\n' % (written[:-1], namespace, request.json)

    def head(self, answer: Answer, seconds: float, at: float, *, is_sampled: bool) -> dict[str, Any]:
        """Return the members of a line before the namespace; texts and changes are not redacted yet."""
        record = record_of(answer, seconds, at, self._digest)
        status = answer.decision.status
        return {
            "type": "review",
            "time": rfc3339(at, 3),
            "sampled": is_sampled,
            "digest": self._digest,
            "path": record.path,
            "phase": record.phase,
            "milliseconds": round(record.milliseconds, 3),
            "allowed": record.allowed,
            "code": record.code,
            "reason": "" if status is None else status.reason,
            "message": record.message,
            "warnings": answer.decision.warnings,
            "redacted": False,
            "webhooks": list(map(webhook_member, record.webhooks)),
        }

    def redacted(self, answer: Answer, head: dict[str, Any]) -> Generator[None, None, bytes]:
        """Return the line of *answer*, which begins with *head*; yields between steps.

        Raises:
            NotRecordableError: it nests too deeply, or has too many secret values.
        """
        yield  # what is read below is parsed after the answer is written
        try:
            return (yield from self._redacted(answer, head))
        except (RecursionError, TypeError, orjson.JSONDecodeError) as error:
            raise NotRecordableError("nests too deeply") from error

    def _redacted(self, answer: Answer, head: dict[str, Any]) -> Generator[None, None, bytes]:
        evaluation = answer.evaluation
        request = evaluation.request
        redactor = RecordingRedactor(self._marks, self._paths(request.kind[2]))
        document = orjson.loads(request.json)
        stages = [(index, payload.fresh_object()) for index, payload in changed_payloads(evaluation)]
        objects = [document.get("object"), document.get("oldObject"), *(stage for _, stage in stages)]
        for one in objects:
            if isinstance(one, dict):
                if _is_secret(request):
                    one["kind"] = "Secret"
                redactor.prepare(one)
                yield
        redactor.learn(document)
        written = redactor.redacted(document)
        yield
        assert isinstance(written, dict)
        current = written.get("object")
        for index, stage in stages:
            following = redactor.redacted(stage)
            head["webhooks"][index]["patch"] = diff(current, following)
            current = following
            yield
        for part in (head, *head["webhooks"]):
            if part.get("message"):
                part["message"] = redactor.message(part["message"])
        head["warnings"] = [redactor.message(text) for text in head["warnings"]]
        head["redacted"] = redactor.has_replaced
        if redactor.is_full:
            raise NotRecordableError("has too many secret values")
        namespace = orjson.Fragment(self._namespace(evaluation))
        return _line({**head, "namespace": namespace, "request": written})

    def _namespace(self, evaluation: Evaluation) -> bytes:
        """Return the JSON of the namespace of the request; null if it was not known."""
        namespace = evaluation.namespace
        if not isinstance(namespace, Namespace):
            return b"null"
        known, written = self._namespaces.get(namespace.name, (None, b""))
        if known is not namespace:
            redactor = RecordingRedactor(self._marks, ())
            document = orjson.loads(namespace.json)
            redactor.learn(document)
            written = orjson.dumps(redactor.redacted(document))
            _keep(self._namespaces, namespace.name, (namespace, written))
        return written


def _keep(kept: dict[Key, Value], key: Key, value: Value) -> None:
    if len(kept) >= _KEPT:
        kept.clear()
    kept[key] = value


def _is_secret(request: AdmissionRequest) -> bool:
    return is_secret(request.kind) or request.resource[2] == "secrets"


def _add_plain_patch(answer: Answer, head: dict[str, Any]) -> bool:
    """Add the change of the object to *head* if one webhook made it, and nothing in it is to be replaced."""
    changes = list(changed_payloads(answer.evaluation))
    if len(changes) != 1 or not answer.decision.patch:
        return False
    ((index, payload),) = changes
    if not is_clean(payload.object_json):
        return False
    # From the object as it came to this one, so that it has values of this one only.
    head["webhooks"][index]["patch"] = orjson.Fragment(answer.decision.patch)
    return True


def webhook_member(record: WebhookRecord) -> dict[str, Any]:
    """Return the member of ``webhooks`` for *record*, without its change of the object."""
    whole = webhook_document(record)
    member: dict[str, Any] = {
        "configuration": whole["configuration"],
        "webhook": whole["webhook"],
        "outcome": whole["outcome"],
        "milliseconds": whole["milliseconds"],
    }
    if record.outcome != "Allowed":
        member |= {"code": whole["code"], "message": whole["message"]}
    return member | unusual(whole, ("round", "mode", "exception"))
