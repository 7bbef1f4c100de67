"""Warnings about an import, a summary, and the commands that unregister the imported webhooks.

Warnings are in the order of severity: requests that are no longer checked come first.
"""

from __future__ import annotations

import shlex
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.text import printable
from gateway.config.kinds.namespace import KUBE_SYSTEM
from gateway.config.kinds.policy_rollout import MODE, ROLLOUT
from gateway.config.yaml.documents import PHASES, POLICY_KINDS
from gateway.pure.core.webhook import PolicyRef
from gateway.tools.importing.field_managers import (
    CA_BUNDLE,
    SELECTING,
    field_managers,
    is_managed_by_controller,
)
from gateway.tools.importing.objects import name_of, texts, title
from gateway.tools.importing.policies import deletions, is_policy, param_kinds
from gateway.tools.registration.coverage_gaps import is_called_in
from gateway.tools.registration.exclusions import match_conditions
from gateway.tools.registration.gateway_entries import entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Webhook

    Json = dict[str, Any]

_MANAGING: Final = {
    "meta.helm.sh/release-name": "Helm",
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "olm.owner": "the Operator Lifecycle Manager",
    "addonmanager.kubernetes.io/mode": "the addon manager",
}
"""Labels and annotations of tools that recreate deleted objects."""
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_RULES_WRITTEN: Final = (
    "a controller writes rules or selectors of {} and may change them at any time; the import has their "
    "current state, and admission-gateway sync updates it"
)
_CA_WRITTEN: Final = (
    "a controller writes the caBundle of {}; the import follows it with caBundleFrom, for which the object "
    "must stay in the cluster, and the gateway needs GatewayConfiguration.kubernetes and the rights that "
    "manifests --roles-for prints"
)
_WIDTH: Final = 110


@dataclass(frozen=True, slots=True)
class GroupedWarning:
    """One warning with the names of everything affected."""

    text: str
    about: Mapping[str, Sequence[str]]
    """Names by heading, such as the controller; the heading may be empty."""

    def lines(self) -> Iterator[str]:
        """Yield the text and the indented names."""
        yield self.text + (":" if self.about else "")
        for heading, names in self.about.items():
            yield from textwrap.wrap(
                f"{heading}: {', '.join(names)}" if heading else ", ".join(names),
                width=_WIDTH,
                initial_indent="    ",
                subsequent_indent="      ",
                break_long_words=False,
                break_on_hyphens=False,
            )


def warnings(documents: Sequence[Json], config: Config, others: Sequence[Json]) -> Iterator[GroupedWarning]:
    """Yield the warnings about *documents*, which the gateway reads as *config*, most severe first.

    *others* are configurations that were not selected.
    """
    webhooks = config.webhooks
    yield from _unchecked(webhooks)
    yield from _written_by_controllers(documents)
    yield from _recreated(documents)
    yield from _backends(documents)
    yield from _params(documents)
    yield from _modes(documents)
    yield from _remaining(others, documents)
    yield from _config_warnings(config)
    yield from _same_names(documents)
    if equivalent := [hook for hook in webhooks if hook.match_policy == "Equivalent"]:
        yield GroupedWarning(
            f"{_count(len(equivalent), 'webhook')} with matchPolicy Equivalent: the gateway converts no "
            "versions, and manifests registers it so that the API server sends the requested version",
            {},
        )


def summary(documents: Sequence[Json], config: Config) -> Iterator[str]:
    """Yield lines with counts of *documents*, which the gateway reads as *config*."""
    webhooks = [hook for hook in config.webhooks if not isinstance(hook.client, PolicyRef)]
    mutating = sum(hook.phase == "mutate" for hook in webhooks)
    validating = len(webhooks) - mutating
    policies = [one for one in documents if is_policy(one)]
    documents = [one for one in documents if not is_policy(one)]
    yield (
        f"{_count(len(documents), 'configuration')} with {_count(mutating + validating, 'webhook')}: "
        f"{mutating} mutating, {validating} validating"
    )
    if policies:
        bindings = sum(one["kind"].endswith("Binding") for one in policies)
        yield f"{_plural(len(policies) - bindings, 'policy')} with {_count(bindings, 'binding')}"
    services, urls = _called(documents)
    yield f"they call {_count(len(services), 'Service')} and {_count(len(urls), 'URL')}"
    by_field = [field_managers(document) for document in documents]
    for nouns, fields in (("caBundle", (CA_BUNDLE,)), ("rules or selectors", SELECTING)):
        count = sum(1 for found in by_field if any(field in found for field in fields))
        yield f"a controller writes the {nouns} of {_count(count, 'configuration')}"
    count = len(in_kube_system(config.webhooks))
    yield f"{_count(count, 'webhook')} will not be called in {KUBE_SYSTEM} without manifests --include"


def in_kube_system(webhooks: Sequence[Webhook]) -> list[Webhook]:
    """Return the webhooks that are called in kube-system, if it has only its default labels."""
    return [hook for hook in webhooks if is_called_in(hook, KUBE_SYSTEM, {})]


def unregistering(documents: Sequence[Json], options: Sequence[str], target: Sequence[str]) -> list[str]:
    """Return the commands that end the API server's own calls to *documents*, in call order.

    Mutating webhooks come first, because only their duplicate calls can have an effect. ``sync`` unregisters
    objects that a controller writes, instead of a deletion. *options* are the options of kubectl that select
    the cluster, *target* the options of ``sync`` that name the configuration.
    """
    commands = [
        ["kubectl", *options, "delete", one["kind"].lower(), name_of(one)]
        for one in documents
        if not is_policy(one)
        # A command with unprintable characters would be unsafe to paste.
        if name_of(one).isprintable() and name_of(one) and not is_managed_by_controller(one)
    ]
    if any(map(is_managed_by_controller, documents)):
        commands.insert(0, ["admission-gateway", "sync", *options, *target, "--unregister"])
    policies = [one for one in documents if is_policy(one)]
    return [*(shlex.join(command) for command in commands), *deletions(policies, options)]


def _unchecked(webhooks: Sequence[Webhook]) -> Iterator[GroupedWarning]:
    if lost := in_kube_system(webhooks):
        yield GroupedWarning(
            f"{KUBE_SYSTEM} is no longer checked by {_count(len(lost), 'webhook')} when the gateway is "
            f"registered: manifests excludes it and the gateway's own namespace; manifests "
            f"--include {KUBE_SYSTEM} includes it",
            _hooks(lost),
        )
    if wild := [hook for hook in webhooks if match_conditions(hook.rules, ())]:
        yield GroupedWarning(
            f"events, leases and access reviews are no longer checked by {_count(len(wild), 'webhook')} "
            "with wildcards: manifests excludes them; manifests --include includes events and leases",
            _hooks(wild),
        )


def _written_by_controllers(documents: Sequence[Json]) -> Iterator[GroupedWarning]:
    for fields, text in ((SELECTING, _RULES_WRITTEN), ((CA_BUNDLE,), _CA_WRITTEN)):
        about: dict[str, list[str]] = {}
        for document in documents:
            found = field_managers(document)
            who = dict.fromkeys(name for field in fields for name in found.get(field, ()))
            if who:
                about.setdefault(", ".join(who), []).append(_short(document))
        if about:
            yield GroupedWarning(text.format(_count(sum(map(len, about.values())), "configuration")), about)


def _recreated(documents: Sequence[Json]) -> Iterator[GroupedWarning]:
    about: dict[str, list[str]] = {}
    for document in documents:
        marks = {**texts(document, "labels"), **texts(document, "annotations")}
        found = [who for mark, who in _MANAGING.items() if mark in marks]
        if not found and marks.get(_MANAGED_BY):
            found.append(printable(marks[_MANAGED_BY]))
        metadata = document.get("metadata")
        owners = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
        for owner in owners if isinstance(owners, list) else ():
            if isinstance(owner, dict):
                found.append(f"{printable(owner.get('kind'))}/{printable(owner.get('name'))}")
        if found:
            about.setdefault(", ".join(found), []).append(_short(document))
    if about:
        yield GroupedWarning(
            f"{_count(sum(map(len, about.values())), 'configuration')} may be recreated after a deletion, "
            "by a tool or by the controller of an owner: disable them there",
            about,
        )


def _backends(documents: Sequence[Json]) -> Iterator[GroupedWarning]:
    services, _ = _called(documents)
    if services:
        yield GroupedWarning(
            f"the gateway calls {_count(len(services), 'Service')} by DNS name, which resolves only inside "
            "the cluster: outside, use clientConfig.url instead",
            {"": services},
        )
    conditions = [
        _named(document, entry)
        for document in documents
        for entry in entries(document)
        if isinstance(found := entry.get("matchConditions"), list)
        and any("authorizer" in str(one) for one in found)
    ]
    if conditions:
        yield GroupedWarning(
            f"the matchConditions of {_count(len(conditions), 'webhook')} use the authorizer: the gateway "
            "needs GatewayConfiguration.kubernetes and permission to create subjectaccessreviews of "
            "authorization.k8s.io",
            {"": conditions},
        )


def _remaining(others: Sequence[Json], documents: Sequence[Json]) -> Iterator[GroupedWarning]:
    mutating = [one for one in others if one["kind"].startswith("Mutating") and entries(one)]
    if mutating and any(one["kind"].startswith("Mutating") for one in documents):
        yield GroupedWarning(
            f"the API server still calls {_count(len(mutating), 'mutating configuration')} not imported: "
            "by name before or after all webhooks of the gateway, no longer between them",
            {"": [title(one) for one in mutating]},
        )


def _config_warnings(config: Config) -> Iterator[GroupedWarning]:
    about: dict[str, list[str]] = {}
    for warning in config.warnings:
        place = ": ".join(part for part in (warning.where, warning.field) if part)
        about.setdefault(warning.message, []).append(place)
    for message, places in about.items():
        yield GroupedWarning(message, {"": places})


def _same_names(documents: Sequence[Json]) -> Iterator[GroupedWarning]:
    owners: dict[str, list[str]] = {}
    for document in documents:
        for entry in entries(document):
            owners.setdefault(printable(entry.get("name")), []).append(_short(document))
    about = {name: titles for name, titles in sorted(owners.items()) if len(titles) > 1}
    if about:
        yield GroupedWarning(
            f"{_count(len(about), 'webhook name')} in more than one configuration: messages and audit "
            "annotations of the gateway do not distinguish them",
            about,
        )


def _called(documents: Iterable[Json]) -> tuple[list[str], list[str]]:
    """Return the Services in *documents*, as ``NAMESPACE/NAME``, and the URLs, without duplicates."""
    services: dict[str, None] = {}
    urls: dict[str, None] = {}
    for document in documents:
        for entry in entries(document):
            match entry.get("clientConfig"):
                case {"service": {"namespace": str(namespace), "name": str(name)}}:
                    services[printable(f"{namespace}/{name}")] = None
                case {"url": str(url)}:
                    urls[url] = None
    return list(services), list(urls)


def _short(document: Json) -> str:
    """Return ``mutating/NAME`` or ``validating/NAME``, for lists."""
    return f"{document['kind'].removesuffix('WebhookConfiguration').lower()}/{printable(name_of(document))}"


def _named(document: Json, entry: Any) -> str:  # noqa: ANN401
    return f"{printable(name_of(document))}/{printable(entry.get('name'))}"


def _hooks(webhooks: Sequence[Webhook]) -> dict[str, list[str]]:
    """Return ``CONFIGURATION/WEBHOOK`` of each of *webhooks*, by phase."""
    about: dict[str, list[str]] = {}
    for kind, phase in PHASES.items():
        names = [f"{hook.configuration}/{hook.name}" for hook in webhooks if hook.phase == phase]
        if names:
            about[kind.removesuffix("WebhookConfiguration").lower()] = names
    return about


def _params(documents: Sequence[Json]) -> Iterator[GroupedWarning]:
    if kinds := param_kinds(documents):
        yield GroupedWarning(
            "parameters of policies stay in the cluster: the gateway needs GatewayConfiguration.kubernetes "
            "and the rights get, list and watch on their kinds; custom resources need policies.paramKinds",
            {"": kinds},
        )


def _modes(documents: Sequence[Json]) -> Iterator[GroupedWarning]:
    about: dict[str, dict[str, list[str]]] = {}
    for document in documents:
        annotations = texts(document, "annotations")
        mode = annotations.get(MODE, "Enforce")
        if document["kind"] == "MutatingAdmissionPolicyBinding" and mode != "Enforce":
            about.setdefault(MODE, {}).setdefault(printable(mode), []).append(title(document))
        elif ROLLOUT in annotations and document["kind"] in POLICY_KINDS.values():
            about.setdefault(ROLLOUT, {}).setdefault("", []).append(title(document))
    for key, titles in about.items():
        yield GroupedWarning(
            f"the API server ignores the annotation {key}, the gateway does not: remove it in files from "
            "bindings that are to be enforced as before; custom resources are written without annotations",
            titles,
        )


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun[:-1]}ies"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
