"""MutatingWebhookConfiguration and ValidatingWebhookConfiguration.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.base.text import shown
from gateway.config.kinds.declare import Groups, Row
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import configuration_name
from gateway.config.kinds.webhook_entry import V1, V1BETA1, MutatingEntry, WebhookEntry
from gateway.config.yaml.documents import ADMISSION_GROUP, GATEWAY_VERSION
from gateway.pure.core.webhook import HttpsClient, Phase, Webhook, WorkerRef

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gateway.config.kinds.declare import Schema
    from gateway.config.yaml.fields import Fields

_MAX_WEBHOOKS: Final = 100
"""Webhooks of a custom resource."""
WEBHOOK_VERSIONS: Final = {
    f"{ADMISSION_GROUP}/v1": V1,
    f"{ADMISSION_GROUP}/v1beta1": V1BETA1,
    # The version of custom resources: the same fields and defaults, and a status.
    GATEWAY_VERSION: V1,
}
"""The entries by the apiVersion of their configuration."""
_MEANING: Final = "In the order of calls"


@dataclass(frozen=True, slots=True)
class WebhookConfiguration:
    """One configuration object."""

    phase: Phase
    name: str
    webhooks: tuple[Webhook, ...] = ()
    """In the order written."""
    pools: tuple[tuple[str, str], ...] = ()
    """The path of every reference to a WorkerPool, and the name of the pool."""
    authorizers: tuple[str, ...] = ()
    """The paths of matchConditions that use the API server's authorizer."""
    followed: tuple[str, ...] = ()
    """The paths of ``caBundleFrom``, whose objects are followed in a cluster."""
    afters: tuple[tuple[str, Webhook], ...] = ()
    """The path of every ``after``, and its webhook."""


def schema(phase: Phase) -> Schema:
    """Return the schema of ``webhooks`` of a custom resource."""
    entries = Groups(V1[phase], key="name", maxItems=_MAX_WEBHOOKS)
    return {"description": _MEANING, **entries.custom_schema()}


def rows() -> Iterator[Row]:
    """Yield the rows of the documentation."""
    meaning = f"{_MEANING}. Configurations are ordered by `metadata.name` in byte order"
    yield Row("webhooks", "list", "none", meaning)
    yield from MutatingEntry.rows("webhooks[].")


def read_webhook_configuration(
    fields: Fields, phase: Phase, version: Mapping[Phase, type[WebhookEntry]]
) -> WebhookConfiguration:
    """Return the configuration object behind *fields*; apiVersion and kind are read already."""
    name = read_metadata(fields, configuration_name).name
    webhooks, pools, authorizers, followed, afters = [], [], [], [], []
    first_of_name: dict[str, str] = {}
    for entry in fields.mappings("webhooks"):
        problems = len(fields.problems.found)
        if phase == "validate" and "reinvocationPolicy" in entry.content:
            entry.problem("reinvocationPolicy", "is not allowed: only mutating webhooks are reinvoked")
            entry.accept("reinvocationPolicy")
        webhook = version[phase].read(entry).webhook(phase, name)
        webhooks.append(webhook)
        if webhook.after:
            afters.append((entry.at("after"), webhook))
        for parent, client in zip(("", ".rollout.candidate"), webhook.clients, strict=False):
            path = f"{entry.path}{parent}.clientConfig"
            if isinstance(client, WorkerRef) and client.pool:
                pools.append((f"{path}.worker.pool", client.pool))
            is_followed = isinstance(client, HttpsClient) and client.ca_from is not None
            if is_followed and len(fields.problems.found) == problems:
                followed.append(f"{path}.caBundleFrom")
        if webhook.match_conditions is not None and webhook.match_conditions.needs_authorizer:
            authorizers.append(entry.at("matchConditions"))
        if webhook.name in first_of_name:
            first = first_of_name[webhook.name]
            entry.problem("name", f"found {shown(webhook.name)}, the name of {first}; expected unique names")
        elif webhook.name:
            first_of_name[webhook.name] = entry.path
    fields.finish()
    return WebhookConfiguration(
        phase, name, tuple(webhooks), tuple(pools), tuple(authorizers), tuple(followed), tuple(afters)
    )
