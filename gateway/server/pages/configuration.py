"""The configuration in force, without secrets, with the fields and units of the configuration files.

A value can be copied back into a file: fields without a value are left out, durations are those of Go, and
what a file nests is nested. Certificates are fingerprints, commands are programs without their arguments, and
of credentials only the files are named.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import fields
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from gateway.base.text import rfc3339
from gateway.config.kinds.declare import Declared, declared_fields
from gateway.config.kinds.gateway_configuration import GatewaySettings
from gateway.config.kinds.image_review import DISABLED
from gateway.config.kinds.record_settings import RedactionRule
from gateway.config.kinds.serving_settings import SelfManagedTls
from gateway.config.kinds.webhook_token_settings import WebhookTokenSettings
from gateway.config.kinds.webhook_users import WebhookUsers
from gateway.config.kinds.worker_pool import Hedge, WorkerPool
from gateway.config.merge.model import has_policies
from gateway.observe.decisions.redaction import Redactor
from gateway.pure.core.durations import format_duration
from gateway.pure.core.exemptions import Patterns, PolicyException
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.webhook import (
    CaBundleSource,
    Cache,
    Enforcement,
    HttpsClient,
    ImageReviewSettings,
    PolicyRef,
    Rollout,
    Webhook,
    WorkerRef,
)
from gateway.pure.rollout_plan.model import Gates, Group, Plan, Stage
from gateway.server.pages.state import Json

if TYPE_CHECKING:
    from gateway.config.merge.model import Config
    from gateway.pure.core.conditions import MatchConditions
    from gateway.pure.core.policy import AdmissionPolicy
    from gateway.server.pages.state import ProcessState

_NAMES: Final = {
    "ca_pem": "caBundle",
    "client": "clientConfig",
    "requirements": "matchExpressions",
}
"""Names of fields that are not declared, and do not follow from those in the code."""
_OPEN: Final = ("parameters", "labels", "resourceAttributes")
"""Fields whose members have names of the author's choice."""


def document(state: ProcessState) -> Json:
    """Return the configuration of *state* as JSON.

    The entries of ``pools`` and ``namespaces`` have the ``name`` beside the fields of ``spec`` and
    ``metadata``; those of ``mutating`` and ``validating`` also name their ``configuration``.
    """
    config = state.config
    asked = {(one["kind"], one["name"]): one for one in placements_of(config)}
    found = {
        "digest": state.snapshot.digest,
        "loadedAt": rfc3339(state.loaded_at),
        "gateway": _plain(config.gateway),
        "pools": [_plain(pool) for pool in config.pools.values()],
        "mutating": [_placed(webhook, asked) for webhook in config.mutating],
        "validating": [_placed(webhook, asked) for webhook in config.validating],
        "exceptions": [_plain(exception) for exception in config.exceptions],
        "namespaces": [_plain(namespace) for namespace in config.namespaces.values()],
    }
    return cast("Json", _redacted(found, Redactor(secret_names=False)))


def placements_of(config: Config) -> list[Json]:
    """Return where the policies of *config* are to be evaluated that are not to stay in the gateway."""
    if not has_policies(config):
        return []
    # Imported late: it needs the evaluation of expressions.
    from gateway.config.merge.placement import asked_placements

    return [
        {
            "kind": one.kind,
            "name": one.name,
            "placement": one.wanted,
            "evaluatedBy": "APIServer" if one.can_move else "Gateway",
            "reasons": list(one.reasons),
        }
        for one in asked_placements(config)
    ]


def _placed(webhook: Webhook, asked: Mapping[tuple[str, str], Json]) -> Json:
    """Return *webhook* as it stands in a file; a policy that is not to stay has its placement."""
    found: Json = _plain(webhook)
    if isinstance(webhook.client, PolicyRef):
        one = asked.get((webhook.client.kind, webhook.name), {})
        found |= {name: value for name, value in one.items() if name not in ("kind", "name")}
    return found


def _redacted(value: object, redactor: Redactor) -> object:
    """Return *value* without texts that look like credentials, which somebody may have written anywhere.

    The gateway's own fields are not judged by their names, such as ``webhookTokens``: none is a secret.
    """
    if isinstance(value, dict):
        return {
            name: redactor.redacted(item) if name in _OPEN else _redacted(item, redactor)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_redacted(item, redactor) for item in value]
    return redactor.text(value) if isinstance(value, str) else value


@singledispatch
def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a configuration, and JSON
    """Return *value* as it stands in a file. This is the form of a dataclass without one of its own."""
    return _members(value)


def _members(value: Any, *left_out: str) -> Json:  # noqa: ANN401 - a dataclass
    """Return the fields of *value* with their names in a file, without empty ones and those *left_out*."""
    found: Json = {}
    declared = declared_fields(type(value)) if isinstance(value, Declared) else {}
    for field in fields(value):
        member = getattr(value, field.name)
        if not field.repr or field.name in left_out or member is None or member in ("", b"", (), {}):
            continue  # a secret, or no value
        if field.name in declared:
            path, type_ = declared[field.name]
            within, _, name = path.rpartition(".")
            place = found.setdefault(within, {}) if within else found
            place[name] = _plain(type_.value(member))
        else:
            found[_name(field.name)] = _plain(member)
    return found


def gates_of(gates: Gates) -> Json:
    """Return the limits of *gates* by their fields in the configuration."""
    found: Json = _plain(gates)
    return found


def _name(name: str) -> str:
    name = _NAMES.get(name) or re.sub(r"_s\Z", "_seconds", name)
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


@_plain.register(bool | int | float | str)
def _(value: object) -> object:
    return value


@_plain.register
def _(value: Path) -> str:
    return str(value)


@_plain.register
def _(value: bytes) -> str:
    return f"sha256:{hashlib.sha256(value).hexdigest()}"


@_plain.register
def _(value: tuple) -> list[Any]:  # type: ignore[type-arg]
    return [_plain(item) for item in value]


@_plain.register
def _(value: frozenset) -> list[Any]:  # type: ignore[type-arg]
    return [_plain(item) for item in sorted(value)]


@_plain.register
def _(value: Mapping) -> Json:  # type: ignore[type-arg]
    return {key: _plain(item) for key, item in value.items()}


# -- GatewayConfiguration ---------------------------------------------------------------------------


@_plain.register
def _(value: GatewaySettings) -> Json:
    found = _members(value, "image_review_webhooks")
    if value.image_review_webhooks:
        found["imageReview"] = {"webhooks": list(value.image_review_webhooks)}
    return found


@_plain.register
def _(value: SelfManagedTls) -> Json:
    return {"service": f"{value.namespace}/{value.service}", **_members(value, "namespace", "service")}


@_plain.register
def _(value: WebhookTokenSettings) -> Json:
    return _members(value, *(("jwks_from",) if value.jwks_file else ()))


@_plain.register
def _(value: WebhookUsers) -> str:
    return str(value.files[0])


@_plain.register
def _(value: RedactionRule) -> Json:
    def path(steps: tuple[str | None, ...]) -> str:
        return "$" + "".join("[*]" if step is None else f"['{step}']" for step in steps)

    return _members(value, "paths") | {"paths": list(map(path, value.paths))}


# -- WorkerPool -------------------------------------------------------------------------------------


@_plain.register
def _(value: WorkerPool) -> Json:
    found = {**_members(value), "policies": value.policies}
    if value.command:
        found["command"] = [value.command[0], f"({len(value.command) - 1} arguments)"]
    return found


@_plain.register
def _(value: Hedge) -> Json:
    percentile = f"p{value.percentile:.6f}".rstrip("0").rstrip(".")
    after = percentile if value.after_s is None else format_duration(value.after_s)
    return {"after": after, "budgetPercent": value.budget_percent}


# -- webhooks ---------------------------------------------------------------------------------------


@_plain.register
def _(value: Webhook) -> Json:
    left_out = ["phase", "configuration", "match_conditions", "review_version"]
    if value.phase == "validate":
        left_out.append("reinvocation_policy")
    if not value.after:
        left_out.append("after")
    if isinstance(value.client, PolicyRef):
        found = _members(value, *left_out, "client")
        if value.client.is_on_templates:
            found["appliesToTemplates"] = True
        return {"kind": value.client.kind, **found, "matchConditions": _conditions(value.client.policy)}
    found = _members(value, *left_out)
    if "plan" in found:
        candidate = {name: one for name, one in found["rollout"].items() if name == "candidate"}
        found["rollout"] = {**candidate, "plan": found.pop("plan")}
    if value.match_conditions is not None:
        found["matchConditions"] = _conditions(value.match_conditions)
    return {
        "configuration": value.configuration,
        **found,
        "admissionReviewVersions": [value.review_version],
    }


def _conditions(conditions: MatchConditions | AdmissionPolicy) -> list[Json]:
    return [{"name": name, "expression": expression} for name, expression in conditions.expressions]


@_plain.register
def _(value: WorkerRef) -> Json:
    found: Json = {"pool": value.pool, "policy": value.policy}
    if value.parameters:
        found["parameters"] = orjson.loads(value.parameters)
    if value.parameters_annotation:
        found["parametersFrom"] = {"namespaceAnnotation": value.parameters_annotation}
    return {"worker": found}


@_plain.register
def _(value: HttpsClient) -> Json:
    if value.image_review is not None:
        return {"imageReview": _plain(value.image_review)}
    found = _members(value, "ca_from", "is_custom", "backend")
    return found if value.ca_from is None else {**found, "caBundleFrom": _plain(value.ca_from)}


@_plain.register
def _(value: CaBundleSource) -> Json:
    if value.namespace:
        way = "secret" if value.kind == "Secret" else "configMap"
        return {way: {"namespace": value.namespace, "name": value.name, "key": value.key}}
    return {"webhookConfiguration": {"kind": value.kind, "name": value.name, "webhook": value.key}}


@_plain.register
def _(value: ImageReviewSettings) -> Json:
    found = {
        "kubeConfigFile": value.kubeconfig,
        "allowTTL": round(value.allow_ttl_s) or DISABLED,
        "denyTTL": round(value.deny_ttl_s) or DISABLED,
        "retryBackoff": round(value.retry_backoff_s * 1000) or DISABLED,
    }
    return found if value.default_allow is None else {**found, "defaultAllow": value.default_allow}


@_plain.register
def _(value: Rollout) -> Json:
    return _members(value, "is_mode_given", *(() if value.is_mode_given else ("mode",)))


@_plain.register
def _(value: Enforcement) -> Json:
    found = _members(value, "after_s")
    return {**found, "after": rfc3339(value.after_s)} if value.after_s else found


@_plain.register
def _(value: Plan) -> Json:
    found = _members(value, "is_critical", "max_wait_s")
    return {**found, "critical": value.is_critical, "maxWait": format_duration(value.max_wait_s)}


@_plain.register
def _(value: Stage) -> Json:
    found = _members(value, "for_s", "included", "excluded", "salt", "needs_approval")
    approval = {"approval": "Required"} if value.needs_approval else {}
    return {**found, "for": format_duration(value.for_s), **approval}


@_plain.register
def _(value: Gates) -> Json:
    found = _members(value, "max_p99_ms")
    return found if value.max_p99_ms is None else {**found, "maxP99Milliseconds": value.max_p99_ms}


@_plain.register
def _(value: Group) -> Json:
    return {"name": value.name, "namespaceSelector": _plain(value.selector)}


@_plain.register
def _(value: Cache) -> Json:
    ((_, expression),) = value.key.expressions
    return {**_members(value, "key"), "key": expression}


# -- exceptions and namespaces ----------------------------------------------------------------------


@_plain.register
def _(value: PolicyException) -> Json:
    end = {} if value.expires else {"permanent": True}
    return {**_members(value, "expires_at"), **end}


@_plain.register
def _(value: Patterns) -> list[str]:
    return [*sorted(value.exact), *(f"{prefix}*" for prefix in value.prefixes)]


@_plain.register
def _(value: Namespace) -> Json:
    return {"name": value.name, "labels": dict(value.labels)}
