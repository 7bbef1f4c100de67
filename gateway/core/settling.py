"""What a worker's verdict comes to: the outcome of the call, and the object as its patch leaves it.

Source: kubernetes/apiserver plugin/webhook/mutating/dispatcher.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.core.call import Outcome
from gateway.core.identity import PatchRefused
from gateway.core.patch import PatchConflict, PatchSyntaxError, parse_patch
from gateway.core.verdict import Denied, Failed, FailureReason

if TYPE_CHECKING:
    from gateway.core.call import Call, Payload
    from gateway.core.verdict import Allowed, Verdict


def settle(call: Call, verdict: Verdict, number: int, *, is_mutating: bool) -> tuple[Outcome, Payload | None]:
    """Return the outcome of *call* in round *number*, and what the webhooks after it are shown.

    None: the same as this one, since nothing was changed.
    """
    if isinstance(verdict, Failed):
        return Outcome(call.invocation, number, verdict, None, call), None
    if isinstance(verdict, Denied) or not verdict.patch:
        return Outcome(call.invocation, number, verdict, verdict, call), None
    if is_mutating:
        return _patched(call, verdict, number)
    failure = Failed(FailureReason.PATCH_FORBIDDEN, "a validating webhook may not answer a patch")
    return Outcome(call.invocation, number, failure, None, call), None


def _patched(call: Call, verdict: Allowed, number: int) -> tuple[Outcome, Payload | None]:
    payload, patched, failure = call.payload, None, None
    is_patched = False
    try:
        operations = parse_patch(verdict.patch)
        if operations and not payload.request.has_object:
            failure = Failed(
                FailureReason.PATCH_FORBIDDEN,
                f"answered a patch, but a {payload.request.operation} request has no object to change",
                500,
            )
        elif operations:
            patched = payload.patched(operations)
            is_patched = True
    except PatchSyntaxError as error:
        failure = Failed(FailureReason.PATCH_INVALID, f"the answer's patch is no JSON Patch: {error}")
    except (PatchConflict, RecursionError, TypeError) as error:
        cause = str(error) if isinstance(error, PatchConflict) else "the result nests too deeply"
        failure = Failed(FailureReason.PATCH_INAPPLICABLE, f"the answer's patch does not apply: {cause}", 500)
    except PatchRefused as error:
        cause = f"the answer's patch makes an object that the API server refuses: {error}"
        failure = Failed(FailureReason.PATCH_REFUSED, cause, 500)
    outcome = Outcome(
        call.invocation, number, failure or verdict, verdict, call, patched is not None, is_patched
    )
    return outcome, patched
