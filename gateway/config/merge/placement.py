"""Which policies the API server can evaluate instead of the gateway, with the same outcome, and why not.

A policy can move only if it is certain that it has the same outcome there, whatever the request. What is not
certain is a reason to stay. The rules, and what is not part of the outcome: docs/policies.md.

Pure: the result depends on the configuration and the version, and not on the order of documents.

Source: k8s.io/apiserver pkg/admission/plugin/policy; k8s.io/kubernetes
pkg/kubeapiserver/admission/exclusion/resources.go.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from gateway.base.text import shown
from gateway.config.kinds.gateway_configuration import has_go_types
from gateway.config.kinds.help_text import HELP
from gateway.config.kinds.namespace import KUBE_SYSTEM, NAME_LABEL
from gateway.config.kinds.policy_rollout import ROLLOUT
from gateway.config.kinds.policy_settings import NO_OWNER, TEMPLATES
from gateway.config.merge.mutating_order import MutatingOrder, OrderedPolicy, functions_of, rules_of
from gateway.config.yaml.documents import ADMISSION_GROUP, MUTATING_POLICY, POLICY, POLICY_KINDS, plural_of
from gateway.pure.admission_policies.effects import has_map_in_list
from gateway.pure.admission_policies.in_force import PolicyInForce
from gateway.pure.admission_policies.model import MutatingPolicy
from gateway.pure.cel.introduced import introduced
from gateway.pure.core.matching import checks_authors
from gateway.pure.core.overlap import covering, has, parts
from gateway.pure.core.rules import NEVER_SENT_KINDS
from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from gateway.config.merge.model import Config
    from gateway.pure.admission_policies.model import MatchResources, NamedRule, PlacementChoice, TemplateMode
    from gateway.pure.core.webhook import Rule

    Version = tuple[int, int]
    InForce = PolicyInForce[Any, Any]

SERVED_FROM: Final[Mapping[str, Version]] = {POLICY: (1, 30), MUTATING_POLICY: (1, 36)}
"""The version of Kubernetes that has each kind in ``admissionregistration.k8s.io/v1``, without a feature
gate."""
MAX_DOCUMENT_BYTES: Final = 1_000_000
"""The size of the spec of a policy as JSON. etcd refuses an object of 1.5 MiB."""
_QUANTITIES_FROM: Final = 37
"""The minor version from which ``add`` and ``sub`` of quantities leave their operands unchanged."""
_SEEN_BY_API_SERVER_ONLY: Final = tuple(
    sorted(
        (group, plural_of(kind))
        for group, kind in NEVER_SENT_KINDS
        if group != ADMISSION_GROUP or "AdmissionPolicy" not in kind
    )
)
"""Group and name of resources that no webhook sees, and the API server's policies do."""
_LEFT_OUT: Final = (("coordination.k8s.io", "leases"), ("", "events"), ("events.k8s.io", "events"))
"""Resources that a registration excludes from wildcards."""
_OWN_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences")
"""Members of the metadata that do not identify the object."""


class Placement(NamedTuple):
    """Where one policy is to be evaluated."""

    kind: str
    """``ValidatingAdmissionPolicy`` or ``MutatingAdmissionPolicy``."""
    name: str
    wanted: PlacementChoice
    reasons: tuple[str, ...]
    """Why the API server cannot evaluate it: sentences that name the field, and what to do. Empty if it can,
    and if that is not wanted."""

    @property
    def can_move(self) -> bool:
        """Whether the API server is to evaluate it, and can."""
        return self.wanted != "Gateway" and not self.reasons


def placements(
    config: Config,
    kubernetes: Version | None,
    *,
    unserved: Collection[str] = (),
    excluded_namespaces: Collection[str] | None = None,
) -> tuple[Placement, ...]:
    """Return the placement of each policy of *config* that has a binding, by kind and name.

    Policies of a kind in ``policies.leftToAPIServer`` are not among them, nor is the gateway's own.
    *kubernetes* is the version of the API server, or None if it is not known. It does not serve the kinds
    *unserved*. *excluded_namespaces* are those that the registration leaves out, by default
    kube-system and that of the gateway, which a policy must not keep from starting there.
    """
    by_key = policies_by_key(config)
    if excluded_namespaces is None:
        installation = config.gateway.policies.installation
        own = () if installation is None else (installation.partition("/")[0],)
        excluded_namespaces = {KUBE_SYSTEM, *own}
    judge = _Judge(config, kubernetes, unserved, excluded_namespaces, by_key)
    return tuple(judge.placement(*key) for key in sorted(by_key))


def policies_by_key(config: Config) -> dict[tuple[str, str], list[InForce]]:
    """Return the policies of *config* that have a binding, without the gateway's own, by kind and name.

    A policy has an entry for each binding with a rollout, and a MutatingAdmissionPolicy one for each mode.
    """
    by_key: dict[tuple[str, str], list[InForce]] = {}
    for webhook in config.webhooks:
        found = webhook.policy
        if isinstance(found, PolicyInForce) and found.kind in SERVED_FROM and not checks_authors(webhook):
            by_key.setdefault((found.kind, found.policy.name), []).append(found)
    return by_key


def asked_placements(config: Config) -> tuple[Placement, ...]:
    """Return the placements by ``kubernetesVersion`` of the policies that are not to stay in the gateway."""
    found = placements(config, (1, config.gateway.kubernetes_minor))
    return tuple(one for one in found if one.wanted != "Gateway")


class _Judge:
    def __init__(
        self,
        config: Config,
        kubernetes: Version | None,
        unserved: Collection[str],
        excluded_namespaces: Collection[str],
        by_key: Mapping[tuple[str, str], list[InForce]],
    ) -> None:
        self._config = config
        self._kubernetes = kubernetes
        self._unserved = unserved
        self._excluded_namespaces = excluded_namespaces
        self._by_key = by_key

    def placement(self, kind: str, name: str) -> Placement:
        """Return the placement of one policy."""
        entries = self._by_key[kind, name]
        wanted = entries[0].policy.placement or self._config.gateway.policies.placement
        if wanted == "Gateway":
            return Placement(kind, name, wanted, ())
        if refusal := next((each.refusal for each in entries if each.refusal), ""):
            return Placement(kind, name, wanted, (f"the policy cannot be evaluated: {refusal}",))
        reasons = chain(
            self._of_cluster(kind),
            _of_templates(entries[0].policy.templates),
            _of_help(entries[0].policy.help),
            _of_rollouts(kind, entries),
            self._of_expressions(entries[0]),
            _of_reads(entries[0]),
            _of_parameters(entries),
            self._of_references(kind, name),
            self._of_requests(entries),
            self._of_mutations(entries) if isinstance(entries[0].policy, MutatingPolicy) else (),
        )
        return Placement(kind, name, wanted, tuple(reasons))

    def _of_cluster(self, kind: str) -> Iterator[str]:
        settings, found = self._config.gateway, self._kubernetes
        if settings.kubernetes is None:
            yield "kubernetes of the GatewayConfiguration is absent; name the cluster that is to evaluate it"
        if settings.policies.installation is None:
            yield f"{NO_OWNER} in the API server"
        if found is None:
            yield "the version of the API server is not known; the gateway moves the policy when it is"
            return
        minor = found[1]
        first = SERVED_FROM[kind]
        if found < first:
            yield (
                f"the API server has Kubernetes {_shown(found)}, which does not serve {kind} of "
                f"{ADMISSION_GROUP}/v1; upgrade the cluster to {_shown(first)} or newer"
            )
        elif kind in self._unserved:
            yield f"the API server does not serve {kind} of {ADMISSION_GROUP}/v1; enable it there"
        if has_go_types(minor) != settings.has_go_types:
            yield (
                f"kubernetesVersion of the GatewayConfiguration is {settings.kubernetes_version}, and the "
                f"API server has {_shown(found)}, which compares maps and lists otherwise; set it to that "
                "version"
            )

    def _of_expressions(self, bound: InForce) -> Iterator[str]:
        if len(bound.policy.document) > MAX_DOCUMENT_BYTES:
            yield (
                f"spec has {len(bound.policy.document)} bytes as JSON, and the API server stores at most "
                f"{MAX_DOCUMENT_BYTES}; divide the policy"
            )
        if self._kubernetes is None:
            return
        minor = self._kubernetes[1]
        for field, text in expressions_in(orjson.loads(bound.policy.document), "spec"):
            for name, first in sorted(set(introduced(text))):
                if minor < first:
                    yield (
                        f"{field} uses {name}, which API servers accept in new policies from 1.{first} on; "
                        "write it without, or upgrade the cluster"
                    )
            if minor < _QUANTITIES_FROM and not functions_of(text).isdisjoint(("add", "sub")):
                yield (
                    f"{field} adds or subtracts quantities, which may change the operand before "
                    f"1.{_QUANTITIES_FROM}; compare them without, or upgrade the cluster"
                )

    def _of_references(self, kind: str, name: str) -> Iterator[str]:
        for exception in self._config.exceptions:
            if name in exception.webhooks:
                yield (
                    f"PolicyException {shown(exception.id)} names the policy in spec.webhooks, and the API "
                    "server knows no exceptions; delete it, or leave out the policy there"
                )
        if kind == POLICY and name in self._config.gateway.image_review_webhooks:
            yield (
                "imageReview.webhooks of the GatewayConfiguration names the policy, and the gateway answers "
                "ImageReviews itself; remove it there"
            )

    def _of_requests(self, entries: list[InForce]) -> Iterator[str]:
        """Yield the reasons in requests that the API server matches, and the gateway does not get."""
        match: MatchResources = entries[0].policy.match
        matches = [each.match for bound in entries for each in bound.bindings]

        def is_matched(
            group: str, resource: str, sub_resource: str = "", *, by_wildcard: bool = False
        ) -> bool:
            wanted = group, resource, sub_resource
            return _may_match(match, *wanted, by_wildcard=by_wildcard) and any(
                one is None or _may_match(one, *wanted) for one in matches
            )

        for group, resource in _SEEN_BY_API_SERVER_ONLY:
            subs = ("", "status") if group != ADMISSION_GROUP else ("",)
            if any(is_matched(group, resource, sub) for sub in subs):
                yield (
                    f"spec.matchConstraints matches {resource}.{group}, which the API server sends to no "
                    "webhook, but to its own policies; exclude all its requests by excludeResourceRules"
                )
        for group, resource in _LEFT_OUT:
            if is_matched(group, resource, by_wildcard=True):
                named = f"{resource}.{group}" if group else resource
                yield (
                    f"spec.matchConstraints matches {named} by a wildcard, from which the registration "
                    "excludes them; exclude all their requests by excludeResourceRules"
                )
        rules = [rule for each in match.named_rules for rule in each.rules]
        if not any(map(_is_about_namespaces, rules)):
            return
        for name in sorted(self._excluded_namespaces):
            labels = {NAME_LABEL: name}
            if match.namespace_selector.matches(labels) and any(
                one is None or one.namespace_selector.matches(labels) for one in matches
            ):
                yield (
                    f"spec.matchConstraints matches the namespace {name}, which the registration excludes; "
                    f"exclude it by namespaceSelector: {NAME_LABEL} NotIn [{name}]"
                )

    # -- mutating policies --------------------------------------------------------------------------

    def _of_mutations(self, entries: list[InForce]) -> Iterator[str]:
        policy: MutatingPolicy = entries[0].policy
        rules = policy.rules
        for bound in entries:
            for binding in bound.bindings:
                if binding.mode != "Enforce":
                    yield (
                        f"the mode of MutatingAdmissionPolicyBinding {shown(binding.name)} is "
                        f"{binding.mode}, and the API server has no modes; enforce it, or delete the binding"
                    )
        if rules.reinvocation_policy != "IfNeeded":
            yield (
                f"spec.reinvocationPolicy is {rules.reinvocation_policy}: the policy would not see what "
                "webhooks change, and may be applied twice while it moves; make it idempotent, and set "
                "IfNeeded"
            )
        bindings = [binding for bound in entries for binding in bound.bindings]
        if policy.param_kind is not None and any(each.param_ref for each in bindings):
            by_name = bindings[0].param_ref is not None and bindings[0].param_ref.name
            if len(bindings) > 1 or not by_name:
                yield (
                    "spec.paramKind: the policy may be applied several times to one object, and the API "
                    "server sets defaults in between, and has no order of bindings; expected one binding, "
                    "with paramRef.name"
                )
        yield from self._of_patches(policy)
        yield from self._order.reasons(
            policy, has_go_types=self._kubernetes is not None and has_go_types(self._kubernetes[1])
        )

    def _of_patches(self, policy: MutatingPolicy) -> Iterator[str]:
        effects = self._order.effects[policy.name]
        for index, mutation in enumerate(policy.rules.mutations):
            place = f"spec.mutations[{index}]"
            if mutation.patch_type == "JSONPatch":
                if not all(one is not None and one.is_plain for one in effects.operations(mutation)):
                    yield (
                        f"{place}.jsonPatch does more than to set labels or annotations to texts: the API "
                        "server refuses requests for a field that the kind does not have, and drops it from "
                        "the patch of a webhook; write an applyConfiguration"
                    )
            else:
                for path in sorted(effects.of_mutations[index].writes):
                    if not _leaves_identity(path):
                        yield (
                            f"{place} may change {_named(path)}, which can identify the object: the API "
                            "server does not check that; name the fields that are set one by one"
                        )
            for earlier in range(index):
                common = effects.of_mutations[index].depend(effects.of_mutations[earlier])
                if common is not None:
                    yield (
                        f"{place} depends on spec.mutations[{earlier}] by {_named(common)}, and the API "
                        "server sets defaults in between; write one mutation"
                    )
                    break
        merges = any(each.patch_type == "ApplyConfiguration" for each in policy.rules.mutations)
        if merges and policy.rules.failure_policy == "Ignore" and not _are_built_in(policy.match):
            yield (
                "spec.failurePolicy is Ignore, and the API server refuses an applyConfiguration for a kind "
                "without a schema nevertheless; set Fail, or name built-in resources only"
            )
        texts = [each.expression.text for each in policy.rules.mutations]
        if has_map_in_list([*texts, *(each.text for each in policy.rules.variables.values())]):
            yield (
                "spec.mutations has a map literal in a list, which the API server refuses within an Object; "
                "write Object.…{}, or leave the policy in the gateway"
            )

    @cached_property
    def _order(self) -> MutatingOrder:
        """The mutating policies that can be evaluated."""
        return MutatingOrder(
            OrderedPolicy(
                entries[0].policy,
                [
                    match
                    for match in (
                        entries[0].policy.match,
                        *(each.match for bound in entries for each in bound.bindings),
                    )
                    if match is not None
                ],
            )
            for (kind, _), entries in self._by_key.items()
            if kind == MUTATING_POLICY and not any(each.refusal for each in entries)
        )


def _of_help(text: str) -> Iterator[str]:
    if text:
        yield f"the annotation {HELP} has a text, and the API server adds none to denials; remove it"


def _of_templates(mode: TemplateMode | None) -> Iterator[str]:
    if mode is not None:
        yield (
            f"the annotation {TEMPLATES} is {mode}, and the API server evaluates policies on no templates; "
            "remove it"
        )


def _of_rollouts(kind: str, entries: list[InForce]) -> Iterator[str]:
    for binding in (each for bound in entries for each in bound.bindings):
        if binding.rollout is not None and not binding.rollout.is_enforced:
            yield (
                f"the annotation {ROLLOUT} of {POLICY_KINDS[kind]} {shown(binding.name)} says where it "
                "is enforced, which the API server does not know; remove it when that is everywhere"
            )


def _of_reads(bound: InForce) -> Iterator[str]:
    if bound.objects:
        yield (
            "spec reads other objects by resource.get or resource.list, which the API server does not have; "
            "write it without"
        )


def _of_parameters(entries: list[InForce]) -> Iterator[str]:
    kind = entries[0].policy.param_kind
    if kind is None:
        return
    group = kind.api_version.rpartition("/")[0]
    is_built_in = any(one.kind == kind.kind for one in RESOURCES.get(group, {}).values())
    place = f"spec.paramKind is {kind.kind} of {kind.api_version}"
    if not any(binding.param_ref for bound in entries for binding in bound.bindings):
        if not is_built_in:
            yield (
                f"{place}, and no binding has a paramRef: the API server refuses requests while it does not "
                "have the kind; remove paramKind"
            )
    elif all(bound.cluster_kind is None for bound in entries):
        yield f"{place}, and its objects are in files; apply them to the cluster, and remove the files"
    elif b"managedFields" in entries[0].policy.document:
        yield (
            f"{place}, and spec names managedFields, which the gateway leaves out of parameters; write it "
            "without"
        )
    elif is_built_in:
        yield (
            f"{place}, a built-in kind: the API server does not follow its objects again after a time "
            "without such a policy; use a custom resource"
        )


def _shown(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _leaves_identity(path: tuple[str, ...]) -> bool:
    """Whether a change of *path* leaves the object the same one."""
    if path[:1] == ("metadata",):
        return path[1:2] != () and path[1] in _OWN_METADATA
    return path != () and path[0] not in ("apiVersion", "kind")


def _named(path: tuple[str, ...]) -> str:
    return shown(".".join(path)) if path else "the whole object"


def expressions_in(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of each expression in *value*, a part of the JSON of a policy."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from expressions_in(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            if isinstance(item, str):
                if name.lower().endswith("expression") and item.strip():
                    yield f"{path}.{name}", item
            else:
                yield from expressions_in(item, f"{path}.{name}")


def _are_built_in(match: MatchResources) -> bool:
    """Whether the rules name resources of Kubernetes itself only."""
    return all(
        parts(entry)[0] in RESOURCES.get(group, {})
        for rule in rules_of(match)
        for group in rule.api_groups
        for entry in rule.resources
    )


def _is_about_namespaces(rule: Rule) -> bool:
    """Whether a namespaceSelector can decide whether *rule* matches: for namespaces, and objects in them."""
    for group in rule.api_groups:
        for name in (parts(each)[0] for each in rule.resources):
            if has((group,), "") and name in ("*", "namespaces"):
                return True
            known = RESOURCES.get(group, {}).get(name)
            if rule.scope != "Cluster" and (known is None or known.is_namespaced):
                return True
    return False


def _may_match(
    match: MatchResources, group: str, resource: str, sub_resource: str = "", *, by_wildcard: bool = False
) -> bool:
    """Whether *match* may have a request for the resource, by rules; *by_wildcard* without its name."""
    entry = resource, sub_resource
    rules = [
        rule
        for rule in rules_of(match)
        if has(rule.api_groups, group) and not covering(entry).isdisjoint(map(parts, rule.resources))
    ]
    if match.named_rules and not rules:
        return False
    if by_wildcard and any(parts(each)[0] == resource for rule in rules for each in rule.resources):
        return False
    operations = {operation for rule in rules for operation in rule.operations} or {"*"}
    return not any(_excludes(each, group, entry, operations) for each in match.excluded)


def _excludes(named: NamedRule, group: str, entry: tuple[str, str], operations: Collection[str]) -> bool:
    """Whether *named*, of ``excludeResourceRules``, excludes all requests of *operations* for *entry*."""
    (rule,) = named.rules
    return (
        not named.names
        and rule.scope == "*"
        and has(rule.api_groups, group)
        and (named.match_policy == "Equivalent" or "*" in rule.api_versions)
        and all(has(rule.operations, operation) for operation in operations)
        and not covering(entry).isdisjoint(map(parts, rule.resources))
    )
