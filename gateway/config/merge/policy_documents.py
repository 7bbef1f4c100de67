"""Policies, bindings and parameters of the files, put together to entries of a phase.

The parts that need CEL are imported late: they take time and memory that a configuration without policies
does not need.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.base.text import did_you_mean, one_of, shown
from gateway.config.kinds.names import dns_1035_label
from gateway.config.kinds.policy_settings import PLACEMENT, TEMPLATES, check_reads, listing_of_kind
from gateway.config.yaml.documents import LOADED_GROUPS, MUTATING_POLICY, POLICY_KINDS
from gateway.config.yaml.fields import MAX_PROBLEMS, child
from gateway.pure.admission_policies.model import (
    MutatingBinding,
    MutatingPolicy,
    ValidatingBinding,
    ValidatingPolicy,
)
from gateway.pure.core.role_bindings import BINDINGS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from gateway.config.kinds.engine_settings import EnginesEntry
    from gateway.config.kinds.policy_settings import PolicySettings
    from gateway.config.loaders.documents import LoadedDocuments
    from gateway.config.yaml.documents import Document
    from gateway.config.yaml.fields import Fields
    from gateway.pure.admission_policies.model import ParamRef
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.core.policy import KindKey, ParamKind
    from gateway.pure.core.webhook import Webhook

    Readable = Mapping[tuple[str, str], ParamKind]
    """The kinds whose objects expressions may read, by apiVersion and plural name."""
    Policy = ValidatingPolicy | MutatingPolicy
    Binding = ValidatingBinding | MutatingBinding

_POLICY_OF = {binding: policy for policy, binding in POLICY_KINDS.items()}


def read_policy(kind: str, fields: Fields) -> Policy | Binding:
    """Return the policy or binding of *kind* behind *fields*; apiVersion and kind are read already."""
    from gateway.config.kinds.mutating_policy import read_mutating_binding, read_mutating_policy
    from gateway.config.kinds.validating_policy import read_validating_binding, read_validating_policy

    if kind in POLICY_KINDS:
        return read_mutating_policy(fields) if kind == MUTATING_POLICY else read_validating_policy(fields)
    is_mutating = _POLICY_OF[kind] == MUTATING_POLICY
    return read_mutating_binding(fields) if is_mutating else read_validating_binding(fields)


def bind(
    policy: Policy, bindings: Sequence[Binding], params: FixedParams | None = None, refusal: str = ""
) -> tuple[Webhook, ...]:
    """Return *policy* with its *bindings*, which are of its kind, as entries of a phase, at least one.

    Behind them are its entries for the Pods of workloads, of the validating phase. *params* are the
    parameters in files. With a *refusal* the failurePolicy of the policy decides.
    """
    from gateway.pure.admission_policies.mutating import as_webhooks as as_mutating
    from gateway.pure.admission_policies.params import NO_PARAMS
    from gateway.pure.admission_policies.policy import as_webhooks as as_validating
    from gateway.pure.admission_policies.templates import as_webhooks_on_templates

    params = params or NO_PARAMS
    on_templates = as_webhooks_on_templates(policy, bindings, params, refusal)
    if isinstance(policy, MutatingPolicy):
        mutating = [each for each in bindings if isinstance(each, MutatingBinding)]
        return (*as_mutating(policy, mutating, params, refusal), *on_templates)
    validating = [each for each in bindings if isinstance(each, ValidatingBinding)]
    return (*as_validating(policy, validating, params, refusal), *on_templates)


@dataclass(slots=True)
class PolicyDocuments:
    """The documents read so far."""

    policies: list[tuple[Document, str, Policy]] = field(default_factory=list)
    """Each with its kind."""
    bindings: list[tuple[Document, str, Binding]] = field(default_factory=list)
    """Each with the kind of its policy."""
    others: list[Document] = field(default_factory=list)
    """Documents of unknown kinds, which may be parameters."""
    loaded: LoadedDocuments | None = None
    """The documents of other engines. None if there are none."""

    def take(
        self, document: Document, fields: Fields, version: str, kind: str, known: Collection[str]
    ) -> bool:
        """Take *document* of *kind* if it is another engine's, or of a kind that is not *known*."""
        group = version.rpartition("/")[0]
        if group in LOADED_GROUPS:
            if self.loaded is None:
                from gateway.config.loaders.documents import LoadedDocuments

                self.loaded = LoadedDocuments()
            self.loaded.read(document, fields, group, kind)
            return True
        if kind not in known:
            self.others.append(document)
            return True
        return False

    def need_cluster(
        self, no_authorizer: str, params: Sequence[Mapping[str, object]]
    ) -> Iterator[tuple[Document, str, str]]:
        """Yield document, path and message, such as *no_authorizer*, of what requires a cluster.

        *params* are the parameters in files.
        """
        for document, _, policy in self.policies:
            if policy.needs_authorizer:
                yield document, child(document.path, "spec"), no_authorizer
        if self.loaded is not None:
            has_bindings = any((each["apiVersion"], each["kind"]) in BINDINGS for each in params)
            yield from self.loaded.need_cluster(has_bindings=has_bindings)

    def read(self, document: Document, fields: Fields, kind: str) -> str:
        """Read the policy or binding *document*, and return its name."""
        found = read_policy(kind, fields)
        if isinstance(found, ValidatingBinding | MutatingBinding):
            self.bindings.append((document, _POLICY_OF[kind], found))
        else:
            self.policies.append((document, kind, found))
        return found.name

    def object_kinds(self, readable: Readable) -> set[KindKey]:
        """Return apiVersion and kind of the objects that policies read: parameters, and *readable* kinds."""
        kinds = [policy.param_kind for _, _, policy in self.policies]
        loaded = () if self.loaded is None else self.loaded.param_kinds
        found = (*kinds, *loaded, *readable.values())
        return {(kind.api_version, kind.kind) for kind in found if kind is not None}

    def take_params(self, known: Collection[str], readable: Readable) -> list[dict[str, object]]:
        """Return the documents of unknown kinds that policies may read; the others become problems.

        These are parameters, and objects of *readable* kinds. *known* are the kinds that are known. After
        ``MAX_PROBLEMS`` problems the rest is not read.
        """
        versions: dict[str, set[str]] = {}
        for api_version, name_of_kind in self.object_kinds(readable):
            versions.setdefault(name_of_kind, set()).add(api_version)
        params = []
        count = 0
        first_of: dict[tuple[str, ...], Document] = {}
        for document in self.others:
            fields = document.fields()
            kind, version = fields.required_string("kind"), fields.required_string("apiVersion")
            if version in versions.get(kind, ()):
                name, namespace, content = read_object(fields)
                first = first_of.setdefault((version, kind, namespace, name), document)
                if first is not document and name:
                    document.repeats(name, first)
                if not document.problems.found:
                    params.append(content)
            elif not document.problems.is_full:
                path, message, is_unknown = _unknown_kind(kind, version, versions, known)
                add = fields.problems.add_for_policy if is_unknown else fields.problems.add
                add(fields.at(path), message)
            count += len(document.problems.found)
            if count >= MAX_PROBLEMS:
                break
        self.others.clear()
        return params

    def bound(
        self,
        params: list[dict[str, object]],
        readable: Readable,
        *,
        has_cluster: bool,
        backends: Mapping[str, str],
        engines: EnginesEntry,
    ) -> tuple[Webhook, ...]:
        """Return the policies that have bindings, and those of other engines, by name.

        *readable* are the kinds that expressions may read, by apiVersion and plural name, and *backends* the
        URLs from which they get data, by name. *engines* are the workers of other engines. A policy without a
        binding, and a binding without its policy, are warnings; so are parameters that are neither in files
        nor, with *has_cluster*, in a cluster.
        """
        if not self.policies and not self.bindings and self.loaded is None:
            return ()
        from gateway.pure.admission_policies.params import FixedParams

        by_policy: dict[tuple[str, str], list[Binding]] = {}
        known = {(kind, policy.name): policy for _, kind, policy in self.policies}
        shared = {} if self.loaded is None else self.loaded.entries_of_context
        store = FixedParams(params, readable, has_cluster=has_cluster, entries=shared, backends=backends)
        for document, kind, binding in self.bindings:
            by_policy.setdefault((kind, binding.policy), []).append(binding)
            bound_policy = known.get((kind, binding.policy))
            if bound_policy is None:
                path = child(child(document.path, "spec"), "policyName")
                found = f"there is no {kind} {shown(binding.policy)}"
                document.problems.warn(path, f"{found}: the binding has no effect")
            elif problem := _unfound(bound_policy.param_kind, binding.param_ref, store):
                document.problems.warn(child(child(document.path, "spec"), "paramRef"), problem)
        bound: list[Webhook] = [] if self.loaded is None else [*self.loaded.webhooks(store, engines)]
        for document, kind, policy in self.policies:
            if (kind, policy.name) in by_policy:
                param_kind = policy.param_kind
                if param_kind is not None and not has_cluster and store.of(param_kind) is None:
                    found = f"no file has a {param_kind.kind} of {param_kind.api_version}"
                    path = child(child(document.path, "spec"), "paramKind")
                    message = f"{found}, and no cluster is configured: bindings with a paramRef fail"
                    document.problems.warn(path, message)
                entries = bind(policy, by_policy[kind, policy.name], store)
                check_reads(document, entries[0])
                bound += entries
            else:
                message = f"no {POLICY_KINDS[kind]} names it: the policy has no effect"
                document.problems.warn(document.path, message)
        return tuple(sorted(bound, key=lambda webhook: webhook.order))

    def warn_of_settings(self, settings: PolicySettings) -> None:
        """Warn of what policies ask for in vain by *settings*.

        That is to move a policy if nothing names the owner of the objects, and to apply a policy to templates
        or to read other objects in one that is left to the API server.
        """
        for document, kind, policy in self.policies:
            annotations = child(child(document.path, "metadata"), "annotations")
            if message := settings.owner_problem(policy.placement):
                document.problems.warn(child(annotations, PLACEMENT), message)
            if kind not in settings.left_to_api_server:
                continue
            reason = "policies.leftToAPIServer of the GatewayConfiguration has the kind"
            if policy.object_reads():
                message = f"reads other objects: {reason}, and the API server refuses such expressions"
                document.problems.warn(child(document.path, "spec"), message)
            if policy.templates is not None:
                message = f"has no effect: {reason}, and the API server evaluates policies on no templates"
                document.problems.warn(child(annotations, TEMPLATES), message)


def _unfound(kind: ParamKind | None, ref: ParamRef | None, store: FixedParams) -> str:
    """Return a warning if *ref* finds no object of *kind* in files, whatever the request, or ""."""
    from gateway.pure.admission_policies.params import ParamsError, collect

    objects = None if kind is None else store.of(kind)
    if kind is None or ref is None or objects is None:
        return ""
    problem = ""
    for namespace in sorted(objects.by_namespace):
        try:
            collect(kind, ref, store, namespace, {})
        except ParamsError as error:
            problem = str(error)
        else:
            return ""
    if ref.namespace and not objects.is_namespaced:
        problem = "those in files have no metadata.namespace, and paramRef has a namespace"
    found = f"no {kind.kind} in files is found for any request"
    return f"{found}, so that failurePolicy decides on each: {problem}"


def _unknown_kind(
    kind: str, version: str, versions: Mapping[str, Collection[str]], known: Collection[str]
) -> tuple[str, str, bool]:
    """Return field and message of a problem: *versions* are those of each paramKind.

    With whether it may only follow from a policy, or a list of kinds, that cannot be read.
    """
    if kind in versions:
        expected = f"expected {one_of(sorted(versions[kind]))}, which policies read"
        return "apiVersion", f"found {shown(version)}, {expected}", True
    # A kind that is none is a problem of its own.
    known = [*known, *(each for each in versions if dns_1035_label(each.lower()) is None)]
    hint = did_you_mean(kind, known)
    is_unknown = not hint
    if is_unknown:
        about = (
            f"parameters need a policy with their paramKind; for expressions {listing_of_kind(version, kind)}"
        )
        hint = f", expected {one_of(known)}; {about}"
    return "kind", f"found the unknown kind {shown(kind)}{hint}", is_unknown


def read_object(fields: Fields) -> tuple[str, str, dict[str, object]]:
    """Return name and namespace of the object behind *fields*, and the object as the API server stores it.

    Its apiVersion and kind are read already.
    """
    metadata = fields.required_group("metadata")
    metadata.string_map("labels")
    return metadata.required_string("name"), metadata.optional_string("namespace"), _stored(fields)


def _stored(fields: Fields) -> dict[str, object]:
    """Return an object as the API server stores it: ``stringData`` of a Secret becomes part of ``data``.

    Source: kubernetes pkg/apis/core/v1 conversion.go (Secret).
    """
    content = dict(fields.content)
    if (content["apiVersion"], content["kind"]) != ("v1", "Secret") or "stringData" not in content:
        return content
    del content["stringData"]
    texts = fields.string_map("stringData").items()
    encoded = {name: b64encode(text.encode()).decode() for name, text in texts}
    return {**content, "data": {**fields.string_map("data"), **encoded}}
