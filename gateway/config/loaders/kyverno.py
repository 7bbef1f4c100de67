"""Kyverno's policies in CEL and their exceptions (``policies.kyverno.io``), as entries of a phase.

A policy matches the requests of its ``matchConstraints`` without a binding. One for Pods becomes several
entries of its name: autogen has it apply to the controllers of Pods too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.base.text import one_of, shown
from gateway.config.loaders.kyverno_exception import ReadException, read_exception, unknown_policies
from gateway.config.loaders.kyverno_spec import NAMESPACED, VERSIONS
from gateway.config.loaders.kyverno_validating import ReadPolicy, read_validating
from gateway.config.yaml.fields import child
from gateway.pure.kyverno.validating import KyvernoValidatingPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.yaml.documents import Document
    from gateway.config.yaml.fields import Fields
    from gateway.pure.core.webhook import Webhook
    from gateway.pure.kyverno.exceptions import CelException

VALIDATING: Final = "ValidatingPolicy"
EXCEPTION: Final = "PolicyException"
_INSTEAD: Final = {
    "ImageValidatingPolicy": "signatures and attestations are verified by registries; use a worker or an "
    "HTTPS webhook that verifies images, such as Kyverno itself by its URL",
    "GeneratingPolicy": "it creates other objects; use a controller, such as Kyverno's background controller",
    "DeletingPolicy": "it deletes objects by a schedule; use a CronJob or a controller",
}
"""Why kinds cannot run, and what to use instead."""


class KyvernoDocuments:
    """The documents of ``policies.kyverno.io`` in one configuration: a ``Loader``."""

    def __init__(self) -> None:
        self.need_cluster: list[tuple[Document, str, str]] = []
        self._policies: list[ReadPolicy] = []
        self._exceptions: list[ReadException] = []
        self._first_of: dict[tuple[str, str], Document] = {}

    def read(self, document: Document, fields: Fields, kind: str) -> None:
        """See ``Loader``."""
        version = str(fields.content.get("apiVersion")).rpartition("/")[2]
        if version not in VERSIONS:
            fields.problem("apiVersion", f"found {shown(version)}, expected {one_of(VERSIONS)}")
        elif kind == EXCEPTION:
            exception = read_exception(document, fields)
            self._exceptions.append(exception)
            self._check_first(document, kind, exception.id)
        elif kind.removeprefix(NAMESPACED) == VALIDATING:
            policy = read_validating(document, fields, kind)
            self._policies.append(policy)
            self._check_first(document, kind, policy.id)
        elif reason := _INSTEAD.get(kind.removeprefix(NAMESPACED)):
            fields.problem("kind", f"found {kind}, which the gateway cannot run: {reason}")
        else:
            known = (VALIDATING, f"{NAMESPACED}{VALIDATING}", EXCEPTION)
            fields.problem("kind", f"found the unknown kind {shown(kind)}, expected {one_of(known)}")

    def webhooks(self) -> Iterator[Webhook]:
        """See ``Loader``."""
        known = frozenset((each.kind, each.name) for each in self._policies)
        for exception in self._exceptions:
            if message := unknown_policies(exception, known):
                document = exception.document
                document.problems.warn(child(child(document.path, "spec"), "policyRefs"), message)
        of_policy: dict[tuple[str, str], list[CelException]] = {}
        for exception in self._exceptions:
            for ref in exception.refs:
                of_policy.setdefault(ref, []).append(exception.exception)
        for each in self._policies:
            if not each.spec.is_for_admission:
                path = child(child(each.document.path, "spec"), "evaluation")
                each.document.problems.warn(path, "admission is not enabled: the policy has no effect")
                continue
            exceptions = of_policy.get((each.kind, each.name), ())
            for policy in each.policies:
                yield KyvernoValidatingPolicy(
                    each.kind, policy, each.spec.validation_actions, exceptions, each.namespace
                ).webhook(each.mode)

    def _check_first(self, document: Document, kind: str, name: str) -> None:
        first = self._first_of.setdefault((kind, name), document)
        if first is not document and name:
            document.repeats(name, first)
