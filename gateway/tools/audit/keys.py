"""What a verdict on a stored object depends on. While it is the same, the object is not evaluated again.

A verdict depends on

1. the object as it is evaluated: without ``status`` and what else only the API server writes;
2. the webhooks and policies with a rule for its kind that its namespace does not exclude: their settings, the
   pools that they name, and the versions that the workers tell of their policies;
3. the exceptions for one of these that may cover it and have not expired;
4. its namespace, with labels and annotations;
5. for the next Pod of a workload, what plug-ins of the API server read for Pods of its namespace;
6. settings of the whole configuration, and the versions of this program and of the API server.

The first is the *hash* of the object, the others are the *context* of a kind in a namespace. A worker, an
HTTPS webhook, or a policy that reads other objects or asks the authorizer can depend on more. Verdicts with
such a part hold for a limited time.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from gateway import __version__
from gateway.config.merge.digest import digest_of
from gateway.pure.core.webhook import PolicyRef, WorkerRef
from gateway.tools.replay.cluster import has_creation_rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.config.merge.model import Config
    from gateway.pure.core.exemptions import PolicyException
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.webhook import Webhook
    from gateway.tools.audit.plug_ins import PlugInObjects
    from gateway.tools.offline.gateway import OfflineGateway

SIZE: Final = 16
"""Bytes of a digest."""
_SELF_CONTAINED: Final = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")
"""Kinds whose expressions read nothing but the request, their parameters and the authorizer."""


def short_digest(value: object) -> bytes:
    """Return a digest of the JSON *value*, whatever the order of its keys.

    Raises:
        TypeError: it nests too deep.
    """
    return hashlib.blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=SIZE).digest()


@dataclass(frozen=True, slots=True)
class Context:
    """What verdicts on objects of one kind in one namespace depend on besides the object."""

    digest: bytes
    is_timed: bool
    """Whether they may depend on more, so that they hold for a limited time."""


class Keys:
    """The contexts of one configuration at one time."""

    def __init__(
        self, gateway: OfflineGateway, now: float, server_version: str, plug_ins: PlugInObjects
    ) -> None:
        """*now* is in seconds since 1970. *plug_ins* are the objects that concern next Pods."""
        config = gateway.config
        self.plug_ins = plug_ins
        self.minor = config.gateway.kubernetes_minor
        """The minor version of Kubernetes by which next Pods are made."""
        self._config = config
        self._now = now
        self._exceptions = [one for one in config.exceptions if not one.has_expired(now)]
        self._webhooks = [
            (one, _webhook_digest(one, config, gateway.policy_versions, now)) for one in config.webhooks
        ]
        whole = digest_of(config.gateway, config.named_files)
        self._whole = b"\0".join((whole, __version__.encode(), server_version.encode()))
        self._of_kind: dict[tuple[str, str], list[tuple[Webhook, bytes]]] = {}
        self._contexts: dict[tuple[str, str, str], Context] = {}
        self._of_restarts: dict[str, Context] = {}

    def context(self, group: str, resource: str, namespace: Namespace | None) -> Context:
        """Return the context of objects of *resource* of *group* in *namespace*. None: they are in none."""
        name = "" if namespace is None else namespace.name
        found = self._contexts.get((group, resource, name))
        if found is None:
            found = self._contexts[group, resource, name] = self._make(group, resource, namespace)
        return found

    def restart_context(self, namespace: Namespace | None) -> Context:
        """Return the context of the next Pods of workloads in *namespace*."""
        name = "" if namespace is None else namespace.name
        found = self._of_restarts.get(name)
        if found is None:
            pods = self.context("", "pods", namespace)
            digest = hashlib.blake2b(pods.digest + self.plug_ins.digest(name), digest_size=SIZE).digest()
            found = self._of_restarts[name] = Context(digest, pods.is_timed)
        return found

    def _make(self, group: str, resource: str, namespace: Namespace | None) -> Context:
        of_kind = self._of_kind.get((group, resource))
        if of_kind is None:
            of_kind = self._of_kind[group, resource] = [
                one for one in self._webhooks if has_creation_rule([one[0]], group, resource)
            ]
        # The selectors of a webhook match a Namespace by its own labels, which are those of the object.
        excludes = namespace is not None and resource != "namespaces"
        webhooks = [
            (webhook, digest)
            for webhook, digest in of_kind
            if not (excludes and namespace is not None and _excludes(webhook, namespace))
        ]
        names = {webhook.name for webhook, _ in webhooks}
        found = hashlib.blake2b(self._whole, digest_size=SIZE)
        for _, digest in webhooks:
            found.update(digest)
        for exception in self._exceptions:
            if not names.isdisjoint(exception.webhooks) and _may_cover(exception, namespace):
                found.update(b"exception" + digest_of(exception, self._config.named_files))
        if namespace is not None:
            found.update(b"namespace" + _namespace_digest(namespace))
        return Context(found.digest(), any(_depends_on_more(webhook) for webhook, _ in webhooks))


def _excludes(webhook: Webhook, namespace: Namespace) -> bool:
    is_elsewhere = webhook.namespace not in ("", namespace.name)
    return is_elsewhere or not webhook.may_match_namespace(namespace.labels)


def _may_cover(exception: PolicyException, namespace: Namespace | None) -> bool:
    name = "" if namespace is None else namespace.name
    patterns = exception.match.namespaces
    return exception.namespace in ("", name) and (patterns is None or patterns.matches(name))


def _webhook_digest(
    webhook: Webhook, config: Config, versions: Mapping[tuple[str, str], tuple[str, ...]], now: float
) -> bytes:
    files = config.named_files
    parts = [webhook.phase.encode(), webhook.namespace.encode(), digest_of(webhook, files)]
    rollout = webhook.rollout
    if rollout is not None and rollout.enforce is not None:
        parts.append(b"in force" if rollout.enforce.after_s <= now else b"later")
    client = webhook.client
    if isinstance(client, WorkerRef):
        pool = config.pools.get(client.pool)
        parts.append(digest_of(pool, files))
        parts += [one.encode() for one in versions.get((client.pool, client.policy), ())]
    return hashlib.blake2b(b"\0".join(parts), digest_size=SIZE).digest()


def _depends_on_more(webhook: Webhook) -> bool:
    """Whether a verdict of *webhook* may depend on more than its key."""
    client = webhook.client
    conditions = () if webhook.match_conditions is None else webhook.match_conditions.expressions
    if not isinstance(client, PolicyRef):
        return True
    expressions = [text for _, text in (*client.policy.expressions, *conditions)]
    return (
        client.kind not in _SELF_CONTAINED
        or bool(client.reads or client.unlisted_reads)
        or any("authorizer" in text for text in expressions)
    )


def _namespace_digest(namespace: Namespace) -> bytes:
    """Return the digest of *namespace* as policies see it, without its version."""
    document = orjson.loads(namespace.json)
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if isinstance(metadata, dict):
        left_out = ("resourceVersion", "managedFields")
        kept = {name: value for name, value in metadata.items() if name not in left_out}
        document = {**document, "metadata": kept}
    return short_digest([document, dict(namespace.labels)])
