"""One review as a state machine: told how calls ended, it answers which calls to make next.

It never waits, never reads a clock and makes no calls itself. Driven by the event loop, by a virtual clock
or by a test that ends calls in any order, it comes to the same outcomes.

**The walk.** Webhooks are settled in configured order at a position that only moves forward. Settling one
means: match it against the object as it is now, have a verdict that was given on exactly this object, take
the patch, go on. Where the verdict is missing, the walk stops and waits.

**Speculation.** While it waits, webhooks further on are called too, with the object as it is now, on the bet
that nobody before them changes it. When the walk reaches such a webhook and the object is still the one it
was sent, its verdict stands; otherwise it is thrown away, words and all, and the webhook is asked again. The
outcome is therefore that of calling one after another, by construction. Only webhooks with sideEffects None
are called ahead: the others are called when, and only when, a serial run would call them.

**The validating phase** is the same walk with nothing at stake: no patch can change the object, so all calls
are made at once, and a rejection does not end it.

**Reinvocation** is a second walk, as the API server's: after a round that changed the object, the webhooks
with reinvocationPolicy IfNeeded that were called before a change are called once more.

Laws, each a property test: (1) the order of arrival does not matter; (2) equal to a serial run; (3) a denial
always rejects; (4) a failure rejects under Fail, and under Ignore never does but leaves evidence; (5) the
patch turns the original object into the final one, and is absent when nothing changed; (6) every denial's
webhook is named, in order; (7) after the end there are no calls, and late verdicts change nothing; (8) each
webhook is called at most once per round for each object it could be shown, so the walk ends.

Source: kubernetes/apiserver plugin/webhook/{mutating,validating}/dispatcher.go, mutating/
reinvocationcontext.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from gateway.core.call import Call, Outcome, Payload
from gateway.core.matching import object_matches, selectors_match
from gateway.core.patch import PatchConflict, PatchSyntaxError, parse_patch
from gateway.core.verdict import DRY_RUN_REFUSED, Denied, DryRunRefused, Failed, FailureReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.core.matching import Invocation, Selection
    from gateway.core.namespace import Namespace
    from gateway.core.review import AdmissionRequest, Json
    from gateway.core.speculation import ChangeMemory
    from gateway.core.verdict import Allowed, Verdict


NO_CALLS: Final[tuple[Call, ...]] = ()


class Evaluation:
    """The state of one review in one phase.

    Call :meth:`start` once, carry out the calls it answers, and tell each verdict to :meth:`receive`, which
    answers further calls, until :attr:`done`. Calls in :meth:`take_withdrawn` are no longer wanted.
    """

    def __init__(
        self,
        selection: Selection,
        request: AdmissionRequest,
        namespace: Namespace | Failed | None,
        memory: ChangeMemory | None = None,
    ) -> None:
        self.request = request
        self.namespace = namespace
        """The request's own; None if there is no such namespace, Failed if that could not be found out."""
        self.outcomes: list[Outcome] = []
        """In the order of a serial run."""
        self.done = False
        self.has_changed = False
        """Whether any patch so far changed the object."""
        self.kept_ahead = 0
        self.discarded_ahead = 0
        """How many calls made ahead of their turn turned out useful, and useless."""
        self.is_mutating: Final = selection.phase == "mutate"
        self._invocations: Final = selection.invocations(request, namespace)
        self._memory = memory
        self._payload = Payload(request)
        self._calls: list[Call | None] = [None] * len(self._invocations)
        self._place = 0
        self._ahead = 0
        """Webhooks before this place have been considered for a call with the present payload."""
        self._round = 0
        self._reinvocable: set[int] = set()
        self._to_reinvoke: set[int] = set()
        self.has_withdrawn = False
        """Whether calls became unwanted since :meth:`take_withdrawn`."""
        self._withdrawn: list[Call] = []

    @property
    def final_object(self) -> Json | None:
        """The object as the settled webhooks left it; the request's own where none changed it."""
        return self._payload.object

    def start(self) -> Sequence[Call]:
        """Return the first calls to make; none if the review is done at once."""
        return self._advance()

    def receive(self, call: Call, verdict: Verdict) -> Sequence[Call]:
        """Take the *verdict* of *call*, and return further calls to make.

        A verdict on a call that is no longer wanted changes nothing.
        """
        if self.done or self._calls[call.place] is not call or call.verdict is not None:
            return NO_CALLS
        call.verdict = verdict
        if call.place != self._place:
            return NO_CALLS
        return self._advance()

    def wants(self, call: Call) -> bool:
        """Whether the verdict of *call*, which was answered earlier, is still of use."""
        return self._calls[call.place] is call

    def refused(self, call: Call, failure: Failed) -> Sequence[Call]:
        """Take note that *call* could not be made, and return further calls to make.

        One that was to be made ahead of its turn is forgotten: a serial run would not have asked yet, and
        there may be room when the turn comes. For any other the *failure* is its verdict.
        """
        if call.is_ahead and call.place != self._place:
            self._calls[call.place] = None
            return NO_CALLS
        return self.receive(call, failure)

    def take_withdrawn(self) -> Sequence[Call]:
        """Return the calls that became unwanted since this was last asked."""
        withdrawn, self._withdrawn = self._withdrawn, []
        self.has_withdrawn = False
        return withdrawn

    def _advance(self) -> Sequence[Call]:
        """Walk on from the present place for as long as verdicts are there, and return the calls to make."""
        calls: list[Call] = []
        while not self.done:
            place = self._place
            if place < len(self._invocations):
                call = self._calls[place] or self._reach(place, calls)
                if call is None:
                    continue
                verdict = call.verdict
                if verdict is None:
                    if self._ahead < len(self._invocations):
                        self._speculate(calls)
                    self._payload.rest()
                    break
                self.kept_ahead += call.is_ahead
                self._place = place + 1
                self._conclude(self._outcome(call, verdict))
            elif self._round == 0 and self.has_changed:
                self._round = 1
                self._place = self._ahead = 0
                self._calls = [None] * len(self._invocations)
            else:
                self._finish()
        return calls

    def _reach(self, place: int, calls: list[Call]) -> Call | None:
        """Return the call of the webhook at *place*, whose turn has come, after adding it to *calls*.

        None if it is not to be called: then it is settled, and the walk is one place further.
        """
        invocation = self._invocations[place]
        obstacle = self._obstacle(invocation)
        if obstacle is None:
            self._calls[place] = call = Call(place, invocation, self._payload, is_ahead=False)
            calls.append(call)
            return call
        self._place = place + 1
        if obstacle is not False:
            self._conclude(Outcome(invocation, self._round, obstacle, None, None))
        return None

    def _obstacle(self, invocation: Invocation) -> Failed | DryRunRefused | Literal[False] | None:
        """Return None if the webhook is to be called on the present object, else what it comes to instead.

        False: it does not match, or is not to be called in this round.
        """
        webhook = invocation.webhook
        if not invocation.is_unconditional:
            matched = (
                object_matches(webhook, self._payload.labels)
                if invocation.is_in_place
                else selectors_match(webhook, self.request, self._payload.object, self.namespace)
            )
            if matched is False or isinstance(matched, Failed):
                return matched
        # The API server matches before it asks whether to reinvoke: a failed look-up counts here too.
        if self._round == 1 and invocation.position not in self._to_reinvoke:
            return False
        if self.request.dry_run and webhook.side_effects in ("Some", "Unknown"):
            return DRY_RUN_REFUSED
        return None

    def _speculate(self, calls: list[Call]) -> None:
        """Call webhooks behind the present place that can be called ahead; add the calls to *calls*."""
        is_mutating = self.is_mutating
        memory = self._memory if is_mutating else None
        for place in range(max(self._ahead, self._place), len(self._invocations)):
            invocation = self._invocations[place]
            if place > self._place and self._calls[place] is None:
                if self._obstacle(invocation) is not None:
                    continue
                if not is_mutating or invocation.webhook.side_effects == "None":
                    self._calls[place] = call = Call(place, invocation, self._payload, is_ahead=is_mutating)
                    calls.append(call)
            if memory is not None and memory.usually_changes(invocation.webhook, self.request):
                # Whoever comes after it would be asked again anyway.
                self._ahead = place
                return
        self._ahead = len(self._invocations)

    def _outcome(self, call: Call, verdict: Verdict) -> Outcome:
        if isinstance(verdict, Failed):
            return Outcome(call.invocation, self._round, verdict, None, call)
        if isinstance(verdict, Denied) or not verdict.patch:
            return Outcome(call.invocation, self._round, verdict, verdict, call)
        if self.is_mutating:
            return self._patched_outcome(call, verdict)
        failure = Failed(FailureReason.PATCH_FORBIDDEN, "a validating webhook may not answer a patch")
        return Outcome(call.invocation, self._round, failure, None, call)

    def _patched_outcome(self, call: Call, verdict: Allowed) -> Outcome:
        has_changed = is_patched = False
        failure = None
        try:
            operations = parse_patch(verdict.patch)
            if operations and not self.request.has_object:
                failure = Failed(
                    FailureReason.PATCH_FORBIDDEN,
                    f"answered a patch, but a {self.request.operation} request has no object to change",
                    500,
                )
            elif operations:
                has_changed = self._patch(operations)
                is_patched = True
        except PatchSyntaxError as error:
            failure = Failed(FailureReason.PATCH_INVALID, f"the answer's patch is no JSON Patch: {error}")
        except (PatchConflict, RecursionError, TypeError) as error:
            cause = str(error) if isinstance(error, PatchConflict) else "the result nests too deeply"
            failure = Failed(
                FailureReason.PATCH_INAPPLICABLE, f"the answer's patch does not apply: {cause}", 500
            )
        return Outcome(
            call.invocation, self._round, failure or verdict, verdict, call, has_changed, is_patched
        )

    def _patch(self, operations: list[dict[str, object]]) -> bool:
        """Apply a patch to the present object, and return whether that changed it."""
        patched = self._payload.patched(operations)
        if patched is None:
            return False
        self.has_changed = True
        self._payload = patched
        self._ahead = 0
        for place in range(self._place, len(self._calls)):
            self._discard(place)
        return True

    def _conclude(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if not self.is_mutating:
            return
        webhook = outcome.invocation.webhook
        if outcome.has_changed:
            self._to_reinvoke |= self._reinvocable
            self._reinvocable = set()
        if outcome.call is not None and webhook.reinvocation_policy == "IfNeeded":
            self._reinvocable.add(outcome.invocation.position)
        if self._memory is not None and outcome.call is not None and self._round == 0:
            self._memory.note(webhook, self.request, changed=outcome.has_changed)
        if outcome.rejects:
            self._finish()

    def _discard(self, place: int) -> None:
        """Throw away what was asked at *place*, if anything was."""
        call = self._calls[place]
        if call is not None:
            self._calls[place] = None
            self.discarded_ahead += call.is_ahead
            if call.verdict is None:
                self._withdrawn.append(call)
                self.has_withdrawn = True

    def _finish(self) -> None:
        self.done = True
        for place in range(self._place, len(self._calls)):
            self._discard(place)
