"""Status, warnings, audit annotations and patches of decisions."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.json_patch.patch import apply_patch
from gateway.pure.core.annotations import (
    MAX_DROPPED,
    MAX_WORKER_ANNOTATIONS,
    MAX_WORKER_CHARS,
    AuditLevel,
    annotation_key,
)
from gateway.pure.core.decision import (
    MAX_CAUSES,
    MAX_MESSAGE_CHARS,
    MAX_WARNINGS_CHARS,
    PLAIN_ALLOWED,
    Decision,
    DecisionReference,
    Status,
    decide,
    uid_in,
    with_reference,
)
from gateway.pure.core.verdict import (
    ALLOWED,
    NO_DETAILS,
    Allowed,
    Cause,
    Denied,
    Details,
    Failed,
    FailureReason,
    Verdict,
)
from tests.core.build import POD, add, labelled, patch, request, settle, webhook

if TYPE_CHECKING:
    from gateway.pure.core.webhook import FailurePolicy, Phase, Webhook

A, B, C = "a.policies.test", "b.policies.test", "c.policies.test"
BROKEN = Failed(FailureReason.STATUS, "UNAVAILABLE: gone", 503)


def validating(
    *verdicts: Verdict, level: AuditLevel = "Metadata", failure_policy: FailurePolicy = "Fail"
) -> Decision:
    """The decision for the verdicts of webhooks a, b, c…"""
    names = [f"{letter}.policies.test" for letter in "abcdef"[: len(verdicts)]]
    hooks = [webhook(name, phase="validate", failure_policy=failure_policy) for name in names]
    return decide(settle(hooks, request(), dict(zip(names, verdicts, strict=True))), level)


def mutating(
    *verdicts: Verdict,
    level: AuditLevel = "Metadata",
    failure_policy: FailurePolicy = "Fail",
    operation: str = "CREATE",
) -> Decision:
    names = [f"{letter}.policies.test" for letter in "abcdef"[: len(verdicts)]]
    hooks = [webhook(name, failure_policy=failure_policy) for name in names]
    new = None if operation == "DELETE" else POD
    given = request(operation=operation, object=new)
    return decide(settle(hooks, given, dict(zip(names, verdicts, strict=True))), level)


def only_status(decision: Decision) -> Status:
    assert not decision.allowed
    assert decision.patch == b""
    assert decision.status is not None
    return decision.status


@pytest.mark.parametrize(
    ("denied", "status"),
    [
        (Denied(), Status(400, "", f"{A}: denied without explanation")),
        (Denied(message="no"), Status(400, "", f"{A}: no")),
        (Denied(403, message="no"), Status(403, "Forbidden", f"{A}: no")),
        (Denied(403, "Mine", "no"), Status(403, "Mine", f"{A}: no")),
        (Denied(404, message="no"), Status(404, "", f"{A}: no")),
        (Denied(reason="Invalid"), Status(400, "Invalid", f"{A}: denied without explanation")),
        (Denied(599, "X", "two\nlines"), Status(599, "X", f"{A}: two\nlines")),
        (
            Denied(422, "Invalid", "no", (Cause("R", "first", "spec.a"), Cause(message="second"))),
            Status(
                422,
                "Invalid",
                f"{A}: no",
                (Cause("R", f"{A}: first", "spec.a"), Cause("", f"{A}: second", "")),
            ),
        ),
    ],
)
@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
def test_a_denial(denied: Denied, status: Status, failure_policy: FailurePolicy) -> None:
    assert only_status(validating(denied, failure_policy=failure_policy)) == status
    assert only_status(mutating(denied, failure_policy=failure_policy)) == status


def test_every_denial_is_a_line_in_order_and_the_first_gives_code_and_reason() -> None:
    decision = validating(
        ALLOWED,
        Denied(403, message="one", causes=(Cause(message="x"),)),
        BROKEN,
        Denied(422, "Invalid", causes=(Cause(field="spec.b"),)),
    )
    assert only_status(decision) == Status(
        403,
        "Forbidden",
        f'{B}: one\nfailed calling webhook "{C}": UNAVAILABLE: gone\n'
        "d.policies.test: denied without explanation",
        (Cause(message=f"{B}: x"), Cause(message="d.policies.test: ", field="spec.b")),
    )


def test_every_rejection_of_an_invalid_object_is_a_cause_because_kubectl_shows_only_causes() -> None:
    decision = validating(
        Denied(422, "Invalid", "first", causes=(Cause("R", "x", "spec.a"),)),
        BROKEN,
        Denied(403, message="no"),
    )
    assert only_status(decision).causes == (
        Cause("R", f"{A}: x", "spec.a"),
        Cause(message=f'failed calling webhook "{B}": UNAVAILABLE: gone'),
        Cause(message=f"{C}: no"),
    )


def test_a_denial_has_the_help_of_its_webhook_on_a_line_of_its_own() -> None:
    hooks = [webhook(name, phase="validate", help=text) for name, text in ((A, "ask ann"), (B, ""))]
    status = only_status(decide(settle(hooks, request(), {A: Denied(403), B: Denied(403)}), "None"))
    assert status.message == f"{A}: denied without explanation\nask ann\n{B}: denied without explanation"
    assert status.causes == ()
    failed = only_status(decide(settle(hooks[:1], request(), {A: BROKEN}), "None"))
    assert "ask ann" not in failed.message
    # kubectl shows the causes of an invalid object, and not the message.
    wrong = Denied(422, "Invalid", "no", causes=(Cause("", "no", "spec"),))
    status = only_status(decide(settle(hooks[:1], request(), {A: wrong}), "None"))
    assert [one.message for one in status.causes] == [f"{A}: no", "ask ann"]


def test_an_invalid_object_without_causes_has_the_message() -> None:
    decision = validating(Denied(422, "Invalid", "first"), Denied(403, message="no"))
    assert only_status(decision) == Status(422, "Invalid", f"{A}: first\n{B}: no")


ABOUT = Details("web", "apps", "Deployment", "u-2", 30)


def test_a_denials_details_reach_the_user() -> None:
    denied = Denied(429, "TooManyRequests", "slow", (Cause(message="m"),), details=ABOUT)
    status = Status(429, "TooManyRequests", f"{A}: slow", (Cause(message=f"{A}: m"),), ABOUT)
    assert only_status(validating(denied)) == status
    assert only_status(mutating(denied)) == status


def test_the_first_denial_gives_the_details() -> None:
    other = Details("other", kind="Pod", retry_after_seconds=1)
    decision = validating(
        Denied(403, message="no", details=ABOUT), Denied(429, message="slow", details=other)
    )
    assert only_status(decision) == Status(403, "Forbidden", f"{A}: no\n{B}: slow", details=ABOUT)
    decision = validating(Denied(403, message="no"), Denied(429, message="slow", details=other))
    assert only_status(decision).details == NO_DETAILS
    decision = validating(BROKEN, Denied(429, message="slow", details=other))
    assert only_status(decision).details == NO_DETAILS


def test_status_and_metadata_of_the_first_denial_are_kept() -> None:
    first = Denied(message="no", status="Odd", metadata=(("resourceVersion", "7"),))
    status = only_status(validating(first, Denied(message="no", status="Other")))
    assert (status.status, status.metadata) == ("Odd", (("resourceVersion", "7"),))
    assert only_status(validating(Denied(message="no"), first)).status == "Failure"


@pytest.mark.parametrize("about", [Details(kind="Pod"), Details(name="web")])
def test_every_rejection_of_an_invalid_object_with_a_name_is_a_cause_because_kubectl_shows_no_message(
    about: Details,
) -> None:
    alone = Denied(422, "Invalid", "first", details=about)
    assert only_status(validating(alone)) == Status(422, "Invalid", f"{A}: first", details=about)
    decision = validating(alone, Denied(403, message="no"))
    assert only_status(decision).causes == (Cause(message=f"{A}: first"), Cause(message=f"{B}: no"))


def test_a_first_failure_gives_code_and_reason_too() -> None:
    decision = validating(BROKEN, Denied(403, message="no"))
    assert only_status(decision) == Status(
        500, "InternalError", f'failed calling webhook "{A}": UNAVAILABLE: gone\n{B}: no'
    )


def test_mutation_ends_at_the_first_rejection() -> None:
    decision = mutating(patch(add("/x", 1)), Denied(message="no"), Denied(message="not called"))
    assert only_status(decision) == Status(400, "", f"{B}: no")
    assert list(decision.audit_annotations) == ["mutation.round_0_index_0", "mutation.round_0_index_1"]


FAILURES = [
    Failed(FailureReason.STATUS, "INTERNAL: bug", 500),
    Failed(FailureReason.DEADLINE, "DEADLINE_EXCEEDED: no answer within 2s", 504),
    Failed(FailureReason.MALFORMED, "malformed answer: cut short"),
]


@pytest.mark.parametrize("failed", FAILURES, ids=lambda failed: failed.reason.name)
def test_a_failure_under_fail_is_always_500_whatever_its_code(failed: Failed) -> None:
    status = Status(500, "InternalError", f'failed calling webhook "{A}": {failed.cause}')
    assert only_status(validating(failed)) == status
    assert only_status(mutating(failed)) == status


@pytest.mark.parametrize("failed", FAILURES, ids=lambda failed: failed.reason.name)
def test_a_failure_under_ignore_allows_the_request_and_is_annotated(failed: Failed) -> None:
    decision = validating(ALLOWED, failed, failure_policy="Ignore")
    assert decision == Decision(audit_annotations={"failed-open.round_0_index_1": B})
    decision = mutating(failed, ALLOWED, failure_policy="Ignore")
    assert decision.allowed
    assert decision.audit_annotations == {
        "mutation.round_0_index_0": f'{{"configuration":"policies","webhook":"{A}","mutated":false}}',
        "failed-open.round_0_index_0": A,
        "mutation.round_0_index_1": f'{{"configuration":"policies","webhook":"{B}","mutated":false}}',
    }


@pytest.mark.parametrize(
    ("answer", "operation", "cause"),
    [
        (Allowed(b"nonsense"), "CREATE", "the answer's patch is not a JSON Patch: not JSON: "),
        (Allowed(b"{}"), "CREATE", "the answer's patch is not a JSON Patch: not a JSON array of operations"),
        (
            patch({"op": "remove", "path": "/x"}),
            "CREATE",
            "the answer's patch does not apply: operation 0: cannot remove '/x': there is no such member",
        ),
        (
            patch({"op": "replace", "path": "", "value": []}),
            "CREATE",
            "the answer's patch does not apply: it leaves an array where the object was",
        ),
        (
            patch(add("/x", 1)),
            "DELETE",
            "answered a patch, but a DELETE request has no object to change",
        ),
        # Bytes that are not a patch are refused on a DELETE too.
        (Allowed(b"nonsense"), "DELETE", "the answer's patch is not a JSON Patch: not JSON: "),
    ],
)
def test_a_patch_that_cannot_be_used_is_a_failure_of_its_webhook(
    answer: Allowed, operation: str, cause: str
) -> None:
    status = only_status(mutating(answer, operation=operation))
    assert (status.code, status.reason) == (500, "InternalError")
    assert status.message.startswith(f'failed calling webhook "{A}": {cause}')
    ignored = mutating(answer, operation=operation, failure_policy="Ignore")
    assert ignored.allowed
    assert ignored.patch == b""
    assert ignored.audit_annotations["failed-open.round_0_index_0"] == A


@pytest.mark.parametrize("answer", [Allowed(b""), Allowed(b"[]"), Allowed(b"null")])
@pytest.mark.parametrize("operation", ["CREATE", "DELETE"])
def test_a_patch_without_operations_is_none(answer: Allowed, operation: str) -> None:
    decision = mutating(answer, operation=operation, level="Request")
    assert decision.allowed
    assert decision.patch == b""
    assert list(decision.audit_annotations) == ["mutation.round_0_index_0"]


def test_a_patch_in_the_validating_phase_is_a_failure_whose_warnings_are_dropped() -> None:
    answer = Allowed(b'[{"op":"remove","path":"/x"}]', ("warned",), (("key", "value"),))
    cause = f'failed calling webhook "{A}": a validating webhook may not answer a patch'
    assert validating(answer) == Decision(Status(500, "InternalError", cause))
    ignored = validating(answer, failure_policy="Ignore")
    assert ignored == Decision(audit_annotations={"failed-open.round_0_index_0": A})


def test_warnings_beside_a_patch_that_does_not_apply_are_kept() -> None:
    answer = Allowed(b'[{"op":"remove","path":"/x"}]', ("warned",), (("key", "value"),))
    for decision in (mutating(answer), mutating(answer, failure_policy="Ignore")):
        assert decision.warnings == ("warned",)
        assert decision.audit_annotations[f"{A}.key"] == "value"


@pytest.mark.parametrize(
    ("side_effects", "called"), [("None", True), ("NoneOnDryRun", True), ("Some", False), ("Unknown", False)]
)
@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_a_dry_run_is_refused_where_side_effects_forbid_it(
    side_effects: str, called: bool, failure_policy: FailurePolicy, phase: Phase
) -> None:
    hook = webhook(A, phase=phase, side_effects=side_effects, failure_policy=failure_policy)
    evaluation = settle([hook], request(dryRun=True))
    decision = decide(evaluation, "Metadata")
    assert decision.allowed is called
    if not called:
        message = f'admission webhook "{A}" does not support dry run'
        assert decision.status == Status(400, "BadRequest", message)
        assert [outcome.call for outcome in evaluation.outcomes] == [None]
    mutation = {"mutation.round_0_index_0": f'{{"configuration":"policies","webhook":"{A}","mutated":false}}'}
    assert decision.audit_annotations == (mutation if phase == "mutate" else {})


def test_a_webhook_that_does_not_match_does_not_refuse_a_dry_run() -> None:
    hook = webhook(A, side_effects="Some", object_selector=labelled("team", "other"))
    assert decide(settle([hook], request(dryRun=True)), "Metadata").allowed


# Warnings.

LONG = "x" * 256


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (("one", "two"), ("one", "two")),
        (("one", "two", "one"), ("one", "two")),
        (("", "one"), ("one",)),
        (("a\nb", "a\tb", "a\x00b", "a\x7fb", "a\x85b", "\r", "one"), ("one",)),
        (("ünïcödé \N{HUNDRED POINTS SYMBOL}",), ("ünïcödé \N{HUNDRED POINTS SYMBOL}",)),
        ((LONG,), (LONG,)),
        ((LONG + "y",), (LONG,)),
        ((LONG + "y", LONG + "z", LONG), (LONG,)),
        (("\N{HUNDRED POINTS SYMBOL}" * 300,), ("\N{HUNDRED POINTS SYMBOL}" * 256,)),
    ],
)
def test_warnings(given: tuple[str, ...], kept: tuple[str, ...]) -> None:
    assert validating(Allowed(warnings=given)).warnings == kept
    assert validating(Denied(warnings=given)).warnings == kept
    assert mutating(Allowed(warnings=given)).warnings == kept
    assert mutating(Denied(warnings=given)).warnings == kept


def test_warnings_come_in_order_and_once_over_all_webhooks() -> None:
    decision = validating(
        Allowed(warnings=("b", "a")), Denied(warnings=("a", "c")), BROKEN, Allowed(warnings=("d",))
    )
    assert decision.warnings == ("b", "a", "c", "d")


def test_warnings_are_bounded_by_4096_characters() -> None:
    full = tuple(f"{number:0256}" for number in range(16))
    assert validating(Allowed(warnings=full)).warnings == full
    assert validating(Allowed(warnings=(*full, "y"))).warnings == full
    # Those that are kept twice count once, and those dropped not at all.
    assert validating(Allowed(warnings=(*full[:15], "", full[0], "a\n", full[15]))).warnings == full
    assert validating(Allowed(warnings=("y", *full))).warnings == ("y", *full[:15])


# Audit annotations.


def annotated(*pairs: tuple[str, str]) -> Allowed:
    return Allowed(audit_annotations=pairs)


def test_the_key_of_a_workers_annotation_begins_with_the_webhooks_name() -> None:
    decision = validating(annotated(("k", "v")), Denied(audit_annotations=(("k", "w"),)))
    assert decision.audit_annotations == {f"{A}.k": "v", f"{B}.k": "w"}


@pytest.mark.parametrize("level", ["None", "Metadata", "Request"])
def test_workers_annotations_do_not_depend_on_the_level(level: AuditLevel) -> None:
    assert validating(annotated(("k", "v")), level=level).audit_annotations == {f"{A}.k": "v"}


@pytest.mark.parametrize(
    ("key", "is_valid"),
    [
        ("k", True),
        ("K9", True),
        ("a-b_c.d", True),
        ("9", True),
        ("k" * 63, True),
        ("", False),
        ("k" * 64, False),
        ("a/b", False),
        ("-a", False),
        ("a-", False),
        (".a", False),
        ("a_", False),
        ("a b", False),
        ("ä", False),
        ("a\n", False),
    ],
)
def test_an_annotation_with_an_invalid_key_is_dropped_and_reported(key: str, is_valid: bool) -> None:
    decision = validating(annotated((key, "v"), ("kept", "v")))
    assert f"{A}.kept" in decision.audit_annotations
    assert (annotation_key(A, key) in decision.audit_annotations) is is_valid
    assert decision.dropped_annotations == (() if is_valid else ((A, key, "not a name part"),))


def test_keys_over_63_characters_are_shortened_and_stay_different() -> None:
    fits = "k" * (63 - len(A) - 1)
    assert annotation_key(A, fits) == f"{A}.{fits}"
    assert len(f"{A}.{fits}") == 63
    long = [annotation_key(A, fits + end) for end in ("x", "y", "xx")]
    digest = hashlib.sha256(f"{A}.{fits}x".encode()).hexdigest()[:8]
    assert long[0] == f"{f'{A}.{fits}x'[:54]}-{digest}"
    assert {len(key) for key in long} == {63}
    assert len(set(long)) == 3


def test_a_repeated_key_keeps_its_first_value() -> None:
    hooks = [webhook(A, phase="validate"), webhook(A, phase="validate")]
    verdicts: list[Verdict] = [annotated(("k", "first")), annotated(("k", "second"), ("other", "2"))]
    evaluation = settle(hooks, request(), lambda call: verdicts[call.index])
    assert decide(evaluation, "Metadata").audit_annotations == {f"{A}.k": "first", f"{A}.other": "2"}


def test_mutation_is_annotated_for_every_called_webhook_by_its_index_among_all() -> None:
    hooks = [
        webhook(A, object_selector=labelled("team", "other")),
        webhook(B, configuration="second"),
        webhook(C, failure_policy="Ignore"),
    ]
    verdicts: dict[str, Verdict] = {B: patch(add("/x", 1)), C: BROKEN}
    decision = decide(settle(hooks, request(), verdicts), "Metadata")
    assert decision.audit_annotations == {
        "mutation.round_0_index_1": f'{{"configuration":"second","webhook":"{B}","mutated":true}}',
        "mutation.round_0_index_2": f'{{"configuration":"policies","webhook":"{C}","mutated":false}}',
        "failed-open.round_0_index_2": C,
    }


def test_the_validating_phase_counts_only_matching_webhooks_and_annotates_no_calls() -> None:
    hooks = [
        webhook(A, phase="validate", object_selector=labelled("team", "other")),
        webhook(B, phase="validate"),
        webhook(C, phase="validate", failure_policy="Ignore"),
    ]
    decision = decide(settle(hooks, request(), {C: BROKEN}), "Request")
    assert decision.audit_annotations == {"failed-open.round_0_index_1": C}


def test_a_failed_namespace_look_up_has_an_index_and_is_no_call() -> None:
    def failing(phase: Phase) -> list[Webhook]:
        selector = labelled("team", "a")
        return [webhook(A, phase=phase, namespace_selector=selector, failure_policy="Ignore")]

    for phase in ("mutate", "validate"):
        decision = decide(settle(failing(phase), request(namespace="nowhere")), "Metadata")
        assert decision == Decision(audit_annotations={"failed-open.round_0_index_0": A})


def test_the_patch_is_annotated_only_at_level_request() -> None:
    answer = Allowed(b'[{"value":{"z":1,"a":2},"path":"/x","op":"add"}]')
    for level in ("None", "Metadata"):
        assert not any(key.startswith("patch.") for key in mutating(answer, level=level).audit_annotations)
    annotations = mutating(answer, level="Request").audit_annotations
    # Members in the API server's order; within operations sorted.
    assert annotations["patch.round_0_index_0"] == (
        f'{{"configuration":"policies","webhook":"{A}",'
        '"patch":[{"op":"add","path":"/x","value":{"a":2,"z":1}}],"patchType":"JSONPatch"}'
    )


def test_a_patch_without_effect_is_annotated_as_a_patch_but_not_as_a_mutation() -> None:
    decision = mutating(patch({"op": "test", "path": "/spec/replicas", "value": 1}), level="Request")
    assert decision.patch == b""
    assert json.loads(decision.audit_annotations["mutation.round_0_index_0"])["mutated"] is False
    assert "patch.round_0_index_0" in decision.audit_annotations


def test_level_none_has_no_annotations_of_the_gateway() -> None:
    assert mutating(patch(add("/x", 1)), level="None").audit_annotations == {}
    assert validating(BROKEN, level="None", failure_policy="Ignore").audit_annotations == {}


def test_the_second_round_has_its_own_number() -> None:
    hooks = [webhook(A, reinvocation_policy="IfNeeded"), webhook(B)]
    verdicts = {B: patch(add("/x", 1))}
    annotations = decide(settle(hooks, request(), verdicts), "Metadata").audit_annotations
    assert [json.loads(value)["mutated"] for value in annotations.values()] == [False, True, False]
    assert list(annotations) == [
        "mutation.round_0_index_0",
        "mutation.round_0_index_1",
        "mutation.round_1_index_0",
    ]


# The patch.


def test_the_patch_goes_from_the_requests_object_to_the_final_one() -> None:
    decision = mutating(
        patch(add("/metadata/labels/x", "1")),
        patch({"op": "remove", "path": "/metadata/labels/x"}, add("/spec/y", 1)),
    )
    assert decision.patch == b'[{"op":"add","path":"/spec/y","value":1}]'


def test_changes_that_cancel_out_leave_no_patch() -> None:
    decision = mutating(patch(add("/x", 1)), patch({"op": "remove", "path": "/x"}))
    assert decision.allowed
    assert decision.patch == b""
    mutated = [json.loads(value)["mutated"] for value in decision.audit_annotations.values()]
    assert mutated == [True, True]


@pytest.mark.parametrize("depth", [240, 248, 249, 250, 251, 252, 253, 254, 255, 300, 600, 1000])
@pytest.mark.parametrize("tail", [b"", b',{"op":"remove","path":"/x"}'])
def test_a_patch_that_nests_too_deeply_is_a_failure_of_its_webhook_at_any_depth(
    depth: int, tail: bytes
) -> None:
    value = b'{"a":' * depth + b"1" + b"}" * depth
    answer = Allowed(b'[{"op":"add","path":"/x","value":' + value + b"}" + tail + b"]")
    decision = mutating(answer, level="Request", failure_policy="Ignore")
    assert decision.allowed
    has_failed = "failed-open.round_0_index_0" in decision.audit_annotations
    assert has_failed is ("patch.round_0_index_0" not in decision.audit_annotations)
    if depth <= 250 or depth >= 255:
        # In between lies the JSON library's own limit.
        assert has_failed is (depth >= 255)


def test_a_validation_without_warnings_and_annotations_has_an_empty_decision() -> None:
    assert validating(ALLOWED, Allowed()) is PLAIN_ALLOWED
    assert decide(settle([], request()), "Metadata").allowed


def test_a_long_message_is_cut() -> None:
    long = Cause("r" * 10**6, "c" * 10**6, "f" * 10**6)
    status = only_status(validating(Denied(403, "x" * 10**6, "m" * 10**6, (long, Cause("r")))))
    assert status.message == f"{A}: {'m' * (MAX_MESSAGE_CHARS - 3)}..."
    assert len(status.reason) == MAX_MESSAGE_CHARS
    [first, second] = status.causes
    assert len(first.reason) == len(first.field) == len(first.message) - len(f"{A}: ") == MAX_MESSAGE_CHARS
    assert second == Cause("r", f"{A}: ")


def test_the_first_of_many_long_messages_are_kept_and_the_others_counted() -> None:
    status = only_status(validating(*[Denied(403, "", "m" * 10**6)] * 6))
    *lines, last = status.message.split("\n")
    assert [line[: len(A)] for line in lines] == [A, B, C]
    assert last == "and 3 more that refuse the request"


def test_the_first_of_many_causes_are_kept() -> None:
    many = tuple(Cause("", str(number), "") for number in range(MAX_CAUSES + 5))
    status = only_status(validating(Denied(422, "", "", many), Denied(422, "", "", many)))
    assert [cause.message for cause in status.causes] == [f"{A}: {number}" for number in range(MAX_CAUSES)]
    long = only_status(validating(Denied(422, "", "", (Cause(message="c" * 10**6),) * 9)))
    assert len(long.causes) == 3


def test_too_many_annotations_are_dropped_and_the_first_reported() -> None:
    half = "v" * (MAX_WORKER_CHARS // 2)
    decision = validating(
        annotated(("a", half), ("b", half), ("c", half), ("d", "short")),
        annotated(*[(f"-{number}", "v") for number in range(100_000)]),
    )
    assert list(decision.audit_annotations) == [f"{A}.a", f"{A}.d"]
    first, *others = decision.dropped_annotations
    assert first == (A, "b", "more than 1048576 characters of annotations in a review")
    assert len(others) == MAX_DROPPED - 1


def test_a_repeated_warning_is_processed_once() -> None:
    looked_at: list[str] = []

    class Watched(str):
        __slots__ = ()

        def __getitem__(self, place: object) -> str:
            looked_at.append(self)
            return str(self)

    decision = validating(Allowed(warnings=(Watched("again"),) * 20_000))
    assert decision.warnings == ("again",)
    assert len(looked_at) == 1


def test_annotations_of_many_webhooks_are_bounded_by_number() -> None:
    many = [
        annotated(*[(f"{letter}{number}", "") for number in range(MAX_WORKER_ANNOTATIONS // 2)])
        for letter in "abcd"
    ]
    decision = validating(*many)
    assert len(decision.audit_annotations) == MAX_WORKER_ANNOTATIONS
    assert [dropped.reason for dropped in decision.dropped_annotations] == [
        f"more than {MAX_WORKER_ANNOTATIONS} annotations in a review"
    ] * 2


def test_a_long_key_is_cut_in_reports() -> None:
    decision = validating(annotated(("k" * 10**6, "v")))
    assert decision.dropped_annotations == ((A, "k" * 80, "not a name part"),)


def test_patches_in_annotations_are_bounded() -> None:
    text = "x" * (3 * 1024 * 1024 - 100)
    quoted = mutating(*[patch(add("/data", text + letter)) for letter in "abc"], level="Request")
    kept = [key for key in quoted.audit_annotations if key.startswith("patch.")]
    assert kept == ["patch.round_0_index_0", "patch.round_0_index_1"]
    assert quoted.dropped_annotations == (
        (C, "patch.round_0_index_2", "more than 8388608 characters of patches in a review"),
    )


def test_a_patch_that_makes_an_object_too_large_is_a_failure() -> None:
    """The bound is the same for one patch and for several."""
    half = "x" * (2 * 1024 * 1024)
    decision = mutating(patch(add("/a", half)), patch(add("/b", half)), ALLOWED, failure_policy="Ignore")
    assert json.loads(decision.patch) == [add("/a", half)]
    assert decision.audit_annotations["failed-open.round_0_index_1"] == B
    message = only_status(mutating(patch(add("/a", half * 2)))).message
    assert re.search(r"leaves an object of \d+ bytes, more than 3145728 over the request$", message)


@pytest.mark.parametrize("count", [10_000, 10_001, 40_000])
def test_any_number_of_labels_is_replaced(count: int) -> None:
    old, new = ({f"{letter}{number}": "v" for number in range(count)} for letter in "ab")
    given = request(object={"metadata": {"labels": old}})
    replaced = patch({"op": "replace", "path": "/metadata/labels", "value": new})
    decision = decide(settle([webhook()], given, {A: replaced}), "Metadata")
    assert apply_patch({"metadata": {"labels": old}}, json.loads(decision.patch)) == {
        "metadata": {"labels": new}
    }


@given(st.sampled_from(["Warning", "Message"]), st.lists(st.text(max_size=300), max_size=30))
def test_a_refusal_says_with_which_command_it_is_found(
    reference: DecisionReference, warnings: list[str]
) -> None:
    uid = "705ab4f5-6393-11e8-b7cc-42010a800002"
    hooks = [webhook("a.b.c"), webhook("b.b.c")]
    denied = Denied(403, message="no", warnings=tuple(warnings))
    plain = decide(settle(hooks, request(uid=uid), {"a.b.c": denied}), "Metadata")
    found = with_reference(plain, uid, reference)
    text = f"to see why the request was refused, run: admission-gateway decisions {uid} --cluster"
    assert plain.status is not None
    assert found.status is not None
    if reference == "Message":
        assert found.status.message == f"{plain.status.message}\n{text}"
        assert replace(found, status=plain.status) == plain
    else:
        assert found.warnings[0] == text
        assert found.warnings[1:] == plain.warnings[: len(found.warnings) - 1]
        assert sum(map(len, found.warnings)) <= MAX_WARNINGS_CHARS
        assert replace(found, warnings=plain.warnings) == plain
    for shown in (f"Warning: {text}", f"the decisions of a team say no\n{text}", text, f" {uid} "):
        assert uid_in(shown) == uid
    # Nothing changes without the option, for an allowed request, and for a uid that needs quotes.
    assert with_reference(plain, uid, "None") is plain
    assert with_reference(plain, "a; rm -rf", reference) is plain
    allowed = decide(settle(hooks, request(uid=uid), {}), "Metadata")
    assert with_reference(allowed, uid, reference) is allowed


@pytest.mark.parametrize(
    ("text", "uid"),
    [
        ("http://localhost:9090/decisions/a-1?format=json", "a-1"),
        ("kubectl admission why a-1", "a-1"),
        ("see https://wiki.test/decisions/7\nadmission-gateway decisions  a.1 --cluster", "a.1"),
        ("pod/web", "pod/web"),
        ("decisions about uids", "decisions about uids"),
        ("", ""),
    ],
)
def test_a_uid_is_found_in_what_a_person_pastes(text: str, uid: str) -> None:
    assert uid_in(text) == uid
