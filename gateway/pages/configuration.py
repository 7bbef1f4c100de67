"""The configuration in force, without secrets.

Fields have the names of the configuration files where there is one. Certificates are fingerprints, commands
are programs without their arguments, and of credentials only the files are named.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from gateway.config.webhook_users import WebhookUsers
from gateway.core.namespace import Namespace
from gateway.core.webhook import WorkerRef
from gateway.decisions.redaction import Redactor
from gateway.pages.state import rfc_3339

if TYPE_CHECKING:
    from gateway.core.conditions import MatchConditions
    from gateway.pages.state import Json, ProcessState

_NAMES: Final = {
    "client": "clientConfig",
    "ca_pem": "caBundle",
    "requirements": "matchExpressions",
    "is_enabled": "enabled",
    "webhook_users": "webhookKubeConfigFile",
}
"""Names of fields that differ from those in the code."""


def document(state: ProcessState) -> Json:
    """Return the configuration of *state* as JSON."""
    config = state.config
    found = {
        "digest": state.snapshot.digest,
        "loadedAt": rfc_3339(state.loaded_at),
        "gateway": _plain(config.gateway),
        "pools": [_plain(pool) for pool in config.pools.values()],
        "mutating": [_plain(webhook) for webhook in config.mutating],
        "validating": [_plain(webhook) for webhook in config.validating],
        "exceptions": [_plain(exception) for exception in config.exceptions],
        "namespaces": [_plain(namespace) for namespace in config.namespaces.values()],
    }
    # Texts that look like credentials are in none of these fields, unless somebody wrote them there.
    return cast("Json", Redactor(secret_names=False).redacted(found))


def _plain(value: object) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return f"sha256:{hashlib.sha256(value).hexdigest()}" if value else ""
        case Path():
            return str(value)
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case tuple():
            return [_plain(item) for item in value]
        case frozenset():
            return [_plain(item) for item in sorted(value)]
        case WebhookUsers():
            return [str(file) for file in value.files]
        case Namespace():
            return {"name": value.name, "labels": dict(value.labels)}
        case WorkerRef():
            return {"worker": _worker(value)}
        case _ if is_dataclass(value):
            return _members(value)
    conditions = cast("MatchConditions", value).expressions
    return [{"name": name, "expression": expression} for name, expression in conditions]


def _worker(worker: WorkerRef) -> Json:
    found: Json = {"pool": worker.pool, "policy": worker.policy}
    if worker.parameters:
        found["parameters"] = orjson.loads(worker.parameters)
    if worker.parameters_annotation:
        found["parametersFrom"] = {"namespaceAnnotation": worker.parameters_annotation}
    return found


def _members(value: Any) -> Json:  # noqa: ANN401 - a dataclass
    found: Json = {}
    for field in fields(value):
        member = getattr(value, field.name)
        if not field.repr:
            continue  # a secret
        if field.name == "command" and member:
            found["command"] = [member[0], f"({len(member) - 1} arguments)"]
        else:
            found[_name(field.name)] = _plain(member)
    return found


def _name(name: str) -> str:
    name = _NAMES.get(name) or re.sub(r"_s\Z", "_seconds", name)
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)
