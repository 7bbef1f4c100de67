"""The policies and bindings of custom resources, put together to entries of a phase.

They belong to each other only: a binding in the cluster cannot extend a policy in a file, and these policies
take parameters from the cluster only. So authors of custom resources cannot read the gateway's files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.config.merge.policy_documents import bind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.base.errors import Problem
    from gateway.config.merge.policy_documents import Binding, Policy, Readable
    from gateway.pure.core.webhook import Webhook

    PolicyKey = tuple[str, str]
    """Kind and name of a policy."""

REFUSED: Final = "the custom resource is refused, and its status says why"
_IDENTIFYING: Final = ("metadata", "spec.matchConstraints", "spec.failurePolicy")


def is_identified(problems: Iterable[Problem]) -> bool:
    """Whether the requests that a policy with *problems* matches are known, and its failurePolicy."""
    fields = [problem.field for problem in problems]
    return not any(field in ("", "spec") or field.startswith(_IDENTIFYING) for field in fields)


@dataclass(frozen=True, slots=True)
class BoundEntry:
    """A policy with the bindings in force."""

    policy: Policy
    bindings: tuple[Binding, ...]
    refusal: str
    """Why the policy cannot be evaluated, or empty."""
    readable: Readable
    """The kinds that expressions may read."""
    webhooks: tuple[Webhook, ...]


class CustomPolicies:
    """The policies and bindings in force."""

    def __init__(self, before: Mapping[PolicyKey, BoundEntry], readable: Readable) -> None:
        """*before* are the entries of the configuration before, which stay as they are without a change.

        *readable* are the kinds that expressions may read.
        """
        self._before = before
        self._readable = readable
        self._policies: dict[PolicyKey, tuple[Policy, str]] = {}
        self._bindings: dict[PolicyKey, list[Binding]] = {}

    def add(self, kind: str, policy: Policy, refusal: str = "") -> None:
        """Add *policy* of *kind*; with a *refusal* its failurePolicy decides."""
        self._policies[kind, policy.name] = policy, refusal

    def add_binding(self, kind: str, binding: Binding) -> None:
        """Add *binding* of a policy of *kind*."""
        self._bindings.setdefault((kind, binding.policy), []).append(binding)

    @property
    def names(self) -> frozenset[str]:
        """The names of the policies."""
        return frozenset(name for _, name in self._policies)

    def has(self, kind: str, name: str) -> bool:
        """Whether there is a policy *name* of *kind*."""
        return (kind, name) in self._policies

    def entries(self) -> dict[PolicyKey, BoundEntry]:
        """Return the policies that have bindings."""
        return {
            key: self._entry(key, policy, tuple(self._bindings[key]), refusal)
            for key, (policy, refusal) in self._policies.items()
            if key in self._bindings
        }

    def _entry(
        self, key: PolicyKey, policy: Policy, bindings: tuple[Binding, ...], refusal: str
    ) -> BoundEntry:
        before = self._before.get(key)
        made_of = policy, bindings, refusal, self._readable
        if before is not None and made_of == (
            before.policy,
            before.bindings,
            before.refusal,
            before.readable,
        ):
            # Webhooks are compared by identity: without a change the configuration stays equal.
            return before
        from gateway.pure.admission_policies.params import FixedParams

        return BoundEntry(*made_of, bind(policy, bindings, FixedParams((), self._readable), refusal))
