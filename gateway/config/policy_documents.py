"""Policies, bindings and parameters of the files, put together to entries of the validating phase.

The parts that need CEL are imported late: they take time and memory that a configuration without policies
does not need.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.config.documents import BINDING, POLICY
from gateway.config.fields import child
from gateway.text import did_you_mean, one_of, shown

if TYPE_CHECKING:
    from collections.abc import Collection

    from gateway.config.documents import Document
    from gateway.config.fields import Fields
    from gateway.core.webhook import Webhook
    from gateway.policies.model import ValidatingBinding, ValidatingPolicy


@dataclass(slots=True)
class PolicyDocuments:
    """The documents read so far."""

    policies: list[tuple[Document, ValidatingPolicy]] = field(default_factory=list)
    bindings: list[tuple[Document, ValidatingBinding]] = field(default_factory=list)
    others: list[Document] = field(default_factory=list)
    """Documents of unknown kinds, which may be parameters."""

    def read(self, document: Document, fields: Fields, kind: str) -> str:
        """Read the policy or binding *document*, and return its name."""
        from gateway.config.policies import read_validating_binding, read_validating_policy

        if kind == BINDING:
            binding = read_validating_binding(fields)
            self.bindings.append((document, binding))
            return binding.name
        policy = read_validating_policy(fields)
        self.policies.append((document, policy))
        return policy.name

    def take_params(self, known: Collection[str]) -> list[dict[str, object]]:
        """Return the documents of unknown kinds that are parameters of policies; the others become problems.

        *known* are the kinds that are known.
        """
        kinds = {
            (policy.param_kind.api_version, policy.param_kind.kind)
            for _, policy in self.policies
            if policy.param_kind is not None
        }
        params = []
        for document in self.others:
            fields = document.fields()
            kind, version = fields.required_string("kind"), fields.required_string("apiVersion")
            if (version, kind) in kinds:
                _check_param(fields)
                if not document.report.found:
                    params.append(dict(fields.content))
            elif not document.report.is_full:
                hint = did_you_mean(kind, known) or f", expected {one_of(known)}"
                fields.problem("kind", f"found the unknown kind {shown(kind)}{hint}")
        self.others.clear()
        return params

    def bound(self, params: list[dict[str, object]]) -> tuple[Webhook, ...]:
        """Return the policies that have bindings, by name.

        A policy without a binding, and a binding without its policy, are warnings.
        """
        if not self.policies and not self.bindings:
            return ()
        from gateway.policies.params import FixedParams
        from gateway.policies.policy import as_webhook

        by_policy: dict[str, list[ValidatingBinding]] = {}
        known = {policy.name for _, policy in self.policies}
        for document, binding in self.bindings:
            by_policy.setdefault(binding.policy, []).append(binding)
            if binding.policy not in known:
                path = child(child(document.path, "spec"), "policyName")
                found = f"there is no {POLICY} {shown(binding.policy)}"
                document.report.warn(path, f"{found}: the binding has no effect")
        store = FixedParams(params)
        bound = []
        for document, policy in self.policies:
            if policy.name in by_policy:
                bound.append(as_webhook(policy, by_policy[policy.name], store))
            else:
                document.report.warn(document.path, f"no {BINDING} names it: the policy has no effect")
        return tuple(sorted(bound, key=lambda webhook: webhook.order))


def _check_param(fields: Fields) -> None:
    metadata = fields.required_mapping("metadata")
    if metadata is not None:
        metadata.required_string("name")
        metadata.optional_string("namespace")
        metadata.string_map("labels")
