"""Writes ``caBundleFrom`` instead of the ``caBundle`` that a controller writes into an object of the cluster.

The object stays there, unregistered (``gateway.tools.registration.unregistered``), and its controller goes on
writing it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from gateway.tools.importing.field_managers import is_ca_bundle_written
from gateway.tools.importing.objects import name_of
from gateway.tools.registration.gateway_entries import entries

if TYPE_CHECKING:
    Json = dict[str, Any]


def with_followed_bundles(document: Json) -> Json:
    """Return *document*, which is not validated, with ``caBundleFrom`` where a controller writes."""
    webhooks = document.get("webhooks")
    if not isinstance(webhooks, list):
        return document
    return {**document, "webhooks": [_entry(document, entry) for entry in webhooks]}


def has_followed_bundles(text: str) -> bool:
    """Whether a webhook of the configuration in *text*, YAML, has ``caBundleFrom``."""
    clients = (entry.get("clientConfig") for entry in entries(yaml.safe_load(text)))
    return any(isinstance(client, dict) and "caBundleFrom" in client for client in clients)


def _entry(document: Json, entry: object) -> object:
    match entry:
        case {"name": str(name), "clientConfig": dict(client), **rest} if is_ca_bundle_written(
            document, name
        ):
            return {"name": name, "clientConfig": _client_config(document, name, client), **rest}
    return entry


def _client_config(document: Json, webhook: str, client: Json) -> Json:
    source = {"kind": document["kind"], "name": name_of(document), "webhook": webhook}
    kept = {key: value for key, value in client.items() if key != "caBundle"}
    return {**kept, "caBundleFrom": {"webhookConfiguration": source}}
