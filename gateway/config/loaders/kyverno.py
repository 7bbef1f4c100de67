"""Kyverno's policies in CEL and their exceptions (``policies.kyverno.io``), as entries of a phase.

A policy matches the requests of its ``matchConstraints`` without a binding. One for Pods becomes several
entries of its name: autogen has it apply to the controllers of Pods too.

Source: github.com/kyverno/kyverno pkg/cel/policies/{vpol,mpol}/engine/provider.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.base.text import one_of, shown
from gateway.config.kinds.policy_rollout import require_deny
from gateway.config.kinds.policy_settings import check_reads
from gateway.config.kinds.policy_spec import spec_json
from gateway.config.loaders.kyverno_exception import KIND as EXCEPTION
from gateway.config.loaders.kyverno_exception import ReadException, read_exception, unknown_policies
from gateway.config.loaders.kyverno_mutating import MutatingSpec
from gateway.config.loaders.kyverno_spec import NAMESPACED, VERSIONS, read_head
from gateway.config.loaders.kyverno_validating import ValidatingSpec
from gateway.config.loaders.part import Loader, MadeEntries, Part
from gateway.config.yaml.fields import Fields, Problems, child
from gateway.pure.cel.object_reads import may_read_objects
from gateway.pure.kyverno.autogen import (
    EXTRACT,
    mutating_variants,
    mutating_warnings,
    validating_variants,
    validating_warnings,
)
from gateway.pure.kyverno.in_force import OtherDocuments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gateway.config.loaders.kyverno_spec import Entry, KyvernoSpec, PolicyHead
    from gateway.config.yaml.documents import Document
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.core.webhook import Webhook
    from gateway.pure.kyverno.autogen import Variant

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


@dataclass(frozen=True, slots=True, eq=False)
class _ReadPolicy(Part):
    """One policy."""

    document: Document
    kind: str
    id: str
    name: str
    """Without a namespace."""
    spec: KyvernoSpec
    entries: tuple[Entry, ...]
    """That of the policy, and those of what autogen made of it."""
    made: MadeEntries = field(default_factory=MadeEntries)


class KyvernoDocuments(Loader[_ReadPolicy | ReadException]):
    """The documents of ``policies.kyverno.io`` in one configuration."""

    def __init__(self, *, is_custom: bool = False) -> None:
        super().__init__(is_custom=is_custom)
        self._known: set[tuple[str, str]] = set()
        """Kind and name of the policies."""
        self._exceptions: dict[tuple[str, str], list[ReadException]] = {}
        """By kind and name of a policy."""

    @staticmethod
    def read(document: Document, fields: Fields, kind: str) -> _ReadPolicy | ReadException | None:
        """See ``Loader``."""
        version = str(fields.content.get("apiVersion")).rpartition("/")[2]
        if version not in VERSIONS:
            fields.problem("apiVersion", f"found {shown(version)}, expected {one_of(VERSIONS)}")
        elif kind == EXCEPTION:
            return read_exception(document, fields)
        elif (of_kind := _KINDS.get(kind.removeprefix(NAMESPACED))) is not None:
            return _read_policy(document, fields, kind, of_kind)
        elif reason := _INSTEAD.get(kind.removeprefix(NAMESPACED)):
            fields.problem("kind", f"found {kind}, which the gateway cannot run: {reason}")
        else:
            known = (*(f"{scope}{each}" for each in _KINDS for scope in ("", NAMESPACED)), EXCEPTION)
            fields.problem("kind", f"found the unknown kind {shown(kind)}, expected {one_of(known)}")
        return None

    def add(self, part: _ReadPolicy | ReadException) -> None:
        """See ``Loader``."""
        super().add(part)
        if isinstance(part, ReadException):
            for ref in part.refs:
                self._exceptions.setdefault(ref, []).append(part)
        else:
            self._known.add((part.kind, part.name))

    def entries(self, part: _ReadPolicy | ReadException, params: FixedParams) -> Sequence[Webhook]:
        """See ``Loader``."""
        document = part.document
        path = child(document.path, "spec")
        if isinstance(part, ReadException):
            if message := unknown_policies(part, self._known):
                document.problems.warn(child(path, "policyRefs"), message)
            return ()
        if (found := part.spec.without_effect) is not None:
            field_, message = found
            document.problems.warn(child(path, field_), message)
            return ()
        for field_, message in part.spec.warnings():
            document.problems.warn(f"{path}.{field_}", message)
        # In one order, whatever that of the files is: expressions can read what exceptions allow.
        found_of = sorted(self._exceptions.get((part.kind, part.name), ()), key=lambda one: one.id)
        exceptions = tuple(one.exception for one in found_of)
        others = OtherDocuments(exceptions, params)
        texts = (spec_json(document.content), *(each.document for each in exceptions))
        reads = (params,) if any(map(may_read_objects, texts)) else ()
        return part.made.of(document, (*exceptions, *reads), lambda: _entries(part, others))


def _entries(part: _ReadPolicy, others: OtherDocuments) -> list[Webhook]:
    """Return the entries of *part*, after reporting what it must not read."""
    made = [make(others) for make in part.entries]
    # What autogen made reads the same.
    check_reads(part.document, made[0])
    return made


def _read_policy(document: Document, fields: Fields, kind: str, of_kind: _Kind) -> _ReadPolicy:
    """Return the policy of *kind* behind *fields*; apiVersion and kind are read already."""
    head, source = read_head(fields, kind)
    spec = of_kind.spec.read(source)
    if isinstance(spec, ValidatingSpec):
        require_deny(head.rollout, source, spec.validation_actions)
    found = spec.entry(head, spec_json(source.content))
    variants = () if document.problems.found else _variants(document, source, head, of_kind)
    return _ReadPolicy(document, kind, head.id, head.name, spec, (found, *variants))


def _variants(document: Document, source: Fields, head: PolicyHead, of_kind: _Kind) -> Iterator[Entry]:
    """Yield what autogen makes of the policy whose spec is *source*, after reporting its problems."""
    content = dict(source.content)
    for warning in of_kind.warnings(content):
        field, _, message = warning.partition(": ")
        document.problems.warn(f"{source.path}.{field}", message)
    for variant in of_kind.variants(content):
        problems = Problems(document.problems.where)
        spec = of_kind.spec.read(Fields(variant.spec, source.path, problems))
        of_variant = head._replace(is_on_templates=variant.name == EXTRACT)
        entry = spec.entry(of_variant, spec_json(variant.spec))
        for path, message in problems.found:
            about = f"what autogen makes of it for {variant.name} is wrong, so that Kyverno does not load it"
            document.problems.add(path, f"{about}: {message}")
        yield entry
