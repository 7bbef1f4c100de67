"""Kyverno's policies in CEL and their exceptions (``policies.kyverno.io``), as entries of a phase.

A policy matches the requests of its ``matchConstraints`` without a binding. One for Pods becomes several
entries of its name: autogen has it apply to the controllers of Pods too.

Source: github.com/kyverno/kyverno pkg/cel/policies/{vpol,mpol}/engine/provider.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.base.text import one_of, shown
from gateway.config.loaders.kyverno_exception import ReadException, read_exception, unknown_policies
from gateway.config.loaders.kyverno_mutating import MutatingSpec
from gateway.config.loaders.kyverno_spec import NAMESPACED, VERSIONS, read_head, spec_document
from gateway.config.loaders.kyverno_validating import ValidatingSpec
from gateway.config.yaml.fields import Fields, Problems, child
from gateway.pure.kyverno.autogen import (
    mutating_variants,
    mutating_warnings,
    validating_variants,
    validating_warnings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gateway.config.loaders.kyverno_spec import Entry, KyvernoSpec, PolicyHead
    from gateway.config.yaml.documents import Document
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.core.policy import ParamKind
    from gateway.pure.core.webhook import Webhook
    from gateway.pure.kyverno.autogen import Variant
    from gateway.pure.kyverno.exceptions import CelException

EXCEPTION: Final = "PolicyException"
_INSTEAD: Final = {
    "ImageValidatingPolicy": "signatures and attestations are verified by registries; use a worker or an "
    "HTTPS webhook that verifies images, such as Kyverno itself by its URL",
    "GeneratingPolicy": "it creates other objects; use a controller, such as Kyverno's background controller",
    "DeletingPolicy": "it deletes objects by a schedule; use a CronJob or a controller",
}
"""Why kinds cannot run, and what to use instead."""


class _Kind(NamedTuple):
    """A kind of policies, which may be of one namespace."""

    spec: type[KyvernoSpec]
    variants: Callable[[dict[str, Any]], list[Variant]]
    warnings: Callable[[dict[str, Any]], list[str]]


_KINDS: Final[Mapping[str, _Kind]] = {
    "ValidatingPolicy": _Kind(ValidatingSpec, validating_variants, validating_warnings),
    "MutatingPolicy": _Kind(MutatingSpec, mutating_variants, mutating_warnings),
}


class _ReadPolicy(NamedTuple):
    """One policy."""

    document: Document
    head: PolicyHead
    spec: KyvernoSpec
    entries: tuple[Entry, ...]
    """That of the policy, and those of what autogen made of it."""


class KyvernoDocuments:
    """The documents of ``policies.kyverno.io`` in one configuration: a ``Loader``."""

    def __init__(self) -> None:
        self.need_cluster: list[tuple[Document, str, str]] = []
        self._policies: list[_ReadPolicy] = []
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
        elif (of_kind := _KINDS.get(kind.removeprefix(NAMESPACED))) is not None:
            policy = _read_policy(document, fields, kind, of_kind)
            self._policies.append(policy)
            self._check_first(document, kind, policy.head.id)
        elif reason := _INSTEAD.get(kind.removeprefix(NAMESPACED)):
            fields.problem("kind", f"found {kind}, which the gateway cannot run: {reason}")
        else:
            known = (*(f"{scope}{each}" for each in _KINDS for scope in ("", NAMESPACED)), EXCEPTION)
            fields.problem("kind", f"found the unknown kind {shown(kind)}, expected {one_of(known)}")

    @property
    def param_kinds(self) -> Sequence[ParamKind]:
        """See ``Loader``: there are none."""
        return ()

    def webhooks(self, params: FixedParams) -> Iterator[Webhook]:
        """See ``Loader``."""
        known = frozenset((each.head.kind, each.head.name) for each in self._policies)
        for exception in self._exceptions:
            if message := unknown_policies(exception, known):
                document = exception.document
                document.problems.warn(child(child(document.path, "spec"), "policyRefs"), message)
        of_policy: dict[tuple[str, str], list[CelException]] = {}
        # In one order, whatever that of the files is: expressions can read what exceptions allow.
        for exception in sorted(self._exceptions, key=lambda one: one.id):
            for ref in exception.refs:
                of_policy.setdefault(ref, []).append(exception.exception)
        for each in self._policies:
            path = child(each.document.path, "spec")
            if (found := each.spec.without_effect) is not None:
                field, message = found
                each.document.problems.warn(child(path, field), message)
                continue
            for field, message in each.spec.warnings():
                each.document.problems.warn(f"{path}.{field}", message)
            exceptions = of_policy.get((each.head.kind, each.head.name), ())
            for entry in each.entries:
                yield entry(exceptions)

    def _check_first(self, document: Document, kind: str, name: str) -> None:
        first = self._first_of.setdefault((kind, name), document)
        if first is not document and name:
            document.repeats(name, first)


def _read_policy(document: Document, fields: Fields, kind: str, of_kind: _Kind) -> _ReadPolicy:
    """Return the policy of *kind* behind *fields*; apiVersion and kind are read already."""
    head, source = read_head(fields, kind)
    spec = of_kind.spec.read(source)
    found = spec.entry(head, spec_document(source.content))
    variants = () if document.problems.found else _variants(document, source, head, of_kind)
    return _ReadPolicy(document, head, spec, (found, *variants))


def _variants(document: Document, source: Fields, head: PolicyHead, of_kind: _Kind) -> Iterator[Entry]:
    """Yield what autogen makes of the policy whose spec is *source*, after reporting its problems."""
    content = dict(source.content)
    for warning in of_kind.warnings(content):
        field, _, message = warning.partition(": ")
        document.problems.warn(f"{source.path}.{field}", message)
    for variant in of_kind.variants(content):
        problems = Problems(document.problems.where)
        spec = of_kind.spec.read(Fields(variant.spec, source.path, problems))
        entry = spec.entry(head, spec_document(variant.spec))
        for path, message in problems.found:
            about = f"what autogen makes of it for {variant.name} is wrong, so that Kyverno does not load it"
            document.problems.add(path, f"{about}: {message}")
        yield entry
