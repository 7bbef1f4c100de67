"""The bytes of an answer."""

from __future__ import annotations

from base64 import b64encode

import pytest

from gateway.pure.core.annotations import Dropped
from gateway.pure.core.decision import PLAIN_ALLOWED, Decision, Status
from gateway.pure.core.response import encode
from gateway.pure.core.review import V1, V1BETA1
from gateway.pure.core.verdict import Cause, Details

HEAD = b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u-1",'
PATCH = b'[{"op":"add","path":"/x","value":1}]'


@pytest.mark.parametrize(
    ("decision", "rest"),
    [
        (PLAIN_ALLOWED, b'"allowed":true}}'),
        (Decision(), b'"allowed":true}}'),
        (
            Decision(patch=PATCH),
            b'"allowed":true,"patch":"' + b64encode(PATCH) + b'","patchType":"JSONPatch"}}',
        ),
        (Decision(warnings=("b", "a")), b'"allowed":true,"warnings":["b","a"]}}'),
        (
            Decision(audit_annotations={"b": "1", "a": "2"}),
            b'"allowed":true,"auditAnnotations":{"a":"2","b":"1"}}}',
        ),
        (
            Decision(
                patch=PATCH,
                warnings=('say "no"',),
                audit_annotations={"k": "v"},
                dropped_annotations=(Dropped("w", "k", "not a name part"),),
            ),
            b'"allowed":true,"auditAnnotations":{"k":"v"},"patch":"'
            + b64encode(PATCH)
            + b'","patchType":"JSONPatch","warnings":["say \\"no\\""]}}',
        ),
        (
            Decision(Status(400, "", "a: no")),
            b'"allowed":false,"status":{"code":400,"message":"a: no","status":"Failure"}}}',
        ),
        (
            Decision(Status(403, "Forbidden", "a: no\nb: no")),
            (
                b'"allowed":false,"status":{"code":403,"message":"a: no\\nb: no","reason":"Forbidden",'
                b'"status":"Failure"}}}'
            ),
        ),
        (
            Decision(
                Status(
                    422,
                    "Invalid",
                    "a: no",
                    (Cause("R", "a: m", "f"), Cause(message="a: n"), Cause(field="g"), Cause()),
                ),
                warnings=("w",),
            ),
            (
                b'"allowed":false,"status":{"code":422,"details":{"causes":[{"field":"f","message":"a: m",'
                b'"reason":"R"},{"message":"a: n"},{"field":"g"},{}]},"message":"a: no","reason":"Invalid",'
                b'"status":"Failure"},"warnings":["w"]}}'
            ),
        ),
        (
            Decision(
                Status(
                    429,
                    "",
                    "a: no",
                    (Cause("R"),),
                    Details("web", "apps", "Deployment", "u-2", 30),
                    "Odd",
                    (("resourceVersion", "7"), ("remainingItemCount", 0)),
                )
            ),
            (
                b'"allowed":false,"status":{"code":429,"details":{"causes":[{"reason":"R"}],"group":"apps",'
                b'"kind":"Deployment","name":"web","retryAfterSeconds":30,"uid":"u-2"},"message":"a: no",'
                b'"metadata":{"remainingItemCount":0,"resourceVersion":"7"},"status":"Odd"}}}'
            ),
        ),
        (
            Decision(Status(429, "", "a: no", details=Details(retry_after_seconds=1))),
            (
                b'"allowed":false,"status":{"code":429,"details":{"retryAfterSeconds":1},"message":"a: no",'
                b'"status":"Failure"}}}'
            ),
        ),
    ],
)
def test_bytes(decision: Decision, rest: bytes) -> None:
    assert encode(V1, "u-1", decision) == HEAD + rest


def test_the_answer_has_the_version_of_the_review() -> None:
    assert encode(V1BETA1, "u-1", Decision()) == (
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1",'
        b'"response":{"uid":"u-1","allowed":true}}'
    )


def test_the_uid_is_escaped() -> None:
    assert b'"uid":"a\\"b\\\\c"' in encode(V1, 'a"b\\c', Decision())
