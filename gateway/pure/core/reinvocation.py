"""What is called again in the second round, after a round that changed the object.

A webhook is called again if it was called before a change and its reinvocationPolicy is IfNeeded. Of a
mutating policy, the bindings and parameters that were invoked are invoked again, also if only the policy
itself changed the object: the API server does so.

Entries that are one webhook in their own engine are not called again because of each other.

Source: kubernetes/apiserver plugin/webhook/mutating/reinvocationcontext.go, plugin/policy/mutating/
reinvocationcontext.go, dispatcher.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from gateway.pure.core.outcome import Outcome


class Reinvocation:
    """The calls and invocations of one review that may be repeated, by the position of the webhook."""

    __slots__ = ("_called", "_due", "_invoked")

    def __init__(self) -> None:
        self._called: dict[int, str] = {}
        """Since the last change by another webhook, with the engine that it belongs to."""
        self._due: set[int] = set()
        self._invoked: dict[int, Collection[object]] = {}

    def is_due(self, position: int) -> bool:
        """Whether the webhook or policy at *position* is called or invoked again."""
        return position in self._due or position in self._invoked

    def invoked(self, position: int) -> Collection[object]:
        """Return what the policy at *position* invokes again."""
        return self._invoked.get(position, ())

    def note_invoked(self, position: int, invoked: Collection[object]) -> None:
        """Note what the policy at *position* has *invoked* in the first round."""
        if invoked:
            self._invoked[position] = invoked

    def note(self, outcome: Outcome) -> None:
        """Note the *outcome* of a webhook or policy."""
        webhook = outcome.invocation.webhook
        engine = webhook.engine
        if outcome.has_changed and self._called:
            own = {position: each for position, each in self._called.items() if engine and each == engine}
            self._due |= self._called.keys() - own.keys()
            self._called = own
        if outcome.call is not None and webhook.reinvocation_policy == "IfNeeded":
            self._called[outcome.invocation.position] = engine


NO_REINVOCATION: Final = Reinvocation()
"""The reinvocation of the validating phase, in which nothing is noted."""
