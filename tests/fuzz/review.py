"""A review from its bytes to the bytes of its answer: decoding, matching, evaluation, decision, encoding.

An input selects a recorded review and changes in it, or contains a body; then webhooks, the verdicts of their
workers, and the order of the verdicts. Every review is evaluated twice, in two orders, with and without a
memory of which webhooks change objects.
"""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final

import jsonpatch
import orjson

from admission_gateway_worker.json_patch.diff import same
from admission_gateway_worker.json_patch.patch import apply_patch
from gateway.base.errors import ReviewError
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.labels import EVERYTHING, Requirement, Selector
from gateway.pure.core.matching import Selection
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import AdmissionRequest, decode
from gateway.pure.core.speculation import ChangeRates
from gateway.pure.core.verdict import ALLOWED, Allowed, Cause, Denied, Failed, FailureReason
from gateway.pure.core.webhook import Rule
from gateway.server.serving.routes import failure
from tests.core.build import ANYTHING, body, document, webhook
from tests.fuzz.documents import RECORDED, SCALARS, dumped, edited, spliced, words_of
from tests.fuzz.laws import Faults
from tests.fuzz.operations import patch_for
from tests.fuzz.source import Source
from tests.properties.driving import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.pure.core.annotations import AuditLevel
    from gateway.pure.core.labels import Operator
    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import Phase, Webhook

MODULES: Final = (
    "gateway/pure/core/review.py",
    "gateway/pure/core/matching.py",
    "gateway/pure/core/rules.py",
    "gateway/pure/core/labels.py",
    "gateway/pure/core/call.py",
    "gateway/pure/core/evaluation.py",
    "gateway/pure/core/decision.py",
    "gateway/pure/core/response.py",
)
MAX_BYTES: Final = 1024

_REVIEWS: Final = [*sorted(RECORDED, key=len), body(document())]
_KEYS: Final = words_of(*map(orjson.loads, _REVIEWS))
WORDS: Final = [
    b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":',
    b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":',
    *(
        b'"uid":',
        b'"object":',
        b'"oldObject":',
        b'"dryRun":',
        b'"operation":',
        b'"CREATE"',
        b'"resource":',
        b"null",
    ),
    *(
        b'"namespace":',
        b'"kind":',
        b'"requestKind":',
        b'"requestResource":',
        b'"subResource":',
        b"}}",
        b"[[",
        b'"a"',
    ),
]
_RULES: Final = [
    (ANYTHING,),
    (ANYTHING,),
    (Rule(("CREATE", "UPDATE"), ("", "apps"), ("v1",), ("pods", "deployments"), "Namespaced"),),
    (Rule(("*",), ("*",), ("*",), ("pods/*", "*/scale"), "*"), Rule(("DELETE",), ("*",), ("*",), ("*",))),
    (Rule(("*",), ("*",), ("*",), ("*",), "Cluster"),),
    (),
]
_REQUIREMENTS: Final[Sequence[tuple[Operator, str]]] = (
    *(("In", "a"), ("NotIn", "a"), ("Exists", ""), ("DoesNotExist", "")),
)
_SELECTORS: Final = [
    *(EVERYTHING, EVERYTHING, EVERYTHING),
    *(
        Selector((Requirement(key, operator, frozenset(values)),))
        for key in ("app", "team")
        for operator, values in _REQUIREMENTS
    ),
]
_CHOICES_BYTES: Final = 96
_LEVELS: Final[Sequence[AuditLevel]] = ("Metadata", "Request", "None")
_TEXTS: Final = [held for held in SCALARS if isinstance(held, str)]
_faults = Faults()


def run(data: bytes) -> None:
    with _faults:
        _run(Source(data))


def _run(source: Source) -> None:
    choices = Source(source.take(_CHOICES_BYTES))
    text = _body(source)
    try:
        request = decode(text)
    except ReviewError as error:
        # The answer must contain the error's text.
        answer = failure(error)
        assert answer.status == 400
        assert orjson.loads(answer.body)["error"]
        return
    assert same(orjson.loads(request.json), request.document)
    phase: Phase = "validate" if choices.chance(4) else "mutate"
    level = choices.one_of(_LEVELS)
    namespace = _namespace(choices, request)
    hooks = [_webhook(choices, phase, place) for place in range(choices.byte() % 6)]
    held = request.object if request.has_object else request.old_object
    verdicts = [_verdict(choices, held) for _ in hooks]
    if hooks and choices.chance(2):
        # The rest of the input is the patch of the first webhook.
        verdicts[0] = Allowed(source.rest())
    memory = ChangeRates()
    first = _settled(Selection(phase, hooks), text, namespace, memory, verdicts, lambda out: 0)
    answer_bytes = first.answer(level)
    _check(first, orjson.loads(answer_bytes))
    if len(hooks) < 2:
        return
    again = _settled(
        Selection(phase, hooks), text, namespace, memory, verdicts, lambda out: choices.byte() % out
    )
    assert again.answer(level) == answer_bytes, "the order of arrival shows in the answer"


def _body(source: Source) -> bytes:
    if source.chance(4):
        return source.rest()
    review = orjson.loads(source.one_of(_REVIEWS))
    if source.chance(2):
        review["request"] = edited(source, review["request"], _KEYS)
    else:
        review = edited(source, review, _KEYS)
    text = dumped(review)
    if source.chance(4) and isinstance(review, dict):
        # As the API server begins its own, so that the request is cut out.
        text = b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":%b}' % dumped(
            review.get("request")
        )
    return spliced(source, text)


def _namespace(source: Source, request: AdmissionRequest) -> Namespace | Failed | None:
    match source.byte() % 4:
        case 0 | 1:
            return Namespace(request.namespace, {"team": source.one_of("ab")}, b"{}")
        case 2:
            return Failed(FailureReason.NAMESPACE, "the cluster is gone")
        case _:
            return None


def _webhook(source: Source, phase: Phase, place: int) -> Webhook:
    kind, selectors = source.byte(), source.byte()
    return webhook(
        f"w{place}.policies.test",
        phase=phase,
        configuration=f"c{place // 2}",
        rules=source.one_of(_RULES),
        namespace_selector=_SELECTORS[selectors % len(_SELECTORS)],
        object_selector=_SELECTORS[selectors // 16 % len(_SELECTORS)],
        failure_policy=("Ignore", "Fail")[kind & 1],
        match_policy=("Equivalent", "Exact")[kind >> 1 & 1],
        reinvocation_policy=("Never", "IfNeeded")[kind >> 2 & 1] if phase == "mutate" else "Never",
        side_effects=("None", "None", "None", "None", "None", "NoneOnDryRun", "Some", "Unknown")[
            kind >> 3 & 7
        ],
    )


def _verdict(source: Source, held: Any) -> Verdict:
    match source.byte() % 8:
        case 0:
            return ALLOWED
        case 1:
            return Failed(source.one_of(list(FailureReason)), source.one_of(_TEXTS))
        case 2:
            cause = Cause(source.one_of(_TEXTS), source.one_of(_TEXTS), source.one_of(_TEXTS))
            code = 400 + source.below(200)
            reason = source.one_of(("", "Invalid", "Mine"))
            return Denied(code, reason, source.one_of(_TEXTS), (cause,), *_words(source))
        case 3:
            return Allowed(source.take(source.byte() % 24), *_words(source))
        case _:
            return Allowed(patch_for(source, held), *(_words(source) if source.chance(3) else ()))


def _words(source: Source) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    warnings = tuple(source.one_of(_TEXTS) for _ in range(source.byte() % 4))
    return warnings, tuple((source.one_of(_TEXTS), source.one_of(_TEXTS)) for _ in range(source.byte() % 3))


def _settled(
    selection: Selection,
    text: bytes,
    namespace: Namespace | Failed | None,
    memory: ChangeRates,
    verdicts: Sequence[Verdict],
    choose: Any,
) -> Trace:
    """Return the ended evaluation; *choose* selects the next call to end, given the number of open calls."""
    request = decode(text)
    trace = Trace(request, Evaluation(selection, request, namespace, memory))
    trace.take(trace.evaluation.start())
    steps = 0
    while trace.out:
        call = trace.out.pop(choose(len(trace.out)))
        _check_payload(trace, call.payload.json)
        place = int(call.invocation.webhook.name[1])
        trace.take(trace.evaluation.receive(call, verdicts[place]))
        steps += 1
        assert steps <= 4 * len(verdicts) * len(verdicts), "the walk does not end"
    assert trace.evaluation.done
    return trace


def _check_payload(trace: Trace, shown: bytes) -> None:
    if shown is not trace.request.json:
        seen = orjson.loads(shown)
        assert same(seen["object"], trace.evaluation.final_object)
        assert seen.keys() == trace.request.document.keys()


def _check(trace: Trace, answer: dict[str, Any]) -> None:
    request, response = trace.request, answer["response"]
    assert (answer["kind"], answer["apiVersion"]) == ("AdmissionReview", request.api_version)
    assert response["uid"] == request.uid
    status = response.get("status")
    assert response["allowed"] is (status is None)
    if status is not None:
        assert "patch" not in response
        assert 400 <= status["code"] <= 599
        assert status["message"]
        return
    patch = response.get("patch")
    assert response.get("patchType") == (None if patch is None else "JSONPatch")
    final = trace.evaluation.final_object
    if patch is None:
        assert same(request.object, final)
        return
    assert trace.evaluation.is_mutating
    operations = orjson.loads(b64decode(patch))
    assert operations
    ours, theirs = (orjson.loads(request.json)["object"] for _ in range(2))
    assert same(apply_patch(ours, orjson.loads(b64decode(patch))), final)
    assert same(jsonpatch.apply_patch(theirs, operations, in_place=True), final)


def seeds() -> Iterator[bytes]:
    plain = bytes(_CHOICES_BYTES)
    yield b""
    for number, recorded in enumerate(sorted(RECORDED, key=len)):
        yield plain + b"\0" + bytes([number]) + bytes(16)
        if len(recorded) < MAX_BYTES - 100:
            yield plain + b"\3" + recorded
    for hooks in range(1, 6):
        for kind in range(8):
            for phase in (0, 3):
                options = bytes([phase, kind % 3, 0, hooks, *bytes([4 * (kind % 2), 0, 0] * hooks)])
                words = bytes(
                    [kind, 2, kind % 3, 0, 3, kind, 1, 0, 0, 4, 1, 0, 1, 1, 0, 11, 2, 1, 0, 0] * hooks
                )
                choices = (options + words).ljust(_CHOICES_BYTES, bytes([kind]))[:_CHOICES_BYTES]
                yield choices + bytes([0, hooks * 7 + kind, 1, 2, hooks, kind, 1, 2, 3, 4, 5])
                yield choices + bytes([1, kind * 5, 0, 3, 2, 1, kind])
