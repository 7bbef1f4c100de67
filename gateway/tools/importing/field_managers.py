"""Finds the fields of webhook configurations that controllers write, and the names of the controllers.

A controller shows as an annotation that requests it, or as a field manager: ``metadata.managedFields`` has
the last writer of each field.

Source: kubernetes.io/docs/reference/using-api/server-side-apply, "Field management"; cert-manager.io
"CA Injector"; docs.openshift.com "Service CA certificates".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission_gateway_worker.text import printable
from gateway.tools.importing.objects import texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    Json = dict[str, Any]

CA_BUNDLE: Final = "caBundle"
SELECTING: Final = ("rules", "namespaceSelector", "objectSelector", "matchConditions")
"""Fields that select the requests of a webhook."""
FIELD_MANAGER: Final = "admission-gateway-sync"

_INJECTING: Final = {
    "cert-manager.io/inject-ca-from": "cert-manager",
    "cert-manager.io/inject-ca-from-secret": "cert-manager",
    "cert-manager.io/inject-apiserver-ca": "cert-manager",
    "service.beta.openshift.io/inject-cabundle": "OpenShift",
}
_INSTALLERS: Final = re.compile(
    r"(kubectl|helm|argocd|kustomize|flux|terraform|hashicorp|pulumi|kapp|oc|before-first-apply)\b.*",
    re.IGNORECASE,
)
"""Field managers of installers, which write only the content of a person or a repository."""


def field_managers(document: Json) -> dict[str, list[str]]:
    """Return the names of the controllers that write caBundle and the fields in ``SELECTING``, by field."""
    found: dict[str, list[str]] = {}
    annotations = texts(document, "annotations")
    for annotation, name in _INJECTING.items():
        if annotation in annotations:
            _note(found, CA_BUNDLE, f"{name} ({annotation})")
    for manager, owned, _ in _owned(document):
        for field in owned:
            _note(found, field, manager)
    return found


def is_ca_bundle_written(document: Json, webhook: str) -> bool:
    """Whether a controller writes the caBundle of the entry *webhook*, which it has not created.

    A controller that creates the whole entry ends with it: then the object may be deleted after the import.
    """
    annotations = texts(document, "annotations")
    if any(annotation in annotations for annotation in _INJECTING):
        return True
    for _, entries in _controllers(document):
        of_webhook = next((of for key, of in entries.items() if _names_webhook(key, webhook)), None)
        if not entries:
            return True
        if isinstance(of_webhook, dict) and "." not in of_webhook and _has(of_webhook, CA_BUNDLE):
            return True
    return False


def is_managed_by_controller(document: Json) -> bool:
    """Whether a controller writes fields of webhooks in *document* that it has not created."""
    annotations = texts(document, "annotations")
    return any(annotation in annotations for annotation in _INJECTING) or any(
        not is_creator for _, _, is_creator in _owned(document)
    )


def last_field_manager(document: Json) -> str:
    """Return the field manager that changed *document* last, other than :data:`FIELD_MANAGER`."""
    metadata = document.get("metadata")
    entries = metadata.get("managedFields") if isinstance(metadata, dict) else None
    dated = [
        (str(entry.get("time")), str(entry.get("manager")))
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and entry.get("manager") != FIELD_MANAGER
    ]
    return printable(max(dated)[1]) if dated else "an unknown field manager"


def _note(found: dict[str, list[str]], field: str, name: str) -> None:
    names = found.setdefault(field, [])
    if name not in names:
        names.append(name)


def _owned(document: Json) -> Iterator[tuple[str, list[str], bool]]:
    """Yield the controllers among the field managers of *document*: name, fields, is_creator.

    The last value is whether the controller has created the webhooks.
    """
    for manager, webhooks in _controllers(document):
        # Without keys the whole list of webhooks is one field.
        fields = [of for key, of in webhooks.items() if key.startswith("k:") and isinstance(of, dict)]
        owned = [
            field
            for field in (CA_BUNDLE, *SELECTING)
            if not webhooks or any(_has(of, field) for of in fields)
        ]
        if owned:
            yield printable(manager), owned, all("." in of for of in fields)


def _controllers(document: Json) -> Iterator[tuple[str, Json]]:
    """Yield the name of each controller that writes webhooks of *document*, and its fields by entry."""
    metadata = document.get("metadata")
    entries = metadata.get("managedFields") if isinstance(metadata, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        match entry:
            case {"manager": str(manager), "fieldsV1": {"f:webhooks": dict(webhooks)}} if not (
                _INSTALLERS.fullmatch(manager) or manager == FIELD_MANAGER
            ):
                yield manager, webhooks


def _names_webhook(key: str, webhook: str) -> bool:
    """Whether *key*, of an element of a list in fieldsV1, is that of the entry *webhook*."""
    try:
        return key.startswith("k:") and orjson.loads(key[2:]) == {"name": webhook}
    except orjson.JSONDecodeError:
        return False


def _has(fields: Json, field: str) -> bool:
    if field == CA_BUNDLE:
        client_config = fields.get("f:clientConfig")
        # Either the whole clientConfig, or only the field.
        return client_config == {} or (isinstance(client_config, dict) and f"f:{field}" in client_config)
    return f"f:{field}" in fields
