"""The reference: webhooks are called one after another, as by the API server, in simple code.

It has its own rounds, end, reinvocation, indices and texts. From the gateway it uses only rules, selectors,
patches and the identity check. Its input are the workers' answers; its output is the expected response.
"""

from __future__ import annotations

import copy
import hashlib
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from admission_gateway_worker.json_patch.diff import same
from admission_gateway_worker.json_patch.patch import (
    PatchConflict,
    PatchSyntaxError,
    apply_patch,
    parse_patch,
)
from gateway.pure.core.conditions import ConditionInput, NotMatched, Unresolved
from gateway.pure.core.identity import PatchRefused, check_identity
from gateway.pure.core.matching import selectors_match
from gateway.pure.core.rules import is_never_sent, rules_match
from gateway.pure.core.verdict import Allowed, Denied, Failed
from gateway.pure.core.webhook import PolicyRef

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gateway.pure.core.conditions import AccessCheck, AccessDecision, Evaluated
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.review import AdmissionRequest, Json
    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import Mode, Webhook


@dataclass
class Serial:
    """One review with serial calls."""

    request: AdmissionRequest
    level: str
    is_mutating: bool
    held: Json | None = None
    """The object with the patches so far."""
    rejections: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, Json | None]] = field(default_factory=list)
    failed_open: list[str] = field(default_factory=list)
    decisions: dict[AccessCheck, AccessDecision] = field(default_factory=dict)
    """All decisions of the authorizer."""
    modes: Mapping[str, Mode] = field(default_factory=dict)
    """By name of the webhook; others are enforced."""
    any_change: bool = False
    called: set[str] = field(default_factory=set)
    """Webhooks with IfNeeded that were called since the last change."""
    again: set[str] = field(default_factory=set)
    invoked: dict[str, Collection[object]] = field(default_factory=dict)
    """What policies have invoked in the first round and may invoke again, by name."""
    late_warnings: list[str] = field(default_factory=list)
    late_annotations: dict[str, str] = field(default_factory=dict)
    """Those of webhooks that are not enforced, which come after the others."""

    def run(
        self,
        webhooks: Sequence[Webhook],
        namespace: Namespace | None,
        answer: Callable[[str, Json | None], Verdict],
    ) -> None:
        self.held = copy.deepcopy(self.request.object)
        webhooks = [hook for hook in webhooks if self.modes.get(hook.name) != "Shadow"]
        if is_never_sent(self.request):
            return
        self.round(0, webhooks, namespace, answer)
        if self.is_mutating and self.any_change and not self.rejections:
            self.round(1, webhooks, namespace, answer)

    def round(
        self,
        number: int,
        webhooks: Sequence[Webhook],
        namespace: Namespace | None,
        answer: Callable[[str, Json | None], Verdict],
    ) -> None:
        beginning = self.held
        matching = -1
        for index, hook in enumerate(webhooks):
            is_policy = isinstance(hook.client, PolicyRef)
            if self.rejections and self.is_mutating and not is_policy:
                return
            if not rules_match(hook, self.request):
                continue
            matched = selectors_match(hook, self.request, beginning, namespace)
            if not is_policy:
                matched = self.matches(hook, namespace)
            is_due = number == 0 or hook.name in (self.invoked if is_policy else self.again)
            if matched is False or self.is_left_out(hook, matched, is_due=is_due, is_policy=is_policy):
                continue
            matching += 1
            place = f"round_{number}_index_{index if self.is_mutating else matching}"
            if isinstance(matched, Failed):
                self.failed(hook, place, matched.cause)
            elif is_policy:
                self.changed(self.invoke(hook, place, number))
            elif self.request.dry_run and hook.side_effects in ("Some", "Unknown"):
                self.mutated(hook, place, changed=False)
                text = f'admission webhook "{hook.name}" does not support dry run'
                rejection = {"code": 400, "reason": "BadRequest", "message": text}
                self.reject(hook, place, rejection, "does not support dry run")
            else:
                self.changed(self.call(hook, place, answer))
                if hook.reinvocation_policy == "IfNeeded":
                    self.called.add(hook.name)

    def is_left_out(self, hook: Webhook, matched: bool | Failed, *, is_due: bool, is_policy: bool) -> bool:
        """Whether the second round leaves out a webhook that is not due, although it matches."""
        if is_due:
            return False
        return hook.failure_policy == "Ignore" or not (is_policy or isinstance(matched, Failed))

    def changed(self, is_changed: bool) -> None:
        if is_changed:
            self.any_change = True
            self.again |= self.called
            self.called = set()

    def invoke(self, hook: Webhook, place: str, number: int) -> bool:
        """Invoke a mutating policy; return whether that changed the object."""
        policy: Any = hook.policy
        again = self.invoked.get(hook.name, ()) if number else None
        decided = policy.decide(self.held, again, self.decisions)
        if isinstance(decided, NotMatched):
            return False
        if number == 0 and decided.invoked:
            self.invoked[hook.name] = decided.invoked
        problem = self.refused(decided.changed)
        is_applied = decided.changed is not None and not problem and hook.name not in self.modes
        if is_applied:
            self.held = decided.changed
        self.mutated(hook, place, changed=is_applied)
        if is_applied and self.level == "Request" and isinstance(decided.reported, Allowed):
            ordered = orjson.dumps(orjson.loads(decided.reported.patch), option=orjson.OPT_SORT_KEYS).decode()
            head = f'{{"configuration":"{hook.configuration}","webhook":"{hook.name}","patch":'
            self.annotations.setdefault(f"patch.{place}", head + ordered + ',"patchType":"JSONPatch"}')
        verdict = decided.verdict
        if problem or isinstance(verdict, Failed):
            self.failed(hook, place, problem or verdict.cause)
        elif isinstance(verdict, Denied):
            rejection = {
                "code": verdict.code,
                "reason": verdict.reason,
                "message": verdict.message,
                "causes": [(cause.reason, cause.message, cause.field) for cause in verdict.causes],
            }
            self.reject(hook, place, rejection, verdict.message)
        return is_applied

    def refused(self, after: Json | None) -> str:
        """Return why the API server would refuse the object that a policy leaves; empty if it would not."""
        if after is None or self.held is None:
            return ""
        try:
            check_identity(self.request, self.held, after)
        except PatchRefused as error:
            return f"it makes an object that the API server refuses: {error}"
        return ""

    def matches(self, hook: Webhook, namespace: Namespace | None) -> bool | Failed:
        """Whether a webhook with a matching rule applies to the current object."""
        matched = selectors_match(hook, self.request, self.held, namespace)
        if matched is not True or hook.match_conditions is None:
            return matched
        seen = ConditionInput(self.request.document, self.held, self.request.old_object)
        result: Evaluated = hook.match_conditions.evaluate(seen, self.decisions)
        if isinstance(result, Unresolved) and result.evaluation is not None:
            result = result.evaluation()
        return result if isinstance(result, Failed) else result is None

    def call(self, hook: Webhook, place: str, answer: Callable[[str, Json | None], Verdict]) -> bool:
        """Call one worker and apply its answer; return whether that changed the object."""
        self.calls.append((hook.name, copy.deepcopy(self.held)))
        verdict = answer(hook.name, self.held)
        if isinstance(verdict, Failed):
            self.mutated(hook, place, changed=False)
            self.failed(hook, place, verdict.cause)
            return False
        if isinstance(verdict, Allowed) and verdict.patch and not self.is_mutating:
            self.failed(hook, place, "a validating webhook may not answer a patch")
            return False
        changed, problem = False, ""
        if isinstance(verdict, Allowed):
            held = self.held
            changed, problem, operations = self.patched(verdict.patch)
            if hook.name in self.modes:
                self.held, changed, operations = held, False, []
        self.mutated(hook, place, changed=changed)
        if isinstance(verdict, Allowed) and operations and not problem and self.level == "Request":
            ordered = orjson.dumps(operations, option=orjson.OPT_SORT_KEYS).decode()
            head = f'{{"configuration":"{hook.configuration}","webhook":"{hook.name}","patch":'
            self.annotations.setdefault(f"patch.{place}", head + ordered + ',"patchType":"JSONPatch"}')
        if problem:
            self.failed(hook, place, problem)
        if isinstance(verdict, Denied):
            rejection = {
                "code": verdict.code,
                "reason": verdict.reason or ("Forbidden" if verdict.code == 403 else ""),
                "message": f"{hook.name}: {verdict.message or 'denied without explanation'}",
                "causes": [(c.reason, f"{hook.name}: {c.message}", c.field) for c in verdict.causes],
                "details": verdict.details,
            }
            self.reject(hook, place, rejection, verdict.message)
        self.heard(hook, verdict)
        return changed

    def reject(self, hook: Webhook, place: str, rejection: dict[str, Any], message: str) -> None:
        """Reject the request, or in another mode than Enforce note that it would be rejected."""
        mode = self.modes.get(hook.name)
        if mode is None:
            self.rejections.append(rejection)
            return
        if mode == "Warn":
            self.late_warnings.append(f"would be refused: {rejection['message']}".replace("\n", " "))
        if self.level != "None":
            about = {"configuration": hook.configuration, "webhook": hook.name, "mode": mode}
            text = orjson.dumps({**about, "code": rejection["code"], "message": message}).decode()
            self.late_annotations.setdefault(f"not-enforced.{place}", text)

    def patched(self, patch: bytes) -> tuple[bool, str, list[dict[str, object]]]:
        """Apply *patch*; return whether it changed the object, its error, and its operations."""
        try:
            operations = parse_patch(patch)
            if operations and self.held is None:
                operation = self.request.operation
                return False, f"answered a patch, but a {operation} request has no object to change", []
            after = apply_patch(copy.deepcopy(self.held), operations) if operations else self.held
        except PatchSyntaxError as error:
            return False, f"the answer's patch is not a JSON Patch: {error}", []
        except PatchConflict as error:
            return False, f"the answer's patch does not apply: {error}", []
        if isinstance(after, list):
            return False, "the answer's patch does not apply: it leaves an array where the object was", []
        if same(self.held, after):
            return False, "", operations
        try:
            check_identity(self.request, self.held, after)  # type: ignore[arg-type]
        except PatchRefused as error:
            return False, f"the answer's patch makes an object that the API server refuses: {error}", []
        self.held = after  # type: ignore[assignment]
        return True, "", operations

    def mutated(self, hook: Webhook, place: str, *, changed: bool) -> None:
        if self.is_mutating and self.level != "None":
            text = f'{{"configuration":"{hook.configuration}","webhook":"{hook.name}","mutated":'
            self.annotations.setdefault(f"mutation.{place}", text + ("true}" if changed else "false}"))

    def failed(self, hook: Webhook, place: str, cause: str) -> None:
        if hook.failure_policy == "Fail":
            text = f'failed calling webhook "{hook.name}": {cause}'
            if isinstance(hook.client, PolicyRef):
                text = f"{hook.client.kind} '{hook.name}' failed: {cause}"
            rejection = {"code": 500, "reason": "InternalError", "message": text}
            self.reject(hook, place, rejection, cause)
            return
        self.failed_open.append(hook.name)
        if self.level != "None":
            self.annotations.setdefault(f"failed-open.{place}", hook.name)

    def heard(self, hook: Webhook, verdict: Allowed | Denied) -> None:
        mode = self.modes.get(hook.name)
        if mode != "Audit":
            (self.warnings if mode is None else self.late_warnings).extend(verdict.warnings)
        annotations = self.annotations if mode is None else self.late_annotations
        for key, value in verdict.audit_annotations:
            if re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", key):
                full = f"{hook.name}.{key}"
                if len(full) > 63:
                    full = full[:54] + "-" + hashlib.sha256(full.encode()).hexdigest()[:8]
                annotations.setdefault(full, value)

    def response(self) -> dict[str, Any]:
        """The expected response without the patch."""
        response: dict[str, Any] = {"uid": self.request.uid, "allowed": not self.rejections}
        if self.rejections:
            first = self.rejections[0]
            status = {"status": "Failure", "code": first["code"], "reason": first["reason"]}
            status["message"] = "\n".join(rejection["message"] for rejection in self.rejections)
            causes = [cause for rejection in self.rejections for cause in rejection.get("causes", ())]
            names = ("reason", "message", "field")
            members = [dict(zip(names, cause, strict=True)) for cause in causes]
            details: dict[str, Any] = asdict(first["details"]) if "details" in first else {}
            details["retryAfterSeconds"] = details.pop("retry_after_seconds", 0)
            details["causes"] = [{name: text for name, text in cause.items() if text} for cause in members]
            if any(details.values()):
                status["details"] = {name: value for name, value in details.items() if value}
            response["status"] = {name: value for name, value in status.items() if value != ""}
        heard = self.warnings + self.late_warnings
        readable = [text[:256] for text in heard if text and text.isprintable()]
        if readable:
            response["warnings"] = list(dict.fromkeys(readable))
        annotations = self.late_annotations | self.annotations
        if annotations:
            response["auditAnnotations"] = annotations
        return response
