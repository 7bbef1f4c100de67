"""The outcome of a webhook: its verdict, and the object as its patch leaves it.

Source: kubernetes/apiserver plugin/webhook/mutating/dispatcher.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from admission_gateway_worker.json_patch.patch import PatchConflict, PatchSyntaxError, parse_in_steps
from admission_gateway_worker.json_patch.steps import finish
from gateway.pure.core.call import Applied
from gateway.pure.core.identity import PatchRefused
from gateway.pure.core.verdict import Allowed, Denied, Failed, FailureReason

if TYPE_CHECKING:
    from collections.abc import Generator

    from gateway.pure.core.call import Call, Payload
    from gateway.pure.core.conditions import PolicyResult
    from gateway.pure.core.conflicts import Writers
    from gateway.pure.core.exemptions import PolicyException
    from gateway.pure.core.matching import Invocation, PolicyInvocation
    from gateway.pure.core.review import Json
    from gateway.pure.core.verdict import DryRunRefused, Verdict
    from gateway.pure.core.webhook import Mode


class Exemption(NamedTuple):
    """A webhook that matched, and was not called because of an exception."""

    invocation: Invocation
    round: int
    exception: PolicyException


@dataclass(slots=True)
class Outcome:
    """The outcome of one webhook in one round."""

    invocation: Invocation
    round: int
    verdict: Verdict | DryRunRefused
    """The effective verdict: Failed also if the worker allowed the request with a patch that cannot be
    used."""
    worker_verdict: Allowed | Denied | None
    """The worker's own answer, for its warnings and audit annotations; None without a readable answer."""
    call: Call | None
    """None if the webhook was not called."""
    has_changed: bool = False
    is_patched: bool = False
    """Whether a patch with at least one operation was applied, even without effect."""
    mode: Mode = "Enforce"
    would_change: bool = False
    """Whether its patch would have changed the object in the mode Enforce, and was not applied."""

    evaluated_s: float | None = None
    """Seconds that the gateway took to evaluate an admission policy, which has no call."""
    evaluated_on: Payload | None = None
    """The payload on which it evaluated the policy."""

    @property
    def payload(self) -> Payload | None:
        """The payload on which it is based; None if there was neither a call nor an evaluation."""
        return self.evaluated_on if self.call is None else self.call.payload

    @property
    def elapsed_s(self) -> float | None:
        """Seconds that the call or the evaluation took; None if there was neither."""
        return self.evaluated_s if self.call is None else self.call.elapsed_s

    @property
    def rejects(self) -> bool:
        """Whether it rejects the request."""
        return type(self.verdict) is not Allowed and self.mode == "Enforce" and self.would_reject

    @property
    def would_reject(self) -> bool:
        """Whether it is a denial, a refused dry run, or a failure under Fail."""
        if type(self.verdict) is Failed:
            return self.invocation.webhook.failure_policy == "Fail"
        return type(self.verdict) is not Allowed


def settle_policy(
    invocation: PolicyInvocation, round_number: int, result: PolicyResult, mode: Mode, payload: Payload
) -> tuple[Outcome, Payload | None]:
    """Return the outcome of a policy with *result* on *payload*, and the new payload, if any."""
    verdict, patched = result.verdict, None
    if result.changed is not None:
        try:
            patched = payload.replaced(result.changed, result.patch)
        except PatchRefused as error:
            cause = f"it makes an object that the API server refuses: {error}"
            verdict = Failed(FailureReason.PATCH_REFUSED, cause, 500)
        except (PatchConflict, RecursionError, TypeError) as error:
            conflict = str(error) if isinstance(error, PatchConflict) else "the result nests too deeply"
            verdict = Failed(FailureReason.PATCH_INAPPLICABLE, conflict, 500)
    outcome = Outcome(invocation, round_number, verdict, result.reported, None, mode=mode)
    outcome.evaluated_s, outcome.evaluated_on = result.elapsed_s, payload
    if patched is None:
        return outcome, None
    if mode != "Enforce":
        outcome.would_change = True
        return outcome, None
    outcome.has_changed = True
    # A denial has no patch, although other mutations of the policy were applied.
    outcome.is_patched = isinstance(result.reported, Allowed)
    return outcome, patched


def refuse_conflict(outcome: Outcome, writers: Writers, before: Payload, after: Payload) -> Payload | None:
    """Return *after*, the payload that *outcome* leaves where it found *before*.

    If the webhook has overwritten what another one wrote, it denies the request instead, whatever its
    failurePolicy, and the result is None.
    """
    found = writers.note(outcome.invocation.webhook, before.object, after.object)
    conflict = next((one for one in found if not one.is_meant), None)
    if conflict is None:
        return after
    outcome.verdict = Denied(403, message=conflict.refusal())
    outcome.has_changed = outcome.is_patched = False
    return None


def settle(
    call: Call, verdict: Verdict, round_number: int, *, is_mutating: bool
) -> tuple[Outcome, Payload | None]:
    """Return the outcome of *call*, and the payload for later webhooks, None if unchanged.

    The patch of a webhook that is not enforced is judged like any other, and changes nothing.
    """
    if isinstance(verdict, Failed):
        return Outcome(call.invocation, round_number, verdict, None, call, mode=call.mode), None
    if isinstance(verdict, Denied) or not verdict.patch:
        return Outcome(call.invocation, round_number, verdict, verdict, call, mode=call.mode), None
    if is_mutating:
        return _patched(call, verdict, round_number)
    failure = Failed(FailureReason.PATCH_FORBIDDEN, "a validating webhook may not answer a patch")
    return Outcome(call.invocation, round_number, failure, None, call, mode=call.mode), None


def apply_ahead(call: Call, patch: bytes) -> Generator[None, None, None]:
    """Apply the *patch* of an answer to *call* before :func:`settle`, which then uses the result.

    It yields between steps of some milliseconds: thousands of operations take tenths of a second.
    """
    call.applied = yield from _applied(call.payload, patch)


def object_after(outcome: Outcome) -> Generator[None, None, Json | None]:
    """Return the object as the patch of *outcome*, whose call was allowed, leaves it or would leave it.

    It yields between steps.
    """
    call, verdict = outcome.call, outcome.worker_verdict
    assert call is not None, "an answer needs a call"
    if isinstance(verdict, Allowed) and verdict.patch:
        applied = yield from _applied(call.payload, verdict.patch)
        if applied.payload is not None:
            return applied.payload.object
    return call.payload.object


def _patched(call: Call, verdict: Allowed, round_number: int) -> tuple[Outcome, Payload | None]:
    applied = call.applied or finish(_applied(call.payload, verdict.patch))
    patched, failure = applied.payload, applied.failure
    if call.mode != "Enforce":
        outcome = Outcome(call.invocation, round_number, failure or verdict, verdict, call, mode=call.mode)
        outcome.would_change = patched is not None
        return outcome, None
    outcome = Outcome(
        call.invocation,
        round_number,
        failure or verdict,
        verdict,
        call,
        patched is not None,
        applied.is_patched,
    )
    return outcome, patched


def _applied(payload: Payload, patch: bytes) -> Generator[None, None, Applied]:
    reason = FailureReason.PATCH_INAPPLICABLE
    try:
        operations = yield from parse_in_steps(patch)
        if not operations:
            return Applied(None, None, is_patched=False)
        if payload.request.has_object:
            return Applied((yield from payload.patched(operations, patch)), None, is_patched=True)
        reason = FailureReason.PATCH_FORBIDDEN
        cause = f"answered a patch, but a {payload.request.operation} request has no object to change"
    except PatchSyntaxError as error:
        failure = Failed(FailureReason.PATCH_INVALID, f"the answer's patch is not a JSON Patch: {error}")
        return Applied(None, failure, is_patched=False)
    except (PatchConflict, RecursionError, TypeError) as error:
        conflict = str(error) if isinstance(error, PatchConflict) else "the result nests too deeply"
        cause = f"the answer's patch does not apply: {conflict}"
    except PatchRefused as error:
        reason = FailureReason.PATCH_REFUSED
        cause = f"the answer's patch makes an object that the API server refuses: {error}"
    return Applied(None, Failed(reason, cause, 500), is_patched=False)
